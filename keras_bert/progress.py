# SPDX-License-Identifier: Apache-2.0
"""Progress bars of tqdm, and plain lines where the output is no terminal."""

from __future__ import annotations

import sys
from typing import IO, Any

from tqdm import tqdm

_SECONDS_BETWEEN_LINES = 30.0


class _Lines:
    """An output for tqdm that prints lines, not one that is overwritten by carriage returns."""

    def __init__(self, file: IO[str]) -> None:
        self._file = file

    def write(self, text: str) -> None:
        if line := text.strip():
            print(line, file=self._file, flush=True)

    def flush(self) -> None:
        """Every line was flushed when it was written."""


def bar(
    description: str,
    total: float | None = None,
    unit: str = "it",
    file: IO[str] | None = None,
    *,
    lines: bool = False,
    time_left: bool = True,
    **options: Any,
) -> tqdm[Any]:
    """Returns a progress bar with the time left; where the output is no terminal, a line each 30 s.

    Args:
        description: What is done.
        total: The number of units; `None` if it is unknown, and with it the time left.
        unit: The word for a unit.
        file: The output, standard error by default.
        lines: Whether to print lines on a terminal, too, where others print in between.
        time_left: Whether to show the time left that the bar's own speed gives.
        **options: Further arguments of `tqdm`.
    """
    output: Any = file or sys.stderr
    if output.isatty() and not lines:
        if not time_left:
            counts = "{n_fmt}/{total_fmt} [{elapsed}, {rate_fmt}{postfix}]"
            options = {"bar_format": f"{{l_bar}}{{bar}}| {counts}", **options}
        options = {"dynamic_ncols": True, **options}
    else:
        counts = "{n_fmt}/{total_fmt}" if total else "{n_fmt}"
        remaining = ", {remaining} left" if total and time_left else ""
        options = {
            "bar_format": f"{{desc}}: {counts} {{unit}}{{postfix}}{remaining}",
            "mininterval": _SECONDS_BETWEEN_LINES,
            "delay": _SECONDS_BETWEEN_LINES,
            **options,
        }
        output = _Lines(output)
    return tqdm(desc=description, total=total, unit=unit, file=output, **options)
