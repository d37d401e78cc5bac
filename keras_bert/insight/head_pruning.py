# SPDX-License-Identifier: Apache-2.0
"""How much a task depends on each attention head, and tasks without some of them."""

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
# Number of timed passes over the batches; the median is reported
_TIMED_PASSES = 7


@dataclasses.dataclass(frozen=True)
class HeadImportance(Tabular):
    """How much the loss depends on each head.

    Attributes:
        scores: Float64 `(layers, heads)`: the mean over rows of the absolute derivative of the
            row's loss with respect to a factor of the head's output, at 1. NaN where a layer has
            fewer heads than another.
        attention_owners: For each layer the index of the layer that owns its attention weights,
            its own unless layers share weights.
        rows: The number of rows over which the scores are averaged.
        normalized: Whether each layer's scores are divided by their norm.
    """

    scores: np.ndarray
    attention_owners: tuple[int, ...]
    rows: int
    normalized: bool

    def least_important(self, share: float) -> dict[int, list[int]]:
        """Chooses the heads with the lowest scores for removal, but not all of a layer.

        Layers that share weights lose the same heads, chosen by the mean of their scores.

        Args:
            share: The fraction of all heads to remove, in `[0, 1)`, rounded to a number of heads.

        Returns:
            The heads of each layer, for `prune_heads`. They are fewer if otherwise a layer would
            lose all its heads.

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
        """Plain values for JSON; absent heads are `None`."""
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
        """A table of layers and heads, shaded by their scores."""
        largest = float(np.nanmax(self.scores)) or 1.0

        def cell(score: float) -> str:
            return "<td></td>" if np.isnan(score) else shaded(f"{score:.3g}", score / largest)

        rows = [([layer], "".join(map(cell, row))) for layer, row in enumerate(self.scores)]
        return table_of_cells(self.table()[0], rows)

    def plot(self, axes: Axes | None = None) -> Axes:
        """Draws the scores as a heat map, layers upwards.

        Args:
            axes: Where to draw; `None` makes a figure.

        Raises:
            ImportError: If matplotlib is not installed.
        """
        return draw_heads(self.scores, f"importance, {self.rows} rows", axes)


def head_importance(
    task: Task,
    x: Any,
    y: Any = None,
    *,
    normalize: bool = True,
    batch_size: int = 16,
    verbose: int | str = 0,
) -> HeadImportance:
    """Measures by gradients how much the loss of a task depends on each attention head.

    Args:
        task: A trained task with a preprocessor: a `TextClassifier`, `TokenClassifier`,
            `QuestionAnswerer`, `MultipleChoice`, `MaskedLM`, or another with `has_row_logits`.
        x: Text in any form that the `evaluate` of the task takes.
        y: Labels; `None` if a dataset has them, and for a masked LM.
        normalize: Whether to divide the scores of each layer by their Euclidean norm. Otherwise
            scores of different layers are hardly comparable.
        batch_size: Rows in a batch.
        verbose: 1 shows a progress bar.

    Returns:
        A `HeadImportance`, which prints as a table, shows in a notebook and draws itself.

    Raises:
        ValueError: If the task is none of these or its loss is not an object of `keras.losses`,
            or `x` is not text.

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
        # Each choice is a row of the encoder, with the weights of the row that it belongs to
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
    """Multiplies the heads of each layer by weights, each `(rows or 1, heads)`."""
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
    """Creates a task without some attention heads, with smaller matrices.

    Its outputs equal the task's with the outputs of these heads set to 0. It can be trained, saved
    as a `.keras` file or a preset, and exported; checkpoint formats of other libraries cannot
    represent it.

    Args:
        task: A task with one encoder, which is not changed.
        heads: By layer, the heads to remove; both are counted from 0. Layers that share weights
            lose the same heads, so it suffices to name one of these layers.

    Returns:
        A new task of the same class, compiled like the task, with a new optimizer.

    Raises:
        ValueError: If the task is a `Distiller`, heads share keys and values, a layer or a head
            does not exist, all heads of a layer would be removed, or layers are quantized.
    """
    config = task.config
    if config.num_key_value_heads is not None:
        raise ValueError(
            f"num_key_value_heads is {config.num_key_value_heads}: heads that share keys and "
            "values cannot be pruned; expected None."
        )
    remaining_heads = _remaining_heads(config, heads)
    quantized = [layer.path for layer in task._flatten_layers() if layer.quantization_mode]
    if quantized:
        raise ValueError(f"Prune before quantizing; quantized are {', '.join(quantized)}.")
    fields = task.get_config()
    if "backbone" not in fields:
        raise ValueError(
            f"A {type(task).__name__} is made of other tasks; prune one of them, such as its "
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
        # The queries of all heads come first, then the keys, then the values
        columns = np.concatenate([index * width + inside for index in range(3)])
        for variable in block.attention.query_key_value.variables:
            # Also the bias, and the second matrix of LoRA; not its first
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
                f"heads has layer {layer!r}; expected layers 0 to {config.num_layers - 1}."
            )
        wrong = [head for head in numbers if head not in range(counts[layer])]
        if wrong:
            raise ValueError(
                f"heads has head {wrong[0]!r} of layer {layer}; expected 0 to {counts[layer] - 1}."
            )
        removed_heads.setdefault(config.attention_owners[layer], set()).update(numbers)
    remaining_heads = []
    for layer, owner in enumerate(config.attention_owners):
        remaining = [
            head for head in range(counts[layer]) if head not in removed_heads.get(owner, ())
        ]
        if not remaining:
            raise ValueError(f"heads has all heads of layer {layer}; at least one must remain.")
        remaining_heads.append(remaining)
    return remaining_heads


@dataclasses.dataclass(frozen=True)
class PruningReport(Tabular):
    """A comparison of a task with the same task with fewer heads.

    Attributes:
        heads: The number of heads of all layers, before and after.
        parameters: The number of parameters, before and after.
        seconds: The median time of a pass over the timed batches, in seconds, before and after.
        scores: The results of `evaluate`, before and after.
    """

    heads: tuple[int, int]
    parameters: tuple[int, int]
    seconds: tuple[float, float]
    scores: tuple[dict[str, float], dict[str, float]]

    @property
    def rows(self) -> list[dict[str, Any]]:
        """Dicts of `name`, `before`, `after` and `change`, the change in percent."""
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
    """Measures a task and the task that `prune_heads` made from it.

    Args:
        task: The task, compiled.
        pruned: The task with fewer heads, compiled.
        x: Text in any form that `evaluate` takes.
        y: Labels.
        batch_size: Rows in a batch.
        batches: Number of batches to time. Both tasks pass over them in turn, seven times after a
            warm-up; reading text is not timed.

    Raises:
        ValueError: If a task is not compiled, and so has no metrics.
    """
    tasks = (task, pruned)
    for each in tasks:
        if not each.compiled:
            raise ValueError(f"A {type(each).__name__} is not compiled; call `compile` before.")
    all_batches = task.evaluation_batches(x, y, batch_size=batch_size)
    timed_batches = [features for features, *_ in itertools.islice(all_batches, batches)]
    seconds: tuple[list[float], list[float]] = ([], [])
    for number in range(_TIMED_PASSES + 1):
        for each, times in zip(tasks, seconds, strict=True):
            start = time.perf_counter()
            for features in timed_batches:
                each.predict_on_batch(features)
            if number:  # The first pass compiles
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
