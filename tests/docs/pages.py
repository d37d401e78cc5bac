# SPDX-License-Identifier: Apache-2.0
"""Reads tables and code from Markdown pages."""

import re
from dataclasses import dataclass
from pathlib import Path

from tests.source_imports import ROOT

DOCS = ROOT / "docs"
# Precedes a table in which both columns are run
BOTH_SIDES = "<!-- both sides -->"


@dataclass(frozen=True)
class Row:
    """A table row.

    Attributes:
        page: Page, relative to `docs`.
        line: Line number in the page, starting at 1.
        header: Column headers.
        cells: Cell texts.
        both_sides: Whether the table follows `BOTH_SIDES`.
    """

    page: str
    line: int
    header: tuple[str, ...]
    cells: tuple[str, ...]
    both_sides: bool

    def code(self, column: int) -> list[str]:
        """Returns the pieces of code in a cell."""
        return re.findall(r"`([^`]+)`", self.cells[column])

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def table_rows(page: Path) -> list[Row]:
    """Returns the rows of all tables in a page."""
    lines = page.read_text(encoding="utf-8").splitlines()
    rows, header, both_sides = [], None, False
    for number, line in enumerate(lines, start=1):
        if not line.startswith("|"):
            header = None
            both_sides = line == BOTH_SIDES
        elif header is None:
            header = _cells(line)
        elif line.strip("|-"):
            name = page.relative_to(DOCS).as_posix()
            rows.append(Row(name, number, header, _cells(line), both_sides))
    return rows


def code_blocks(page: Path, language: str) -> list[str]:
    """Returns the fenced code blocks in a language."""
    text = page.read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


def commands(page: Path) -> list[str]:
    """Returns the `keras-bert` commands with flags in a page's code blocks and text."""
    lines = "\n".join(code_blocks(page, "bash")).replace("\\\n", " ").splitlines()
    lines += re.findall(r"`([^`\n]+)`", page.read_text(encoding="utf-8"))
    return [line.strip() for line in lines if re.match(r"keras-bert [\w-]+ --", line.strip())]


def _cells(line: str) -> tuple[str, ...]:
    return tuple(cell.strip() for cell in line.strip().strip("|").split("|"))
