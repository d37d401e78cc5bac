# SPDX-License-Identifier: Apache-2.0
"""The child process of `child_process`: `python -m keras_bert.export.worker FOLDER`."""

from __future__ import annotations

import sys
from pathlib import Path

from keras_bert.export.child_process import ERROR_FILE


def main() -> None:
    folder = Path(sys.argv[1])
    try:
        from keras_bert.export.run_job import run_job

        run_job(folder)
    except Exception as error:
        message = f"{type(error).__name__}: {error}"
        (folder / ERROR_FILE).write_text(message, encoding="utf-8")
        raise


if __name__ == "__main__":
    main()
