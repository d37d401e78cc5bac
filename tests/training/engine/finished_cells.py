# SPDX-License-Identifier: Apache-2.0
"""Cells of a grid whose runs have been finished before."""

import json


def finish(cell, results):
    """Writes what a cell's program leaves in its folder."""
    cell.folder.mkdir(parents=True)
    (cell.folder / "command.json").write_text(json.dumps(cell.record()))
    (cell.folder / "results.json").write_text(json.dumps(results))
