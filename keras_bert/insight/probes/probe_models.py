# SPDX-License-Identifier: Apache-2.0
"""Probes for grammar: their models, tasks, control tasks and scores."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_bert.insight.probes.annotated_words import AnnotatedWords, depths, distances
from keras_bert.ops.annotations import Shape, Tensor

# Task -> its scores. The control task only has the first score.
TASKS = {
    "upos": ("accuracy",),
    "relation": ("accuracy",),
    "depth": ("spearman", "root_accuracy"),
    "distance": ("spearman", "uuas"),
}
_WORDS_IN_BATCH, _SENTENCES_IN_BATCH = 256, 32
# Rank correlations are averaged over sentences of these lengths, as in the structural probe paper.
SHORTEST, LONGEST = 5, 50


class _Probes(keras.layers.Layer):
    """Linear probes, trained together, each on a mix of layers.

    There is one probe for each layer, and one probe for all layers up to the second layer, the
    third layer and so on: `2 * layers - 1` probes. They share no weights, so with Adam each probe
    learns as if it were trained separately. Inputs are `(..., layers, hidden)`, outputs `(...,
    probes, units)`. For inputs with a mean square of 1, the initial outputs have a mean square of
    `mean_square`.

    Reference:
        [Deep contextualized word representations](https://arxiv.org/abs/1802.05365), equation 1.
    """

    def __init__(self, units: int, use_bias: bool, mean_square: float, seed: int) -> None:
        super().__init__()
        self.units = units
        self.use_bias = use_bias
        self.mean_square = mean_square
        self.seed = seed

    def build(self, input_shape: Shape) -> None:
        *_, layers, hidden = input_shape
        membership = np.concatenate([np.eye(layers), np.tri(layers)[1:]])
        self.penalty = np.where(membership > 0, 0.0, -1e9).astype("float32")
        probes = len(membership)
        self.mixing_weights = self.add_weight(
            name="mixing_weights", shape=membership.shape, initializer="zeros"
        )
        self.scale = self.add_weight(name="scale", shape=(probes, 1), initializer="ones")
        self.kernel = self.add_weight(
            name="kernel",
            shape=(probes, hidden, self.units),
            initializer=keras.initializers.RandomNormal(
                stddev=(self.mean_square / hidden) ** 0.5, seed=self.seed
            ),
        )
        if self.use_bias:
            self.bias = self.add_weight(
                name="bias", shape=(probes, self.units), initializer="zeros"
            )

    def shares(self) -> Tensor:
        """Returns the fraction of each layer in each mix, `(probes, layers)`."""
        return ops.softmax(self.mixing_weights + self.penalty, axis=-1)

    def call(self, inputs: Tensor) -> Tensor:
        layers, hidden = inputs.shape[-2:]
        probes = len(self.penalty)
        outer = ops.shape(inputs)[:-2]
        # (..., layers, hidden) -> (words, layers, hidden) -> (layers, words * hidden), so that
        # there are few and large matmuls
        x = ops.swapaxes(ops.reshape(inputs, (-1, layers, hidden)), 0, 1)
        mixes = ops.matmul(self.scale * self.shares(), ops.reshape(x, (layers, -1)))
        # (probes, words, hidden) x (probes, hidden, units) -> (words, probes, units)
        products = ops.matmul(ops.reshape(mixes, (probes, -1, hidden)), self.kernel)
        outputs = ops.reshape(ops.swapaxes(products, 0, 1), (*outer, probes, self.units))
        return outputs + self.bias if self.use_bias else outputs

    def compute_output_shape(self, input_shape: Shape) -> Any:
        return (*input_shape[:-2], 2 * input_shape[-2] - 1, self.units)


def train_probes(
    data: LabelProbes | TreeProbes, seed: int, epochs: int, learning_rate: float, rank: int
) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Trains a task's probes. Returns their scores and the mixing weights of all layers."""
    model, probes = data.model(seed, rank)
    model.compile(keras.optimizers.Adam(learning_rate), loss=data.loss)
    generator = np.random.default_rng(seed)
    for _ in range(epochs):
        for inputs, targets in data.training_batches(generator):
            model.train_on_batch(inputs, targets)
    scores = data.scores(model)
    shares = keras.ops.convert_to_numpy(probes.shares())[-1]
    return scores, shares.astype("float64")


# === Parts of speech and relations ===


def task_labels(task: str, dataset: AnnotatedWords) -> list[str]:
    if task == "upos":
        return list(dataset.upos)
    # The root has no head, so it has no relation.
    return [
        relation
        for relation, head in zip(dataset.relations, dataset.heads, strict=True)
        if head >= 0
    ]


class LabelProbes:
    """Linear probes for labels of words (`upos`), or of words and their heads (`relation`).

    In the control task, a generator samples the labels.
    """

    def __init__(
        self,
        task: str,
        train: AnnotatedWords,
        test: AnnotatedWords,
        generator: np.random.Generator | None,
    ) -> None:
        self.has_heads = task == "relation"
        self.datasets = (train, test)
        # The words with labels, and the positions of their heads among all words
        self.word_indices = [
            np.flatnonzero(dataset.heads >= 0) if self.has_heads else np.arange(len(dataset.words))
            for dataset in self.datasets
        ]
        self.heads = [
            np.repeat(dataset.splits[:-1], np.diff(dataset.splits)) + dataset.heads
            for dataset in self.datasets
        ]
        labels = [task_labels(task, dataset) for dataset in self.datasets]
        names, counts = np.unique(labels[0], return_counts=True)
        self.num_classes = len(names)
        if generator is None:
            numbers = {name: index for index, name in enumerate(names.tolist())}
            self.labels = [np.array([numbers.get(label, -1) for label in row]) for row in labels]
        else:
            types = sorted({*train.words, *test.words})
            type_labels = generator.choice(len(names), size=len(types), p=counts / counts.sum())
            label_by_type = dict(zip(types, type_labels.tolist(), strict=True))
            self.labels = [
                np.array([label_by_type[dataset.words[word]] for word in indices])
                for dataset, indices in zip(self.datasets, self.word_indices, strict=True)
            ]

    def model(self, seed: int, rank: int) -> tuple[keras.Model, _Probes]:
        """Returns the probes' model, with logits `(batch, probes, classes)`, and their layer."""
        layers, hidden = self.datasets[0].features.shape[1:]
        inputs = keras.Input((layers, hidden * (1 + self.has_heads)))
        probes = _Probes(self.num_classes, True, 1.0, seed)
        return keras.Model(inputs, probes(inputs)), probes

    @staticmethod
    def loss(labels: Tensor, logits: Tensor) -> Tensor:
        """Returns the mean cross-entropy of words with labels, summed over probes."""
        labels = ops.cast(ops.reshape(labels, (-1, 1)), "int32")
        has_label = ops.cast(labels >= 0, "float32")
        targets = ops.one_hot(ops.maximum(labels, 0), logits.shape[-1])
        losses = ops.categorical_crossentropy(targets + 0 * logits, logits, from_logits=True)
        return ops.sum(losses * has_label) / ops.maximum(ops.sum(has_label), 1.0)

    def training_batches(self, generator: np.random.Generator) -> Iterator[tuple[Any, Any]]:
        order = generator.permutation(len(self.labels[0]))
        for inputs, rows in self._batches(0, order):
            targets = np.full(_WORDS_IN_BATCH, -1)
            targets[: len(rows)] = self.labels[0][rows]
            yield inputs, targets

    def _batches(self, dataset: int, order: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yields full batches of features, padded with zeros, and their indices."""
        features, word_indices = self.datasets[dataset].features, self.word_indices[dataset]
        for start in range(0, len(order), _WORDS_IN_BATCH):
            rows = order[start : start + _WORDS_IN_BATCH]
            batch = features[word_indices[rows]]
            if self.has_heads:
                batch = np.concatenate(
                    [batch, features[self.heads[dataset][word_indices[rows]]]], axis=-1
                )
            if len(rows) < _WORDS_IN_BATCH:
                padding = _WORDS_IN_BATCH - len(rows)
                batch = np.pad(batch, [(0, padding), (0, 0), (0, 0)])
            yield batch, rows

    def scores(self, model: keras.Model) -> dict[str, np.ndarray]:
        labels = self.labels[1]
        right = np.zeros(2 * self.datasets[1].features.shape[1] - 1)
        for inputs, rows in self._batches(1, np.arange(len(labels))):
            best = np.argmax(model.predict_on_batch(inputs)[: len(rows)], axis=-1)
            right += (best == labels[rows, np.newaxis]).sum(axis=0)
        return {"accuracy": right / len(labels)}


# === Depth and distance in the tree ===


class TreeProbes:
    """Structural probes for the `depth` of words in trees, or for their `distance`.

    In the control task, a generator samples the depths of word types.
    """

    def __init__(
        self,
        task: str,
        train: AnnotatedWords,
        test: AnnotatedWords,
        generator: np.random.Generator | None,
    ) -> None:
        self.task = task
        self.is_control = generator is not None
        self.datasets = (train, test)
        measure = depths if task == "depth" else distances
        if generator is None:
            self.targets = [
                [measure(dataset.heads[dataset.sentence(index)]) for index in range(len(dataset))]
                for dataset in self.datasets
            ]
            return
        word_depths = np.concatenate(
            [depths(train.heads[train.sentence(index)]) for index in range(len(train))]
        )
        types = sorted({*train.words, *test.words})
        type_depths = generator.choice(word_depths, size=len(types))
        depth_by_type = dict(zip(types, type_depths.tolist(), strict=True))
        self.targets = []
        for dataset in self.datasets:
            values = np.array([depth_by_type[word] for word in dataset.words])
            rows = [values[dataset.sentence(index)] for index in range(len(dataset))]
            if task == "distance":
                rows = [np.abs(row[:, np.newaxis] - row) for row in rows]
            self.targets.append(rows)

    def model(self, seed: int, rank: int) -> tuple[keras.Model, _Probes]:
        """Returns the model of all probes, and their layer.

        The model outputs squared norms `(batch, probes, words)`, or squared distances `(batch,
        probes, words, words)`.
        """
        layers, hidden = self.datasets[0].features.shape[1:]
        inputs = keras.Input((None, layers, hidden))
        # The initial squared norms are about 1, like the depths and distances to predict.
        probes = _Probes(rank, False, 1 / rank, seed)
        # (batch, words, probes, rank) -> (batch, probes, words, rank)
        vectors = ops.transpose(probes(inputs), (0, 2, 1, 3))
        norms = ops.sum(ops.square(vectors), axis=-1)
        if self.task == "depth":
            return keras.Model(inputs, norms), probes
        products = ops.matmul(vectors, ops.swapaxes(vectors, -1, -2))
        squares = norms[..., :, None] + norms[..., None, :] - 2 * products
        return keras.Model(inputs, squares), probes

    @staticmethod
    def loss(targets: Tensor, outputs: Tensor) -> Tensor:
        """Returns the mean absolute difference in each sentence, summed over probes.

        This is the loss in the structural probe paper. Targets `(batch, 2, ...)` are the values and
        their weights. Outputs are `(batch, probes, ...)`.
        """
        differences = ops.abs(outputs - targets[:, :1]) * targets[:, 1:]
        return ops.sum(differences) / _SENTENCES_IN_BATCH

    def training_batches(self, generator: np.random.Generator) -> Iterator[tuple[Any, Any]]:
        batches = list(self._batches(0, generator))
        for number in generator.permutation(len(batches)):
            rows, length = batches[number]
            shape = (length,) * (1 if self.task == "depth" else 2)
            targets = np.zeros((_SENTENCES_IN_BATCH, 2, *shape), "float32")
            for index, row in enumerate(rows):
                values = self.targets[0][row]
                within = (slice(len(values)),) * values.ndim
                targets[index, 0][within] = values
                targets[index, 1][within] = 1 / values.size
            yield self._inputs(0, rows, length), targets

    def _batches(
        self, dataset: int, generator: np.random.Generator | None = None
    ) -> Iterator[tuple[np.ndarray, int]]:
        """Yields sentences of similar lengths, and their padded length (a power of two)."""
        lengths = np.diff(self.datasets[dataset].splits)
        padded_lengths = 1 << np.ceil(np.log2(np.maximum(lengths, 8))).astype(int)
        for length in np.unique(padded_lengths):
            rows = np.flatnonzero(padded_lengths == length)
            if generator is not None:
                rows = generator.permutation(rows)
            for start in range(0, len(rows), _SENTENCES_IN_BATCH):
                yield rows[start : start + _SENTENCES_IN_BATCH], int(length)

    def _inputs(self, dataset: int, rows: np.ndarray, length: int) -> np.ndarray:
        words = self.datasets[dataset]
        inputs = np.zeros((_SENTENCES_IN_BATCH, length, *words.features.shape[1:]), "float32")
        for index, row in enumerate(rows):
            own = words.features[words.sentence(row)]
            inputs[index, : len(own)] = own
        return inputs

    def scores(self, model: keras.Model) -> dict[str, np.ndarray]:
        test = self.datasets[1]
        by_length: dict[int, list[np.ndarray]] = {}
        probes = model.output_shape[1]
        right, total = np.zeros(probes), 0
        for rows, length in self._batches(1):
            outputs = model.predict_on_batch(self._inputs(1, rows, length))
            for row, output in zip(rows, outputs, strict=False):
                words, target = test.sentence(row), self.targets[1][row]
                count = len(target)
                prediction = output[(slice(None), *(slice(count),) * target.ndim)]
                if SHORTEST <= count <= LONGEST:
                    correlation = _rank_correlation(prediction, target)
                    if self.task == "distance":
                        correlation = correlation.mean(axis=-1)
                    by_length.setdefault(count, []).append(correlation)
                if self.is_control:
                    continue
                is_word = np.array(test.upos[words]) != "PUNCT"
                heads = test.heads[words]
                if self.task == "depth":
                    guesses = np.where(is_word, prediction, np.inf).argmin(axis=-1)
                    right += heads[guesses] == -1
                    total += 1
                else:
                    right += _num_right_edges(prediction, heads, is_word)
                    total += int((is_word & (heads >= 0) & is_word[heads]).sum())
        means = [np.mean(values, axis=0) for values in by_length.values()]
        spearman = np.mean(means, axis=0) if means else np.full(probes, np.nan)
        scores = {"spearman": spearman}
        if not self.is_control:
            scores[TASKS[self.task][1]] = right / max(total, 1)
        return scores


def _rank_correlation(predictions: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Returns Spearman's rank correlation over the last axis, or 0 if all values are equal."""
    from scipy.stats import rankdata

    # Ranks start at 1, so the mean of n ranks is (n + 1) / 2.
    left, right = (
        rankdata(values, axis=-1) - (values.shape[-1] + 1) / 2 for values in (predictions, target)
    )
    norms = np.sqrt((left**2).sum(axis=-1) * (right**2).sum(axis=-1))
    return np.asarray((left * right).sum(axis=-1) / np.maximum(norms, 1e-12))


def _num_right_edges(predictions: np.ndarray, heads: np.ndarray, is_word: np.ndarray) -> np.ndarray:
    """Returns how many edges of the minimum spanning trees are correct, without punctuation.

    Predictions are distances `(probes, words, words)`. The result is `(probes,)`.
    """
    word_indices = np.flatnonzero(is_word)
    probes, count = len(predictions), len(word_indices)
    right = np.zeros(probes, "int64")
    if count < 2:
        return right
    costs = predictions[:, word_indices][:, :, word_indices]
    edges = np.zeros((len(heads), len(heads)), bool)
    below = np.flatnonzero(heads >= 0)
    edges[below, heads[below]] = edges[heads[below], below] = True
    edges = edges[word_indices][:, word_indices]
    # Prim's algorithm, for all probes at once: the cheapest edge from the tree to each word
    rows = np.arange(probes)
    nearest, parents = costs[:, 0].copy(), np.zeros((probes, count), "int64")
    nearest[:, 0] = np.inf
    for _ in range(count - 1):
        word = nearest.argmin(axis=1)
        right += edges[word, parents[rows, word]]
        is_nearer = (costs[rows, word] < nearest) & np.isfinite(nearest)
        nearest = np.where(is_nearer, costs[rows, word], nearest)
        parents = np.where(is_nearer, word[:, np.newaxis], parents)
        nearest[rows, word] = np.inf
    return right
