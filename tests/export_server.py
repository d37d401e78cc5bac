# SPDX-License-Identifier: Apache-2.0
"""Runs exports in child processes that need not import TensorFlow, which takes five seconds.

A server imports what exports need, and forks for each export: the process of an export begins in
the same state as one of its own. `tests/export/job_test.py` runs it as users do.
"""

import contextlib
import importlib
import json
import os
import subprocess
import sys
import tempfile
import traceback
from typing import Any, Self

# Those of other formats may be missing
IMPORTED = (
    *("keras_bert", "keras_bert.export.formats", "keras_bert.export.saved_model"),
    *("nncf", "onnxruntime", "openvino", "openvino_tokenizers", "tf2onnx"),
    *("keras_bert.export.openvino_text", "tensorflow_serving.apis.prediction_log_pb2"),
)


class ExportServer:
    """What `keras_bert.export.job` uses of `subprocess`."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None

    def run(
        self, command: list[str], *, env: dict[str, str], **_: Any
    ) -> subprocess.CompletedProcess[str]:
        """Runs the job of the folder in the last argument."""
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__],
                env=env,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )
        assert self._process.stdin
        assert self._process.stdout
        print(json.dumps(command[-1]), file=self._process.stdin, flush=True)
        returncode, stderr = json.loads(self._process.stdout.readline())
        return subprocess.CompletedProcess(command, returncode, None, stderr)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.communicate()


def main() -> None:
    for name in IMPORTED:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    for line in sys.stdin:
        with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as output:
            child = os.fork()
            if not child:
                os.dup2(output.fileno(), 1)
                os.dup2(output.fileno(), 2)
                os._exit(_export(json.loads(line)))
            returncode = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            output.seek(0)
            print(json.dumps([returncode, output.read()]), flush=True)


def _export(folder: str) -> int:
    from keras_bert.export import job

    sys.argv[1:] = [folder]
    try:
        job.main()
    except Exception:
        traceback.print_exc()
        return 1
    finally:
        sys.stderr.flush()
    return 0


if __name__ == "__main__":
    main()
