# SPDX-License-Identifier: Apache-2.0
"""A sequence that a model reads, as a text table and as a picture."""

from __future__ import annotations

import dataclasses
import html
import itertools
import re
import shutil
from collections.abc import Mapping, Sequence

import numpy as np

from keras_bert.tables import display_width, wrapped_columns
from keras_bert.tasks.explained_row import Span

# Marks of word pieces and spaces, which a text does not contain
_MARKS = re.compile(r"^##|^[Ġ▁]|@@$|</w>$")
# Characters that XML cannot represent
_INVALID = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_MAX_TEXT = 60

# The colors of figure 2 of the BERT paper. They are legible on light and on dark pages.
_FILLS = {"token": "#f3d9e8", "id": "#fdf0c4", "segment": "#dcebd3", "position": "#e3e7ee"}
_INK, _GRAY, _BLUE = "#24292f", "#768390", "#5c6bc0"
_FONT_SIZE, _BOX, _GAP, _PLUS, _COLUMN_GAP = 11, 24, 6, 12, 4
_CHARACTER_WIDTH = 0.62 * _FONT_SIZE


@dataclasses.dataclass(frozen=True)
class Excerpt:
    """The part of a text in a sequence, if the sequence does not contain the complete text.

    Args:
        field: The name of the text, or in tagging a truncated word.
        first: The index of the first token in the sequence.
        stop: The index after the last token in the sequence.
        count: The number of tokens in the text. With `is_window` in tagging, words are counted.
        is_window: Whether other sequences contain the rest. Otherwise, the text is truncated.
        before: The omitted text before the part. Empty in tagging.
        after: The omitted text after the part. Empty in tagging.
    """

    field: str
    first: int
    stop: int
    count: int
    is_window: bool
    before: str = ""
    after: str = ""

    @property
    def is_partial(self) -> bool:
        """Whether the sequence does not contain the complete text."""
        return self.stop - self.first < self.count

    def __str__(self) -> str:
        if self.is_window:
            unit = "words" if self.field == "words" else "tokens"
            text = "" if self.field == unit else f" in {self.field}"
            return f"window: {unit} {self.first} to {self.stop - 1} of {self.count:,}{text}"
        lost = f"{self.count - self.stop + self.first:,} of {self.count:,} tokens"
        text, side = (self.before, "start") if self.before else (self.after, "end")
        text = text.strip()
        if not text:
            return f"truncated: {self.field} lost {lost}"
        shown = " ".join((text if len(text) <= _MAX_TEXT else f"{text[:_MAX_TEXT]}…").split())
        return (
            f"truncated: {self.field} lost {lost} at the {side}, {len(text):,} characters: "
            f"{shown!r}"
        )


@dataclasses.dataclass(frozen=True, eq=False)
class InputSequence:
    """A sequence of tokens that a model reads, with the source and the label of each token.

    It prints as a table that is wrapped to the width of the terminal. Notebooks show it as a
    picture in the style of figure 2 of the BERT paper.

    Attributes:
        example: The index of the example in the input. In tagging, the index of the sentence.
        part: What the sequence contains if the example has multiple sequences, for example
            `"choice 2 of 4"` or `"window 1 of 3"`. Otherwise, an empty string.
        features: The features that the model receives for this sequence, such as `token_ids` and
            `padding_mask`, arrays of shape `(length,)`. Masked language models also receive
            `mask_positions`, of shape `(slots,)`.
        tokens: All tokens, including special tokens and padding.
        texts: The texts of the sequence by field. Empty if the input contains token IDs.
        spans: `(text, start, end)` for each token: the index of its text in `texts`, its first
            character, and the character after its last. In tagging, the span is the token's word.
            `None` for special tokens and padding.
        excerpts: The texts that are truncated or split into windows, see `Excerpt`.
        label: The label of the example, or an empty string.
        token_labels: The labels of the tokens, by type of label: `label` (tagging), `answer`
            (`start` and `end`), or `target` and `masking` (`masked`, `kept` or `random`). Tokens
            without a label have an empty string.
    """

    example: int
    part: str
    features: Mapping[str, np.ndarray]
    tokens: tuple[str, ...]
    texts: Mapping[str, str]
    spans: tuple[Span, ...]
    excerpts: tuple[Excerpt, ...] = ()
    label: str = ""
    token_labels: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)

    @property
    def token_ids(self) -> np.ndarray:
        """The token IDs, int32 `(length,)`."""
        return self.features["token_ids"]

    @property
    def segment_ids(self) -> np.ndarray:
        """The segment IDs, int32 `(length,)`. Without this feature, they are 0."""
        return self.features.get("segment_ids", np.zeros_like(self.token_ids))

    @property
    def position_ids(self) -> np.ndarray:
        """The positions from 0, int32 `(length,)`. In packed rows, each sequence starts at 0."""
        return self.features.get("position_ids", np.arange(len(self.tokens), dtype="int32"))

    @property
    def padding_mask(self) -> np.ndarray:
        """False for padding, bool `(length,)`."""
        if "sequence_ids" in self.features:
            return self.features["sequence_ids"] > 0
        mask = self.features.get("padding_mask", np.ones_like(self.token_ids))
        return mask.astype(bool)

    @property
    def title(self) -> str:
        """The example, its label, and the number of tokens."""
        count = np.count_nonzero(self.padding_mask)
        padding = len(self.tokens) - count
        parts = [f"example {self.example}", self.part, self.label and f"label: {self.label}"]
        parts.append(f"{count} tokens" + (f" + {padding} padding" if padding else ""))
        return ", ".join(filter(None, parts))

    def lines(self) -> dict[str, list[str]]:
        """Returns the lines of the table by name, each with a cell for each non-padding token."""
        shown = np.flatnonzero(self.padding_mask).tolist()
        lines = {
            name: [
                labels[index] or ("-" if name == "label" and self.spans[index] else "")
                for index in shown
            ]
            for name, labels in self.token_labels.items()
        }
        if len(self.texts) > 1:
            lines["field"] = self._field_names(shown)
        lines["token"] = [self.tokens[index] for index in shown]
        lines["text"] = self._sources(shown)
        ids = {"id": self.token_ids, "segment": self.segment_ids, "position": self.position_ids}
        if "sequence_ids" in self.features:
            ids["sequence"] = self.features["sequence_ids"]
        lines |= {name: [str(values[index]) for index in shown] for name, values in ids.items()}
        if self.texts:
            spans = [self.spans[index] for index in shown]
            lines["character"] = [str(span[1]) if span else "" for span in spans]
        return {name: cells for name, cells in lines.items() if any(cells)}

    def _field_names(self, shown: Sequence[int]) -> list[str]:
        """Returns the field name at the first token of each text, and empty strings elsewhere."""
        names = dict(enumerate(self.texts))
        spans = [self.spans[index] for index in shown]
        return [names.pop(span[0], "") if span else "" for span in spans]

    def _sources(self, shown: Sequence[int]) -> list[str]:
        """Returns the source of each token whose text differs, for example of unknown tokens."""
        texts, cells, previous = list(self.texts.values()), [], None
        for index in shown:
            span = self.spans[index]
            source = texts[span[0]][span[1] : span[2]] if span else ""
            token = _MARKS.sub("", self.tokens[index])
            is_shown = span != previous and source.casefold() != token.casefold()
            cells.append(" ".join(source.split()) if is_shown else "")
            previous = span
        return cells

    def __str__(self) -> str:
        lines = self.lines()
        width = shutil.get_terminal_size().columns
        table = wrapped_columns(list(lines), list(zip(*lines.values(), strict=True)), width)
        return "\n".join([self.title, *self._notes(), "", table])

    def _notes(self) -> list[str]:
        return list(dict.fromkeys(map(str, self.excerpts)))

    def _repr_html_(self) -> str:
        notes = "<br>".join(map(html.escape, (self.title, *self._notes())))
        return f'<div><p>{notes}</p><div style="overflow-x: auto">{self.svg()}</div></div>'

    def svg(self, width: int = 720) -> str:
        """Draws the sequence in the style of figure 2 of the BERT paper, as SVG.

        From top to bottom: the labels, the tokens, and the three embeddings that the model adds:
        token, segment and position, by their IDs. Texts are drawn with the fonts of the browser,
        so the picture supports all scripts.

        Args:
            width: Maximum width in pixels. Longer sequences are wrapped.
        """
        lines = self.lines()
        order = [*self.token_labels, "text", *_FILLS]
        lines = {name: lines[name] for name in order if name in lines}
        padding = len(self.tokens) - len(lines["token"])
        if padding:
            pad = self.tokens[int(np.flatnonzero(~self.padding_mask)[0])]
            for name, cells in lines.items():
                cells.append({"token": f"{pad} ×{padding}"}.get(name, ""))
        head = max(map(_pixels, lines))
        widths = [
            max(_pixels(cell) + 2 for cell in cells) for cells in zip(*lines.values(), strict=True)
        ]
        widths = [max(28, column) for column in widths]
        starts, lefts, left = [0], [], head
        for index, column in enumerate(widths):
            if left + column > width and left > head:
                starts.append(index)
                left = head
            lefts.append(left)
            left += column + _COLUMN_GAP
        right = 1 + max(left + column for left, column in zip(lefts, widths, strict=True))
        shapes, y = [], 0.0
        for first, last in itertools.pairwise([*starts, len(widths)]):
            for name, cells in lines.items():
                if not any(cells[first:last]):
                    continue
                if name in ("segment", "position"):
                    shapes += [
                        _text(lefts[index] + widths[index] / 2, y + 9, "+", _GRAY)
                        for index in range(first, last)
                        if cells[index]
                    ]
                    y += _PLUS
                shapes.append(_text(0, y + 16, name, _GRAY, "start"))
                for index in range(first, last):
                    shapes += _cell(name, cells[index], lefts[index], y, widths[index])
                y += _BOX + _GAP if name == "token" else _BOX if name in _FILLS else 18
            y += 3 * _GAP
        height = y - 3 * _GAP + 2
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{right:.0f}" height="{height:.0f}" '
            f'viewBox="0 0 {right:.0f} {height:.0f}" font-family="ui-monospace, monospace" '
            f'font-size="{_FONT_SIZE}">\n<title>{_escape(self.title)}</title>\n'
            + "\n".join([*shapes, "</svg>\n"])
        )


def _cell(name: str, cell: str, left: float, y: float, width: float) -> list[str]:
    """Returns the shapes of a cell: text, in a box for tokens and embeddings."""
    middle = left + width / 2
    if name not in _FILLS:
        color = _GRAY if name == "text" else _BLUE
        return [_text(middle, y + 13, cell, color)] if cell and cell != "-" else []
    if not cell:
        return []
    dashes = ' stroke-dasharray="3 2"' if " ×" in cell else ""
    fill = "none" if dashes else _FILLS[name]
    box = (
        f'<rect x="{left:.1f}" y="{y + 1:.1f}" width="{width:.1f}" height="{_BOX - 4}" rx="4" '
        f'fill="{fill}" stroke="{_GRAY}"{dashes}/>'
    )
    if name == "token":
        return [box, _text(middle, y + 15, cell, _GRAY if dashes else _INK)]
    index = f'<tspan font-size="9" dy="3">{_escape(cell)}</tspan>'
    return [box, _text(middle, y + 14, "E", _INK, content=f"E{index}")]


def _text(
    x: float, y: float, words: str, color: str, anchor: str = "middle", content: str = ""
) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" fill="{color}" text-anchor="{anchor}">'
        f"{content or _escape(words)}</text>"
    )


def _escape(text: str) -> str:
    return html.escape(_INVALID.sub("\ufffd", text))


def _pixels(text: str) -> float:
    return _CHARACTER_WIDTH * display_width(text) + 6


class ModelInputs(tuple[InputSequence, ...]):
    """The sequences that a model reads. They print as tables, and notebooks show pictures."""

    __slots__ = ()

    def __str__(self) -> str:
        return "\n\n".join(map(str, self))

    def _repr_html_(self) -> str:
        return "".join(sequence._repr_html_() for sequence in self)
