# SPDX-License-Identifier: Apache-2.0
"""Exports from JAX and PyTorch, in a child process whose backend is TensorFlow."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from keras_bert.export.errors import ExportError

ERROR_FILE = "error.txt"


def export_in_child_process(folder: Path) -> None:
    """Runs `run_job` in a process of its own.

    Args:
        folder: The job's.

    Raises:
        ExportError: If it failed; the message is the child's.
    """
    finished = subprocess.run(
        [sys.executable, "-m", "keras_bert.export.worker", str(folder)],
        env=_environment(),
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        check=False,
    )
    if finished.returncode == 0:
        return
    error_file = folder / ERROR_FILE
    if error_file.exists():
        reason = error_file.read_text(encoding="utf-8")
    else:
        reason = f"exit status {finished.returncode}: {finished.stderr.strip()[-2000:]}"
    raise ExportError(
        "A SavedModel is written by a child process with the TensorFlow backend, and that failed: "
        f"{reason}"
    )


def _environment() -> dict[str, str]:
    environment = os.environ | {
        "KERAS_BACKEND": "tensorflow",
        # The parent's backend may hold the accelerator's memory, and nothing here needs one.
        "CUDA_VISIBLE_DEVICES": "-1",
        "PYTHONPATH": os.pathsep.join(os.path.abspath(path) for path in sys.path),
    }
    # TensorFlow ends the process at flags that only another backend's XLA knows.
    environment.pop("XLA_FLAGS", None)
    return environment
