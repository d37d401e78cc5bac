# SPDX-License-Identifier: Apache-2.0
"""Cells of a grid whose runs have been finished before."""

import json

from training.engine.child_programs import command_record


def finish(cell, results):
    """Writes what a cell's program leaves in its folder."""
    cell.folder.mkdir(parents=True)
    record = command_record(cell.command, cell.preset)
    (cell.folder / "command.json").write_text(json.dumps(record))
    (cell.folder / "results.json").write_text(json.dumps(results))
