# SPDX-License-Identifier: Apache-2.0
"""Measures how much a task depends on each attention head, and prunes heads."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import keras
import numpy as np

from keras_bert import checks
from keras_bert.config import BertConfig
from keras_bert.insight.drawing import Tabular, draw_heads, shaded, table_of_cells
from keras_bert.insight.hidden_states import require_row_logits
from keras_bert.layers import interventions
from keras_bert.models.backbone import Backbone
from keras_bert.ops.annotations import Tensor
from keras_bert.ops.gradients import gradient_function
from keras_bert.tasks.task import Task

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_TaskT = TypeVar("_TaskT", bound=Task)
# Number of timed passes over the batches. The median is reported.
_TIMED_PASSES = 7


@dataclasses.dataclass(frozen=True)
class HeadImportance(Tabular):
    """How much the loss depends on each head.

    Attributes:
        scores: Float64 `(layers, heads)`: mean over examples of the loss's absolute derivative with
            respect to a factor on the head's output, at 1. NaN where a layer has fewer heads than
            other layers.
        attention_owners: Index of the layer that owns the attention weights of each layer. Unless
            layers share weights, this is the layer itself.
        rows: Number of averaged examples.
        normalized: Whether each layer's scores are divided by their norm.
    """

    scores: np.ndarray
    attention_owners: tuple[int, ...]
    rows: int
    normalized: bool

    def least_important(self, share: float) -> dict[int, list[int]]:
        """Selects the heads with the lowest scores for pruning, but not all heads in a layer.

        Layers that share weights lose the same heads, selected by their mean scores.

        Args:
            share: Fraction of all heads to prune, in `[0, 1)`, rounded to a number of heads.

        Returns:
            The heads to prune in each layer, for `prune_heads`. There are fewer heads if a layer
            would otherwise lose all of them.

        Raises:
            ValueError: If `share` is out of range.
        """
        checks.PROPER_FRACTION.check(share=share)
        owners = np.array(self.attention_owners)
        means = {int(owner): self.scores[owners == owner].mean(0) for owner in sorted(set(owners))}
        present = {owner: int((~np.isnan(mean)).sum()) for owner, mean in means.items()}
        uses = {owner: int((owners == owner).sum()) for owner in means}
        num_to_prune = round(share * sum(present[owner] * uses[owner] for owner in means))
        lowest: dict[int, list[int]] = {owner: [] for owner in means}
        ranking = sorted(
            (float(mean[head]), owner, head)
            for owner, mean in means.items()
            for head in range(present[owner])
        )
        for _, owner, head in ranking:
            if uses[owner] <= num_to_prune and len(lowest[owner]) < present[owner] - 1:
                lowest[owner].append(head)
                num_to_prune -= uses[owner]
        return {
            layer: sorted(lowest[int(owner)])
            for layer, owner in enumerate(owners)
            if lowest[int(owner)]
        }

    def to_dict(self) -> dict[str, Any]:
        """Converts the result to values that JSON can represent. Absent heads are `None`."""
        return {
            "scores": [
                [None if np.isnan(score) else float(score) for score in layer]
                for layer in self.scores
            ],
            "rows": self.rows,
            "normalized": self.normalized,
        }

    def table(self) -> tuple[list[str], list[list[str]]]:
        rows = [
            [str(layer), *("" if np.isnan(score) else f"{score:.3g}" for score in scores)]
            for layer, scores in enumerate(self.scores)
        ]
        return ["layer", *map(str, range(self.scores.shape[1]))], rows

    def _repr_html_(self) -> str:
        """Shows a table of layers and heads, shaded by their scores."""
        largest = float(np.nanmax(self.scores)) or 1.0

        def cell(score: float) -> str:
            return "<td></td>" if np.isnan(score) else shaded(f"{score:.3g}", score / largest)

        rows = [([layer], "".join(map(cell, row))) for layer, row in enumerate(self.scores)]
        return table_of_cells(self.table()[0], rows)

    def plot(self, axes: Axes | None = None) -> Axes:
        """Draws the scores as a heat map, with the first layer at the bottom.

        Args:
            axes: Axes to draw on. `None` creates a figure.

        Raises:
            ImportError: If matplotlib is not installed.
        """
        return draw_heads(self.scores, f"importance, {self.rows} examples", axes)


def head_importance(
    task: Task,
    x: Any,
    y: Any = None,
    *,
    normalize: bool = True,
    batch_size: int = 16,
    verbose: int | str = 0,
) -> HeadImportance:
    """Measures with gradients how much a task's loss depends on each attention head.

    Args:
        task: Trained task with a preprocessor: a `TextClassifier`, `TokenClassifier`,
            `QuestionAnswerer`, `MultipleChoice`, `MaskedLM`, or a task with `has_row_logits`.
        x: Text in any form that the task's `evaluate` accepts.
        y: Labels. `None` for a masked LM, or if a dataset contains them.
        normalize: Whether to divide each layer's scores by their Euclidean norm. Otherwise, scores
            in different layers are hardly comparable.
        batch_size: Number of examples per batch.
        verbose: 1 shows a progress bar.

    Returns:
        A `HeadImportance`. It prints as a table, is displayed in notebooks and has a `plot` method.

    Raises:
        ValueError: If the task is not supported, its loss is not a `keras.losses` object, or `x` is
            not text.

    Example:

    ```python
    importance = head_importance(classifier, texts, labels)
    smaller = prune_heads(classifier, importance.least_important(0.3))
    print(compare_pruned(classifier, smaller, validation_texts, validation_labels))
    ```

    Reference:
        [Are sixteen heads really better than one?](https://arxiv.org/abs/1905.10650), section 4.1.
    """
    require_row_logits(task)
    counts = task.config.effective_heads_by_layer
    offsets = [0, *np.cumsum(counts).tolist()]

    def loss(task: Any, weights: Tensor, features: Any, labels: Any, sample_weights: Any) -> Tensor:
        ids = features["token_ids"]
        # Each choice is a sequence in the encoder, with the weights of its example.
        repeats = ids.shape[1] if len(ids.shape) == 3 else 1
        row_weights = keras.ops.repeat(weights, repeats, axis=0)
        by_layer = [row_weights[:, start:end] for start, end in itertools.pairwise(offsets)]
        with _weighing(task.backbone, by_layer):
            outputs = task(features, training=False)
        total = 0
        for row in range(weights.shape[0]):
            own = keras.tree.map_structure(
                lambda value, row=row: None if value is None else value[row : row + 1],
                (labels, outputs, sample_weights),
            )
            total = total + task.batch_loss(*own)
        return total

    gradient = gradient_function(loss, task)
    batches = task.evaluation_batches(x, y, batch_size=batch_size)
    progress = keras.utils.Progbar(None, verbose=int(verbose != 0))
    totals, rows = np.zeros(sum(counts)), 0
    for features, labels, *rest in batches:
        sample_weights = rest[0] if rest else None
        number = len(features["token_ids"])
        has_weight = np.ones(number, bool)
        if sample_weights is not None:
            first = keras.tree.flatten(sample_weights)[0]
            has_weight = np.asarray(first).reshape(number, -1).sum(axis=-1) > 0
        tensors = keras.tree.map_structure(
            lambda value: None if value is None else keras.ops.convert_to_tensor(value),
            (features, labels, sample_weights),
        )
        _, slope = gradient(np.ones((number, sum(counts)), "float32"), *tensors)
        totals += np.abs(slope.astype("float64"))[has_weight].sum(axis=0)
        rows += int(has_weight.sum())
        progress.add(1)
    scores = np.full((len(counts), max(counts)), np.nan)
    for layer, layer_scores in enumerate(np.split(totals / max(rows, 1), offsets[1:-1])):
        norm = float(np.linalg.norm(layer_scores)) if normalize else 1.0
        scores[layer, : len(layer_scores)] = layer_scores / (norm or 1.0)
    return HeadImportance(scores, task.config.attention_owners, rows, normalize)


@contextlib.contextmanager
def _weighing(backbone: Backbone, weights: Sequence[Tensor]) -> Iterator[None]:
    """Multiplies the heads in each layer by weights, each `(batch or 1, heads)`."""
    owners = backbone.config.attention_owners
    with contextlib.ExitStack() as stack:
        for owner in sorted(set(owners)):
            layer_weights = [
                weight for weight, own in zip(weights, owners, strict=True) if own == owner
            ]
            attention = backbone.blocks[owner].attention
            stack.enter_context(interventions.weigh_heads(attention, layer_weights))
        yield


def prune_heads(task: _TaskT, heads: Mapping[int, Sequence[int]]) -> _TaskT:
    """Creates a task without some attention heads. Its weight matrices are smaller.

    Its outputs equal the original task's outputs with these heads set to 0. It can be trained,
    exported, and saved as a `.keras` file or a preset. Checkpoint formats of other libraries cannot
    represent it.

    Args:
        task: Task with one encoder. It is not changed.
        heads: Heads to remove in each layer. Layers and heads are counted from 0. Layers that share
            weights lose the same heads, so you only need to pass one of these layers.

    Returns:
        A new task of the same class, compiled like the original task, with a new optimizer.

    Raises:
        ValueError: If the task is a `Distiller`, heads share keys and values, a layer or a head
            does not exist, all heads in a layer would be removed, or layers are quantized.
    """
    config = task.config
    if config.num_key_value_heads is not None:
        raise ValueError(
            "num_key_value_heads must be None, because heads that share keys and values cannot be "
            f"pruned. Received: {config.num_key_value_heads}"
        )
    remaining_heads = _remaining_heads(config, heads)
    quantized = [layer.path for layer in task._flatten_layers() if layer.quantization_mode]
    if quantized:
        raise ValueError(
            "Heads must be pruned before quantizing. Received: quantized layers "
            f"{', '.join(quantized)}"
        )
    fields = task.get_config()
    if "backbone" not in fields:
        raise ValueError(
            f"A {type(task).__name__} consists of other tasks. Prune one of these, for example its "
            "`student_task`."
        )
    smaller = config.replace(heads_by_layer=tuple(map(len, remaining_heads)))
    fields["backbone"]["config"]["config"] = smaller.to_dict()
    pruned: _TaskT = type(task).from_config(fields)
    slices = {}
    for layer in sorted(set(config.attention_owners)):
        block, dim = task.backbone.blocks[layer], config.head_dim
        inside = np.concatenate(
            [np.arange(head * dim, (head + 1) * dim) for head in remaining_heads[layer]]
        )
        width = block.attention.query_width
        # The kernel contains the queries of all heads, then the keys, then the values.
        columns = np.concatenate([index * width + inside for index in range(3)])
        for variable in block.attention.query_key_value.variables:
            # This includes the bias and the second matrix of LoRA, but not its first matrix.
            if variable.shape[-1] == 3 * width:
                slices[id(variable)] = (columns, -1)
        slices[id(block.attention.output_projection.kernel)] = (inside, 0)
    for old, new in zip(task.variables, pruned.variables, strict=True):
        value = keras.ops.convert_to_numpy(old)
        if id(old) in slices:
            value = np.take(value, *slices[id(old)])
        new.assign(value)
    if task.compiled:
        pruned.compile_from_config(task.get_compile_config())
    return pruned


def _remaining_heads(config: BertConfig, heads: Mapping[int, Sequence[int]]) -> list[list[int]]:
    counts = config.effective_heads_by_layer
    removed_heads: dict[int, set[int]] = {}
    for layer, numbers in heads.items():
        if layer not in range(config.num_layers):
            raise ValueError(
                f"heads must only contain layers 0 to {config.num_layers - 1}. Received: {layer!r}"
            )
        wrong = [head for head in numbers if head not in range(counts[layer])]
        if wrong:
            raise ValueError(
                f"heads must only contain heads 0 to {counts[layer] - 1} in layer {layer}. "
                f"Received: {wrong[0]!r}"
            )
        removed_heads.setdefault(config.attention_owners[layer], set()).update(numbers)
    remaining_heads = []
    for layer, owner in enumerate(config.attention_owners):
        remaining = [
            head for head in range(counts[layer]) if head not in removed_heads.get(owner, ())
        ]
        if not remaining:
            raise ValueError(
                f"At least one head must remain in each layer. Received: all heads in layer {layer}"
            )
        remaining_heads.append(remaining)
    return remaining_heads


@dataclasses.dataclass(frozen=True)
class PruningReport(Tabular):
    """Compares a task with its pruned version.

    Attributes:
        heads: Number of heads in all layers, before and after.
        parameters: Number of parameters, before and after.
        seconds: Median time per pass over the timed batches, in seconds, before and after.
        scores: Results of `evaluate`, before and after.
    """

    heads: tuple[int, int]
    parameters: tuple[int, int]
    seconds: tuple[float, float]
    scores: tuple[dict[str, float], dict[str, float]]

    @property
    def rows(self) -> list[dict[str, Any]]:
        """Dicts with `name`, `before`, `after` and `change` in percent."""
        names = ("heads", "parameters", "seconds")
        pairs: dict[str, tuple[float, float]] = {name: getattr(self, name) for name in names}
        pairs |= {name: (score, self.scores[1][name]) for name, score in self.scores[0].items()}
        return [
            {
                "name": name,
                "before": before,
                "after": after,
                "change": 100 * (after - before) / before if before else float("nan"),
            }
            for name, (before, after) in pairs.items()
        ]

    def table(self) -> tuple[list[str], list[list[str]]]:
        rows = [
            [row["name"], f"{row['before']:,.6g}", f"{row['after']:,.6g}", f"{row['change']:.1f}"]
            for row in self.rows
        ]
        return ["", "before", "after", "change, %"], rows


def compare_pruned(
    task: Task, pruned: Task, x: Any, y: Any = None, *, batch_size: int = 32, batches: int = 4
) -> PruningReport:
    """Compares a task with the task that `prune_heads` created from it.

    Args:
        task: Original task, compiled.
        pruned: Pruned task, compiled.
        x: Text in any form that `evaluate` accepts.
        y: Labels.
        batch_size: Number of examples per batch.
        batches: Number of batches to time. The tasks alternate, with seven passes each after a
            warmup. Reading text is not timed.

    Raises:
        ValueError: If a task is not compiled, because it has no metrics then.
    """
    tasks = (task, pruned)
    for each in tasks:
        if not each.compiled:
            raise ValueError(f"The {type(each).__name__} must be compiled. Call `compile` first.")
    all_batches = task.evaluation_batches(x, y, batch_size=batch_size)
    timed_batches = [features for features, *_ in itertools.islice(all_batches, batches)]
    seconds: tuple[list[float], list[float]] = ([], [])
    for number in range(_TIMED_PASSES + 1):
        for each, times in zip(tasks, seconds, strict=True):
            start = time.perf_counter()
            for features in timed_batches:
                each.predict_on_batch(features)
            if number:  # The first pass compiles.
                times.append(time.perf_counter() - start)

    def scores_of(task: Task) -> dict[str, float]:
        scores = task.evaluate(x, y, batch_size=batch_size, verbose=0, return_dict=True)
        return {name: float(value) for name, value in scores.items()}

    return PruningReport(
        heads=(_num_heads(task), _num_heads(pruned)),
        parameters=(task.count_params(), pruned.count_params()),
        seconds=(statistics.median(seconds[0]), statistics.median(seconds[1])),
        scores=(scores_of(task), scores_of(pruned)),
    )


def _num_heads(task: Task) -> int:
    return sum(task.config.effective_heads_by_layer)
