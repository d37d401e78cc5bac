# SPDX-License-Identifier: Apache-2.0
"""Kills a process that creates records, and compares the files after it has resumed."""

import hashlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from tests.source_imports import ROOT

PROGRAM = """
from training.pretraining.record_config import *
from training.pretraining.records import create_records
create_records{arguments!r}
"""


def digests(config: Any) -> dict[str, str]:
    """The hash of each record file in a config's output directory."""
    return {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(Path(config.to_dict()["output_dir"]).glob("*.tfrecord"))
    }


def kill_between_files(directory: Path, *arguments: Any) -> dict[Path, int]:
    """Calls `create_records` in a process, and kills it and its workers after its first file.

    Workers that outlive the process may keep their partial files until after the next run.

    Returns:
        The modification times of the record and token files. A later process must not write these
        files again.
    """
    command = [sys.executable, "-c", PROGRAM.format(arguments=arguments)]
    process = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.DEVNULL, start_new_session=True)
    end = time.monotonic() + 120
    while not list(directory.glob("*.tfrecord")):
        assert time.monotonic() < end
        assert process.poll() is None
        time.sleep(0.002)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert not (directory / "summary.json").exists()
    return write_times(directory)


def write_times(directory: Path) -> dict[Path, int]:
    files = [*directory.glob("*.tfrecord"), *directory.glob(".work/tokens-*")]
    return {path: path.stat().st_mtime_ns for path in files}
