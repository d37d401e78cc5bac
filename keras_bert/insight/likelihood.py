# SPDX-License-Identifier: Apache-2.0
"""How likely a masked LM finds sentences, and comparisons of two that differ in a few words."""

from __future__ import annotations

import csv
import dataclasses
import difflib
import os
from collections.abc import Sequence
from typing import ClassVar

import keras
import numpy as np

from keras_bert.checks import shortened
from keras_bert.data.loader import BatchOptions
from keras_bert.data.text_files import read_lines
from keras_bert.insight.measures import (
    Result,
    UnitValues,
    members_of_groups,
    share,
)
from keras_bert.insight.states import require_masked_lm
from keras_bert.ops.dispatch import compiles_each_shape
from keras_bert.tasks.masked_lm import MaskedLM, token_batches
from keras_bert.tasks.pretrainer import Pretrainer

BATCH_SIZE = 128
_COLUMNS = ("sent_more", "sent_less", "bias_type")


@dataclasses.dataclass(frozen=True)
class TextLikelihood:
    """How likely a masked LM finds each token of a text, given all others.

    Attributes:
        text: The text.
        tokens: Its tokens.
        spans: For each token `(start, end)`, in characters of the text.
        log_probabilities: For each token the natural logarithm of its probability where it is
            masked, float64 `(tokens,)`.
    """

    text: str
    tokens: tuple[str, ...]
    spans: tuple[tuple[int, int], ...]
    log_probabilities: np.ndarray

    @property
    def total(self) -> float:
        """The pseudo-log-likelihood: the sum over the tokens, in nats."""
        return float(self.log_probabilities.sum())

    @property
    def perplexity(self) -> float:
        """The pseudo-perplexity: `exp` of the mean negative log probability of a token."""
        return float(np.exp(-self.log_probabilities.mean()))


def pseudo_log_likelihood(
    masked_lm: MaskedLM | Pretrainer,
    texts: Sequence[str],
    batch_size: int = BATCH_SIZE,
    verbose: int | str = 0,
) -> list[TextLikelihood]:
    """Scores texts by masking their tokens one at a time.

    Args:
        masked_lm: A `MaskedLM` or `Pretrainer` with a preprocessor.
        texts: Strings. Each becomes as many rows as it has tokens.
        batch_size: Rows in a batch.
        verbose: 1 shows a progress bar.

    Returns:
        One `TextLikelihood` for each text, in order.

    Raises:
        ValueError: If the model is causal, or a text is empty or longer than the longest row.

    Reference:
        [Masked language model scoring](https://arxiv.org/abs/1910.14659), equation 1.
    """
    rows, spans = _tokenize(masked_lm, texts)
    vocabulary = masked_lm.preprocessor.tokenizer.vocabulary
    positions = [range(1, len(row) - 1) for row in rows]
    scores = masked_log_probabilities(masked_lm, rows, positions, batch_size, verbose)
    return [
        TextLikelihood(text, tuple(vocabulary[token] for token in row[1:-1]), own, of_tokens)
        for text, row, own, of_tokens in zip(texts, rows, spans, scores, strict=True)
    ]


def masked_log_probabilities(
    masked_lm: MaskedLM | Pretrainer,
    rows: Sequence[Sequence[int]],
    positions: Sequence[Sequence[int]],
    batch_size: int = BATCH_SIZE,
    verbose: int | str = 0,
) -> list[np.ndarray]:
    """The log probability of tokens, each masked by itself.

    Args:
        masked_lm: A `MaskedLM` or `Pretrainer` with a preprocessor.
        rows: Token ids with special tokens, ragged `(rows, None)`.
        positions: Which tokens of each row to score, ragged `(rows, None)`.
        batch_size: Rows in a batch, of similar lengths.
        verbose: 1 shows a progress bar.

    Returns:
        For each row float64 `(positions,)`, in nats.

    Raises:
        ValueError: If the model is causal.
    """
    require_masked_lm(masked_lm)
    mask = masked_lm.preprocessor.tokenizer.mask_token_id
    slots = [(number, slot) for number, row in enumerate(positions) for slot in row]
    masked_rows = [
        [*rows[number][:slot], mask, *rows[number][slot + 1 :]] for number, slot in slots
    ]
    log_probabilities = candidate_log_probabilities(
        masked_lm,
        masked_rows,
        [slot for _, slot in slots],
        [[rows[number][slot]] for number, slot in slots],
        batch_size,
        verbose,
    )
    scores = iter(log_probabilities)
    return [np.array([next(scores)[0] for _ in row], "float64") for row in positions]


def candidate_log_probabilities(
    masked_lm: MaskedLM | Pretrainer,
    rows: Sequence[Sequence[int]],
    positions: Sequence[int],
    candidates: Sequence[Sequence[int]],
    batch_size: int = BATCH_SIZE,
    verbose: int | str = 0,
) -> list[np.ndarray]:
    """The log probabilities of candidate tokens at one position of each row.

    For each row they are float64 `(candidates,)`, in nats. Rows of ids are ragged, with special
    tokens and masks; rows that are equal, with the same position, are computed once. A causal model
    is a ValueError.
    """
    require_masked_lm(masked_lm)
    if masked_lm.config.causal:
        raise ValueError(
            "A causal model predicts a token from the tokens before it alone: masking one at a "
            "time says nothing of the tokens behind it."
        )
    if not rows:
        return []
    askers: dict[tuple[tuple[int, ...], int], list[int]] = {}
    for number, (row, position) in enumerate(zip(rows, positions, strict=True)):
        askers.setdefault((tuple(row), position), []).append(number)
    batches = token_batches(
        [row for row, _ in askers],
        masked_lm.preprocessor,
        BatchOptions(batch_size, compiles=compiles_each_shape()),
        [[position] for _, position in askers],
    )
    numbers = list(askers.values())
    log_probabilities = [np.zeros(0)] * len(rows)
    progress = keras.utils.Progbar(batches.num_batches, verbose=int(verbose != 0))
    for features, index in batches:
        outputs = masked_lm.predict_on_batch(features)
        # A Pretrainer has two outputs
        outputs = outputs["masked_lm_logits"] if isinstance(outputs, dict) else outputs
        logits = keras.ops.convert_to_numpy(outputs)[:, 0]
        highest = logits.max(axis=-1, keepdims=True)
        normalizers = np.log(np.exp(logits - highest).sum(axis=-1, dtype="float64"))
        for of_row, row_logits, most, normalizer in zip(
            index, logits, highest, normalizers, strict=True
        ):
            for number in numbers[of_row]:
                candidate_logits = row_logits[list(candidates[number])]
                log_probabilities[number] = (candidate_logits - most).astype("float64") - normalizer
        progress.add(1)
    return log_probabilities


@dataclasses.dataclass(frozen=True)
class PairScores(Result):
    """Pairs of sentences, and which one a masked LM finds likelier.

    Attributes:
        first: Score of each pair's stereotyping sentence, float64 `(pairs,)`: summed log
            probabilities of the tokens that both have.
        second: Score of the other sentence.
        bias_types: The kind of bias of each pair.
    """

    title = "CrowS-Pairs: pairs whose stereotyping sentence is likelier"
    group_name = "bias type"
    unit_name = "pairs"
    caveat = (
        "CrowS-Pairs has known flaws (Blodgett et al., 2021: unclear stereotypes, pairs that "
        "differ in more than the group); read a score as one sign among others, not as a measure "
        "of bias. In a tie both sentences have the same score, which is rounded to three decimals; "
        "a tie counts as not preferring the stereotype."
    )
    metric: ClassVar[str] = "prefers the stereotype, %"
    neutral: ClassVar[dict[str, float]] = {metric: 50.0}

    first: np.ndarray
    second: np.ndarray
    bias_types: tuple[str, ...]

    @property
    def prefers_first(self) -> np.ndarray:
        """Whether the stereotyping sentence scores higher, bool `(pairs,)`; a tie does not."""
        return self.first > self.second

    @property
    def ties(self) -> np.ndarray:
        """Whether both sentences have the same score, bool `(pairs,)`."""
        return np.asarray(self.first == self.second)

    @property
    def units(self) -> tuple[str, ...]:
        return self.bias_types

    def unit_values(self) -> list[UnitValues]:
        return [
            share(group, metric, flags[members])
            for metric, flags in ((self.metric, self.prefers_first), ("ties, %", self.ties))
            for group, members in members_of_groups(self.bias_types).items()
        ]


def crows_pairs(
    masked_lm: MaskedLM | Pretrainer,
    path: str | os.PathLike[str],
    batch_size: int = BATCH_SIZE,
    verbose: int | str = 0,
) -> PairScores:
    """Compares the sentences of CrowS-Pairs as its released `metric.py` does.

    The score of a sentence is the sum of the log probabilities of the tokens that both sentences
    have, each masked by itself, without the first and the last of them ([CLS] and [SEP]), rounded
    to three decimals.

    Args:
        masked_lm: A `MaskedLM` or `Pretrainer` with a preprocessor.
        path: The CSV file, with the columns `sent_more`, `sent_less` and `bias_type`.
        batch_size: Rows in a batch.
        verbose: 1 shows a progress bar.

    Raises:
        ValueError: If the file lacks a column, or a pair a sentence or its kind, or a sentence is
            longer than the longest row; the message names file and line.

    Example:

    ```python
    scores = crows_pairs(MaskedLM.from_preset(preset), "crows_pairs_anonymized.csv", verbose=1)
    print(scores)
    ```

    Reference:
        [CrowS-Pairs](https://arxiv.org/abs/2010.00133), section 3; the data's flaws:
        [Stereotyping Norwegian Salmon](https://aclanthology.org/2021.acl-long.81), section 4.
    """
    pairs, kinds, lines = [], [], []
    reader = csv.DictReader(read_lines(path))
    absent = sorted(set(_COLUMNS) - set(reader.fieldnames or ()))
    if absent:
        raise ValueError(
            f"{os.fspath(path)} has no column {', '.join(absent)}; its columns are "
            f"{', '.join(reader.fieldnames or ()) or 'none'}."
        )
    for row in reader:
        empty = [name for name in _COLUMNS if not (row[name] or "").strip()]
        if empty:
            raise ValueError(
                f"{os.fspath(path)}, line {reader.line_num}: {', '.join(empty)} is empty."
            )
        pairs.append((row["sent_more"], row["sent_less"]))
        kinds.append(row["bias_type"])
        lines.append(reader.line_num)
    if not pairs:
        raise ValueError(f"{os.fspath(path)} has no pairs.")
    names = [f"{os.fspath(path)}, line {line}" for line in lines]
    first, second = compare_pairs(masked_lm, pairs, names, batch_size, verbose)
    return PairScores(first, second, tuple(kinds))


def compare_pairs(
    masked_lm: MaskedLM | Pretrainer,
    pairs: Sequence[tuple[str, str]],
    names: Sequence[str] | None = None,
    batch_size: int = BATCH_SIZE,
    verbose: int | str = 0,
) -> tuple[np.ndarray, np.ndarray]:
    """Scores the sentences of pairs by the tokens that both have, as in `crows_pairs`.

    Args:
        masked_lm: A `MaskedLM` or `Pretrainer` with a preprocessor.
        pairs: Two sentences each.
        names: The name of each pair in errors; `None` numbers them.
        batch_size: Rows in a batch.
        verbose: 1 shows a progress bar.

    Returns:
        The scores of the first and of the second sentences, float64 `(pairs,)`.
    """
    names = names or [f"pair {number}" for number in range(len(pairs))]
    sentences = [sentence for pair in pairs for sentence in pair]
    rows, _ = _tokenize(masked_lm, sentences, [name for name in names for _ in range(2)])
    positions: list[list[int]] = []
    for first, second in zip(rows[::2], rows[1::2], strict=True):
        blocks = difflib.SequenceMatcher(None, first, second).get_matching_blocks()
        for starts in zip(*((block.a, block.b) for block in blocks), strict=True):
            common = [
                start + offset
                for start, block in zip(starts, blocks, strict=True)
                for offset in range(block.size)
            ]
            positions.append(common[1:-1])
    scores = masked_log_probabilities(masked_lm, rows, positions, batch_size, verbose)
    totals = np.array([round(float(row.sum()), 3) for row in scores])
    return totals[::2], totals[1::2]


def tokens_of_spans(
    masked_lm: MaskedLM | Pretrainer,
    texts: Sequence[str],
    spans: Sequence[Sequence[tuple[int, int]]],
    names: Sequence[str] | None = None,
) -> tuple[list[list[int]], list[list[list[int]]]]:
    """The texts' token ids with special tokens, and the positions of the tokens of some spans.

    Spans are `(start, end)` in characters. `names` are those of the texts in errors.
    """
    rows, bounds = _tokenize(masked_lm, texts, names)
    positions = [
        [
            [
                position
                for position, (start, end) in enumerate(of_tokens, start=1)
                if start < last and end > first
            ]
            for first, last in words
        ]
        for of_tokens, words in zip(bounds, spans, strict=True)
    ]
    return rows, positions


def _tokenize(
    masked_lm: MaskedLM | Pretrainer, texts: Sequence[str], names: Sequence[str] | None = None
) -> tuple[list[list[int]], list[tuple[tuple[int, int], ...]]]:
    """The texts' ids with special tokens, and the start and end of each other token."""
    require_masked_lm(masked_lm)
    if isinstance(texts, str):
        raise ValueError(f"Received the string {texts[:80]!r}; expected a list of strings.")
    for number, text in enumerate(texts):
        if not isinstance(text, str):
            name = names[number] if names else f"Text {number}"
            raise ValueError(f"{name} is {shortened(text)}; expected a string.")
    tokenizer = masked_lm.preprocessor.tokenizer
    ids, starts, ends = tokenizer.tokenize_with_offsets(list(texts))
    max_tokens = masked_lm.preprocessor.sequence_length - 2
    for number, row in enumerate(ids):
        if not 1 <= len(row) <= max_tokens:
            name = names[number] if names else f"Text {number}"
            raise ValueError(f"{name} has {len(row)} tokens; expected 1 to {max_tokens}.")
    rows = [[tokenizer.cls_token_id, *row, tokenizer.sep_token_id] for row in ids]
    return rows, [tuple(zip(*own, strict=True)) for own in zip(starts, ends, strict=True)]
