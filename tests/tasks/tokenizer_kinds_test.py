# SPDX-License-Identifier: Apache-2.0
"""Filling masks with the tokenizers of RoBERTa and ALBERT."""

import re

import numpy as np
import pytest

pytest.importorskip("tensorflow")
pytest.importorskip("tokenizers")
pytest.importorskip("sentencepiece")

import keras_bert
from tests.checkpoints.small_models import small_config
from tests.text import small_tokenizers

# Only the text differs, and it does not depend on the backend.
pytestmark = [pytest.mark.needs_tensorflow, pytest.mark.backend_independent]

TEXTS = ["The test fails.", "it's  the\tcase\n", "Größe «été» 1991, 中国", ""]
FAMILIES = {
    "byte_pair": {
        "num_segments": 1,
        "position_offset": 2,
        "pad_token_id": 1,
        "tokenizer": "byte_pair",
    },
    "sentence_piece": {
        "embedding_dim": 4,
        "layer_sharing": "all",
        "tokenizer": "sentence_piece",
    },
}


def make_backbone(tokenizer):
    config = small_config(
        vocabulary_size=tokenizer.vocabulary_size,
        max_sequence_length=48,
        **FAMILIES[tokenizer.kind],
    )
    return keras_bert.Backbone(config)


def perturb(task):
    """Perturbs the weights so that predictions differ."""
    generator = np.random.default_rng(1)
    for weight in task.trainable_weights:
        weight.assign(weight + generator.normal(0, 0.3, weight.shape))
    return task


def preprocessor_config(tokenizer):
    return {"tokenizer": tokenizer.get_config(), "sequence_length": 40}


@pytest.fixture(scope="module", params=FAMILIES)
def tokenizer(request):
    return small_tokenizers.make(request.param)


def test_fill_and_fit_masked_text(tokenizer):
    masked_lm = perturb(
        keras_bert.MaskedLM(
            make_backbone(tokenizer),
            preprocessor=preprocessor_config(tokenizer),
            masking={"unit": "word"},
        )
    )
    mask = tokenizer.mask_token
    answers = masked_lm.fill(f"the {mask} fails", top_k=tokenizer.vocabulary_size)
    assert sum(answer["score"] for answer in answers) == pytest.approx(1, abs=1e-4)
    text_by_token = {answer["token"]: answer["text"] for answer in answers}
    space = {"byte_pair": "Ġ", "sentence_piece": "▁"}[tokenizer.kind]
    assert text_by_token[f"{space}test"] == "the test fails"
    assert text_by_token["s"] == "thes fails"
    first = masked_lm.fill(f"{mask} fails", top_k=tokenizer.vocabulary_size)
    assert {answer["token"]: answer["text"] for answer in first}[f"{space}the"] == "the fails"
    with pytest.raises(
        ValueError, match=f"must have a {re.escape(mask)} to fill. Received: 'the test'"
    ):
        masked_lm.fill("the test")
    if tokenizer.kind == "byte_pair":
        masked_lm.compile("sgd")
        losses = masked_lm.fit(TEXTS[:3], epochs=1, batch_size=2, verbose=0).history["loss"]
        assert np.isfinite(losses).all()
