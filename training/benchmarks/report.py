# SPDX-License-Identifier: Apache-2.0
"""The results of a benchmark: medians, ratios and a table."""

from __future__ import annotations

import dataclasses
import statistics

from .subject import Subject


@dataclasses.dataclass(frozen=True)
class Row:
    """The result of one subject.

    Args:
        subject: `library:backend[:precision][@model]`.
        milliseconds: Milliseconds of a step, the median over the rounds.
        tokens_per_second: Tokens per second at the median, padding excluded; 0 for requests of
            text.
        fastest: Milliseconds of a step in the fastest round.
        slowest: Milliseconds of a step in the slowest round.
        peak_mib: Peak memory in MiB.
        ratio: This subject's median relative to the first row's; above 1, the first is faster.
        unavailable: The reason why there are no results; empty if there are.
    """

    subject: str
    milliseconds: float = 0.0
    tokens_per_second: float = 0.0
    fastest: float = 0.0
    slowest: float = 0.0
    peak_mib: float = 0.0
    ratio: float = 0.0
    unavailable: str = ""


def make_rows(subjects: list[Subject]) -> list[Row]:
    """Returns a row for each subject, in their order."""
    rows = [_row(subject) for subject in subjects]
    first = rows[0].milliseconds
    return [
        dataclasses.replace(row, ratio=row.milliseconds / first) if first else row for row in rows
    ]


def _row(subject: Subject) -> Row:
    if subject.unavailable or not subject.seconds:
        return Row(subject.name, unavailable=subject.unavailable or "no rounds")
    steps, seconds = subject.workload.steps, subject.seconds
    median = statistics.median(seconds)
    return Row(
        subject.name,
        milliseconds=1000 * median / steps,
        tokens_per_second=subject.workload.tokens_per_round / median,
        fastest=1000 * min(seconds) / steps,
        slowest=1000 * max(seconds) / steps,
        peak_mib=subject.peak_bytes / 2**20,
    )


def format_table(rows: list[Row]) -> str:
    """Formats the rows as a table in plain text."""
    width = max(len("subject"), *(len(row.subject) for row in rows))
    lines = [
        f"{'subject':<{width}}  {'ms/step':>9}  {'(min - max)':>17}  {'tokens/s':>9}  "
        f"{'peak MiB':>8}  {'time/first':>10}"
    ]
    for row in rows:
        if row.unavailable:
            lines.append(f"{row.subject:<{width}}  unavailable: {row.unavailable}")
            continue
        tokens = f"{row.tokens_per_second:.0f}" if row.tokens_per_second else ""
        spread = f"{row.fastest:.1f} - {row.slowest:.1f}"
        lines.append(
            f"{row.subject:<{width}}  {row.milliseconds:>9.1f}  {spread:>17}  "
            f"{tokens:>9}  {row.peak_mib:>8.0f}  {row.ratio:>10.2f}"
        )
    return "\n".join(lines)
