# SPDX-License-Identifier: Apache-2.0
"""Confidence intervals, and tables that compare results."""

import json

import numpy as np
import pytest

from keras_bert import insight
from keras_bert.intervals import proportion_interval

pytestmark = pytest.mark.backend_independent


def test_interval_of_unanimous_units():
    agreed = insight.PairScores(np.ones(20), np.zeros(20), ("age",) * 20)
    overall = agreed.measures()[0]
    assert (overall.value, overall.high) == (100, 100)
    np.testing.assert_allclose(overall.low, 100 * proportion_interval(20, 20)[0])


def test_compare_resamples_the_same_units():
    """If a model is better by the same amount on every pair, the interval has no width."""
    noise = np.random.default_rng(0).normal(size=40)
    kinds = ("age",) * 20 + ("race",) * 20
    before = insight.PairScores(noise, np.zeros(40), kinds)
    after = insight.PairScores(noise - 10, np.zeros(40), kinds)
    compared = insight.compare({"before": before, "after": after})
    row = compared.rows()[0]
    percentage = 100 * np.mean(noise > 0)
    assert (row["group"], row["count"]) == ("all", 40)
    np.testing.assert_allclose(row["measures"]["before"]["value"], percentage)
    np.testing.assert_allclose(row["differences"]["after"]["value"], -percentage)
    self_difference = insight.compare({"one": before, "other": before}).rows()[0]["differences"][
        "other"
    ]
    assert self_difference == {"value": 0.0, "low": 0.0, "high": 0.0}
    lines = str(compared).splitlines()
    assert lines[2].split()[-6:] == ["pairs", "before", "after", "after", "-", "before"]
    assert "Blodgett" in lines[-1]
    assert "<table>" in compared._repr_html_()
    assert json.loads(json.dumps(compared.to_dict()))["rows"][0] == row


def test_results_export_to_html_and_json():
    result = insight.PairScores(np.arange(3.0), np.array([1.0, 0, 0]), ("<b>", "<b>", "c"))
    assert "&lt;b&gt;" in result._repr_html_()
    content = json.loads(json.dumps(result.to_dict()))
    assert content["result"] == "PairScores"
    assert content["observed"]["first"] == [0.0, 1.0, 2.0]
    assert [measure["group"] for measure in content["measures"]] == ["all", "<b>", "c"] * 2


def test_comparisons_are_plotted_and_validated():
    pytest.importorskip("matplotlib").use("agg")
    one = insight.PairScores(np.arange(4.0), np.ones(4), ("age", "age", "b", "b"))
    axes = insight.compare({"one": one, "other": one}).plot()
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["one", "other"]
    with pytest.raises(ValueError, match="metric must be one of prefers"):
        one.plot(metric="x")
    fewer = insight.PairScores(np.arange(3.0), np.ones(3), ("age", "age", "b"))
    icat = insight.StereoSetScores(np.ones((4, 3)), ("age",) * 4, ("a",) * 4, 0)
    for results, message in (
        ({"one": one}, "at least two results. Received: 1"),
        ({"one": one, "other": fewer}, "must have the same pairs"),
        ({"one": one, "other": icat}, r"a StereoSetScores \(other\) and a PairScores \(one\)"),
    ):
        with pytest.raises(ValueError, match=message):
            insight.compare(results)
