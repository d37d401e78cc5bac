# SPDX-License-Identifier: Apache-2.0
"""Attributions: how much each token and word contributes to a task's output."""

from __future__ import annotations

import dataclasses
import html
import math
import re
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import keras
import numpy as np

from keras_bert import checks
from keras_bert.insight.drawing import GREEN, ORANGE, axes_or_new, shaded
from keras_bert.insight.hidden_states import require_row_logits
from keras_bert.layers import interventions
from keras_bert.ops.annotations import Tensor
from keras_bert.ops.dispatch import compiles_each_shape
from keras_bert.ops.gradients import gradient_function, value_function
from keras_bert.tasks.explained_row import ExplainedRow, Span
from keras_bert.tasks.task import Task

if TYPE_CHECKING:
    from matplotlib.axes import Axes

METHODS = ("integrated_gradients", "gradient_x_input", "occlusion")
BASELINES = ("pad", "mask")
# Number of examples computed at a time
_BATCH_SIZE = 32
# Larger errors are reported. The first limit is relative to the difference from the baseline. The
# second is absolute and above rounding errors.
_LARGE_ERROR, _LEAST_ERROR = 0.1, 1e-3


@dataclasses.dataclass(frozen=True)
class Attribution:
    """The contribution of each token to one value that a model computed.

    Attributes:
        texts: Input texts.
        tokens: All tokens in the example, including special tokens.
        spans: `(text, start, end)` for each token: the index of its text, its first character, and
            the character after its last. `None` for special tokens.
        scores: Contribution of each token, float64 `(tokens,)`. Positive if the token raises the
            value.
        target: Name of the explained value.
        method: Attribution method.
        output: The explained value: a logit, or the sum of a span's start and end logits.
        baseline_output: The value for the baseline, where integrated gradients start. NaN for other
            methods.
    """

    texts: tuple[str, ...]
    tokens: tuple[str, ...]
    spans: tuple[Span, ...]
    scores: np.ndarray
    target: str
    method: str
    output: float
    baseline_output: float

    @property
    def convergence_delta(self) -> float:
        """The convergence delta: the sum of the scores minus `output - baseline_output`.

        It is NaN without a baseline output. More steps make it smaller.
        """
        return float(self.scores.sum() - (self.output - self.baseline_output))

    @property
    def words(self) -> list[dict[str, Any]]:
        """The scores of words between whitespace. A word's score is the sum over its tokens.

        Returns:
            Dicts with `word`, `text` (its index in `texts`), `start`, `end` and `score`.
        """
        return [
            {
                "word": self.texts[number][start:end],
                "text": number,
                "start": start,
                "end": end,
                "score": sum(float(self.scores[position]) for position in positions),
            }
            for (number, start, end), positions in _tokens_of_words(self.texts, self.spans)
        ]

    def to_dict(self) -> dict[str, Any]:
        """Converts the result to values that JSON can represent. NaN becomes `None`."""
        has_baseline = not np.isnan(self.baseline_output)
        return {
            "target": self.target,
            "method": self.method,
            "output": self.output,
            "baseline_output": self.baseline_output if has_baseline else None,
            "convergence_delta": self.convergence_delta if has_baseline else None,
            "texts": list(self.texts),
            "words": self.words,
            "tokens": list(self.tokens),
            "spans": [span and list(span) for span in self.spans],
            "scores": self.scores.tolist(),
        }

    def __str__(self) -> str:
        words = sorted(self.words, key=lambda word: -abs(word["score"]))
        lines = [f"{self.target}: {self.output:.4f} ({self.method})"]
        lines += [f"{word['score']:+.4f}  {word['word']}" for word in words]
        return "\n".join([*lines, *([self.completeness] if self.completeness else [])])

    @property
    def completeness(self) -> str:
        """A comparison of the scores' sum with the expected sum. Empty without a baseline."""
        error, difference = self.convergence_delta, self.output - self.baseline_output
        if np.isnan(error):
            return ""
        summary = (
            f"The scores sum to {self.scores.sum():+.4f}; the difference from the baseline is "
            f"{difference:+.4f} (error {error:+.4f})."
        )
        if abs(error) <= max(_LARGE_ERROR * abs(difference), _LEAST_ERROR):
            return summary
        return (
            f"{summary} This error is too large. Pass more steps. If the error remains, the output "
            "jumps between the baseline and the input: try occlusion or a different baseline."
        )

    def shaded(self) -> str:
        """Returns the texts as HTML. Words are green if they raise the value, otherwise orange."""
        words = self.words
        largest = max((abs(word["score"]) for word in words), default=0.0) or 1.0
        paragraphs = []
        for number, text in enumerate(self.texts):
            fragments, end = "", 0
            for word in (word for word in words if word["text"] == number):
                score, color = word["score"], GREEN if word["score"] >= 0 else ORANGE
                fragments += html.escape(text[end : word["start"]])
                fragments += shaded(
                    word["word"], abs(score) / largest, color, tag="span", hint=f"{score:+.4f}"
                )
                end = word["end"]
            paragraphs.append(f"<p>{fragments}{html.escape(text[end:])}</p>")
        return "".join(paragraphs)

    def _repr_html_(self) -> str:
        title = html.escape(f"{self.target}: {self.output:.4f} ({self.method})")
        sums = f"<p>{html.escape(self.completeness)}</p>" if self.completeness else ""
        return f"<div><p><b>{title}</b></p>{self.shaded()}{sums}</div>"

    def plot(self, axes: Axes | None = None) -> Axes:
        """Draws the words' scores as bars, from the first to the last word.

        Args:
            axes: Axes to draw on. `None` creates a figure.

        Raises:
            ImportError: If matplotlib is not installed.
        """
        words = self.words[::-1]
        axes = axes_or_new(axes, 6, 0.25 * len(words) + 1)
        scores = [word["score"] for word in words]
        colors = ["#2a7d4f" if score >= 0 else "#d1570c" for score in scores]
        axes.barh(range(len(words)), scores, color=colors)
        axes.set_yticks(range(len(words)), [word["word"] for word in words], parse_math=False)
        axes.axvline(0, color="#777777", linewidth=1)
        axes.set_xlabel(f"contribution to {self.target}")
        return axes


def attributions(
    task: Task,
    x: Any,
    method: str = "integrated_gradients",
    target: Any = None,
    *,
    baseline: str = "pad",
    steps: int = 50,
) -> Attribution:
    """Attributes one value that a task computes to the tokens in its input.

    The value is a logit or, for an answer span, the sum of its start and end logits.

    | task | `x` | `target` | default `target` |
    |---|---|---|---|
    | `TextClassifier` | a text or a pair | a class, by name or ID | the predicted class |
    | `TextClassifier` (regression) | a text or a pair | | the score |
    | `TokenClassifier` | a list of words | `(word, class)`, a word by its index | |
    | `TokenClassifier`, predicted class | a list of words | the word's index | |
    | `QuestionAnswerer` | `(question, passage)` | `(start, end)` in characters | the answer |
    | `MultipleChoice` | `(text, choices)` | a choice, by its index | the most probable choice |
    | `MaskedLM` | a text with one `[MASK]` | a token | the most probable token |

    Args:
        task: Trained task with a preprocessor. Its class must be in the table or have an
            `explained_row` method.
        x: One input.
        method: `integrated_gradients` follows the line from the baseline's embeddings to the
            input's embeddings. `gradient_x_input` multiplies the embeddings by their gradient.
            `occlusion` replaces a word's tokens with the baseline token, and divides the decrease
            of the value evenly among them. All methods keep the positions of the tokens.
        target: Value to explain.
        baseline: Token that replaces the tokens in texts, `pad` or `mask`. Special tokens are kept.
        steps: Number of Gauss-Legendre quadrature points for integrated gradients.

    Returns:
        An `Attribution`. It prints as a list of words, is displayed in notebooks and has a `plot`
        method.

    Raises:
        ValueError: If the task, the method, the baseline or the target is not supported, or the
            input is longer than the maximum sequence length.

    Example:

    ```python
    why = attributions(classifier, "a gripping film")
    why.words    # [{"word": "a", ...}, {"word": "gripping", "score": 1.9, ...}, ...]
    why.convergence_delta
    ```

    Reference:
        [Axiomatic attribution for deep networks](https://arxiv.org/abs/1703.01365), section 3;
        occlusion: [Visualizing and understanding convolutional
        networks](https://arxiv.org/abs/1311.2901), section 4.2.
    """
    for name, value, choices in (("method", method, METHODS), ("baseline", baseline, BASELINES)):
        if value not in choices:
            raise ValueError(f"{name} must be one of {', '.join(choices)}. Received: {value!r}")
    checks.POSITIVE_INT.check(steps=steps)
    require_row_logits(task)
    row = task.explained_row(x, checks.plain(target))
    ids = row.features["token_ids"].reshape(-1)
    tokenizer = task.preprocessor.tokenizer
    fallback = tokenizer.pad_token_id if baseline == "pad" else tokenizer.mask_token_id
    is_text = np.zeros(len(ids), bool)
    is_text[: len(row.spans)] = [span is not None for span in row.spans]
    without = np.where(is_text, fallback, ids)
    baseline_output = np.nan
    table = keras.ops.convert_to_numpy(task.backbone.token_embedding_table)
    if method == "occlusion":
        output, scores = _occlude(task, row, ids, table, fallback)
    else:
        vectors = table[ids].astype("float64")
        if method == "gradient_x_input":
            along, weights, start = np.ones(1), np.ones(1), np.zeros_like(vectors)
        else:
            nodes, weights = np.polynomial.legendre.leggauss(steps)
            # The first two points are the ends of the line. They have no weight in the integral.
            along = np.array([1, 0, *(nodes + 1) / 2])
            weights = np.array([0, 0, *weights / 2])
            start = table[without].astype("float64")
        direction = vectors - start
        points = start + along[:, np.newaxis, np.newaxis] * direction
        values, gradients = _evaluate(task, row, points, gradient_function)
        output = float(values[0])
        if method == "integrated_gradients":
            baseline_output = float(values[1])
        mean = np.tensordot(weights, gradients.astype("float64"), axes=1)
        scores = (mean * direction).sum(axis=-1)
    return Attribution(
        texts=row.texts,
        tokens=tuple(tokenizer.vocabulary[token] for token in ids[: len(row.spans)]),
        spans=row.spans,
        scores=scores[: len(row.spans)],
        target=row.target,
        method=method,
        output=output,
        baseline_output=baseline_output,
    )


def _evaluate(
    task: Task,
    row: ExplainedRow,
    points: np.ndarray,
    kind: Callable[..., Callable[..., Any]],
    vectors_of: Callable[[np.ndarray], np.ndarray] = np.asarray,
) -> list[np.ndarray]:
    """Computes the explained value for embeddings `(points, length, width)` of the example.

    `vectors_of` converts a few points at a time to embeddings.

    Returns:
        The results for all points from the function that `kind` creates: the values `(points,)` and
        their gradients for `gradient_function`, or the values for `value_function`.
    """
    # All batches have one size. Copies of the last point pad the last batch.
    size = math.ceil(len(points) / math.ceil(len(points) / _BATCH_SIZE))
    if compiles_each_shape():
        size = 1 << (size - 1).bit_length()  # Powers of two, because each size is compiled
    tensors = {
        name: keras.ops.convert_to_tensor(np.repeat(value, size, axis=0))
        for name, value in row.features.items()
    }
    functions = _FUNCTIONS.setdefault(task, {})
    if kind not in functions:
        functions[kind] = kind(_number_of_vectors, task)
    results = []
    for begin in range(0, len(points), size):
        chunk = vectors_of(points[begin : begin + size]).astype("float32")
        count = len(chunk)
        chunk = np.concatenate([chunk, np.repeat(chunk[-1:], size - count, axis=0)])
        arrays = functions[kind](chunk, tensors, row.indices)
        results.append([x[:count] for x in (arrays if isinstance(arrays, tuple) else (arrays,))])
    return [np.concatenate(parts) for parts in zip(*results, strict=True)]


def _number(outputs: Any, indices: dict[str, tuple[int, ...]]) -> Tensor:
    """Returns the explained values `(batch,)` from the outputs. The indices may be traced."""
    total: Any = 0
    for name, positions in indices.items():
        value = outputs[name] if name else outputs
        for position in positions:
            value = value[:, position]
        total = total + value
    return total


def _number_of_vectors(
    task: Task, vectors: Tensor, features: Any, indices: dict[str, tuple[int, ...]]
) -> Tensor:
    """Returns the explained values `(batch,)` for embeddings `(batch, length, width)`."""
    with interventions.replace_embeddings(task.backbone.token_embedding, vectors):
        return _number(task(features, training=False), indices)


# Cached for each task, because JAX compiles again for each new function object
_FUNCTIONS: weakref.WeakKeyDictionary[Task, dict[Any, Callable[..., Any]]] = (
    weakref.WeakKeyDictionary()
)


def _tokens_of_words(
    texts: Sequence[str], spans: Sequence[Span]
) -> list[tuple[tuple[int, int, int], list[int]]]:
    """Returns each word as `(text, start, end)`, and the positions of tokens that start in it."""
    words = [
        (number, *match.span())
        for number, text in enumerate(texts)
        for match in re.finditer(r"\S+", text)
    ]
    return [
        (
            (number, start, end),
            [
                position
                for position, span in enumerate(spans)
                if span is not None and span[0] == number and start <= span[1] < end
            ],
        )
        for number, start, end in words
    ]


def _occlude(
    task: Task, row: ExplainedRow, ids: np.ndarray, table: np.ndarray, fallback: int
) -> tuple[float, np.ndarray]:
    """Returns the value, and its decrease if a word is occluded, divided among its tokens."""
    groups = [positions for _, positions in _tokens_of_words(row.texts, row.spans) if positions]
    # Whitespace tokens, by their position in the text
    in_words = {position for positions in groups for position in positions}
    between: dict[tuple[int, int], list[int]] = {}
    for position, span in enumerate(row.spans):
        if span is not None and position not in in_words:
            between.setdefault(span[:2], []).append(position)
    groups += between.values()
    whole_and_occluded = np.tile(ids, (1 + len(groups), 1))
    for occluded, positions in zip(whole_and_occluded[1:], groups, strict=True):
        occluded[positions] = fallback
    # Embeddings are replaced instead of IDs. In some families, a token's position is the number of
    # non-padding IDs before it, so all words after an occluded word would move.
    (numbers,) = _evaluate(task, row, whole_and_occluded, value_function, table.__getitem__)
    output, *values = map(float, numbers)
    scores = np.zeros(len(ids))
    for value, positions in zip(values, groups, strict=True):
        scores[positions] = (output - value) / len(positions)
    return output, scores
