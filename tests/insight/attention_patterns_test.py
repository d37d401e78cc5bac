# SPDX-License-Identifier: Apache-2.0
"""Attention patterns match the probabilities that `transformers` returns."""

import json

import numpy as np
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
scipy_optimize = pytest.importorskip("scipy.optimize")

from keras_bert import Backbone, BertConfig, TextClassifier, data, insight  # noqa: E402
from tests.insight.hugging_face_models import save_model  # noqa: E402
from tests.text.small_tokenizers import make_tokenizer  # noqa: E402

pytestmark = pytest.mark.on_torch

WORDS = "a the film was gripping dull good bad , . ?"
TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS.split(), "##s"]
TEXTS = ["The films was gripping.", "Dull", ("A film", "was bad, the film was dull")]
FAMILIES = {
    "bert": (transformers.BertModel, {}),
    "albert": (transformers.AlbertModel, {"embedding_size": 8, "num_hidden_layers": 3}),
    "distilbert": (transformers.DistilBertModel, {"hidden_dim": 32}),
}


def make_preprocessor():
    return data.TextClassifierPreprocessor(make_tokenizer(*TOKENS), 24)


@pytest.fixture(scope="module", params=FAMILIES)
def patterns_and_expected(request, tmp_path_factory):
    """Patterns of a random model, and the probabilities of `transformers` by row and layer."""
    kind, changes = FAMILIES[request.param]
    directory = tmp_path_factory.mktemp(request.param)
    save_model(
        kind, TOKENS, directory, max_position_embeddings=26, initializer_range=0.4, **changes
    )
    backbone = Backbone.from_preset(directory)
    patterns = insight.attention_patterns(backbone, TEXTS, preprocessor=make_preprocessor())
    model = kind.from_pretrained(directory, attn_implementation="eager").eval()
    expected = []
    for row in patterns.tokens:
        ids = torch.tensor([[TOKENS.index(token) for token in row]])
        second = row.index("[SEP]") + 1
        segments = torch.tensor([[int(index >= second) for index in range(len(row))]])
        has_segments = backbone.config.num_segments == 2
        with torch.no_grad():
            outputs = model(
                ids,
                output_attentions=True,
                **({"token_type_ids": segments} if has_segments else {}),
            )
        expected.append([layer[0].numpy() for layer in outputs.attentions])
    return patterns, expected


def reference_measures(layer, tokens, include_separators):
    """Computes the measures of one layer in one row, query by query."""
    indices = [
        index for index, token in enumerate(tokens) if include_separators or token != "[SEP]"
    ]
    rows = {name: [] for name in insight.MEASURES}
    for query in indices:
        weights = layer[:, query, indices].astype("float64")
        weights = weights / weights.sum(-1, keepdims=True)
        attention_to = {key: weights[:, column] for column, key in enumerate(indices)}
        zero = np.zeros(len(layer))
        rows["entropy"].append(-(weights * np.log(np.maximum(weights, 1e-300))).sum(-1))
        rows["distance"].append(
            sum(abs(key - query) * weight for key, weight in attention_to.items())
        )
        rows["first"].append(attention_to[0])
        rows["separators"].append(
            sum((attention_to[key] for key in indices if tokens[key] == "[SEP]"), zero)
        )
        rows["itself"].append(attention_to[query])
        if query - 1 in attention_to:
            rows["previous"].append(attention_to[query - 1])
        if query + 1 in attention_to:
            rows["next"].append(attention_to[query + 1])
    return rows


def test_patterns_match_transformers(patterns_and_expected):
    patterns, expected = patterns_and_expected
    for row, layers in zip(patterns.scores, expected, strict=True):
        for actual, reference in zip(row, layers, strict=True):
            np.testing.assert_allclose(actual, reference, atol=1e-5)
    for measures, include_separators in (
        (patterns.measures, True),
        (patterns.measures_without_separators, False),
    ):
        for layer in range(len(expected[0])):
            rows = [
                reference_measures(layers[layer], tokens, include_separators)
                for layers, tokens in zip(expected, patterns.tokens, strict=True)
            ]
            for name, values in measures.items():
                mean = np.mean([each for row in rows for each in row[name]], axis=0)
                np.testing.assert_allclose(values[layer], mean, atol=1e-4, err_msg=name)


def test_rollout_is_product_of_layers(patterns_and_expected):
    patterns, expected = patterns_and_expected
    for number, layers in enumerate(expected):
        product = np.eye(len(patterns.tokens[number]))
        for layer, rolled in zip(layers, patterns.rollout(number), strict=True):
            product = (0.5 * layer.mean(axis=0) + 0.5 * np.eye(len(product))) @ product
            np.testing.assert_allclose(rolled, product, atol=1e-5)
        np.testing.assert_allclose(rolled.sum(axis=-1), 1, atol=1e-6)


def solve_flow(layers, source, sink):
    """Returns the maximum flow from a token in the last layer to an input token.

    Args:
        layers: Capacities `(tokens, tokens)` of each layer, from upper to lower tokens.
    """
    width = len(layers[0])
    edges = [
        ((depth + 1, query), (depth, key), layer[query, key])
        for depth, layer in enumerate(layers)
        for query, key in np.ndindex(layer.shape)
    ]
    first, last = (len(layers), source), (0, sink)
    nodes = [node for node in np.ndindex(len(layers) + 1, width) if node not in (first, last)]
    balance = np.zeros((len(nodes), len(edges)))
    for number, (upper, lower, _) in enumerate(edges):
        for node, sign in ((upper, 1), (lower, -1)):
            if node in nodes:
                balance[nodes.index(node), number] = sign
    into_sink = np.array([float(lower == last) for _, lower, _ in edges])
    solution = scipy_optimize.linprog(
        -into_sink,
        A_eq=balance,
        b_eq=np.zeros(len(nodes)),
        bounds=[(0, capacity) for _, _, capacity in edges],
    )
    assert solution.success
    return -solution.fun


def test_flow_matches_linear_program(patterns_and_expected):
    patterns, expected = patterns_and_expected
    for number, layers in enumerate(expected):
        width = len(patterns.tokens[number])
        residual = [0.5 * layer.mean(axis=0) + 0.5 * np.eye(width) for layer in layers]
        last = len(residual) - 1
        for layer, positions in ((-1, (0, width - 1)), (0, (1,))):
            flows = patterns.flow(number, positions, layer)
            below = residual if layer == -1 else residual[:1]
            for row, position in zip(flows, positions, strict=True):
                expected_flow = [solve_flow(below, position, key) for key in range(width)]
                np.testing.assert_allclose(row, expected_flow, atol=1e-5)
        np.testing.assert_array_equal(patterns.flow(number, layer=last), patterns.flow(number))


@pytest.fixture(scope="module")
def patterns():
    config = BertConfig(
        vocabulary_size=len(TOKENS), num_layers=2, num_heads=2, hidden_dim=8, intermediate_dim=8
    )
    classifier = TextClassifier(Backbone(config), 2, preprocessor=make_preprocessor())
    return insight.attention_patterns(classifier, TEXTS)


def test_patterns_export_to_json_text_and_html(patterns):
    plain = json.loads(json.dumps(patterns.to_dict(scores=True)))
    assert [row["tokens"] for row in plain["texts"]] == [list(row) for row in patterns.tokens]
    np.testing.assert_allclose(plain["texts"][0]["scores"][1], patterns.scores[0][1])
    assert [(row["layer"], row["head"]) for row in plain["heads"]] == [
        (0, 0),
        (0, 1),
        (1, 0),
        (1, 1),
    ]
    assert plain["heads"][3]["next"] == patterns.measures["next"][1, 1]
    assert plain["heads"][3]["separators_without_separators"] == 0
    assert str(patterns).startswith("23 tokens, texts: 3. The three heads")
    assert patterns._repr_html_().count("<tr>") == 5


def test_patterns_can_be_plotted(patterns):
    pytest.importorskip("matplotlib").use("agg")
    axes = patterns.plot("previous")
    np.testing.assert_array_equal(axes.images[0].get_array(), patterns.measures["previous"])
    assert patterns.plot("next", separators=False).get_title().endswith("without separators")
    figure = patterns.plot_heads(text=1, layers=[1])
    assert [axes.get_title() for axes in figure.axes] == ["layer 1, head 0", "layer 1, head 1"]
    labels = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert labels == ["[CLS]", "dull", "[SEP]"]
    with pytest.raises(ValueError, match="measure must be one of entropy"):
        patterns.plot("length")


def test_invalid_model_or_input_raises():
    config = BertConfig(
        vocabulary_size=len(TOKENS), num_layers=1, num_heads=2, hidden_dim=8, intermediate_dim=8
    )
    backbone = Backbone(config)
    with pytest.raises(ValueError, match="A Backbone has no tokenizer"):
        insight.attention_patterns(backbone, "the film")
    for x in (["a", ("a", "b", "c")], 3, ["a", None]):
        with pytest.raises(ValueError, match="must be a text or a pair of texts"):
            insight.attention_patterns(backbone, x, preprocessor=make_preprocessor())
    with pytest.raises(ValueError, match="x must have at least one text"):
        insight.attention_patterns(backbone, [], preprocessor=make_preprocessor())
    for x, received in (
        ("film " * 600, "600 tokens"),
        ([("the film", "dull " * 600)], r"2 \+ 600 tokens"),
    ):
        with pytest.raises(ValueError, match=rf"Received: {received}"):
            insight.attention_patterns(backbone, x, preprocessor=make_preprocessor())
