# SPDX-License-Identifier: Apache-2.0
"""CrowS-Pairs scores match the original code's computation on `transformers`."""

import csv
import difflib
import os
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from keras_bert import insight  # noqa: E402

pytestmark = pytest.mark.on_torch

PAIRS = [
    ("He is a rich doctor.", "She is a rich doctor."),
    ("The poor man had to go.", "The rich man had to go."),
    ("The nurse was angry, he had to go.", "The doctors was kind, she had to go."),
    ("They is kind.", "They is kind."),
]


def original_scores(reference, tokenizer, pair):
    """Computes scores like `metric.py` of CrowS-Pairs: one masked token at a time, no batches."""
    rows = [tokenizer.encode(text) for text in pair]
    names = [[str(token) for token in row] for row in rows]
    shared = ([], [])
    for kind, *bounds in difflib.SequenceMatcher(None, *names).get_opcodes():
        if kind == "equal":
            shared[0].extend(range(*bounds[:2]))
            shared[1].extend(range(*bounds[2:]))
    scores = []
    for row, positions in zip(rows, shared, strict=True):
        total = 0.0
        for position in positions[1:-1]:
            ids = [*row[:position], tokenizer.mask_token_id, *row[position + 1 :]]
            logits = reference([ids])[0, position]
            total += torch.log_softmax(logits, dim=0)[row[position]].item()
        scores.append(round(total, 3))
    return scores


def real_pairs():
    data = os.environ.get("KERAS_BERT_DATA")
    if data is None:
        pytest.skip("KERAS_BERT_DATA is not set")
    path = Path(data) / "bias" / "crows_pairs_anonymized.csv"
    with open(path, encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))[:60]
    return [(row["sent_more"], row["sent_less"]) for row in rows]


@pytest.mark.parametrize("make_pairs", [lambda: PAIRS, real_pairs], ids=["small", "real"])
def test_pair_scores_match_original(make_pairs, masked_lm, reference, tokenizer):
    pairs = make_pairs()
    expected = [original_scores(reference, tokenizer, pair) for pair in pairs]
    scores = np.stack(insight.compare_pairs(masked_lm, pairs), axis=1)
    np.testing.assert_allclose(
        scores, expected, atol=1.1e-3
    )  # The original code rounds to three decimals.


def test_crows_pairs_measures_and_errors(masked_lm, tmp_path):
    path = tmp_path / "pairs.csv"
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["", "sent_more", "sent_less", "stereo_antistereo", "bias_type"])
        for number, pair in enumerate(PAIRS):
            writer.writerow([number, *pair, "stereo", "gender" if number % 2 else "age"])
    scores = insight.crows_pairs(masked_lm, path)
    measures = scores.measures()[:3]
    assert [(measure.group, measure.count) for measure in measures] == [
        ("all", 4),
        ("age", 2),
        ("gender", 2),
    ]
    assert measures[0].value == 100 * np.mean(scores.first > scores.second)
    assert all(measure.low <= measure.value <= measure.high for measure in measures)
    assert not scores.prefers_first[3]  # Its sentences are equal.
    assert "Blodgett" in str(scores)
    path.write_text("a,b\n1,2\n", encoding="utf-16")
    with pytest.raises(ValueError, match=r"pairs\.csv has no column bias_type, sent_less"):
        insight.crows_pairs(masked_lm, path)
    path.write_text("sent_more,sent_less,bias_type\nhe is,she is,gender\nhe is,,gender\n")
    with pytest.raises(ValueError, match=r"pairs\.csv, line 3: sent_less is empty"):
        insight.crows_pairs(masked_lm, path)
