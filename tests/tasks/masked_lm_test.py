# SPDX-License-Identifier: Apache-2.0
"""`MaskedLM.fill` predicts masked tokens."""

import keras
import numpy as np
import pytest

pytestmark = pytest.mark.on_torch

from keras_bert import Backbone, MaskedLM  # noqa: E402
from keras_bert.data import TextClassifierPreprocessor  # noqa: E402
from tests.checkpoints.small_models import small_config  # noqa: E402
from tests.text.small_tokenizers import make_tokenizer  # noqa: E402

TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat", "sat", "on", "mat", ".", "é"]
# Some checkpoints pad the vocabulary to a round number.
SMALL = small_config(
    vocabulary_size=len(TOKENS) + 4, num_layers=1, max_sequence_length=16, initializer_range=0.5
)


@pytest.fixture(scope="module")
def masked_lm():
    keras.utils.set_random_seed(0)
    preprocessor = TextClassifierPreprocessor(make_tokenizer(*TOKENS), sequence_length=12)
    return MaskedLM(Backbone(SMALL), preprocessor)


def test_fill_single_mask_matches_logits(masked_lm):
    answers = masked_lm.fill("The [MASK] sat.", top_k=3)
    features = {
        "token_ids": np.array([[2, 5, 4, 7, 10, 3]], "int32"),
        "mask_positions": np.array([[2]], "int32"),
    }
    scores = np.exp(masked_lm.predict(features, verbose=0)[0, 0, : len(TOKENS)].astype("float64"))
    scores /= scores.sum()
    best = np.argsort(-scores)[:3]
    assert [answer["token"] for answer in answers] == [TOKENS[index] for index in best]
    np.testing.assert_allclose([a["score"] for a in answers], scores[best], rtol=1e-4)
    assert answers[0]["text"] == f"The {TOKENS[best[0]]} sat."


def test_fill_multiple_masks_and_texts(masked_lm):
    one, two = masked_lm.fill(["The [MASK].", "É [MASK] sat [MASK]."], top_k=2)
    assert [len(one), one[0]["text"]] == [2, f"The {one[0]['token']}."]
    first, second = two
    assert first[0]["text"] == f"É {first[0]['token']} sat [MASK]."
    assert second[1]["text"] == f"É [MASK] sat {second[1]['token']}."
    assert sum(answer["score"] for answer in masked_lm.fill("[MASK]", top_k=len(TOKENS))) == (
        pytest.approx(1, abs=1e-5)
    )


@pytest.mark.on_each_backend
def test_batched_fill_matches_single_texts(monkeypatch):
    keras.utils.set_random_seed(0)
    preprocessor = TextClassifierPreprocessor(make_tokenizer(*TOKENS), sequence_length=40)
    model = MaskedLM(Backbone(SMALL.replace(max_sequence_length=40)), preprocessor)
    texts = ["the " * length + "[MASK] " * (1 + length % 3) for length in range(0, 30, 2)]
    answers = model.fill(texts)
    shapes = set()
    predict = model.predict_on_batch

    def predict_and_count(features):
        shapes.add(tuple(features["token_ids"].shape) + tuple(features["mask_positions"].shape))
        return predict(features)

    monkeypatch.setattr(model, "predict_on_batch", predict_and_count)
    single_answers = [model.fill(text) for text in texts]
    # Lengths of 8, 16, 24, 32 and 40, with 1, 2 or 4 masked positions
    assert len(shapes) <= 15
    for together, single in zip(answers, single_answers, strict=True):
        actual, expected = (
            [
                answer
                for mask in ([text_answers] if isinstance(text_answers[0], dict) else text_answers)
                for answer in mask
            ]
            for text_answers in (together, single)
        )
        assert [answer["text"] for answer in actual] == [answer["text"] for answer in expected]
        np.testing.assert_allclose(
            [answer["score"] for answer in actual],
            [answer["score"] for answer in expected],
            atol=1e-6,
        )
    assert model.fill([]) == []
    rows = model.masked_rows(["the [MASK] the [MASK]", "[MASK]"])
    kinds = [[TOKENS[token] for token in ids] for ids in rows.token_ids]
    assert kinds == [
        ["[CLS]", "the", "[MASK]", "the", "[MASK]", "[SEP]"],
        ["[CLS]", "[MASK]", "[SEP]"],
    ]
    assert rows.positions == [[2, 4], [1]]
    assert rows.spans == [[(4, 10), (15, 21)], [(0, 6)]]


@pytest.mark.parametrize(
    ("text", "top_k", "message"),
    [
        (["a [MASK]", None], 5, "Row 1 must be text"),
        (["a [MASK]", "b"], 5, r"Text 1 must have a \[MASK\] to fill\. Received: 'b'"),
        ("the cat", 5, r"must have a \[MASK\] to fill\. Received: 'the cat'"),
        (
            "the " * 10 + "[MASK]",
            5,
            r"must have a \[MASK\] to fill in its first 10 tokens",
        ),
        ("[MASK]", 0, r"top_k must be an integer in \[1, 12\]"),
    ],
)
def test_unfillable_text_raises(masked_lm, text, top_k, message):
    with pytest.raises(ValueError, match=message):
        masked_lm.fill(text, top_k=top_k)


@pytest.mark.parametrize(
    ("targets", "message"),
    [
        (["cat", "dog", "the", "Mat"], r"tokens of the vocabulary. Received: \['dog', 'Mat'\]"),
        ("dog", r"targets must be tokens of the vocabulary\. Received: \['dog'\]"),
        ([], r"targets must be tokens of the vocabulary\. Received: no tokens"),
    ],
)
def test_unknown_targets_raise(masked_lm, targets, message):
    with pytest.raises(ValueError, match=message):
        masked_lm.fill("a [MASK]", targets=targets)


def test_fill_truncates_at_tokenizer_side(masked_lm):
    tokenizer = make_tokenizer(*TOKENS, truncation_side="left")
    model = MaskedLM(masked_lm.backbone, TextClassifierPreprocessor(tokenizer, 8))
    text = "the cat sat on the mat . the [MASK] sat"
    (best,) = model.fill(text, top_k=1)
    assert best["text"] == text.replace("[MASK]", best["token"])
    (ids,), ((position,),), _ = model.masked_rows([text])
    kept = ["[CLS]", "the", "mat", ".", "the", "[MASK]", "sat", "[SEP]"]
    assert [TOKENS[token] for token in ids] == kept
    assert position == 5
    with pytest.raises(ValueError, match=r"must have a \[MASK\] to fill in its last 6 tokens"):
        model.fill("[MASK] the cat sat on the mat")
