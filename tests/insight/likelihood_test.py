# SPDX-License-Identifier: Apache-2.0
"""Scores of sentences by a masked LM, held to the released algorithm on `transformers`."""

import csv
import difflib
import os
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from keras_bert import (  # noqa: E402
    Backbone,
    BertConfig,
    MaskedLM,
    Pretrainer,
    insight,
)
from keras_bert.checkpoints import CheckpointWarning  # noqa: E402
from tests.insight.hugging_face_models import save_masked_lm  # noqa: E402

pytestmark = pytest.mark.on_tensorflow

WORDS = "he she they is was a the doctor nurse kind angry poor rich man woman . , who had to go"
TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS.split(), "##s"]
PAIRS = [
    ("He is a rich doctor.", "She is a rich doctor."),
    ("The poor man had to go.", "The rich man had to go."),
    ("The nurse was angry, he had to go.", "The doctors was kind, she had to go."),
    ("They is kind.", "They is kind."),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A small random BERT as Hugging Face stores it."""
    return save_masked_lm(TOKENS, tmp_path_factory.mktemp("masked_lm"))


@pytest.fixture(scope="module")
def masked_lm(folder):
    return MaskedLM.from_preset(folder)


def released_scores(model, rows):
    """`metric.py` of CrowS-Pairs: one masked token at a time, and no batches."""
    mask = TOKENS.index("[MASK]")
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
            ids = torch.tensor([row])
            ids[0, position] = mask
            logits = model(ids).logits[0, position]
            total += torch.log_softmax(logits, dim=0)[row[position]].item()
        scores.append(round(total, 3))
    return scores


def test_pairs_score_as_by_the_released_program(folder, masked_lm):
    model = transformers.BertForMaskedLM.from_pretrained(folder).eval()
    encode = transformers.BertTokenizerFast(str(folder / "vocab.txt")).encode
    with torch.no_grad():
        expected = [released_scores(model, list(map(encode, pair))) for pair in PAIRS]
    scores = np.stack(insight.compare_pairs(masked_lm, PAIRS), axis=1)
    np.testing.assert_allclose(scores, expected, atol=1.1e-3)  # rounded to three decimals
    np.testing.assert_array_equal(
        np.sign(scores[:, 0] - scores[:, 1]),
        np.sign([first - second for first, second in expected]),
    )
    assert scores[3, 0] == scores[3, 1]


def test_real_pairs_score_as_by_the_released_program(folder, masked_lm):
    data = os.environ.get("KERAS_BERT_DATA")
    if data is None:
        pytest.skip("KERAS_BERT_DATA names no folder of data sets")
    path = Path(data) / "bias" / "crows_pairs_anonymized.csv"
    with open(path, encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))[:60]
    pairs = [(row["sent_more"], row["sent_less"]) for row in rows]
    model = transformers.BertForMaskedLM.from_pretrained(folder).eval()
    encode = transformers.BertTokenizerFast(str(folder / "vocab.txt")).encode
    with torch.no_grad():
        expected = [released_scores(model, list(map(encode, pair))) for pair in pairs]
    scores = np.stack(insight.compare_pairs(masked_lm, pairs), axis=1)
    np.testing.assert_allclose(scores, expected, atol=1.1e-3)


def test_a_token_is_scored_from_all_others(masked_lm):
    (scored,) = insight.pseudo_log_likelihood(masked_lm, ["He is kinds."])
    assert scored.tokens == ("he", "is", "kind", "##s", ".")
    assert [scored.text[slice(*span)] for span in scored.spans] == ["He", "is", "kind", "s", "."]
    of_mask = masked_lm.fill("[MASK] is kinds.", top_k=len(TOKENS))
    (he,) = [answer["score"] for answer in of_mask if answer["token"] == "he"]
    np.testing.assert_allclose(np.exp(scored.log_probabilities[0]), he, rtol=1e-4)
    np.testing.assert_allclose(scored.total, scored.log_probabilities.sum())
    np.testing.assert_allclose(scored.perplexity, np.exp(-scored.total / 5))


def test_batches_change_nothing(masked_lm):
    texts = [sentence for pair in PAIRS for sentence in pair]
    whole = insight.pseudo_log_likelihood(masked_lm, texts)
    for number, text in enumerate(texts):
        (alone,) = insight.pseudo_log_likelihood(masked_lm, [text], batch_size=2)
        np.testing.assert_allclose(
            alone.log_probabilities, whole[number].log_probabilities, atol=1e-5
        )


def test_shares_are_told_with_intervals_and_with_their_flaws(masked_lm, tmp_path):
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
    assert not scores.prefers_first[3]  # the two sentences are one
    assert "Blodgett" in str(scores)
    path.write_text("a,b\n1,2\n", encoding="utf-16")
    with pytest.raises(ValueError, match=r"pairs\.csv has no column bias_type, sent_less"):
        insight.crows_pairs(masked_lm, path)
    path.write_text("sent_more,sent_less,bias_type\nhe is,she is,gender\nhe is,,gender\n")
    with pytest.raises(ValueError, match=r"pairs\.csv, line 3: sent_less is empty"):
        insight.crows_pairs(masked_lm, path)


def test_texts_and_models_that_cannot_be_scored_are_refused(masked_lm):
    with pytest.raises(ValueError, match="Text 1 has 0 tokens"):
        insight.pseudo_log_likelihood(masked_lm, ["he", ""])
    with pytest.raises(ValueError, match="Text 0 has 100 tokens; expected 1 to 62"):
        insight.pseudo_log_likelihood(masked_lm, ["he " * 100])
    with pytest.raises(ValueError, match="expected a list"):
        insight.pseudo_log_likelihood(masked_lm, "he is")
    with pytest.raises(ValueError, match="Text 0 is None; expected a string"):
        insight.pseudo_log_likelihood(masked_lm, [None])
    sizes = {"num_layers": 1, "hidden_dim": 8, "num_heads": 2, "intermediate_dim": 8}
    causal = MaskedLM(
        Backbone(BertConfig(vocabulary_size=len(TOKENS), causal=True, **sizes)),
        masked_lm.preprocessor,
    )
    with pytest.raises(ValueError, match="causal"):
        insight.pseudo_log_likelihood(causal, ["he is"])


def test_a_pretrainer_scores_texts_too(masked_lm, tmp_path):
    pretrainer = Pretrainer(masked_lm.backbone, masked_lm.preprocessor)
    pretrainer.save_to_preset(tmp_path)
    with pytest.warns(CheckpointWarning, match=r"not used: heads\.next_sentence"):
        alone = MaskedLM.from_preset(tmp_path)
    scores = [
        insight.pseudo_log_likelihood(model, ["He is kinds."])[0].log_probabilities
        for model in (pretrainer, alone)
    ]
    np.testing.assert_allclose(*scores, atol=1e-5)
