# SPDX-License-Identifier: Apache-2.0
"""Head importance matches loss differences, and heads can be pruned from tasks."""

import contextlib
import json

import keras
import numpy as np
import pytest

import keras_bert
from keras_bert import (
    Backbone,
    BertConfig,
    Distiller,
    MaskedLM,
    MultipleChoice,
    Pretrainer,
    QuestionAnswerer,
    TextClassifier,
    TextEmbedder,
    TokenClassifier,
    checkpoints,
    data,
    insight,
)
from keras_bert.families import SIZES
from keras_bert.layers import interventions
from tests.text.small_tokenizers import make_tokenizer

pytestmark = pytest.mark.on_torch

WORDS = "a the film was gripping dull good bad , . ? who in paris ann ate slept"
TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS.split(), "##s"]
SMALL = {
    "vocabulary_size": len(TOKENS),
    "num_layers": 3,
    "num_heads": 4,
    "hidden_dim": 16,
    "intermediate_dim": 32,
    "max_sequence_length": 32,
    "pad_token_id": 0,
    "initializer_range": 0.4,
}
FAMILIES = {"bert": "bert_base_uncased", "albert": "albert_base_v2"}
HEADS = {0: [1, 2], 2: [0, 1, 3]}
# All layers of ALBERT have the same weights
SHARED_HEADS = {0: [1], 2: [3]}
TEXTS = ["the films was gripping", "a dull film in paris , was bad", ("who ate ?", "ann")]


def make_config(family, **changes):
    fields = {**SIZES[FAMILIES[family]], **SMALL, **changes}
    if "embedding_dim" in fields:
        fields["embedding_dim"] = 8
    return BertConfig(**fields)


def make_preprocessor(kind=data.TextClassifierPreprocessor, **options):
    return kind(make_tokenizer(*TOKENS), 24, **options)


def randomize_biases(task):
    """Sets nonzero biases, so that a bias of the wrong head is noticed."""
    random = np.random.default_rng(0)
    for variable in task.weights:
        if variable.path.endswith("bias"):
            variable.assign(random.normal(0, 0.3, variable.shape))
    return task


def compute_without_heads(task, features, heads):
    """Computes a task's outputs with the outputs of `heads` multiplied by 0."""
    config = task.config
    weights = np.ones((config.num_layers, 1, config.num_heads), "float32")
    for layer, numbers in heads.items():
        owner = config.attention_owners[layer]
        for other in range(config.num_layers):
            if config.attention_owners[other] == owner:
                weights[other, 0, numbers] = 0
    with contextlib.ExitStack() as stack:
        for owner in set(config.attention_owners):
            layer_weights = [
                keras.ops.convert_to_tensor(weights[layer])
                for layer in range(config.num_layers)
                if config.attention_owners[layer] == owner
            ]
            attention = task.backbone.blocks[owner].attention
            stack.enter_context(interventions.weigh_heads(attention, layer_weights))
        return compute_outputs(task, features)


def compute_outputs(task, features):
    return keras.tree.map_structure(keras.ops.convert_to_numpy, task(features, training=False))


def make_features(rows=2, length=7):
    random = np.random.default_rng(3)
    mask = np.arange(length) < np.array([[length], [length - 3]] * (rows // 2))
    ids = np.where(mask, random.integers(5, len(TOKENS), mask.shape), 0)
    return {"token_ids": ids.astype("int32"), "padding_mask": mask}


def count_removed_heads(task, pruned):
    return sum(task.config.effective_heads_by_layer) - sum(pruned.config.effective_heads_by_layer)


@pytest.mark.parametrize("family", FAMILIES)
def test_pruned_task_matches_zeroed_heads(family):
    keras.utils.set_random_seed(1)
    task = randomize_biases(TextClassifier(Backbone(make_config(family)), 3))
    heads = SHARED_HEADS if family == "albert" else HEADS
    pruned = insight.prune_heads(task, heads)
    features = make_features()
    expected = compute_without_heads(task, features, heads)
    np.testing.assert_allclose(compute_outputs(pruned, features), expected, atol=1e-5)
    assert np.abs(compute_outputs(task, features) - expected).max() > 1e-2
    # Queries, keys and values with biases, and the rows of the output projection, of dimension 4
    weights_per_head = 4 * (3 * (16 + 1) + 16)
    stored = 2 if family == "albert" else 5
    assert task.count_params() - pruned.count_params() == stored * weights_per_head
    assert count_removed_heads(task, pruned) == (6 if family == "albert" else 5)
    # Prune the pruned task again.
    pruned_twice = insight.prune_heads(pruned, {1: [0]})
    both = {**heads, 1: [0]}
    np.testing.assert_allclose(
        compute_outputs(pruned_twice, features),
        compute_without_heads(task, features, both),
        atol=1e-5,
    )


@pytest.mark.parametrize(
    ("kind", "arguments"),
    [(TokenClassifier, (2,)), (QuestionAnswerer, ()), (TextEmbedder, ()), (Pretrainer, ())],
)
def test_every_task_can_be_pruned(kind, arguments):
    keras.utils.set_random_seed(1)
    task = randomize_biases(kind(Backbone(make_config("bert")), *arguments))
    features = make_features()
    if kind is Pretrainer:
        features["mask_positions"] = np.array([[1, 2]] * 2, "int32")
    expected = compute_without_heads(task, features, HEADS)
    pruned = insight.prune_heads(task, HEADS)
    for actual, masked_output in zip(
        keras.tree.flatten(compute_outputs(pruned, features)),
        keras.tree.flatten(expected),
        strict=True,
    ):
        np.testing.assert_allclose(actual, masked_output, atol=1e-5)


@pytest.fixture(scope="module")
def pruned():
    keras.utils.set_random_seed(1)
    task = TextClassifier(
        Backbone(make_config("bert")), class_names=["bad", "good"], preprocessor=make_preprocessor()
    )
    task.compile("sgd")
    return insight.prune_heads(randomize_biases(task), HEADS)


def test_pruned_task_trains_and_round_trips(pruned, tmp_path):
    texts = ["the film was good", "the film was bad"] * 8
    pruned.fit(texts, ["good", "bad"] * 8, batch_size=8, verbose=0)
    expected = pruned.predict(texts[:2], verbose=0)
    pruned.save(tmp_path / "model.keras")
    pruned.save_to_preset(tmp_path / "preset")
    for loaded in (
        keras_bert.load_model(tmp_path / "model.keras"),
        TextClassifier.from_preset(tmp_path / "preset"),
    ):
        assert loaded.config.heads_by_layer == (2, 4, 1)
        np.testing.assert_allclose(loaded.predict(texts[:2], verbose=0), expected, atol=1e-6)
    (patterns,) = insight.attention_patterns(pruned, texts[0]).scores
    assert [len(layer) for layer in patterns] == [2, 4, 1]
    with pytest.raises(checkpoints.CheckpointError, match="heads_by_layer=None"):
        checkpoints.save_hugging_face(pruned, tmp_path / "other")


def test_lora_updates_are_pruned():
    keras.utils.set_random_seed(1)
    task = TextClassifier(Backbone(make_config("bert")), 2)
    task.backbone.enable_lora(2)
    random = np.random.default_rng(0)
    for variable in task.trainable_variables:
        variable.assign(random.normal(0, 0.3, variable.shape))
    pruned = insight.prune_heads(task, HEADS)
    features = make_features()
    np.testing.assert_allclose(
        compute_outputs(pruned, features), compute_without_heads(task, features, HEADS), atol=1e-5
    )
    assert [list(v.shape) for v in pruned.trainable_variables][1] == [2, 3 * 2 * 4]


def loss_slopes(task, batches, layer, head, step=1e-2):
    """Returns the derivative of each row's loss by a head's factor, from central differences."""
    slopes = []
    for features, labels, weights in batches:
        losses = []
        for factor in (1 + step, 1 - step):
            values = np.ones((task.config.num_layers, 1, 4), "float32")
            values[layer, 0, head] = factor
            with contextlib.ExitStack() as stack:
                for index, block in enumerate(task.backbone.blocks):
                    factors = keras.ops.convert_to_tensor(values[index])
                    stack.enter_context(interventions.weigh_heads(block.attention, [factors]))
                outputs = task(features, training=False)
            loss = task.batch_loss(labels, outputs, weights)
            losses.append(float(keras.ops.convert_to_numpy(loss)))
        slopes.append((losses[0] - losses[1]) / (2 * step))
    return np.array(slopes)


def make_single_batches(task, x, y):
    """Returns a batch for each row: features, labels, and sample weights or `None`."""
    return [
        (*batch, *[None] * (3 - len(batch)))
        for batch in task.evaluation_batches(x, y, batch_size=1)
    ]


CASES = {
    TextClassifier: (
        (2,), make_preprocessor, ["the film was good", "a dull film , bad"], [1, 0],
    ),
    TokenClassifier: (
        (2,),
        lambda: make_preprocessor(data.TokenClassifierPreprocessor),
        [["films", "in", "paris"], ["ann"]],
        [[0, 0, 1], [1]],
    ),
    QuestionAnswerer: (
        (),
        lambda: make_preprocessor(
            data.QuestionAnswererPreprocessor, doc_stride=4, max_query_length=6
        ),
        [
            {"question": question, "context": context, "answers": answers}
            for question, context, answers in (
                ("who slept ?", "ann slept in paris", {"text": ["ann"], "answer_start": [0]}),
                ("who ate ?", "in paris , ann ate .", {"text": ["ann"], "answer_start": [11]}),
            )
        ],
        None,
    ),
    MultipleChoice: (
        (),
        lambda: make_preprocessor(data.MultipleChoicePreprocessor),
        [("ann ate", ["in paris", "a film , dull"]), ("who slept", ["ann .", "a film"])],
        [0, 1],
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", CASES)
def test_importance_is_mean_loss_derivative(kind):
    arguments, make, x, y = CASES[kind]
    keras.utils.set_random_seed(1)
    config = make_config("bert", initializer_range=0.2)
    task = randomize_biases(kind(Backbone(config), *arguments, preprocessor=make()))
    importance = insight.head_importance(task, x, y, normalize=False)
    rows = make_single_batches(task, x, y)
    assert importance.rows == len(rows)
    for layer, head in ((0, 0), (1, 3), (2, 1)):
        expected = np.abs(loss_slopes(task, rows, layer, head)).mean()
        np.testing.assert_allclose(importance.scores[layer, head], expected, rtol=0.03, atol=2e-4)
    normalized = insight.head_importance(task, x, y, batch_size=1)
    norms = np.linalg.norm(importance.scores, axis=1, keepdims=True)
    np.testing.assert_allclose(normalized.scores, importance.scores / norms, rtol=1e-3, atol=1e-4)


def test_importance_of_masked_lm_with_shared_layers():
    keras.utils.set_random_seed(1)
    task = MaskedLM(Backbone(make_config("albert")), preprocessor=make_preprocessor())
    importance = insight.head_importance(task, ["the films was gripping"] * 4)
    assert importance.rows == 4
    np.testing.assert_allclose(np.linalg.norm(importance.scores, axis=1), 1, rtol=1e-5)
    # Each layer has separate scores, although the weights are shared.
    assert np.abs(importance.scores[0] - importance.scores[2]).max() > 1e-3
    chosen = importance.least_important(0.5)
    worst = np.argsort(importance.scores.mean(axis=0))[:2]
    assert chosen == {layer: sorted(worst.tolist()) for layer in range(3)}


def test_least_important_keeps_a_head_per_layer():
    scores = np.array([[0.1, 0.2, 0.3], [0.9, np.nan, np.nan], [0.8, 0.15, np.nan]])
    importance = insight.HeadImportance(scores, (0, 1, 2), 5, False)
    assert importance.least_important(0.0) == {}
    assert importance.least_important(0.34) == {0: [0], 2: [1]}
    assert importance.least_important(0.5) == {0: [0, 1], 2: [1]}
    assert importance.least_important(0.9) == {0: [0, 1], 2: [1]}
    with pytest.raises(ValueError, match=r"share must be a number in \[0, 1\)"):
        importance.least_important(1)
    plain = json.loads(json.dumps(importance.to_dict()))
    assert plain["scores"][1] == [0.9, None, None]
    assert str(importance).splitlines()[2].split() == ["1", "0.9"]
    assert importance._repr_html_().count("<td></td>") == 3
    pytest.importorskip("matplotlib").use("agg")
    np.testing.assert_array_equal(importance.plot().images[0].get_array().filled(np.nan), scores)


def test_compare_pruned_report(pruned):
    keras.utils.set_random_seed(1)
    task = TextClassifier(
        Backbone(make_config("bert")), class_names=["bad", "good"], preprocessor=make_preprocessor()
    )
    x, y = ["the film was good", "bad"] * 3, ["good", "bad"] * 3
    with pytest.raises(ValueError, match="The TextClassifier must be compiled"):
        insight.compare_pruned(task, pruned, x, y)
    task.compile("sgd")
    report = insight.compare_pruned(task, pruned, x, y)
    assert report.heads == (12, 7)
    assert report.parameters == (task.count_params(), pruned.count_params())
    assert min(report.seconds) > 0
    for each, scores in zip((task, pruned), report.scores, strict=True):
        expected = each.evaluate(x, y, verbose=0, return_dict=True)
        np.testing.assert_allclose(scores["loss"], expected["loss"], rtol=1e-5)
    assert [row["name"] for row in report.rows][:3] == ["heads", "parameters", "seconds"]
    assert str(report).splitlines()[1].split() == ["heads", "12", "7", "-41.7"]
    assert report._repr_html_().count("<tr>") == len(report.rows) + 1


def test_unsupported_pruning_raises():
    task = TextClassifier(Backbone(make_config("bert")), 2)
    for heads, message in (
        ({3: [0]}, "heads must only contain layers 0 to 2. Received: 3"),
        ({1: [4]}, "heads 0 to 3 in layer 1. Received: 4"),
        (
            {1: [0, 1, 2, 3]},
            r"At least one head must remain in each layer\. Received: all heads in layer 1",
        ),
    ):
        with pytest.raises(ValueError, match=message):
            insight.prune_heads(task, heads)
    task.backbone.blocks[0].feed_forward.intermediate.quantize("int8")
    with pytest.raises(ValueError, match="must be pruned before quantizing"):
        insight.prune_heads(task, HEADS)
    shared = TextClassifier(Backbone(make_config("bert").replace(num_key_value_heads=2)), 2)
    with pytest.raises(
        ValueError,
        match=r"num_key_value_heads must be None, because .* cannot be pruned\. Received: 2",
    ):
        insight.prune_heads(shared, HEADS)
    student = MaskedLM(Backbone(make_config("bert")))
    with pytest.raises(ValueError, match="A Distiller consists of other tasks"):
        insight.prune_heads(Distiller(MaskedLM(Backbone(make_config("bert"))), student), HEADS)
    embedder = TextEmbedder(Backbone(make_config("bert")))
    with pytest.raises(
        ValueError,
        match=r"must be a task with a head .*, such as a TextClassifier\. Received: a TextEmbedder",
    ):
        insight.head_importance(embedder, TEXTS)
    with pytest.raises(ValueError, match=r"in a form that `evaluate` accepts\. Received: dict"):
        insight.head_importance(
            TextClassifier(Backbone(make_config("bert")), 2), make_features(), [0, 1]
        )
