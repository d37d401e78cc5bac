# SPDX-License-Identifier: Apache-2.0
"""Associations in templates match a plain computation on `transformers`."""

import numpy as np
import pytest

from keras_bert import insight

pytestmark = pytest.mark.on_torch


def test_template_scores_match_transformers(masked_lm, log_probabilities):
    templates = ["{target} is {attribute}.", "The very {attribute} showed {target} that"]
    attributes = ["a nurse", "an engineer", "doctors"]
    scores = insight.template_log_odds(masked_lm, templates, attributes)
    assert scores.attributes == ("nurse", "engineer", "doctors")
    masked_attributes = [
        ["[MASK] is a nurse.", "[MASK] is an engineer.", "[MASK] is doctors."],
        [f"The very {attribute} showed [MASK] that" for attribute in attributes],
    ]
    prior = [
        ["[MASK] is a [MASK].", "[MASK] is an [MASK].", "[MASK] is [MASK][MASK]."],
        [
            f"The very {masks} showed [MASK] that"
            for masks in ("a [MASK]", "an [MASK]", "[MASK][MASK]")
        ],
    ]
    last = [[0, 0, 0], [1, 1, 2]]
    for row in range(2):
        for column in range(3):
            attribute_scores = log_probabilities(masked_attributes[row][column])
            prior_scores = log_probabilities(prior[row][column], last[row][column])
            for index, word in enumerate(("he", "she")):
                np.testing.assert_allclose(
                    scores.associations[row, column, index],
                    attribute_scores[word] - prior_scores[word],
                    atol=1e-5,
                )
    odds = scores.associations[..., 0] - scores.associations[..., 1]
    measures = {(each.metric, each.group): each for each in scores.measures()}
    metric = "log odds of 'he' over 'she'"
    np.testing.assert_allclose(measures[metric, "engineer"].value, odds[:, 1].mean())
    np.testing.assert_allclose(measures[metric, "all"].value, odds.mean())
    np.testing.assert_allclose(
        measures[f"size of the {metric}", "all"].value, np.abs(odds.mean(axis=0)).mean()
    )
    three = insight.template_log_odds(masked_lm, templates, attributes, ["he", "she", "women"])
    np.testing.assert_allclose(three.associations[..., :2], scores.associations, atol=1e-6)
    assert {each.metric for each in three.measures() if each.group == "nurse"} == {
        "association with 'he'",
        "association with 'she'",
        "association with 'women'",
    }


def test_error_with_default_lists_names_language(masked_lm):
    with pytest.raises(ValueError, match=r"The default lists are English\. .* pass templates"):
        insight.template_log_odds(masked_lm)
