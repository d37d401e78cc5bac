# SPDX-License-Identifier: Apache-2.0
"""Probes for the grammar in a frozen encoder's layers, with control tasks."""

from __future__ import annotations

import dataclasses
import os
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from keras_bert import checks
from keras_bert.insight.drawing import Tabular, axes_or_new
from keras_bert.insight.hidden_states import encoder_and_preprocessor
from keras_bert.insight.probes.annotated_words import AnnotatedWords, annotated_words, as_paths
from keras_bert.insight.probes.probe_models import (
    LONGEST,
    SHORTEST,
    TASKS,
    LabelProbes,
    TreeProbes,
    task_labels,
    train_probes,
)
from keras_bert.intervals import mean_and_interval
from keras_bert.models.backbone import Backbone
from keras_bert.tasks.task import Task

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclasses.dataclass(frozen=True)
class ProbeScores(Tabular):
    """The scores of probes in each layer, for multiple seeds.

    Attributes:
        task: One of `TASKS`.
        scores: Scores of single-layer probes by name, float64 `(seeds, layers + 1)`. The first
            entry is for the embeddings.
        cumulative: Scores of probes on a learned mix of layers, up to and including each layer.
        control: First score of the single-layer probes in the control task.
        cumulative_control: First score of the mixed-layer probes in the control task.
        mixing_weights: Weight of each layer in the mix of all layers, float64 `(seeds, layers +
            1)`. The weights sum to 1.
        baseline: Fraction of the test data with the most frequent label. NaN for tasks without
            labels.
        num_words: Number of words for training and for testing.
    """

    task: str
    scores: dict[str, np.ndarray]
    cumulative: dict[str, np.ndarray]
    control: np.ndarray
    cumulative_control: np.ndarray
    mixing_weights: np.ndarray
    baseline: float
    num_words: tuple[int, int]

    @property
    def primary_metric(self) -> np.ndarray:
        """The first score in `TASKS` of the single-layer probes, `(seeds, layers + 1)`."""
        return self.scores[TASKS[self.task][0]]

    @property
    def selectivity(self) -> np.ndarray:
        """How much higher single layers score than in the control task, `(seeds, layers + 1)`."""
        return np.asarray(self.primary_metric - self.control)

    @property
    def expected_layer(self) -> np.ndarray:
        """The mixing weights' center of gravity (the sum of `l * s_l`), `(seeds,)`.

        Reference:
            [BERT rediscovers the classical NLP pipeline](https://arxiv.org/abs/1905.05950),
            equation 2.
        """
        return np.asarray(self.mixing_weights @ np.arange(self.mixing_weights.shape[1]))

    @property
    def expected_layer_of_gains(self) -> np.ndarray:
        """The mean layer, weighted by each layer's gain in score, `(seeds,)`. NaN without gains.

        Reference:
            [BERT rediscovers the classical NLP pipeline](https://arxiv.org/abs/1905.05950),
            equation 4.
        """
        gains = np.diff(self.cumulative[TASKS[self.task][0]], axis=1)
        total = gains.sum(axis=1)
        weighed = gains @ np.arange(1, gains.shape[1] + 1)
        no_gains = np.full(len(total), np.nan)
        return np.asarray(np.divide(weighed, total, out=no_gains, where=total != 0))

    @property
    def rows(self) -> list[dict[str, Any]]:
        """Dicts with `layer` and the means over seeds, each with the half-width of its interval.

        The intervals are Student's t intervals over seeds, with 95% confidence. They do not show
        how the scores would differ for other data. They are NaN for a single seed.
        """
        layer_rows = []
        columns = {
            **self.scores,
            "control": self.control,
            "selectivity": self.selectivity,
            "cumulative": self.cumulative[TASKS[self.task][0]],
            "mixing_weight": self.mixing_weights,
        }
        for layer in range(self.mixing_weights.shape[1]):
            row: dict[str, Any] = {"layer": layer}
            for name, values in columns.items():
                row[name], row[f"{name}_interval"] = mean_and_interval(values[:, layer])
            layer_rows.append(row)
        return layer_rows

    def to_dict(self) -> dict[str, Any]:
        """Converts the result to values that JSON can represent. NaN becomes `None`."""

        def plain(value: float) -> float | None:
            return None if np.isnan(value) else value

        return {
            "task": self.task,
            "layers": [
                {name: value if name == "layer" else plain(value) for name, value in row.items()}
                for row in self.rows
            ],
            "expected_layer": list(map(plain, mean_and_interval(self.expected_layer))),
            "expected_layer_of_gains": list(
                map(plain, mean_and_interval(self.expected_layer_of_gains))
            ),
            "baseline": plain(self.baseline),
            "num_words": list(self.num_words),
            "seeds": len(self.mixing_weights),
        }

    def table(self) -> tuple[list[str], list[list[str]]]:
        names = [*self.scores, "control", "selectivity", "cumulative", "mixing_weight"]
        rows = []
        for row in self.rows:
            cells = [_format_with_interval(row[name], row[f"{name}_interval"], 3) for name in names]
            rows.append([str(row["layer"]), *cells])
        return ["layer", *names], rows

    @property
    def title(self) -> str:
        center = _format_with_interval(*mean_and_interval(self.expected_layer), 2)
        best = int(self.primary_metric.mean(axis=0).argmax())
        seeds = len(self.mixing_weights)
        num_seeds_text = f"{seeds} seeds" if seeds > 1 else "1 seed (no intervals)"
        return (
            f"{self.task}: best layer {best}, expected layer {center}; "
            f"{num_seeds_text}, {self.num_words[0]:,} words for training and "
            f"{self.num_words[1]:,} for testing"
        )

    def plot(self, axes: Axes | None = None) -> Axes:
        """Draws single-layer scores, control task scores and mixing weights by layer.

        Args:
            axes: Axes to draw on. `None` creates a figure.

        Raises:
            ImportError: If matplotlib is not installed.
        """
        axes = axes_or_new(axes, 6, 4)
        layers = np.arange(self.mixing_weights.shape[1])
        name = TASKS[self.task][0]
        axes.bar(layers, self.mixing_weights.mean(axis=0), color="#cfd8dc", label="mixing weight")
        for label, values, color in (
            (name, self.primary_metric, "#0b5394"),
            ("control task", self.control, "#d1570c"),
        ):
            pairs = [mean_and_interval(column) for column in values.transpose()]
            means, widths = np.array(pairs).transpose()
            axes.errorbar(
                layers,
                means,
                yerr=None if np.isnan(widths).any() else widths,
                marker="o",
                capsize=3,
                color=color,
                label=label,
            )
        axes.set_xticks(layers)
        axes.set_xlabel("layer (0: embeddings)")
        axes.set_title(self.task)
        axes.legend()
        return axes


def _format_with_interval(value: float, width: float, digits: int) -> str:
    return f"{value:.{digits}f}" + ("" if np.isnan(width) else f" ± {width:.{digits}f}")


def probe(
    model: Backbone | Task,
    train_files: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    test_files: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    tasks: Sequence[str] = tuple(TASKS),
    *,
    preprocessor: Any = None,
    pooling: str = "mean",
    seeds: int = 3,
    epochs: int = 10,
    learning_rate: float = 2e-3,
    rank: int = 32,
    max_sentences: int | None = None,
    verbose: int | str = 0,
) -> dict[str, ProbeScores]:
    """Measures how much grammar each layer in a frozen encoder contains.

    The hidden states of all words are computed once and kept in memory: words x (layers + 1) x
    hidden x 4 bytes. Each layer's hidden states are divided by their root mean square. Linear
    probes are then trained for every single layer, and for a scalar mix of all layers up to each
    layer:

    | task | probe | scores | control task |
    |---|---|---|---|
    | `upos` | linear, on a word | accuracy | a random part of speech per word type |
    | `relation` | linear, on a word and its head | accuracy | a random relation per word type |
    | `depth` | structural | rank correlation, root accuracy | a random depth per word type |
    | `distance` | structural | rank correlation, UUAS | the difference of two random depths |

    Rank correlations are Spearman correlations with the depths of words in the tree, or with each
    word's distances to the other words. They are averaged over sentences of 5 to 50 words, by
    length. UUAS is the fraction of the tree's edges that the minimum spanning tree of the predicted
    distances contains. UUAS and root accuracy ignore punctuation.

    Random labels have the distribution of the data. In the control task, a probe can only memorize.
    The difference between the scores, selectivity, therefore shows what the layer contains. The
    paper on control tasks does not define them for depth and distance, so these two control tasks
    are specific to this function.

    Args:
        model: A task with a preprocessor, or a `Backbone`.
        train_files: One or more paths of CoNLL-U files.
        test_files: One or more paths of CoNLL-U files for testing.
        tasks: Names of tasks in the table.
        preprocessor: For a `Backbone`, its tokenizer and maximum sequence length.
        pooling: How to represent a word with multiple tokens: by their `mean`, or by the `first`
            token.
        seeds: Number of runs with different initial weights, data orders and control tasks.
        epochs: Number of passes over the training data.
        learning_rate: Adam's learning rate.
        rank: Dimension of the structural probes' projection.
        max_sentences: Maximum number of sentences for training, and for testing. `None` for all.
        verbose: 1 shows progress.

    Returns:
        `ProbeScores` by task. They print as tables, are displayed in notebooks and have a `plot`
        method.

    Raises:
        ValueError: If an argument is out of range, a file is invalid, or a task cannot be trained
            or scored on a file.

    Example:

    ```python
    scores = probe(backbone, "en_ewt-ud-dev.conllu", "en_ewt-ud-test.conllu", preprocessor=rows)
    print(scores["upos"])
    scores["relation"].plot()
    ```

    Reference:
        [BERT rediscovers the classical NLP pipeline](https://arxiv.org/abs/1905.05950);
        [A structural probe](https://aclanthology.org/N19-1419), sections 2 and 4;
        [Designing and interpreting probes with control tasks](https://arxiv.org/abs/1909.03368).
    """
    unknown = [name for name in tasks if name not in TASKS]
    if isinstance(tasks, str) or unknown or not tasks:
        raise ValueError(f"tasks must be a list of {', '.join(TASKS)}. Received: {tasks!r}")
    checks.POSITIVE_INT.check(seeds=seeds, epochs=epochs, rank=rank)
    checks.POSITIVE.check(learning_rate=learning_rate)
    files = {"train_files": as_paths(train_files), "test_files": as_paths(test_files)}
    common = {os.path.realpath(path) for path in files["train_files"]} & {
        os.path.realpath(path) for path in files["test_files"]
    }
    if common:
        warnings.warn(
            f"{', '.join(sorted(common))} is used for both training and testing, so the scores "
            "include memorized words.",
            stacklevel=2,
        )
    backbone, preprocessor = encoder_and_preprocessor(model, preprocessor)
    train, test = (
        annotated_words(
            backbone,
            preprocessor,
            paths,
            pooling=pooling,
            max_sentences=max_sentences,
            verbose=verbose,
        )
        for paths in files.values()
    )
    for task in tasks:
        for (argument, paths), words in zip(files.items(), (train, test), strict=True):
            fault = _fault(task, words, is_scored=words is test)
            if fault:
                raise ValueError(
                    f"{argument}, {', '.join(paths)}: {fault}, which {task!r} requires."
                )
    # A layer with larger values would learn faster, and need less weight in a mix.
    scale = np.sqrt(np.mean(np.square(train.features), axis=(0, 2), keepdims=True))
    for words in (train, test):
        np.divide(words.features, np.maximum(scale, 1e-12), out=words.features)
    scores = {}
    for name in tasks:
        make = LabelProbes if name in ("upos", "relation") else TreeProbes
        runs = []
        for seed in range(seeds):
            for control in (False, True):
                data = make(name, train, test, np.random.default_rng(seed) if control else None)
                if verbose:
                    title = f"control task of {name}" if control else name
                    print(f"{title}, seed {seed + 1} of {seeds}", flush=True)
                runs.append(train_probes(data, seed, epochs, learning_rate, rank))
        scores[name] = _combine(name, train, test, runs)
    return scores


def _fault(task: str, words: AnnotatedWords, is_scored: bool) -> str:
    """Describes what a task lacks in a data set, or returns an empty string."""
    lengths = np.diff(words.splits)
    if task == "relation" and not (words.heads >= 0).any():
        return "no word has a head"
    is_tree = task in ("depth", "distance")
    if is_tree and is_scored and not ((lengths >= SHORTEST) & (lengths <= LONGEST)).any():
        return f"no sentence has {SHORTEST} to {LONGEST} words"
    return ""


def _combine(
    task: str, train: AnnotatedWords, test: AnnotatedWords, runs: Sequence[Any]
) -> ProbeScores:
    """Combines runs into a result. After each run, a run on the control task follows."""
    layers = train.features.shape[1]

    def stacked(runs: Sequence[Any], name: str) -> tuple[np.ndarray, np.ndarray]:
        values = np.stack([scores[name] for scores, _ in runs])
        # A mix of only the first layer is the layer itself.

        return values[:, :layers], np.delete(values, np.s_[1:layers], axis=1)

    by_score = {name: stacked(runs[::2], name) for name in TASKS[task]}
    control, cumulative_control = stacked(runs[1::2], TASKS[task][0])
    baseline = float("nan")
    if task in ("upos", "relation"):
        labels = task_labels(task, test)
        baseline = max(np.unique(labels, return_counts=True)[1]) / len(labels)
    return ProbeScores(
        task=task,
        scores={name: single for name, (single, _) in by_score.items()},
        cumulative={name: mixed for name, (_, mixed) in by_score.items()},
        control=control,
        cumulative_control=cumulative_control,
        mixing_weights=np.stack([weights for _, weights in runs[::2]]),
        baseline=float(baseline),
        num_words=(len(train.words), len(test.words)),
    )
