# SPDX-License-Identifier: Apache-2.0
"""Computes medians and ratios, formats the results table, and plots server latency."""

from __future__ import annotations

import dataclasses
import statistics
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from keras_bert.tables import text_table

from ..plots.style import BLUE, ORANGE, new_figure, style
from .subject import Load, Subject

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclasses.dataclass(frozen=True)
class Row:
    """A subject's result under a load.

    Args:
        subject: Name of the subject.
        load: The load. `None` for subjects without requests.
        milliseconds: Milliseconds per step, or a round's duration divided by the number of
            successful requests. It is the median over the rounds.
        fastest: Milliseconds in the fastest round.
        slowest: Milliseconds in the slowest round.
        tokens_per_second: Tokens per second at the median, excluding padding. 0 for requests.
        p50: Median latency of the requests in all rounds, in milliseconds. 0 for steps.
        p99: 99th percentile of the latency.
        requests: Number of requests in all rounds. 0 for steps.
        errors: Number of requests with an error or with an unexpected prediction.
        most_frequent_error: The most frequent error, or an empty string.
        peak_mib: Peak memory in MiB. 0 for servers and for work in this process.
        ratio: The median divided by the first subject's median under the same load. Above 1, the
            first subject is faster.
        unavailable: The reason why there are no results, or an empty string.
    """

    subject: str
    load: Load | None = None
    milliseconds: float = 0.0
    fastest: float = 0.0
    slowest: float = 0.0
    tokens_per_second: float = 0.0
    p50: float = 0.0
    p99: float = 0.0
    requests: int = 0
    errors: int = 0
    most_frequent_error: str = ""
    peak_mib: float = 0.0
    ratio: float = 0.0
    unavailable: str = ""


def _milliseconds(value: float) -> str:
    return f"{value:.1f}" if value >= 1 else f"{value:.3f}"


_COLUMNS: dict[str, Callable[[Row], str]] = {
    "subject": lambda row: row.subject,
    "load": lambda row: str(row.load or ""),
    "ms/step": lambda row: _milliseconds(row.milliseconds),
    "(min - max)": lambda row: f"{_milliseconds(row.fastest)} - {_milliseconds(row.slowest)}",
    "steps/s": lambda row: f"{1000 / row.milliseconds:.1f}",
    "tokens/s": lambda row: f"{row.tokens_per_second:.0f}" if row.tokens_per_second else "",
    "p50 ms": lambda row: f"{row.p50:.1f}" if row.requests else "",
    "p99 ms": lambda row: f"{row.p99:.1f}" if row.requests else "",
    "errors": lambda row: f"{row.errors} of {row.requests}" if row.errors else "",
    "peak MiB": lambda row: f"{row.peak_mib:.0f}" if row.peak_mib else "",
    "time/first": lambda row: f"{row.ratio:.2f}" if row.ratio else "",
}


def make_rows(subjects: Sequence[Subject]) -> list[Row]:
    """Returns the results in the order of the subjects."""
    rows = [_row(subject) for subject in subjects]
    first: dict[Load | None, float] = {}
    for row in rows:
        first.setdefault(row.load, row.milliseconds)
    return [
        dataclasses.replace(row, ratio=row.milliseconds / first[row.load])
        if first[row.load]
        else row
        for row in rows
    ]


def format_table(rows: Sequence[Row]) -> str:
    """Formats the results as a text table without empty columns."""
    results = [row for row in rows if not row.unavailable]
    columns = {name: [cell(row) for row in results] for name, cell in _COLUMNS.items()}
    columns = {name: cells for name, cells in columns.items() if any(cells)}
    lines = [text_table(list(columns), zip(*columns.values(), strict=True))] if results else []
    for row in rows:
        name = f"{row.subject}, {row.load}" if row.load else row.subject
        if row.unavailable:
            lines.append(f"{name}: unavailable: {row.unavailable}")
        elif row.errors:
            lines.append(f"{name}: most frequent error: {row.most_frequent_error}")
    return "\n".join(lines)


def _row(subject: Subject) -> Row:
    rounds = subject.rounds
    if subject.unavailable or not rounds:
        return Row(subject.name, subject.load, unavailable=subject.unavailable or "no rounds")
    times = [1000 * each.seconds / each.steps for each in rounds]
    latencies = [time for each in rounds for time in each.milliseconds]
    errors = Counter(error for each in rounds for error in each.errors)
    median = statistics.median(times)
    p50, p99 = np.percentile(latencies or [0.0], [50, 99]).tolist()
    return Row(
        subject.name,
        subject.load,
        milliseconds=median,
        fastest=min(times),
        slowest=max(times),
        tokens_per_second=1000 * rounds[0].tokens / rounds[0].steps / median,
        p50=p50,
        p99=p99,
        requests=sum(each.requests for each in rounds),
        errors=errors.total(),
        most_frequent_error=errors.most_common(1)[0][0] if errors else "",
        peak_mib=rounds[-1].peak_bytes / 2**20,
    )


@style()
def serving_latency_figure(rows: Sequence[Row]) -> Figure:
    """Draws median and 99th percentile latency over successful requests per second.

    Results without requests are omitted.
    """
    figure, (axes,) = new_figure(6.0, 3.6)
    for loop, color in (("closed", BLUE), ("open", ORANGE)):
        points = sorted(
            (1000 / row.milliseconds, row.p50, row.p99, row.load.rate or row.load.clients)
            for row in rows
            if row.load and row.requests and bool(row.load.rate) == (loop == "open")
        )
        if not points:
            continue
        qps, p50, p99, loads = zip(*points, strict=True)
        axes.plot(qps, p50, "o-", color=color, label=f"{loop} loop, p50")
        axes.plot(qps, p99, "s--", color=color, label=f"{loop} loop, p99")
        for x, y, load in zip(qps, p99, loads, strict=True):
            axes.annotate(
                f"{load:g}", (x, y), xytext=(3, 3), textcoords="offset points", fontsize=7
            )
    axes.set_xlabel("answered requests/s (numbers at p99: clients, or requests/s sent)")
    axes.set_ylabel("milliseconds")
    axes.set_ylim(bottom=0)
    if axes.lines:
        axes.legend()
    return figure
