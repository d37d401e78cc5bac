# SPDX-License-Identifier: Apache-2.0
"""Benchmarks tokenizers, masking and the search for answers in this process."""

import pytest

pytest.importorskip("tensorflow")
pytest.importorskip("tokenizers")

import tensorflow as tf

from training.benchmarks import answers, benchmark, masking, tokenizer
from training.benchmarks.subject import Load

pytestmark = [pytest.mark.needs_tensorflow, pytest.mark.backend_independent]


def make_config(**fields):
    return benchmark.BenchmarkConfig(**{"rounds": 2, "steps": 3, **fields})


@pytest.mark.release
def test_all_tokenizers_yield_equal_token_counts(tmp_path):
    path = tmp_path / "texts.txt"
    # The third text does not fill a batch of two, so it is omitted.
    path.write_text("A sentence of seven tokens, then.\n\nAnd another one\nIt\n", encoding="utf-8")
    config = make_config(what="tokenize", texts=str(path), batch_size=2)
    subjects = tokenizer.tokenizer_subjects(config.workload(Load()))
    assert [subject.run().tokens for subject in subjects] == [3 * 12] * 5
    rows = benchmark.run(config)
    assert [row.unavailable for row in rows] == [""] * 5
    for row in rows:
        assert 0 < row.fastest <= row.milliseconds <= row.slowest
        assert row.tokens_per_second == pytest.approx(12_000 / row.milliseconds)
        assert row.ratio == row.milliseconds / rows[0].milliseconds


@pytest.mark.release
def test_all_maskers_mask_the_same_fraction():
    config = make_config(what="mask", batch_size=256, sequence_length=20)
    masked = masking.masked_batches(config.workload(Load()))
    names = ["keras_bert, token", "keras_bert, word", "keras_bert, ngram", "keras_hub"]
    assert list(masked) == names
    for name, batches in masked.items():
        fraction = sum(float(tf.reduce_sum(batch["mask_weights"])) for batch in batches) / (
            3 * 256 * 20
        )
        # Three of twenty tokens are masked, or fewer if a whole word does not fit.
        masks_words = name in names[1:3]
        assert fraction == pytest.approx(0.15, rel=0.02 if masks_words else 1e-6)
    rows = benchmark.run(config)
    assert [row.subject for row in rows] == names
    assert all(row.tokens_per_second > 0 for row in rows)


def test_answer_search_step_is_one_question():
    rows = answers.random_rows(50)
    assert 50 <= len(rows) < 60
    (subject,) = answers.answer_subjects(make_config(what="answers", steps=50).workload(Load()))
    assert subject.run().steps == 50
