# SPDX-License-Identifier: Apache-2.0
"""Grid cells whose runs have already finished."""

import json


def finish(cell, results):
    """Writes the files that a cell's command leaves in its directory."""
    cell.directory.mkdir(parents=True)
    (cell.directory / "command.json").write_text(json.dumps(cell.record()))
    (cell.directory / "results.json").write_text(json.dumps(results))
