# SPDX-License-Identifier: Apache-2.0
"""Programs of this project as child processes, each run once."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from absl import logging

from keras_bert import atomic
from training.engine import output_folder


def command_record(command: Sequence[str], preset: str = "") -> dict[str, Any]:
    """What is written beside the results of a program, to tell them from those of other settings.

    Args:
        command: The program's module and its flags.
        preset: A checkpoint that it starts from, whose files count too if it is a folder.
    """
    content = output_folder.content_of_folder(preset) if preset else b""
    fingerprint = output_folder.fingerprint({"command": list(command)}, content)
    return {"command": list(command), "fingerprint": fingerprint}


def run_once(folder: Path, command: Sequence[str], preset: str = "") -> dict[str, Any]:
    """Runs a program of this project, unless its results are there; its `results.json`.

    Args:
        folder: Its `--output_dir`.
        command: The program's module and its other flags.
        preset: As for `command_record`.

    Raises:
        ValueError: If the folder has a run of other settings.
        subprocess.CalledProcessError: If it fails.
    """
    results, record = folder / "results.json", folder / "command.json"
    expected = command_record(command, preset)
    found: dict[str, Any] = {}
    if record.exists():
        found = json.loads(record.read_text(encoding="utf-8"))
    if (record.exists() or results.exists()) and found != expected:
        before = set(found.get("command", ["settings that were not written down"]))
        changed = sorted(before - set(command)) or [f"other files in {preset}"]
        raise ValueError(
            f"{folder} has a run of other settings ({' '.join(changed)}); choose another "
            "--output_dir, or remove that folder"
        )
    if not results.exists():
        logging.info("%s: %s", folder.name, " ".join(command))
        folder.mkdir(parents=True, exist_ok=True)
        atomic.write_json(record, expected)
        arguments = [sys.executable, "-m", *command, f"--output_dir={folder}"]
        subprocess.run(arguments, check=True)
    values: dict[str, Any] = json.loads(results.read_text(encoding="utf-8"))
    return values
