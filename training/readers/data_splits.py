# SPDX-License-Identifier: Apache-2.0
"""Stratified samples, held-out validation rows, and tables of counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence

import numpy as np

from keras_bert.tables import text_table

_MAX_LINES = 25
# Longer labels are probably texts from a wrong column.
_MAX_NAME = 40

# Maps a split's name to its counts by name
Counts = Mapping[str, Mapping[str, int | str]]


def stratified_sample(strata: Sequence[Hashable], count: int) -> list[int]:
    """Samples rows with the same fraction of each stratum, rounded up or down. Deterministic.

    Args:
        strata: The stratum of each row, such as its class. If all are equal, the sample is simple.
        count: Number of rows to sample. 0, or more than the number of rows, returns all rows.

    Returns:
        The indices of the rows, in ascending order.

    Example:

    >>> labels = ["neg", "pos"] * 50
    >>> sorted(Counter(labels[index] for index in stratified_sample(labels, 10)).items())
    [('neg', 5), ('pos', 5)]
    """
    if not 0 < count < len(strata):
        return list(range(len(strata)))
    codes = {stratum: code for code, stratum in enumerate(dict.fromkeys(strata))}
    order = np.random.default_rng(0).permutation(len(strata))
    by_stratum = np.argsort([codes[strata[index]] for index in order], kind="stable")
    # Divide the rows, sorted by stratum, into `count` equal intervals, and take the middle row of
    # each interval.
    positions = ((np.arange(count) + 0.5) * len(order) / count).astype(int)
    return sorted(order[by_stratum[positions]].tolist())


def hold_out_tenth(
    strata: Sequence[Hashable],
    path: str,
    unit: str = "rows",
    min_rows: int = 2,
    *,
    accept_few: bool = False,
) -> tuple[list[int], list[int]]:
    """Holds out a random stratified tenth, or `min_rows` rows if `accept_few` and a tenth is fewer.

    The held-out rows do not depend on the seed, so that runs can be compared. If a stratum has a
    single row, this row is never held out.

    Returns:
        The indices of the training rows and the validation rows, each in ascending order.

    Raises:
        ValueError: If fewer than `min_rows` rows would be held out.
    """
    counts = Counter(strata)
    divisible = [index for index, stratum in enumerate(strata) if counts[stratum] > 1]
    tenth = len(strata) // 10
    count = min(max(tenth, min_rows) if accept_few else tenth, len(divisible) // 2)
    if count < min_rows:
        raise ValueError(
            f"{path} must have at least {10 * min_rows} {unit} to hold out a tenth, and at least "
            f"{2 * min_rows} in classes with more than one. Received: {len(strata)} {unit}, "
            f"{len(divisible)} of them in such classes. Otherwise, pass --dev_file"
        )
    sample = stratified_sample([strata[index] for index in divisible], count)
    held_out = [divisible[index] for index in sample]
    return sorted(set(range(len(strata))) - set(held_out)), held_out


def counts_table(counts: Counts) -> str:
    """Formats the counts of each data set as a plain-text table.

    Example:

    >>> print(counts_table({"train": {"rows": 720, "neg": 700, "pos": 20}, "dev": {"rows": 80}}))
          train  dev
    rows    720   80
    neg     700    -
    pos      20    -
    """
    names = list(dict.fromkeys(name for part in counts.values() for name in part))
    shown_names = names if len(names) <= _MAX_LINES else names[: _MAX_LINES - 1]
    rows = [
        [
            name if len(name) <= _MAX_NAME else f"{name[:_MAX_NAME]}…",
            *(part.get(name, "-") for part in counts.values()),
        ]
        for name in shown_names
    ]
    lines = [text_table(["", *counts], rows)]
    if len(shown_names) < len(names):
        lines.append(f"… and {len(names) - len(shown_names)} more")
    return "\n".join(lines)
