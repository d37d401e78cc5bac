# SPDX-License-Identifier: Apache-2.0
import dataclasses
import json
import os

import numpy as np
import pytest

from training.benchmarks import benchmark
from training.benchmarks.library import Library
from training.benchmarks.report import format_table
from training.benchmarks.subject import Load
from training.benchmarks.workload import Workload, batching_options

pytestmark = pytest.mark.slow

TINY = benchmark.BenchmarkConfig(
    # Each subject runs in its own process, whatever this process's backend. The last subject fails.
    subjects=("keras_bert:torch", "matmuls:torch", "matmuls:torch@bert_none"),
    model="bert_tiny_uncased",
    batch_size=2,
    sequence_length=8,
    steps=1,
    rounds=2,
    device="cpu",
)


@pytest.mark.backend_independent
@pytest.mark.needs_tensorflow
def test_failed_subject_keeps_other_results(tmp_path):
    config = dataclasses.replace(TINY, what="pretrain", padding=0.5, precision="mixed_bfloat16")
    rows = benchmark.run(config)
    assert [row.subject for row in rows] == list(config.subjects)
    assert all(row.tokens_per_second > 0 and row.peak_mib > 100 for row in rows[:2]), rows
    assert rows[0].ratio == 1
    assert str(round(rows[1].tokens_per_second)) in format_table(rows)
    assert "bert_none" in rows[2].unavailable
    assert "unavailable: " in format_table(rows).splitlines()[-1]

    path = tmp_path / "results.json"
    benchmark.write_json(str(path), config, rows)
    written = json.loads(path.read_text())
    assert written["config"]["what"] == "pretrain"
    assert [row["milliseconds"] for row in written["rows"]] == [row.milliseconds for row in rows]


def measure_here(work, workload, **changes):
    """Runs a library's round in this process, instead of in a separate process."""
    run = work(dataclasses.replace(workload, **changes))
    run(workload.warm_up_steps)
    return run(workload.steps)


@pytest.mark.release
@pytest.mark.backend_independent
@pytest.mark.needs_tensorflow
@pytest.mark.filterwarnings(r"ignore:Gradients do not exist for variables \['pooled_dense/kernel'")
def test_keras_hub_work_trains():
    from training.benchmarks import keras_subjects

    config = dataclasses.replace(TINY, what="pretrain", padding=0.5, precision="mixed_bfloat16")
    result = measure_here(keras_subjects.keras_hub_work, config.workload(Load()))
    assert result.steps == 1
    assert result.seconds > 0


@pytest.mark.backend_independent
@pytest.mark.needs_tensorflow
@pytest.mark.parametrize("name", ["keras_bert_work", "serve_work"])
def test_text_requests_are_measured(tmp_path, name):
    from keras_bert.export.server_files import write_batching_parameters
    from training.benchmarks import keras_subjects

    texts, vocabulary = tmp_path / "texts.txt", tmp_path / "vocab.txt"
    texts.write_text("a cat\n\na mat is not a cat\nmat\n")
    vocabulary.write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\ncat\nmat\n")
    config = dataclasses.replace(
        TINY,
        what="serve",
        steps=2,
        texts=str(texts),
        vocabulary=str(vocabulary),
        batching=str(tmp_path / "batching_params.pbtxt"),
    )
    write_batching_parameters(tmp_path, 4, splits=False)
    workload = config.workload(Load(clients=2))
    # The third text does not fill a request of two texts, so it is omitted.
    assert workload.requests() == [["a cat", "a mat is not a cat"]]
    assert workload.tokens_per_round == 0
    result = measure_here(getattr(keras_subjects, name), workload)
    assert result.requests == result.steps == len(result.milliseconds) == 2
    assert min(result.milliseconds) > 0


def write_texts(directory):
    """Writes texts of 3, 8, 3 and 5 tokens, and returns the options to benchmark them."""
    texts, vocabulary = directory / "texts.txt", directory / "vocab.txt"
    texts.write_text("cat\na mat is not a cat\nmat\na cat .\n")
    vocabulary.write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\ncat\nmat\n")
    return {"texts": str(texts), "vocabulary": str(vocabulary), "steps": 2}


@pytest.mark.backend_independent
def test_text_batches_have_ids_and_lengths(tmp_path):
    workload = dataclasses.replace(TINY, **write_texts(tmp_path)).workload(Load())
    first, second = workload.text_batches()
    np.testing.assert_array_equal(
        first["token_ids"], [[2, 6, 3, 0, 0, 0, 0, 0], [2, 5, 7, 1, 1, 5, 6, 3]]
    )
    np.testing.assert_array_equal(first["padding_mask"], first["token_ids"] != 0)
    assert second["token_ids"].shape == (2, 5)
    assert workload.tokens_per_round == 3 + 8 + 3 + 5
    assert workload.padding_of_texts() == 1 - 19 / 26
    length_sorted = dataclasses.replace(workload, options=("sorted",))
    assert [batch["token_ids"].shape for batch in length_sorted.text_batches()] == [(2, 3), (2, 8)]
    assert length_sorted.tokens_per_round == 19
    (longest, _) = length_sorted.text_batches(padded_length=9)
    assert longest["token_ids"].shape == (2, 9)
    # With fewer steps, the texts are evenly spaced in the file. Here they are the first and the
    # third.
    single_step = dataclasses.replace(workload, steps=1)
    assert [batch["token_ids"].shape for batch in single_step.text_batches()] == [(2, 3)]


@pytest.mark.backend_independent
@pytest.mark.needs_tensorflow
@pytest.mark.release
@pytest.mark.parametrize("what", ["forward", "classify"])
def test_all_libraries_compute_texts(tmp_path, what):
    from training.benchmarks import keras_subjects, matmuls, torch_subject

    config = dataclasses.replace(TINY, what=what, clock="cpu", **write_texts(tmp_path))
    if what == "classify":
        config = dataclasses.replace(config, steps=1)  # Tracing takes most of the time.
    workload = config.workload(Load())
    libraries = [
        measure_here(keras_subjects.keras_bert_work, workload, options=("unpadded",)),
        measure_here(keras_subjects.keras_hub_work, workload, options=("sorted",)),
        measure_here(torch_subject.transformers_work, workload, options=("sorted",)),
    ]
    # The matmuls are only a part of each library's work.
    matmul_seconds = measure_here(matmuls.matmuls_work, workload).seconds
    assert 0 < matmul_seconds < min(result.seconds for result in libraries)


@pytest.mark.backend_independent
@pytest.mark.needs_tensorflow
@pytest.mark.parametrize(("splits", "sizes"), [(True, None), (False, [1, 2, 4, 6])])
def test_batching_options_are_read_from_export(tmp_path, splits, sizes):
    from keras_bert.export.server_files import write_batching_parameters

    write_batching_parameters(tmp_path, 6, splits=splits)
    path = tmp_path / "batching_params.pbtxt"
    assert batching_options(path) == {
        "max_batch_size": 6,
        "batch_timeout_micros": 0,
        "num_batch_threads": os.cpu_count(),
        "max_enqueued_batches": 1000,
        "allowed_batch_sizes": sizes,
    }
    path.write_text("max_batch_size { value: 6 }\n")
    with pytest.raises(
        ValueError, match=r"must set batch_timeout_micros\. Received: .*batching_params\.pbtxt"
    ):
        batching_options(path)


@pytest.mark.backend_independent
@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"what": "serve", "subjects": ("keras_bert:jax",)},
            "with --what=serve. Received: 'keras_bert:jax'",
        ),
        ({"texts": "texts.txt", "padding": 0.5}, "--padding=0.5 .* only applies to random ids"),
        ({"clip_norm": 0.5}, "--clip_norm=0.5 .* to --what=classify or pretrain, not forward"),
        ({"vocabulary": "vocab.txt"}, "--vocabulary=vocab.txt is given, but --texts is not given"),
        (
            {"what": "serve", "subjects": ("http://localhost:1/v1/models/m",)},
            "--model=bert_tiny_uncased is given, but all --subjects are models on servers",
        ),
    ],
)
def test_invalid_workload_raises(fields, message):
    with pytest.raises(ValueError, match=message):
        benchmark.run(dataclasses.replace(TINY, **fields))


@pytest.mark.backend_independent
@pytest.mark.parametrize(
    ("name", "precision", "model", "options"),
    [
        ("keras_bert:jax", "float32", "bert_tiny_uncased", ()),
        (
            "keras_bert+sorted+unpadded:jax:bfloat16@roberta_base",
            *("bfloat16", "roberta_base", ("sorted", "unpadded")),
        ),
    ],
)
def test_subject_options_override_the_workload(name, precision, model, options):
    with Library(name, TINY.workload(Load())) as subject:
        workload = subject.workload
        assert (workload.precision, workload.model, workload.options) == (precision, model, options)
        assert subject.load is None


@pytest.mark.backend_independent
def test_library_requests_have_a_closed_load():
    serving = dataclasses.replace(TINY, what="serve").workload(Load(clients=2))
    with Library("serve:tensorflow", serving) as subject:
        assert str(subject.load) == "2 at a time"


@pytest.mark.backend_independent
def test_unknown_subject_raises():
    with pytest.raises(ValueError, match="a library of keras_bert, keras_hub, transformers"):
        benchmark.run(dataclasses.replace(TINY, subjects=("keras:jax",)))


@pytest.mark.backend_independent
@pytest.mark.parametrize("padding", [0.0, 0.25])
def test_padding_fraction_is_as_requested(padding):
    workload = Workload("forward", "bert_tiny_uncased", "float32", 16, 64, padding, 3, 1.0)
    mask = workload.padding_mask()
    np.testing.assert_allclose(mask.mean(), 1 - padding, atol=0.02)
    assert all(len(set(row)) == workload.num_predictions for row in workload.mask_positions())
    assert workload.tokens_per_round == 3 * mask.sum()
    assert np.array_equal(workload.token_ids() > 0, mask > 0)
