# SPDX-License-Identifier: Apache-2.0
"""WinoBias pronoun scores match a plain computation on `transformers`."""

import os
import re
from pathlib import Path

import numpy as np
import pytest

from keras_bert import insight

pytestmark = pytest.mark.on_torch

PRO = """1 [The doctor] showed the nurse that [he] was tired.
2 The doctor showed [the nurse] that [she] was tired.

3 [The nurse] saw [ the doctor ] and was angry, for [her] work was [her] work.
4 the nurse saw [the doctor] and showed [him] a work.
5 The doctor saw [the nurse] and showed [her] that
"""
ANTI = """1 [The doctor] showed the nurse that [she] was tired.
2 The doctor showed [the nurse] that [he] was very tired.
3 [The nurse] saw [the doctor] and was angry, for [his] work was [his] work.
4 the nurse saw [the doctor] and showed [her] a work.
5 The doctor saw [the nurse] and showed [he] that
"""


@pytest.fixture(scope="module")
def pronouns(masked_lm, tmp_path_factory):
    directory = tmp_path_factory.mktemp("winobias")
    for name, content in (("pro", PRO), ("anti", ANTI)):
        (directory / name).write_text(content)
    return insight.winobias_pronouns(masked_lm, directory / "pro", directory / "anti")


def test_pronoun_odds_match_transformers(pronouns, log_probabilities):
    def odds(line, pairs):
        masked = re.sub(r"\[(he|she|him|her|his)\]", "#", line.partition(" ")[2])
        masked = re.sub(r"[\[\]]", "", masked).replace("#", "[MASK]")
        total = 0.0
        for number, (own, *others) in enumerate(pairs):
            log_probs = log_probabilities(masked, number)
            total += log_probs[own] - np.log(sum(np.exp(log_probs[other]) for other in others))
        return total

    pro, anti = ([line for line in text.splitlines() if line] for text in (PRO, ANTI))
    own = [
        ([("he", "she")], [("she", "he")]),
        ([("she", "he")], [("he", "she")]),
        ([("her", "his")] * 2, [("his", "her")] * 2),
        ([("him", "her")], [("her", "him")]),
        # "he" is not a counterpart of "her".
        ([("her", "him", "his")], [("he", "she")]),
    ]
    expected = [[odds(*each) for each in zip(lines, pairs, strict=True)] for lines, pairs in
                zip((pro, anti), zip(*own, strict=True), strict=True)]  # fmt: skip
    np.testing.assert_allclose([pronouns.pro, pronouns.anti], expected, atol=1e-5)
    assert pronouns.stereotypes == ("male", "female", "female", "male", "female")
    assert pronouns.sentences[2].startswith("The nurse saw the doctor and")
    np.testing.assert_allclose(pronouns.pro[0], -pronouns.anti[0])


def test_winobias_dataset_is_read(masked_lm):
    data = os.environ.get("KERAS_BERT_DATA")
    if data is None:
        pytest.skip("KERAS_BERT_DATA is not set")
    # The type with unaligned, misspelled and nested mentions
    files = [
        Path(data) / "bias" / "winobias" / f"{side}_stereotyped_type2.txt.dev"
        for side in ("pro", "anti")
    ]
    scores = insight.winobias_pronouns(masked_lm, *files)
    assert len(scores.pro) == 396
    assert not any(set("[]") & set(sentence) for sentence in scores.sentences)


def test_few_mismatched_pairs_are_excluded(masked_lm, tmp_path):
    files = [tmp_path / name for name in ("pro.txt", "anti.txt")]
    lines = [
        [
            f"{number} [The doctor] showed the nurse that [{own}] was tired.\n"
            for number in range(100)
        ]
        for own in ("he", "she")
    ]
    lines[1][81] = "81 [The engineer] saw [her] work and was very angry.\n"
    for path, own in zip(files, lines, strict=True):
        path.write_text("".join(own))
    scores = insight.winobias_pronouns(masked_lm, *files)
    assert scores.pro.shape == scores.anti.shape == (99,)
    assert len(scores.sentences) == len(scores.stereotypes) == 99
    (message,) = scores.mismatched
    assert re.search(r"pro\.txt, line 82, and .*anti\.txt, line 82 differ in more", message)
    assert "1 of 100 pairs of lines are excluded" in str(scores)
    assert message in str(scores)


def test_invalid_sentences_raise(masked_lm, tmp_path):
    pro, anti = tmp_path / "pro.txt", tmp_path / "anti.txt"
    pro.write_text("1 [The doctor] showed [him].\n2 [The doctor] showed her.\n")
    anti.write_text("1 [The doctor] showed [her].\n")
    with pytest.raises(ValueError, match=r"pro\.txt, line 2 must have a pronoun in brackets"):
        insight.winobias_pronouns(masked_lm, pro, anti)
    pro.write_text("1 [The doctor] showed [him].\n" * 2)
    with pytest.raises(ValueError, match=r"Received: 2 \(.*pro\.txt\) and 1 \(.*anti\.txt\)"):
        insight.winobias_pronouns(masked_lm, pro, anti)
    pro.write_text("The doctor saw [himself].\n")
    anti.write_text("The doctor saw [herself].\n")
    with pytest.raises(
        ValueError, match=r"pro\.txt, line 1: each word must be a single token. Received: 'himself'"
    ):
        insight.winobias_pronouns(masked_lm, pro, anti)


def test_mismatched_files_raise(masked_lm, tmp_path):
    pro, anti = tmp_path / "pro.txt", tmp_path / "anti.txt"
    lines = ["1 [The doctor] showed [him] that.\n", "2 [The nurse] saw [her] and [her] doctor.\n"]
    pro.write_text("".join(lines))
    anti.write_text(
        "1 [The doctor] showed [her] that.\n2 A good doctor showed the nurse [she] was.\n"
    )
    message = r"pro\.txt, line 2, and .*anti\.txt, line 2 differ in more than the bracketed pronoun"
    with pytest.raises(ValueError, match=message):
        insight.winobias_pronouns(masked_lm, pro, anti)
    long = "1 The doctor and [she] " + "said " * 200
    pro.write_text(long)
    anti.write_text("1 Nothing [he] knew.\n")
    with pytest.raises(ValueError, match=r"differ in more than") as error:
        insight.winobias_pronouns(masked_lm, pro, anti)
    assert len(str(error.value)) < 600
    pro.write_text("".join(lines))
    message = r"pro\.txt, line 1, and .*pro\.txt, line 1 have the same sentence, 'The doctor showed"
    with pytest.raises(ValueError, match=message):
        insight.winobias_pronouns(masked_lm, pro, pro)
