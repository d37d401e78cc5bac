# SPDX-License-Identifier: Apache-2.0
"""Draws the figures of docs/why/model.md: pre-training, heads, and directions of attention."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence

import keras_bert
from docs.hooks.drawing import BLUE, GAP, LINE, WIDTH, svg, text

# The tasks in the figure of the heads: class, input, tokens, and the output above each token
_HEADS = (
    (
        keras_bert.TextClassifier,
        "text pair",
        ("[CLS]", "A", "cat", "[SEP]", "It", "[SEP]"),
        {0: "class"},
    ),
    (
        keras_bert.TextClassifier,
        "single text",
        ("[CLS]", "a", "good", "film", "[SEP]"),
        {0: "class"},
    ),
    (
        keras_bert.QuestionAnswerer,
        "question and passage",
        ("[CLS]", "Who?", "[SEP]", "by", "Ann", "Lee", "[SEP]"),
        {4: "start", 5: "end"},
    ),
    (
        keras_bert.TokenClassifier,
        "words",
        ("[CLS]", "Ann", "is", "in", "Peru", "[SEP]"),
        {1: "PER", 2: "O", 3: "O", 4: "LOC"},
    ),
)


def pretraining() -> str:
    """Returns an SVG of an encoder in pre-training and in fine-tuning."""
    tokens = ("[CLS]", "my", "[MASK]", "is", "ill", "[SEP]", "he", "[MASK]", "[SEP]")
    shapes = [
        _title(12, "Pre-training: Pretrainer.fit(documents)"),
        *_model(
            (0, 24, WIDTH),
            tokens,
            {0: "is_next", 2: "dog", 7: "barks"},
            {0: "next_sentence", 2: "masked_lm", 7: "masked_lm"},
        ),
        *_bracket(0, 6, len(tokens), 154, "text A, segment_ids = 0"),
        *_bracket(6, 9, len(tokens), 154, "text B, segment_ids = 1"),
        f'<path d="M{WIDTH / 2} 184V206m-4 -6l4 6l4 -6" fill="none" stroke="{LINE}"/>',
        text(WIDTH / 2 + 10, 198, "save_to_preset, from_preset", anchor="start"),
        text(
            WIDTH / 2, 224, "Fine-tuning: TextClassifier.fit(texts, labels)", weight="bold", size=13
        ),
        *_model(
            (0, 236, WIDTH),
            ("[CLS]", "a", "gripping", "film", "[SEP]"),
            {0: "positive"},
            {0: "new head"},
        ),
    ]
    return svg("The same encoder in pre-training and in fine-tuning", 368, shapes)


def heads() -> str:
    """Returns an SVG of the heads for text pairs, texts, questions and words."""
    width = (WIDTH - 2 * GAP) / 2
    shapes = []
    for index, (task, title, tokens, outputs) in enumerate(_HEADS):
        x, y = (index % 2) * (width + 2 * GAP), (index // 2) * 172
        method = f"{task.__name__}.{task.predict_method}"
        shapes += [
            text(x + width / 2, y + 12, method, weight="bold", size=12),
            text(x + width / 2, y + 27, title),
            *_model((x, y + 40, width), tokens, outputs),
        ]
    return svg("Four kinds of heads on one encoder", 328, shapes)


def directions() -> str:
    """Returns an SVG of which tokens the layers of BERT, GPT and ELMo read."""
    half = WIDTH / 2
    shapes = [
        text(half / 2, 12, "BERT: causal=False", weight="bold", size=12),
        *_layers(0, lambda key, query: True),
        text(1.5 * half, 12, "GPT: causal=True", weight="bold", size=12),
        *_layers(half, lambda key, query: key <= query),
        text(half, 212, "ELMo: two LSTMs, joined after the last layer", weight="bold", size=12),
        *_lstms(224),
    ]
    return svg("Tokens that each layer reads in BERT, GPT and ELMo", 386, shapes)


def _title(y: float, words: str) -> str:
    return text(WIDTH / 2, y, words, weight="bold", size=13)


def _model(
    place: tuple[float, float, float],
    tokens: Sequence[str],
    outputs: dict[int, str],
    heads: dict[int, str] | None = None,
) -> Iterator[str]:
    """Draws tokens, an encoder, and outputs above some tokens.

    Args:
        place: The left edge, the top and the width.
        tokens: The tokens.
        outputs: The output above a token, by position.
        heads: The name of the head between the encoder and an output, by position.
    """
    x, top, width = place
    step = width / len(tokens)
    encoder = top + (60 if heads else 42)
    for index, words in outputs.items():
        middle = x + (index + 0.5) * step
        yield text(middle, top + 12, words, color=BLUE, weight="bold")
        if heads:
            # The name of the first token's head is longer than the token.
            is_first = index == 0 and step < 60
            left = x + 2 if is_first else middle
            yield text(left, top + 29, heads[index], anchor="start" if is_first else "middle")
        yield _up(middle, encoder, top + (34 if heads else 18))
    yield _rect(x, encoder, width, 28, BLUE)
    name = "Backbone: sequence_output, pooled_output" if heads else "Backbone"
    yield text(x + width / 2, encoder + 18, name, weight="bold", size=12)
    for index, token in enumerate(tokens):
        left = x + index * step
        yield _up(left + step / 2, encoder + 42, encoder + 30)
        yield _rect(left + 1, encoder + 44, step - 2, 24)
        yield text(left + step / 2, encoder + 60, token, size=11 if step > 36 else 10)


def _bracket(first: int, last: int, count: int, y: float, words: str) -> Iterator[str]:
    """Draws a line below the tokens from `first` to `last - 1`, with words below it."""
    left, right = first * WIDTH / count + 3, last * WIDTH / count - 3
    yield f'<path d="M{left:.1f} {y}v5H{right:.1f}v-5" fill="none" stroke="{LINE}"/>'
    yield text((left + right) / 2, y + 19, words)


def _layers(x: float, reads: Callable[[int, int], bool]) -> Iterator[str]:
    """Draws two attention layers. `reads(key, query)` is whether a token reads another."""
    columns = _columns(x)
    rows = (148, 94, 40)
    for below, above in itertools.pairwise(rows):
        for query, right in enumerate(columns):
            for key, left in enumerate(columns):
                if reads(key, query):
                    yield _line(left, below - 9, right, above + 9)
    for y, column in itertools.product(rows, columns):
        yield _circle(column, y)
    yield from _inputs(columns, 176)


def _lstms(top: float) -> Iterator[str]:
    """Draws a left-to-right and a right-to-left LSTM with two layers each, and their outputs."""
    outputs = _columns(WIDTH / 4)
    for x, direction in ((0, 1), (WIDTH / 2, -1)):
        columns = _columns(x)
        for y in (top + 118, top + 74):
            yield from (_circle(column, y) for column in columns)
            for left, right in itertools.pairwise(columns):
                start, end = (left, right)[::direction]
                yield _line(start + 9 * direction, y, end - 9 * direction, y)
                yield _line(end - 15 * direction, y - 4, end - 9 * direction, y)
                yield _line(end - 15 * direction, y + 4, end - 9 * direction, y)
        for column, output in zip(columns, outputs, strict=True):
            yield _line(column, top + 109, column, top + 83)
            yield _line(column, top + 65, output, top + 27)
        yield from _inputs(columns, top + 146)
    yield from (_circle(output, top + 18) for output in outputs)


def _columns(x: float) -> list[float]:
    """Returns the centers of four tokens in half of the width, starting at `x`."""
    return [x + (index + 0.5) * WIDTH / 8 for index in range(4)]


def _inputs(columns: Sequence[float], y: float) -> Iterator[str]:
    for column, token in zip(columns, ("the", "cat", "sat", "down"), strict=True):
        yield text(column, y, token)


def _rect(x: float, y: float, width: float, height: float, color: str = LINE) -> str:
    return (
        f'<rect x="{x + 1:.1f}" y="{y + 1:.1f}" width="{width - 2:.1f}" height="{height - 2}" '
        f'rx="5" fill="none" stroke="{color}"/>'
    )


def _circle(x: float, y: float) -> str:
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="9" fill="none" stroke="{BLUE}"/>'


def _line(x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<path d="M{x1:.1f} {y1:.1f}L{x2:.1f} {y2:.1f}" fill="none" stroke="{LINE}"/>'


def _up(x: float, bottom: float, top: float) -> str:
    return f'<path d="M{x:.1f} {bottom:.1f}V{top:.1f}m-3 4l3 -4l3 4" fill="none" stroke="{LINE}"/>'


DIAGRAMS = {"pretraining.svg": pretraining, "heads.svg": heads, "directions.svg": directions}
