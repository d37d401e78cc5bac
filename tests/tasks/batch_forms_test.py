# SPDX-License-Identifier: Apache-2.0
"""`fit` and `evaluate` average losses and metrics over all rows and tokens, not over batches."""

import keras
import numpy as np
import pytest

from keras_bert import MultipleChoice, Pretrainer, TextClassifier, TextEmbedder, TokenClassifier
from tests.small_tasks import CONFIG, TASKS, make_task

# Few shapes, because JAX compiles a function for each
LENGTHS = (8, 3) * 4


class Batches(keras.utils.PyDataset):
    def __init__(self, batches):
        super().__init__()
        self.batches = batches

    def __len__(self):
        return len(self.batches)

    def __getitem__(self, index):
        return self.batches[index]


def make_rows(task):
    """Returns unpadded single rows of ids for a task, with different lengths and weights."""
    random = np.random.default_rng(1)
    rows = []
    for number, length in enumerate(LENGTHS):
        features, targets, weights = TASKS[task]()[1]
        # The width is the number of masked positions or, for a tagger, of tokens.
        width = 1 + number % 2 if "mask_positions" in features else length

        def truncate(value, width=width, number=number):
            return np.array(value[:1, :width] if np.ndim(value) > 1 else value[:1])

        row = {
            "token_ids": random.integers(1, 50, (1, length), "int32"),
            "padding_mask": np.ones((1, length), bool),
        }
        if "mask_positions" in features:
            row["mask_positions"] = np.arange(width)[None] % length
        targets = keras.tree.map_structure(truncate, targets)
        weights = keras.tree.map_structure(
            lambda x, truncate=truncate, n=number: np.ones_like(truncate(x)) * (1.0 + n % 3),
            weights,
        )
        rows.append((row, targets, weights))
    return rows


def make_batches(rows, size):
    """Returns batches of `size` rows, padded to the longest row with weights of 0."""
    return Batches(
        [_pad_and_join(rows[start : start + size]) for start in range(0, len(rows), size)]
    )


def _pad_and_join(rows):
    if len(rows) == 1:
        return rows[0]

    def concatenate(*parts):
        widest = max(part.shape[-1] for part in parts)
        missing = [[(0, 0)] * (part.ndim - 1) + [(0, widest - part.shape[-1])] for part in parts]
        padded = zip(parts, missing, strict=True)
        return np.concatenate([np.pad(p, m) if p.ndim > 1 else p for p, m in padded])

    return tuple(keras.tree.map_structure(concatenate, *part) for part in zip(*rows, strict=True))


# An embedder's loss depends on the batch, and the choices of a row have the same length.
COMPARED_TASKS = [task for task in TASKS if task not in (TextEmbedder, MultipleChoice)]
# A loss per token, and two losses with different divisors
ON_EACH_BACKEND = TokenClassifier, Pretrainer


@pytest.mark.parametrize(
    "task",
    [
        pytest.param(task, marks=() if task in ON_EACH_BACKEND else pytest.mark.on_torch)
        for task in COMPARED_TASKS
    ],
)
def test_evaluate_does_not_depend_on_batches(task):
    model = make_task(task)
    model.compile()
    rows = make_rows(task)
    expected = model.evaluate(make_batches(rows, 1), verbose=0, return_dict=True)
    for size in (3, len(rows)):
        result = model.evaluate(make_batches(rows, size), verbose=0, return_dict=True)
        assert result == pytest.approx(expected, rel=1e-5, abs=1e-6), size
    shuffled = [rows[index] for index in (1, 4, 2, 0, 7, 3, 5, 6)]
    result = model.evaluate(make_batches(shuffled, 3), verbose=0, return_dict=True)
    assert result == pytest.approx(expected, rel=1e-5, abs=1e-6)


@pytest.mark.on_torch
def test_token_loss_and_accuracy_match_numpy():
    def is_right(y, logits):
        return y == keras.ops.cast(keras.ops.argmax(logits, axis=-1), y.dtype)

    model = make_task(TokenClassifier)
    wrapper = keras.metrics.MeanMetricWrapper(is_right, name="wrapped")
    model.compile(metrics=["accuracy", is_right, wrapper])
    rows = make_rows(TokenClassifier)
    result = model.evaluate(make_batches(rows, 3), verbose=0, return_dict=True)
    losses, right, weights = [], [], []
    for features, targets, weight in rows:
        logits = model.predict(features, verbose=0)[0].astype("float64")
        log_probabilities = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
        losses += [-row[label] for row, label in zip(log_probabilities, targets[0], strict=True)]
        right += (logits.argmax(-1) == targets[0]).tolist()
        weights += weight[0].tolist()
    expected = {
        "loss": np.average(losses, weights=weights),
        **dict.fromkeys(("accuracy", "is_right", "wrapped"), np.average(right, weights=weights)),
    }
    assert result == pytest.approx(expected, rel=1e-5)
    model.compile(metrics=[lambda y, logits: keras.ops.mean(is_right(y, logits), axis=1)])
    with pytest.raises(ValueError, match="must return a value for each example or token"):
        model.evaluate(make_batches(rows, 3), verbose=0)


@pytest.mark.on_torch
def test_validation_skips_padding_and_ignored_labels():
    model = make_task(TokenClassifier)
    model.compile("sgd")
    random = np.random.default_rng(0)
    x = {
        "token_ids": random.integers(1, 50, (6, 8), "int32"),
        "padding_mask": np.arange(8) < random.integers(2, 9, (6, 1)),
    }
    y = np.where(random.random((6, 8)) < 0.4, -100, random.integers(0, 2, (6, 8)))
    history = model.fit(x, y, validation_data=(x, y), batch_size=4, verbose=0).history
    result = model.evaluate(x, y, verbose=0, return_dict=True)
    validation = {name: history[f"val_{name}"][0] for name in result}
    assert validation == pytest.approx(result, rel=1e-5)


def test_float16_encoder_gets_loss_scaling(tmp_path):
    """The head and the losses are float32. Only the encoder computes in float16."""
    from keras_bert import Backbone, load_model

    model = TextClassifier(Backbone(CONFIG, dtype="mixed_float16"), num_classes=2)
    model.compile()
    assert isinstance(model.optimizer, keras.optimizers.LossScaleOptimizer)
    model.fit(TASKS[TextClassifier](), verbose=0)
    model.save(tmp_path / "model.keras")
    loaded = load_model(tmp_path / "model.keras")
    assert isinstance(loaded.optimizer, keras.optimizers.LossScaleOptimizer)
    assert int(loaded.optimizer.iterations) == int(model.optimizer.iterations) > 0
    model.compile(auto_scale_loss=False)
    assert not isinstance(model.optimizer, keras.optimizers.LossScaleOptimizer)
