# SPDX-License-Identifier: Apache-2.0
"""Computes log probabilities of words that could stand in the same place in a text."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from keras_bert.insight.likelihood import (
    candidate_log_probabilities,
    require_bidirectional,
    tokens_of_spans,
)
from keras_bert.tasks.masked_lm import MaskedLM
from keras_bert.tasks.pretrainer import Pretrainer

Span = tuple[int, int]


@dataclasses.dataclass(frozen=True)
class Slot:
    """A word in a text, and alternatives for it.

    Attributes:
        text: The text.
        span: Start and end of the word, in characters.
        words: The word and its alternatives.
        hidden: Other masked spans in the text.
        name: The text's name in error messages.
    """

    text: str
    span: Span
    words: tuple[str, ...]
    hidden: tuple[Span, ...]
    name: str


def slot_log_probabilities(
    masked_lm: MaskedLM | Pretrainer, slots: Sequence[Slot], batch_size: int, verbose: int | str
) -> list[np.ndarray]:
    """Computes the log probabilities of each slot's words, `(words,)`.

    Raises:
        ValueError: If a word is not a single token.
    """
    require_bidirectional(masked_lm)
    tokenizer = masked_lm.preprocessor.tokenizer
    texts, spans, names = [], [], []
    for slot in slots:
        start, end = slot.span
        for word in slot.words:
            texts.append(slot.text[:start] + word + slot.text[end:])
            others = slot.hidden if word == slot.words[0] else ()
            spans.append([(start, start + len(word)), *others])
            names.append(slot.name)
    rows, positions = tokens_of_spans(masked_lm, texts, spans, names)
    masked_rows, masked_positions, candidates = [], [], []
    word_positions = iter(zip(rows, positions, strict=True))
    for slot in slots:
        rows_of_slot = [next(word_positions) for _ in slot.words]
        row, (own, *hidden) = rows_of_slot[0]
        ids = []
        for word, (other_row, (place, *_)) in zip(slot.words, rows_of_slot, strict=True):
            is_one_token = place == own and len(own) == 1
            ids.append(other_row[own[0]] if is_one_token else tokenizer.unk_token_id)
            if ids[-1] == tokenizer.unk_token_id:
                raise ValueError(
                    f"{slot.name}: each word must be a single token. Received: {word!r}"
                )
        at = {own[0]}.union(*hidden)
        if any(row[position] == tokenizer.unk_token_id for position in at):
            raise ValueError(f"{slot.name} has words that the vocabulary cannot spell.")
        masked_rows.append(
            [tokenizer.mask_token_id if index in at else token for index, token in enumerate(row)]
        )
        masked_positions.append(own[0])
        candidates.append(ids)
    return candidate_log_probabilities(
        masked_lm, masked_rows, masked_positions, candidates, batch_size, verbose
    )
