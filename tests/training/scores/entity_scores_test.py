# SPDX-License-Identifier: Apache-2.0
"""Compares entity scores with their definition and with seqeval."""

import numpy as np
import pytest

pytestmark = [pytest.mark.needs_tensorflow, pytest.mark.backend_independent]

pytest.importorskip("tensorflow")

from training.scores.entity_scores import (  # noqa: E402
    entity_scores,
    selection_score,
    table,
    tagging_scores,
)

SCHEMES = {None: None, "IOB1": "IOB1", "IOB2": "IOB2", "BIOES": "IOBES"}


def random_labels(generator, prefixes, count=30):
    names = ["O", "O", *(f"{prefix}-{kind}" for prefix in prefixes for kind in ("A", "b-c", "D"))]
    lengths = generator.integers(1, 12, count)
    return [[str(x) for x in generator.choice(names, length)] for length in lengths]


@pytest.mark.filterwarnings("ignore::Warning")
@pytest.mark.parametrize("strict", SCHEMES)
def test_scores_match_seqeval(strict):
    seqeval = pytest.importorskip("seqeval.metrics")
    from seqeval import scheme

    generator = np.random.default_rng(0)
    prefixes = "BI" if strict in ("IOB1", "IOB2") else "BIES"
    options = {} if strict is None else {
        "mode": "strict", "scheme": getattr(scheme, SCHEMES[strict])
    }  # fmt: skip
    for _ in range(10):
        labels = random_labels(generator, prefixes)
        predictions = [
            [
                label if is_kept else other
                for label, other, is_kept in zip(
                    *rows, generator.random(len(rows[0])) < 0.7, strict=True
                )
            ]
            for rows in zip(labels, ([*s[1:], "O"] for s in labels), strict=True)
        ]
        scores = entity_scores(predictions, labels, strict)
        report = seqeval.classification_report(labels, predictions, output_dict=True, **options)
        means = {f"{name} avg": getattr(scores, name) for name in ("micro", "macro", "weighted")}
        actual = {**scores.by_type, **means}
        assert actual.keys() == report.keys()
        for name, expected_scores in report.items():
            expected = [100 * expected_scores[key] for key in ("precision", "recall", "f1-score")]
            np.testing.assert_allclose(actual[name][:3], expected, atol=1e-9)
            assert actual[name].support == expected_scores["support"]


def test_partial_entity_is_wrong():
    labels = [["B-PER", "I-PER", "O", "B-LOC"], ["O"]]
    predictions = [["B-PER", "O", "O", "B-LOC"], ["B-LOC"]]
    scores = entity_scores(predictions, labels)
    assert scores.micro == (pytest.approx(100 / 3), 50.0, pytest.approx(40.0), 2)
    assert scores.by_type["PER"].f1 == 0
    assert scores.macro.f1 == pytest.approx(100 / 3)


def test_strict_rejects_invalid_tag_sequences():
    labels, predictions = [["B-PER", "I-PER"]], [["I-PER", "I-PER"]]
    assert entity_scores(predictions, labels).micro.f1 == 100.0
    assert entity_scores(predictions, labels, strict="IOB2").micro.f1 == 0.0


def test_no_entities_score_zero():
    scores = entity_scores([["O"]], [["O"]])
    assert scores.micro == scores.macro == scores.weighted == (0.0, 0.0, 0.0, 0)
    assert "micro" in table(scores)


def test_tags_without_spans_have_only_accuracy():
    scores = tagging_scores([["NN", "VB"]], [["NN", "NN"]])
    assert scores == {"accuracy": 50.0}
    assert selection_score(scores) == 50.0
    spans = tagging_scores([["B-A", "O", "B-A"]], [["B-A", "O", "O"]])
    assert list(spans) == ["f1", "precision", "recall", "accuracy"]
    assert selection_score(spans) == spans["f1"] == pytest.approx(200 / 3)
