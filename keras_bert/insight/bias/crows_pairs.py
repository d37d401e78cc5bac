# SPDX-License-Identifier: Apache-2.0
"""Compares the likelihood of the sentences in CrowS-Pairs."""

from __future__ import annotations

import csv
import dataclasses
import difflib
import os
from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from keras_bert.data.text_files import read_lines
from keras_bert.insight.bias.measures import Result, UnitValues, members_of_groups, share
from keras_bert.insight.likelihood import BATCH_SIZE, masked_log_probabilities, tokenize
from keras_bert.tasks.masked_lm import MaskedLM
from keras_bert.tasks.pretrainer import Pretrainer

_COLUMNS = ("sent_more", "sent_less", "bias_type")


@dataclasses.dataclass(frozen=True)
class PairScores(Result):
    """Sentence pairs, and which sentence a masked LM finds more likely.

    Attributes:
        first: Score of each pair's stereotyping sentence, float64 `(pairs,)`: summed log
            probabilities of the tokens that both sentences share.
        second: Score of the other sentence.
        bias_types: Bias type of each pair.
    """

    title = "CrowS-Pairs: pairs whose stereotyping sentence is more likely"
    group_name = "bias type"
    unit_name = "pairs"
    caveat = (
        "CrowS-Pairs has known flaws (Blodgett et al., 2021: unclear stereotypes, pairs that "
        "differ in more than the group). Read a score as one sign among others, not as a measure "
        "of bias. In a tie, both sentences have the same score, rounded to three decimals. A tie "
        "does not count as preferring the stereotype."
    )
    metric: ClassVar[str] = "prefers the stereotype, %"
    neutral: ClassVar[dict[str, float]] = {metric: 50.0}

    first: np.ndarray
    second: np.ndarray
    bias_types: tuple[str, ...]

    @property
    def prefers_first(self) -> np.ndarray:
        """Whether the stereotyping sentence scores higher, bool `(pairs,)`. False for a tie."""
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
    """Compares the sentences in CrowS-Pairs like the original `metric.py`.

    A sentence's score is the summed log probability of the tokens that both sentences share,
    rounded to three decimals. Each token is masked separately. The first and last shared tokens
    ([CLS] and [SEP]) are excluded.

    Args:
        masked_lm: A `MaskedLM` or `Pretrainer` with a preprocessor.
        path: CSV file with the columns `sent_more`, `sent_less` and `bias_type`.
        batch_size: Number of examples per batch.
        verbose: 1 shows a progress bar.

    Raises:
        ValueError: If the file lacks a column, a pair lacks a sentence or its bias type, or a
            sentence is longer than the maximum sequence length. The message contains the file and
            line.

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
            f"{os.fspath(path)} has no column {', '.join(absent)}. Received columns: "
            f"{', '.join(reader.fieldnames or ()) or 'none'}"
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
    """Scores the sentences in pairs by the tokens that both share, as in `crows_pairs`.

    Args:
        masked_lm: A `MaskedLM` or `Pretrainer` with a preprocessor.
        pairs: Pairs of sentences.
        names: Name of each pair in error messages. `None` numbers the pairs.
        batch_size: Number of examples per batch.
        verbose: 1 shows a progress bar.

    Returns:
        The scores of the first and the second sentences, float64 `(pairs,)`.
    """
    names = names or [f"pair {number}" for number in range(len(pairs))]
    sentences = [sentence for pair in pairs for sentence in pair]
    rows, _ = tokenize(masked_lm, sentences, [name for name in names for _ in range(2)])
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
