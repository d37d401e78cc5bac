# SPDX-License-Identifier: Apache-2.0
"""StereoSet scores match the original code's computation on `transformers`."""

import json
import re

import numpy as np
import pytest

from keras_bert import insight

pytestmark = pytest.mark.on_torch

STEREOSET = {
    "version": "1.0",
    "data": {
        "intersentence": [{}, {}],
        "intrasentence": [
            ("1", "nurse", "gender", "The nurse is BLANK.", ("kind", "angry", "from")),
            ("2", "nurse", "gender", "A nurse's BLANK, was kindly", ("works", "'tired'", "to")),
            ("3", "doctor", "profession", "BLANK are doctors", ("Women", "Men", "Thely")),
            ("4", "doctor", "gender", "The doctors are BLANK women.", ("richers", "kind", "he")),
            ("5", "doctor", "gender", "The BLANK saw a BLANK", ("richers", "men", "works")),
        ],
    },
}


def write_stereoset(path, entries=None):
    """Writes `STEREOSET` in the original format, and returns the entries."""
    labels = ("stereotype", "anti-stereotype", "unrelated")
    content = json.loads(json.dumps(STEREOSET))
    content["data"]["intrasentence"] = [
        {
            "id": number,
            "target": target,
            "bias_type": kind,
            "context": context,
            "sentences": [
                {
                    "id": f"{number}-{label}",
                    "sentence": context.replace("BLANK", word),
                    "gold_label": label,
                    "labels": [],
                }
                for label, word in zip(labels[::-1], words[::-1], strict=True)
            ],
        }
        for number, target, kind, context, words in (entries or STEREOSET["data"]["intrasentence"])
    ]
    path.write_text(json.dumps(content))
    return content["data"]["intrasentence"]


def original_word_scores(entry, log_probabilities, tokenizer):
    """Scores words like the original code: token by token, inserted into the context as text."""
    scores = {}
    for sentence in entry["sentences"]:
        *_, slot = [n for n, word in enumerate(entry["context"].split(" ")) if "BLANK" in word]
        word = re.sub(r"[^\w]", "", sentence["sentence"].split(" ")[slot])
        ids = tokenizer.encode(word, add_special_tokens=False)
        probabilities = []
        for number, token in enumerate(ids):
            before = tokenizer.decode(ids[:number])
            log_probs = log_probabilities(entry["context"].replace("BLANK", f"{before}[MASK]"))
            probabilities.append(np.exp(log_probs[tokenizer.convert_ids_to_tokens(token)]))
        scores[sentence["gold_label"]] = np.mean(probabilities)
    return [scores[label] for label in ("stereotype", "anti-stereotype", "unrelated")]


def test_stereoset_scores_match_original(masked_lm, log_probabilities, tokenizer, tmp_path):
    entries = write_stereoset(tmp_path / "dev.json")
    scores = insight.stereoset(masked_lm, tmp_path / "dev.json")
    expected = np.array(
        [original_word_scores(entry, log_probabilities, tokenizer) for entry in entries]
    )
    np.testing.assert_allclose(scores.scores, expected, atol=1e-5)
    # Means over targets, not over examples
    pro, anti, unrelated = expected.T
    related = (pro > unrelated).astype(float) + (anti > unrelated)
    doctor_rows, nurse_rows = [2, 3, 4], [0, 1]
    ss = 100 * np.mean([np.mean((pro > anti)[rows]) for rows in (doctor_rows, nurse_rows)])
    lms = 50 * np.mean([np.mean(related[rows]) for rows in (doctor_rows, nurse_rows)])
    measures = {(each.metric, each.group): each.value for each in scores.measures()}
    np.testing.assert_allclose(measures["SS, %", "all"], ss)
    np.testing.assert_allclose(measures["LMS, %", "all"], lms)
    np.testing.assert_allclose(measures["ICAT", "all"], lms * min(ss, 100 - ss) / 50)
    assert [row["target"] for row in scores.per_target("profession")] == ["doctor"]
    assert "2 intersentence examples are excluded" in str(scores)


def test_invalid_examples_raise(masked_lm, tmp_path):
    path = tmp_path / "dev.json"
    for text in ("{", '{"data": []}'):
        path.write_text(text)
        with pytest.raises(ValueError, match=r"dev\.json must contain a list data\.intrasentence"):
            insight.stereoset(masked_lm, path)
    good = STEREOSET["data"]["intrasentence"][0]
    bad = ("7", "nurse", "gender", "A BLANK", ("kind", "!", "to"))
    write_stereoset(path, [good, bad])
    with pytest.raises(
        ValueError, match=r"\[1\] must be a StereoSet example: .*'A !' has no word in the place"
    ):
        insight.stereoset(masked_lm, path)
