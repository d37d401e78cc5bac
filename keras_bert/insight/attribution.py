# SPDX-License-Identifier: Apache-2.0
"""Attributions: how much each token and word contributes to an output of a task."""

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
from keras_bert.checks import shortened
from keras_bert.data.loader import BatchOptions
from keras_bert.insight.drawing import GREEN, ORANGE, axes_or_new, shaded
from keras_bert.insight.states import of_few_lengths, read_text, require_fit
from keras_bert.ops.annotations import Tensor
from keras_bert.ops.dispatch import compiles_each_shape
from keras_bert.ops.gradients import gradient_function, value_function
from keras_bert.tasks import MaskedLM, MultipleChoice, QuestionAnswerer, TokenClassifier
from keras_bert.tasks.masked_lm import token_batches
from keras_bert.tasks.task import Task

if TYPE_CHECKING:
    from matplotlib.axes import Axes

METHODS = ("integrated_gradients", "gradient_x_input", "occlusion")
BASELINES = ("pad", "mask")
# Rows that are computed at a time
_BATCH_SIZE = 32
# Larger errors are reported: as a fraction of the difference from the baseline, and in absolute
# numbers, above rounding
_LARGE_ERROR, _LEAST_ERROR = 0.1, 1e-3

# The index of a token's text, and the offsets there of its first character and one past its last;
# None for a special token
Span = tuple[int, int, int] | None


@dataclasses.dataclass(frozen=True)
class Attribution:
    """The contribution of each token to one number that a model computed.

    Attributes:
        texts: The input texts.
        tokens: All tokens of the row, special ones included.
        spans: For each token `(text, start, end)`: the index of its text, and the offsets of its
            first character and one past its last; `None` for special tokens.
        scores: The contribution of each token, float64 `(tokens,)`; positive if the token raises
            the number.
        target: The name of the number.
        method: The attribution method.
        output: The number: a logit, or the sum of the start and end logits of a span.
        baseline_output: The number for the baseline, from which integrated gradients start; NaN
            for other methods.
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
    def completeness_error(self) -> float:
        """The sum of the scores, minus `output - baseline_output`; NaN without a baseline output.

        More steps make it smaller.
        """
        return float(self.scores.sum() - (self.output - self.baseline_output))

    @property
    def words(self) -> list[dict[str, Any]]:
        """The scores of the words between white space, each the sum of its tokens' scores.

        Returns:
            Dicts of `word`, `text` (its index in `texts`), `start`, `end` and `score`.
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
        """Plain values for JSON, which has `None` and no NaN."""
        has_baseline = not np.isnan(self.baseline_output)
        return {
            "target": self.target,
            "method": self.method,
            "output": self.output,
            "baseline_output": self.baseline_output if has_baseline else None,
            "completeness_error": self.completeness_error if has_baseline else None,
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
        """Says how close the sum of the scores is to the expected one; empty without a baseline."""
        error, difference = self.completeness_error, self.output - self.baseline_output
        if np.isnan(error):
            return ""
        summary = (
            f"The scores sum to {self.scores.sum():+.4f}; the difference from the baseline is "
            f"{difference:+.4f} (error {error:+.4f})."
        )
        if abs(error) <= max(_LARGE_ERROR * abs(difference), _LEAST_ERROR):
            return summary
        return (
            f"{summary} They do not explain the number: pass more steps; if the error stays, the "
            "path from the baseline has a jump, and occlusion or another baseline may say more."
        )

    def shaded(self) -> str:
        """The texts as HTML, with words that raise the number in green, and others in orange."""
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
        """Draws the words' scores as bars, from the first word to the last.

        Args:
            axes: Where to draw; `None` makes a figure.

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
        axes.set_xlabel(f"share of {self.target}")
        return axes


@dataclasses.dataclass(frozen=True)
class _Row:
    """One row of a task, and the number among its outputs to explain.

    Attributes:
        features: NumPy arrays with a first axis of 1, and perhaps with padding.
        texts, spans: As in `Attribution`, without padding.
        indices: By the name of an output ("" if it has none), the index of a number in its row; of
            several outputs, the sum of their numbers is explained.
        target: The name of the number.
    """

    features: dict[str, np.ndarray]
    texts: tuple[str, ...]
    spans: tuple[Span, ...]
    indices: dict[str, tuple[int, ...]]
    target: str


def attributions(
    task: Task,
    x: Any,
    method: str = "integrated_gradients",
    target: Any = None,
    *,
    baseline: str = "pad",
    steps: int = 50,
) -> Attribution:
    """Divides one number that a task computes among the tokens of its input.

    The number is a logit; for an answer, the sum of the logits of its first and last token.

    | task | `x` | `target` | where `target` is `None` |
    |---|---|---|---|
    | `TextClassifier` | a text or a pair | a class, by name or id | the predicted one |
    | `TextClassifier` of a regression | a text or a pair | | the score |
    | `TokenClassifier` | a list of words | `(word, class)`, a word by its index | |
    | `TokenClassifier`, predicted class | a list of words | the word's index | |
    | `QuestionAnswerer` | `(question, passage)` | `(start, end)` in characters | the answer |
    | `MultipleChoice` | `(text, choices)` | a choice, by its index | the likeliest one |
    | `MaskedLM` | a text with one `[MASK]` | a token | the likeliest one |

    Args:
        task: A trained task with a preprocessor, of one of these classes.
        x: One input.
        method: `integrated_gradients`, along the line from the baseline's embeddings to the
            input's; `gradient_x_input`, of the embeddings; or `occlusion`, by how much the number
            falls if the baseline's token replaces the tokens of a word (divided evenly among them).
            All methods keep the positions of the tokens.
        target: The number to explain.
        baseline: The token that replaces the tokens of the texts, `pad` or `mask`. Special tokens
            stay.
        steps: Points of the Gauss-Legendre quadrature of integrated gradients.

    Returns:
        An `Attribution`, which prints as a table, shows in a notebook and draws itself.

    Raises:
        ValueError: If the task, the method, the baseline or the target is none of these, or the
            input does not fit in one row.

    Example:

    ```python
    why = attributions(classifier, "a gripping film")
    why.words    # [{"word": "a", ...}, {"word": "gripping", "score": 1.9, ...}, ...]
    why.completeness_error
    ```

    Reference:
        [Axiomatic attribution for deep networks](https://arxiv.org/abs/1703.01365), section 3;
        occlusion: [Visualizing and understanding convolutional
        networks](https://arxiv.org/abs/1311.2901), section 4.2.
    """
    for name, value, choices in (("method", method, METHODS), ("baseline", baseline, BASELINES)):
        if value not in choices:
            raise ValueError(f"{name} is {value!r}; expected one of {', '.join(choices)}.")
    checks.POSITIVE_INT.check(steps=steps)
    row = _input_reader(task)(task, x, checks.plain(target))
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
            # Both ends of the line are computed with its points, and have no weight in the integral
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
    row: _Row,
    points: np.ndarray,
    kind: Callable[..., Callable[..., Any]],
    vectors_of: Callable[[np.ndarray], np.ndarray] = np.asarray,
) -> list[np.ndarray]:
    """The row's number for embeddings `(points, length, width)` in place of its own.

    `vectors_of` converts a few points at a time to embeddings.

    Returns:
        What the `kind` of function returns, of all points: `gradient_function` the numbers
        `(points,)` and their gradients, `value_function` the numbers.
    """
    # Batches of one size; copies of the last point fill the last batch
    size = math.ceil(len(points) / math.ceil(len(points) / _BATCH_SIZE))
    if compiles_each_shape():
        size = 1 << (size - 1).bit_length()  # Few sizes, since it compiles for each
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


def _outputs(task: Task, features: dict[str, np.ndarray]) -> Any:
    if compiles_each_shape():
        # It compiles all operations together, which is faster than to compile each by itself
        return task.predict_on_batch(features)
    tensors = {name: keras.ops.convert_to_tensor(value) for name, value in features.items()}
    return task(tensors, training=False)


def _number(outputs: Any, indices: dict[str, tuple[int, ...]]) -> Tensor:
    """The numbers `(rows,)` of the outputs of several rows; the indices may be traced."""
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
    """The numbers `(rows,)` for embeddings `(rows, length, width)` in place of the ids' own."""
    with task.backbone.token_embedding.returning(vectors):
        return _number(task(features, training=False), indices)


# Kept for each task, since JAX compiles again for each new function object
_FUNCTIONS: weakref.WeakKeyDictionary[Task, dict[Any, Callable[..., Any]]] = (
    weakref.WeakKeyDictionary()
)


def _tokens_of_words(
    texts: Sequence[str], spans: Sequence[Span]
) -> list[tuple[tuple[int, int, int], list[int]]]:
    """Each word as `(text, start, end)`, and the positions of the tokens that begin in it."""
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
    task: Task, row: _Row, ids: np.ndarray, table: np.ndarray, fallback: int
) -> tuple[float, np.ndarray]:
    """The row's number, and each token's share of its fall when the token's word is occluded."""
    groups = [positions for _, positions in _tokens_of_words(row.texts, row.spans) if positions]
    # Tokens of white space, by their position in the text
    in_words = {position for positions in groups for position in positions}
    between: dict[tuple[int, int], list[int]] = {}
    for position, span in enumerate(row.spans):
        if span is not None and position not in in_words:
            between.setdefault(span[:2], []).append(position)
    groups += between.values()
    whole_and_occluded = np.tile(ids, (1 + len(groups), 1))
    for occluded, positions in zip(whole_and_occluded[1:], groups, strict=True):
        occluded[positions] = fallback
    # Not by ids: in some families the position of a token is the number of ids before it that are
    # not padding, so that all words behind an occluded one would move.
    (numbers,) = _evaluate(task, row, whole_and_occluded, value_function, table.__getitem__)
    output, *values = map(float, numbers)
    scores = np.zeros(len(ids))
    for value, positions in zip(values, groups, strict=True):
        scores[positions] = (output - value) / len(positions)
    return output, scores


# === One row of each task ===


def _classification(task: Task, x: Any, target: Any) -> _Row:
    texts = read_text(x, "x")
    features, spans = _pack(task, texts)
    num_outputs = task.output.shape[-1]
    if num_outputs == 1 and not getattr(task, "multi_label", False):
        if target is not None:
            raise ValueError(f"target is {target!r}; a regression has one score: leave it out.")
        index, name = 0, "score"
    else:
        if target is None:
            target = int(np.argmax(_predict(task, features)[0]))
        index, name = _target_class(target, num_outputs, getattr(task, "class_names", None))
    return _Row(features, texts, spans, {"": (index,)}, name)


def _tagging(task: TokenClassifier, x: Any, target: Any) -> _Row:
    words = list(x) if isinstance(x, (list, tuple)) else []
    if not words or not all(isinstance(word, str) for word in words):
        raise ValueError(f"x is {shortened(x)}; expected a list of words.")
    number, tag = target if isinstance(target, (list, tuple)) else (target, None)
    if not isinstance(number, int) or not 0 <= number < len(words):
        raise ValueError(
            f"target is {target!r}; expected the number of one of the {len(words)} words, or "
            "(number, class)."
        )
    windows = task.preprocessor.windows([words])
    features = _one_row(task, task.preprocessor.padded(windows))
    first = windows.word_position.tolist()
    length = int(features["padding_mask"].sum())
    starts = np.cumsum([0, *(len(word) + 1 for word in words)])
    spans: list[Span] = [None] * length
    for index, (begin, end) in enumerate(zip(first, [*first[1:], length - 1], strict=True)):
        start = int(starts[index])
        spans[begin:end] = [(0, start, start + len(words[index]))] * (end - begin)
    position = first[number]
    if tag is None:
        tag = int(np.argmax(_predict(task, features)[0, position]))
    index, name = _target_class(tag, task.num_classes, task.class_names)
    name = f"{name} of {words[number]!r}"
    return _Row(features, (" ".join(words),), tuple(spans), {"": (position, index)}, name)


def _answering(task: QuestionAnswerer, x: Any, target: Any) -> _Row:
    if not isinstance(x, (list, tuple)) or [type(part) for part in x] != [str, str]:
        raise ValueError(f"x is {shortened(x)}; expected (question, passage).")
    question, passage = x
    if target is None:
        best = task.answer(question, passage)
        target = (best["start"], best["end"])
    if len(target) != 2 or not 0 <= target[0] <= target[1] <= len(passage):
        raise ValueError(f"target is {target!r}; expected (start, end) in the passage.")
    windows = task.preprocessor([question], [passage])
    features = _one_row(task, task.preprocessor.padded(windows))
    starts, ends = windows.char_starts.values.tolist(), windows.char_ends.values.tolist()
    begin = int(windows.passage_start[0])
    positions = range(begin, begin + int(windows.passage_length[0]))
    spans: list[Span] = [None] * int(features["padding_mask"].sum())
    for position in positions:
        spans[position] = (1, starts[position], ends[position])
    _, of_question, to_question = task.preprocessor.tokenizer.tokenize_with_offsets(question)
    bounds = list(zip(of_question, to_question, strict=True))
    if len(bounds) > task.preprocessor.max_query_length:
        raise ValueError(
            f"The question has {len(bounds)} tokens; expected at most max_query_length, which is "
            f"{task.preprocessor.max_query_length}."
        )
    for position, (start, end) in enumerate(bounds, start=1):
        spans[position] = (0, start, end)
    start, end = target
    first = last = 0  # [CLS], for no answer
    if end > start:
        inside = [at for at in positions if ends[at] > start and starts[at] < end]
        if not inside:
            raise ValueError(f"target is {target!r}; no token of the passage lies there.")
        first, last = inside[0], inside[-1]
    indices: dict[str, tuple[int, ...]] = {"start_logits": (first,), "end_logits": (last,)}
    name = f"answer {passage[start:end]!r}" if end > start else "no answer"
    return _Row(features, (question, passage), tuple(spans), indices, name)


def _choosing(task: MultipleChoice, x: Any, target: Any) -> _Row:
    if not isinstance(x, (list, tuple)) or len(x) != 2 or not isinstance(x[0], str):
        raise ValueError(f"x is {shortened(x)}; expected (text, choices).")
    text, choices = x
    if target is None:
        target = task.choose((text, list(choices)))[0]["choice"]
    if not isinstance(target, int) or not 0 <= target < len(choices):
        raise ValueError(f"target is {target!r}; expected 0 to {len(choices) - 1}.")
    # A choice's logit depends on its own sequence alone
    texts = (text, choices[target])
    features = _one_row(task, task.preprocessor([text], [[choices[target]]]))
    _, spans = _pack(task, texts)
    return _Row(features, texts, spans, {"": (0,)}, f"choice {choices[target]!r}")


def _filling(task: MaskedLM, x: Any, target: Any) -> _Row:
    if not isinstance(x, str):
        raise ValueError(f"x is {shortened(x)}; expected a text.")
    require_fit(task.preprocessor, (x,), special_tokens_in_text=True)
    (ids,), (positions,), _ = task.masked_rows([x])
    tokenizer = task.preprocessor.tokenizer
    if len(positions) != 1:
        raise ValueError(f"x has {len(positions)} {tokenizer.mask_token}; expected one.")
    if target is None:
        target = task.fill(x, top_k=1)[0]["token"]
    if target not in tokenizer.vocabulary:
        raise ValueError(f"target is {target!r}; expected a token of the vocabulary.")
    token = tokenizer.token_to_id(target)
    _, starts, ends = tokenizer.reading_special_tokens.tokenize_with_offsets(x)
    bounds = zip(starts, ends, strict=True)
    spans: list[Span] = [None] * len(ids)
    for position, (start, end) in enumerate(bounds, start=1):
        # `[MASK]` is what is predicted, so it gets no score
        if ids[position] != tokenizer.mask_token_id:
            spans[position] = (0, start, end)
    options = BatchOptions(1, compiles=compiles_each_shape())
    ((features, _),) = token_batches([ids], task.preprocessor, options, [positions])
    name = f"{target!r} at {tokenizer.mask_token}"
    return _Row(features, (x,), tuple(spans), {"": (0, token)}, name)


# By the verb of a task
_READERS: dict[str, Callable[[Any, Any, Any], _Row]] = {
    "tag": _tagging,
    "answer": _answering,
    "choose": _choosing,
    "fill": _filling,
}


def _input_reader(task: Any) -> Callable[[Any, Any, Any], _Row]:
    """Returns the reader of a task's inputs, for its verb or for a head on a text or a pair.

    Raises:
        ValueError: If the outputs of the task are not logits or scores of its input.
    """
    verb = getattr(task, "verb", "")
    if verb in _READERS:
        return _READERS[verb]
    if verb and task.is_sequence_level and task.heads:
        return _classification
    raise ValueError(
        f"Received a {type(task).__name__}; expected one of TextClassifier, TokenClassifier, "
        "QuestionAnswerer, MultipleChoice, MaskedLM, or another task with a head on a text or pair."
    )


def _pack(task: Task, texts: tuple[str, ...]) -> tuple[dict[str, np.ndarray], tuple[Span, ...]]:
    """The features of a text or a pair, and their tokens' spans."""
    from keras_bert.data.texts import TextClassifierPreprocessor

    preprocessor = task.preprocessor
    require_fit(preprocessor, texts)
    tokenizer = preprocessor.tokenizer
    pack = TextClassifierPreprocessor(tokenizer, preprocessor.sequence_length)
    features = _one_row(task, pack([texts[0]], [texts[1]] if len(texts) == 2 else None))
    _, starts, ends = tokenizer.tokenize_with_offsets(list(texts))
    spans: list[Span] = [None] * int(features["padding_mask"].sum())
    position = 1
    for number, bounds in enumerate(zip(starts, ends, strict=True)):
        for start, end in zip(*bounds, strict=True):
            spans[position] = (number, start, end)
            position += 1
        position += tokenizer.pair_separators
    return features, tuple(spans)


def _one_row(task: Task, features: dict[str, Any]) -> dict[str, np.ndarray]:
    arrays = {name: np.asarray(value) for name, value in features.items()}
    if len(arrays["token_ids"]) != 1:
        raise ValueError(
            f"The input becomes {len(arrays['token_ids'])} windows; expected one: shorten it, or "
            "give the preprocessor a longer sequence_length."
        )
    return of_few_lengths(arrays, task.preprocessor)


def _predict(task: Task, features: dict[str, np.ndarray]) -> np.ndarray:
    return np.asarray(keras.ops.convert_to_numpy(_outputs(task, features)))


def _target_class(
    target: Any, num_classes: int, class_names: Sequence[str] | None
) -> tuple[int, str]:
    if class_names is not None and target in class_names:
        return list(class_names).index(target), str(target)
    if not isinstance(target, int) or not 0 <= target < num_classes:
        names = f", or one of {', '.join(class_names)}" if class_names else ""
        raise ValueError(f"target is {target!r}; expected 0 to {num_classes - 1}{names}.")
    return target, class_names[target] if class_names else f"class {target}"
