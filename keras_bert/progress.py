# SPDX-License-Identifier: Apache-2.0
"""Progress bars with tqdm, or plain lines if the output is not a terminal."""

from __future__ import annotations

import sys
from typing import IO, Any

from tqdm import tqdm

_SECONDS_BETWEEN_LINES = 30.0


class _Lines:
    """An output for tqdm that prints lines instead of overwriting them with carriage returns."""

    def __init__(self, file: IO[str]) -> None:
        self._file = file

    def write(self, text: str) -> None:
        if line := text.strip():
            print(line, file=self._file, flush=True)

    def flush(self) -> None:
        """Does nothing, because every line is flushed when it is written."""


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
    """Returns a progress bar, or without a terminal an object that prints a line every 30 s.

    Args:
        description: Text in front of the bar, for example `"reading"`.
        total: Number of units, or `None` if it is unknown. Then the remaining time is not shown.
        unit: Name of the units, for example `"rounds"`.
        file: The output. Defaults to standard error.
        lines: Whether to print lines even on a terminal, for example to allow other output in
            between.
        time_left: Whether to show the remaining time, estimated from the bar's speed.
        **options: Other arguments of `tqdm`.
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
