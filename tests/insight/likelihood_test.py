# SPDX-License-Identifier: Apache-2.0
"""Pseudo-log-likelihoods match the predictions of the masked LM."""

import keras
import numpy as np
import pytest

from keras_bert import Backbone, BertConfig, MaskedLM, Pretrainer, insight
from keras_bert.checkpoints import CheckpointWarning

pytestmark = pytest.mark.on_torch


def test_token_scores_match_fill(masked_lm):
    (scored,) = insight.pseudo_log_likelihood(masked_lm, ["He is kinds."])
    assert scored.tokens == ("he", "is", "kind", "##s", ".")
    assert [scored.text[slice(*span)] for span in scored.spans] == ["He", "is", "kind", "s", "."]
    mask_predictions = masked_lm.fill("[MASK] is kinds.", top_k=masked_lm.config.vocabulary_size)
    (he,) = [answer["score"] for answer in mask_predictions if answer["token"] == "he"]
    np.testing.assert_allclose(np.exp(scored.log_probabilities[0]), he, rtol=1e-4)
    np.testing.assert_allclose(scored.total, scored.log_probabilities.sum())
    np.testing.assert_allclose(scored.perplexity, np.exp(-scored.total / 5))


def test_scores_do_not_depend_on_batches(masked_lm):
    texts = ["He is a rich doctor.", "The poor man had to go.", "They is kind."]
    whole = insight.pseudo_log_likelihood(masked_lm, texts)
    for number, text in enumerate(texts):
        (separate,) = insight.pseudo_log_likelihood(masked_lm, [text], batch_size=2)
        np.testing.assert_allclose(
            separate.log_probabilities, whole[number].log_probabilities, atol=1e-5
        )


def test_invalid_text_or_model_raises(masked_lm):
    with pytest.raises(ValueError, match=r"Text 1 must have 1 to 62 tokens\. Received: 0"):
        insight.pseudo_log_likelihood(masked_lm, ["he", ""])
    with pytest.raises(ValueError, match=r"Text 0 must have 1 to 62 tokens. Received: 100"):
        insight.pseudo_log_likelihood(masked_lm, ["he " * 100])
    with pytest.raises(ValueError, match="must be a list of strings"):
        insight.pseudo_log_likelihood(masked_lm, "he is")
    with pytest.raises(ValueError, match="Text 0 must be a string"):
        insight.pseudo_log_likelihood(masked_lm, [None])


def test_causal_scores_are_next_token_probabilities(masked_lm):
    sizes = {"num_layers": 1, "hidden_dim": 8, "num_heads": 2, "intermediate_dim": 8}
    causal = MaskedLM(
        Backbone(
            BertConfig(vocabulary_size=masked_lm.config.vocabulary_size, causal=True, **sizes)
        ),
        masked_lm.preprocessor,
    )
    text = "he is kind"
    (scores,) = insight.pseudo_log_likelihood(causal, [text])
    features = {name: value[None] for name, value in causal.preprocessor(text).items()}
    num_tokens = features["token_ids"].shape[1]
    logits = causal.predict({**features, "mask_positions": np.arange(num_tokens)[None]}, verbose=0)
    log_probabilities = keras.ops.convert_to_numpy(keras.ops.log_softmax(logits[0]))
    tokens = features["token_ids"][0, 1:-1]
    expected = log_probabilities[np.arange(len(tokens)), tokens]
    np.testing.assert_allclose(scores.log_probabilities, expected, atol=1e-5)
    with pytest.raises(ValueError, match="causal"):
        insight.masked_log_probabilities(causal, [[1, 2, 3]], [[1]])


def test_pretrainer_scores_match_masked_lm(masked_lm, tmp_path):
    pretrainer = Pretrainer(masked_lm.backbone, masked_lm.preprocessor)
    pretrainer.save_to_preset(tmp_path)
    with pytest.warns(CheckpointWarning, match=r"unused weights: heads\.next_sentence"):
        separate = MaskedLM.from_preset(tmp_path)
    scores = [
        insight.pseudo_log_likelihood(model, ["He is kinds."])[0].log_probabilities
        for model in (pretrainer, separate)
    ]
    np.testing.assert_allclose(*scores, atol=1e-5)
