# SPDX-License-Identifier: Apache-2.0
"""Nearest tokens and contexts of a word match NumPy on `transformers` hidden states."""

import json

import keras
import numpy as np
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from keras_bert import Backbone, data, insight  # noqa: E402
from tests.insight.hugging_face_models import save_model  # noqa: E402
from tests.text.small_tokenizers import make_tokenizer  # noqa: E402

pytestmark = pytest.mark.on_torch

WORDS = "a the film was dull good . bank river we sat on"
TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS.split(), "##s"]
TEXTS = ["We sat on the banks.", "a river banks.", "Banks was dull, the film on banks good."]
ROWS = [
    "[CLS] we sat on the bank ##s . [SEP]",
    "[CLS] a river bank ##s . [SEP]",
    "[CLS] bank ##s was dull [UNK] the film on bank ##s good . [SEP]",
]
POSITIONS = [[5, 6], [3, 4], [1, 2]]


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    return save_model(
        transformers.BertModel, TOKENS, tmp_path_factory.mktemp("bert"), initializer_range=0.4
    )


@pytest.fixture(scope="module")
def model(directory):
    preprocessor = data.TextClassifierPreprocessor(make_tokenizer(*TOKENS), 16)
    return Backbone.from_preset(directory), preprocessor


def cosine(a, b):
    return np.dot(a, b) / np.linalg.norm(a) / np.linalg.norm(b)


def test_context_similarities_match_transformers(directory, model):
    backbone, preprocessor = model
    contexts = insight.contexts(backbone, "banks", TEXTS, preprocessor=preprocessor)
    assert [text[slice(*span)] for text, span in zip(TEXTS, contexts.spans, strict=True)] == [
        "banks",
        "banks",
        "Banks",
    ]
    reference = transformers.BertModel.from_pretrained(directory).eval()
    states = []
    for row in ROWS:
        ids = torch.tensor([[TOKENS.index(token) for token in row.split()]])
        with torch.no_grad():
            outputs = reference(ids, output_hidden_states=True).hidden_states
        states.append([layer[0].numpy().astype("float64") for layer in outputs])
    for layer in range(3):
        words = [states[row][layer][POSITIONS[row]].mean(axis=0) for row in range(3)]
        expected = [[cosine(a, b) for b in words] for a in words]
        np.testing.assert_allclose(contexts.similarities[layer], expected, atol=1e-5)
        pairs = [expected[a][b] for a, b in ((0, 1), (0, 2), (1, 2))]
        np.testing.assert_allclose(contexts.self_similarity[layer], np.mean(pairs), atol=1e-5)
        other_cosines = [
            cosine(a, b)
            for first, second in ((0, 1), (0, 2), (1, 2))
            for a in states[first][layer][1:-1]
            for b in states[second][layer][1:-1]
        ]
        np.testing.assert_allclose(contexts.baseline[layer], np.mean(other_cosines), atol=1e-5)
    plain = json.loads(json.dumps(contexts.to_dict()))
    assert plain["spans"][2] == [0, 5]
    assert str(contexts).splitlines()[1].split()[0] == "embeddings"
    assert "<b>Banks</b> was dull" in contexts._repr_html_()
    pytest.importorskip("matplotlib").use("agg")
    lines = contexts.plot().get_lines()
    np.testing.assert_array_equal(lines[1].get_ydata(), contexts.baseline)


def test_neighbors_match_transformers_embeddings(directory, model):
    backbone, preprocessor = model
    neighbors = insight.neighbors(backbone, "bank", 4, preprocessor=preprocessor)
    table = transformers.BertModel.from_pretrained(directory).get_input_embeddings().weight
    table = table.detach().numpy()
    query_vector = table[TOKENS.index("bank")]
    cosines = {
        token: cosine(row, query_vector) for token, row in zip(TOKENS[1:], table[1:], strict=True)
    }
    del cosines["bank"]
    expected = sorted(cosines, key=lambda token: -cosines[token])[:4]
    assert list(neighbors.tokens) == expected
    np.testing.assert_allclose(neighbors.similarities, [cosines[token] for token in expected])
    assert json.loads(json.dumps(neighbors.rows))[0]["token"] == expected[0]
    assert str(neighbors).splitlines()[3].endswith(expected[3])
    assert neighbors._repr_html_().count("<tr>") == 5
    pytest.importorskip("matplotlib").use("agg")
    assert [label.get_text() for label in neighbors.plot().get_yticklabels()] == expected[::-1]


def test_contexts_exclude_separate_particles(model):
    tokenizer = make_tokenizer(*TOKENS[:5], "사과", "##를", "사과는", "빨갛다", "먹었다")
    config = model[0].config.replace(vocabulary_size=10)
    preprocessor = data.TextClassifierPreprocessor(tokenizer, 16)
    texts = ["사과를 먹었다", "사과는 빨갛다"]
    backbone = Backbone(config)
    apple = insight.contexts(backbone, "사과", texts, preprocessor=preprocessor)
    assert apple.spans == ((0, 2), (0, 2))
    for number, text in enumerate(texts):
        states = backbone.with_hidden_states()(preprocessor([text]))["hidden_states"][-1]
        state = keras.ops.convert_to_numpy(states)[0, 1]
        np.testing.assert_allclose(apple.vectors[-1, number], state, atol=1e-5)
    with pytest.raises(ValueError, match="Text 1 must contain the word '사과'"):
        insight.contexts(backbone, "사과", ["사과를", "사과했다"], preprocessor=preprocessor)


@pytest.mark.on_tensorflow
def test_contexts_truncate_at_tokenizer_side(model):
    backbone, _ = model
    tokenizer = make_tokenizer(*TOKENS, truncation_side="left")
    preprocessor = data.TextClassifierPreprocessor(tokenizer, 6)
    texts = ["bank the film was dull . river", "dull good the river we"]
    river = insight.contexts(backbone, "river", texts, preprocessor=preprocessor)
    for number, text in enumerate(("was dull . river", "good the river we")):
        states = backbone.with_hidden_states()(preprocessor([text]))["hidden_states"][-1]
        position = 1 + text.split().index("river")
        np.testing.assert_allclose(river.vectors[-1, number], states[0, position], atol=1e-5)
    with pytest.raises(ValueError, match="Text 1 must have 'dull' in the 4 tokens"):
        insight.contexts(backbone, "dull", texts, preprocessor=preprocessor)
