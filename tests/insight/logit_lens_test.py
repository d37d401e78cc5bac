# SPDX-License-Identifier: Apache-2.0
"""Predictions of each layer match the `transformers` head on its hidden states."""

import json

import numpy as np
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from keras_bert import Backbone, BertConfig, MaskedLM, insight  # noqa: E402
from keras_bert.text import WordPieceTokenizer  # noqa: E402
from tests.insight.hugging_face_models import save_model  # noqa: E402

pytestmark = pytest.mark.on_torch

WORDS = "a the film was dull good ."
TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS.split()]
TEXT = "The film was [MASK]."


@pytest.fixture(scope="module", params=["bert", "albert"])
def masked_lm_and_reference(request, tmp_path_factory):
    """A random masked LM, and each layer's probabilities computed with `transformers`."""
    kind, changes = {
        "bert": (transformers.BertForMaskedLM, {}),
        "albert": (transformers.AlbertForMaskedLM, {"embedding_size": 8, "num_hidden_layers": 3}),
    }[request.param]
    directory = tmp_path_factory.mktemp(request.param)
    save_model(kind, TOKENS, directory, initializer_range=0.6, **changes)
    masked_lm = MaskedLM.from_preset(directory)
    model = kind.from_pretrained(directory).eval()
    ids = torch.tensor([[2, 6, 7, 8, 4, 11, 3]])
    with torch.no_grad():
        states = model(ids, output_hidden_states=True).hidden_states
        head = model.predictions if request.param == "albert" else model.cls
        expected = [head(state).softmax(-1)[0].numpy() for state in states]
    return masked_lm, expected


def test_predictions_match_head_on_each_layer(masked_lm_and_reference):
    masked_lm, expected = masked_lm_and_reference
    layers = insight.logit_lens(masked_lm, TEXT, top_k=3)
    assert layers.tokens == ("[CLS]", "the", "film", "was", "[MASK]", ".", "[SEP]")
    final = expected[-1].argmax(-1)
    for layer, scores in enumerate(expected):
        order = np.argsort(-scores, axis=-1)[:, :3]
        assert layers.predictions[layer] == tuple(
            tuple(TOKENS[token] for token in row) for row in order
        )
        np.testing.assert_allclose(
            layers.probabilities[layer], np.take_along_axis(scores, order, -1), atol=1e-5
        )
        ranks = [
            list(np.argsort(-row)).index(token) for row, token in zip(scores, final, strict=True)
        ]
        np.testing.assert_array_equal(layers.ranks[layer], ranks)
    (best,) = masked_lm.fill(TEXT, top_k=1)
    assert layers.predictions[-1][4][0] == best["token"]
    np.testing.assert_allclose(layers.probabilities[-1, 4, 0], best["score"], atol=1e-5)
    for token, layer in enumerate(layers.stable_from_layer):
        names = [layer_predictions[token][0] for layer_predictions in layers.predictions]
        assert set(names[layer:]) == {names[-1]}
        assert layer == 0 or names[layer - 1] != names[-1]


def test_final_norm_applies_to_every_layer():
    config = BertConfig(
        vocabulary_size=len(TOKENS),
        num_layers=2,
        hidden_dim=16,
        num_heads=2,
        intermediate_dim=16,
        norm_placement="pre",
        initializer_range=0.6,
    )
    tokenizer = WordPieceTokenizer(TOKENS).get_config()
    masked_lm = MaskedLM(Backbone(config), {"tokenizer": tokenizer, "sequence_length": 16})
    backbone = masked_lm.backbone
    backbone.final_norm.gamma.assign(np.linspace(-1, 2, 16))
    layers = insight.logit_lens(masked_lm, TEXT, top_k=1)
    # The last block adds nothing, so its output equals its input.
    for product in ("attention", "feed_forward"):
        projection = getattr(backbone.blocks[1], product).output_projection.kernel
        projection.assign(np.zeros(projection.shape))
    unchanged = insight.logit_lens(masked_lm, TEXT, top_k=1)
    assert unchanged.predictions[1] == unchanged.predictions[2] == layers.predictions[1]
    np.testing.assert_allclose(unchanged.probabilities[1], unchanged.probabilities[2], atol=1e-6)


def test_logit_lens_exports_to_json_text_and_html(masked_lm_and_reference):
    layers = insight.logit_lens(masked_lm_and_reference[0], TEXT, top_k=2)
    plain = json.loads(json.dumps(layers.to_dict()))
    assert len(plain["layers"]) == len(layers.predictions)
    assert plain["layers"][1][4][0]["token"] == layers.predictions[1][4][0]
    lines = str(layers).splitlines()
    assert lines[0].split() == list(layers.tokens)
    assert lines[-1].split()[2:] == [best[0] for best in layers.predictions[-1]]
    assert layers._repr_html_().count("<tr>") == len(layers.predictions) + 1
    pytest.importorskip("matplotlib").use("agg")
    axes = layers.plot()
    np.testing.assert_array_equal(axes.images[0].get_array(), layers.probabilities[:, :, 0])
