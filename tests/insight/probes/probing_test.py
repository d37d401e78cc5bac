# SPDX-License-Identifier: Apache-2.0
"""Grammar probes: their features, scores and control tasks match plain definitions."""

import json

import keras
import numpy as np
import pytest

stats = pytest.importorskip("scipy.stats")
csgraph = pytest.importorskip("scipy.sparse.csgraph")

from keras_bert import Backbone, BertConfig, data, insight  # noqa: E402
from keras_bert.insight.probes import probe_models  # noqa: E402
from keras_bert.insight.probes.annotated_words import (  # noqa: E402
    annotated_words,
    depths,
    distances,
)
from tests.text.small_tokenizers import make_tokenizer  # noqa: E402

pytestmark = pytest.mark.on_torch

WORDS = "the a film plot man we was saw good dull slept . , who"
TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS.split(), "##s", "##ly"]
UPOS = {
    "the": "DET", "a": "DET", "films": "NOUN", "plot": "NOUN", "man": "NOUN", "we": "PRON",
    "was": "AUX", "saw": "VERB", "slept": "VERB", "good": "ADJ", "dullsly": "ADJ", ".": "PUNCT",
}  # fmt: skip
# Each word has the number of its head and its relation.
SENTENCES = [
    ("the/2/det films/4/nsubj was/4/cop good/0/root ./4/punct"),
    ("we/2/nsubj saw/0/root the/4/det plot/2/obj ./2/punct"),
    ("a/2/det man/3/nsubj slept/0/root ./3/punct"),
    ("the/2/det man/3/nsubj:pass saw/0/root a/6/det dullsly/6/amod films/3/obj ./3/punct"),
]


def make_conllu(sentences):
    lines = []
    for number, sentence in enumerate(sentences):
        lines += [f"# sent_id = {number}", "1-2\tthefilms" + "\t_" * 8]
        for index, word in enumerate(sentence.split(), start=1):
            form, head, relation = word.split("/")
            fields = [index, form, form, UPOS[form], "_", "_", head, relation, "_", "_"]
            lines.append("\t".join(map(str, fields)))
        lines.append("")
    return "\n".join(lines) + "\n"


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    directory = tmp_path_factory.mktemp("treebank")
    (directory / "train.conllu").write_text(make_conllu(SENTENCES * 8))
    (directory / "test.conllu").write_text(make_conllu(SENTENCES))
    return directory / "train.conllu", directory / "test.conllu"


@pytest.fixture(scope="module")
def model():
    keras.utils.set_random_seed(1)
    config = BertConfig(
        vocabulary_size=len(TOKENS), num_layers=2, num_heads=2, hidden_dim=16, intermediate_dim=16,
        initializer_range=0.3,
    )  # fmt: skip
    return Backbone(config), data.TextClassifierPreprocessor(make_tokenizer(*TOKENS), 16)


def test_word_features_are_hidden_states(model, files):
    backbone, preprocessor = model
    words = annotated_words(backbone, preprocessor, [files[1], files[1]], max_sentences=6)
    assert len(words) == 6
    assert words.words[:5] == ("the", "films", "was", "good", ".")
    assert words.upos[:3] == ("DET", "NOUN", "AUX")
    last = words.sentence(3)
    assert words.relations[last][1] == "nsubj"  # The subtype is removed.
    assert words.heads[last].tolist() == [1, 2, -1, 5, 5, 2, 2]
    row = ["[CLS]", "the", "man", "saw", "a", "dull", "##s", "##ly", "film", "##s", ".", "[SEP]"]
    ids = np.array([[TOKENS.index(token) for token in row]])
    outputs = backbone.with_hidden_states()(ids, training=False)["hidden_states"]
    states = np.stack([keras.ops.convert_to_numpy(state)[0] for state in outputs], axis=1)
    positions = [[1], [2], [3], [4], [5, 6, 7], [8, 9], [10]]
    expected = np.stack([states[word_positions].mean(axis=0) for word_positions in positions])
    np.testing.assert_allclose(words.features[last], expected, atol=1e-5)
    first = annotated_words(backbone, preprocessor, files[1], pooling="first")
    np.testing.assert_allclose(
        first.features[last],
        np.stack([states[word_positions[0]] for word_positions in positions]),
        atol=1e-5,
    )
    short = data.TextClassifierPreprocessor(preprocessor.tokenizer, 10)
    shorter = annotated_words(backbone, short, files[1])
    assert (len(shorter), shorter.num_skipped) == (3, 1)


def test_depths_and_distances_count_edges():
    random = np.random.default_rng(0)
    for size in (1, 2, 9):
        # In a random order, the head of each word precedes it.
        order = random.permutation(size)
        heads = np.full(size, -1)
        for index in range(1, size):
            heads[order[index]] = order[random.integers(index)]
        graph = np.zeros((size, size))
        for word, head in enumerate(heads):
            if head >= 0:
                graph[word, head] = 1
        expected = csgraph.shortest_path(graph, directed=False)
        np.testing.assert_array_equal(distances(heads), expected)
        np.testing.assert_array_equal(depths(heads), expected[order[0]])
    for heads, message in (
        ([1, 0, -1], r"the heads must form a tree. Received: \[2, 1, 0\]"),
        ([3, -1], "must form a tree"),
        ([-1, -1], "there must be one root. Received: 2"),
    ):
        with pytest.raises(ValueError, match=message):
            depths(heads)


def test_correlations_and_trees_match_scipy():
    random = np.random.default_rng(1)
    rows = random.integers(0, 5, (3, 8)).astype("float64")
    target = random.integers(0, 4, 8)
    expected = [stats.spearmanr(row, target).statistic for row in rows]
    np.testing.assert_allclose(probe_models._rank_correlation(rows, target), expected)
    assert probe_models._rank_correlation(np.ones((1, 4)), np.arange(4)) == 0
    heads = np.array([1, 2, -1, 4, 2, 4, 2])
    is_word = np.array([True, True, True, True, True, True, False])
    matrices = random.uniform(0.1, 1, (4, 7, 7))
    matrices = matrices + matrices.transpose(0, 2, 1)
    # The distances in the tree itself give all edges.
    matrices[0] = distances(heads)
    right = probe_models._num_right_edges(matrices, heads, is_word)
    edges = {(0, 1), (1, 2), (3, 4), (2, 4), (4, 5)}
    for probe, matrix in enumerate(matrices):
        tree = csgraph.minimum_spanning_tree(np.triu(matrix[:6, :6])).toarray()
        chosen = {tuple(sorted(edge)) for edge in np.argwhere(tree).tolist()}
        assert right[probe] == len(chosen & edges)
    assert right[0] == 5


OPTIONS = {"epochs": 30, "learning_rate": 0.03, "rank": 8}


@pytest.fixture(scope="module")
def probes(model, files):
    backbone, preprocessor = model
    tasks = ["upos", "distance"]
    return insight.probe(backbone, *files, tasks, preprocessor=preprocessor, seeds=2, **OPTIONS)


def check_scores(task, scores, seeds):
    """Checks properties of any result."""
    main = probe_models.TASKS[task][0]
    for values in (scores.primary_metric, scores.control, scores.cumulative[main]):
        assert values.shape == (seeds, 3)
    np.testing.assert_allclose(scores.mixing_weights.sum(axis=1), 1, rtol=1e-5)
    # For the first layer, the cumulative probe and the layer's probe are the same.
    np.testing.assert_array_equal(scores.cumulative[main][:, 0], scores.primary_metric[:, 0])
    np.testing.assert_allclose(scores.selectivity, scores.primary_metric - scores.control)
    np.testing.assert_allclose(scores.expected_layer, scores.mixing_weights @ np.arange(3))


def test_probes_learn_word_properties(probes):
    assert list(probes) == ["upos", "distance"]
    check_scores("upos", probes["upos"], 2)
    # The words determine their parts of speech and the labels of the control task.
    assert probes["upos"].primary_metric[:, 0].min() > 0.95
    assert probes["upos"].control[:, 0].min() > 0.9
    assert probes["upos"].baseline == pytest.approx(5 / 21)
    assert probes["upos"].num_words == (8 * 21, 21)
    check_scores("distance", probes["distance"], 2)
    # The training data contains all test sentences.
    assert probes["distance"].scores["uuas"].max() > 0.7
    assert probes["distance"].primary_metric.max() > 0.7


def test_probes_learn_relations_and_depths(model, files):
    backbone, preprocessor = model
    tasks = ["relation", "depth"]
    probes = insight.probe(backbone, *files, tasks, preprocessor=preprocessor, seeds=1, **OPTIONS)
    for task, scores in probes.items():
        check_scores(task, scores, 1)
    assert probes["relation"].primary_metric.max() > 0.95
    assert probes["depth"].scores["root_accuracy"].max() == 1
    assert probes["depth"].primary_metric.max() > 0.9
    assert np.isnan(probes["depth"].baseline)
    assert probes["depth"].to_dict()["layers"][0]["spearman_interval"] is None


def test_results_have_intervals_over_seeds(probes):
    scores = probes["upos"]
    for row in scores.rows:
        values = scores.primary_metric[:, row["layer"]]
        assert row["accuracy"] == pytest.approx(values.mean())
        low, high = stats.t.interval(0.95, 1, values.mean(), max(stats.sem(values), 1e-12))
        assert row["accuracy_interval"] == pytest.approx((high - low) / 2, rel=1e-3, abs=1e-4)
    plain = json.loads(json.dumps(scores.to_dict(), allow_nan=False))
    assert len(plain["layers"]) == 3
    assert str(scores).startswith("upos: best layer")
    assert scores._repr_html_().count("<tr>") == 4
    pytest.importorskip("matplotlib").use("agg")
    assert probes["distance"].plot().get_title() == "distance"


def test_invalid_files_or_options_raise(model, files, tmp_path):
    backbone, preprocessor = model
    for changes, message in (
        ({"tasks": ["xpos"]}, r"tasks must be a list of upos, relation"),
        ({"tasks": "upos"}, "must be a list of upos"),
        ({"seeds": 0}, "seeds must be an integer above 0"),
        ({"epochs": 0}, "epochs must be an integer above 0"),
        ({"pooling": "last"}, "pooling must be one of mean, first"),
    ):
        with pytest.raises(ValueError, match=message):
            insight.probe(backbone, *files, **{"preprocessor": preprocessor, **changes})
    (tmp_path / "loop.conllu").write_text(make_conllu(["the/2/det films/1/nsubj ./1/punct"]))
    with pytest.raises(ValueError, match=r"loop\.conllu, sentence 0 \('the films \.'\): the heads"):
        annotated_words(backbone, preprocessor, tmp_path / "loop.conllu")
    short = data.TextClassifierPreprocessor(preprocessor.tokenizer, 5)
    with pytest.raises(ValueError, match=r"at most 5 tokens. Received: 4 longer"):
        annotated_words(backbone, short, files[1])
