# SPDX-License-Identifier: Apache-2.0
"""An export as a job: a task and its options in a folder, from which TensorFlow exports it.

On the TensorFlow backend the job runs in the same process, otherwise in a child process: `python -m
keras_bert.export.job FOLDER`. In both cases the task is created again from its files, in the
precision of the export.
"""

from __future__ import annotations

import dataclasses
import importlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import keras

from keras_bert.export.formats import FORMATS
from keras_bert.export.options import ExportError, ExportOptions
from keras_bert.ops.lazy_tensorflow import serialize_keras_object

# In the working folder: the finished export, and the error of the child process
NEW_FOLDER, ERROR_FILE = "new", "error.txt"


def write_job(task: Any, options: ExportOptions, folder: Path) -> None:
    """Writes the input of `run_job`: JSON, and the weights in their own precision."""
    config = serialize_keras_object(task)
    config.pop("compile_config", None)  # The export is not trained
    # The task and its encoder, or the tasks in an ensemble and theirs
    models = [layer for layer in task._flatten_layers() if isinstance(layer, keras.Model)]
    modules = sorted({type(model).__module__ for model in models})
    job = {"modules": modules, "task": config, "options": dataclasses.asdict(options)}
    (folder / "job.json").write_text(json.dumps(job))
    task.save_weights(folder / "task.weights.h5")


def read_job(folder: Path) -> tuple[Any, ExportOptions]:
    """Returns the task of `write_job`, in the precision of the export, and the options."""
    job = json.loads((folder / "job.json").read_text())
    names = job["options"].pop("class_names")
    options = ExportOptions(class_names=None if names is None else tuple(names), **job["options"])
    for module in job["modules"]:
        importlib.import_module(module)  # Registers the classes with Keras
    config = job["task"]
    for member in config["config"].get("members", [config]):
        member["config"]["backbone"]["config"]["dtype"] = (
            # Quantized afterwards by the library of the format
            "float32" if options.dtype == "int8" else options.dtype
        )
    task = keras.saving.deserialize_keras_object(config)
    task.load_weights(folder / "task.weights.h5")
    return task, options


def run_job(folder: Path) -> None:
    """Exports the task of `write_job` to the folder `new` in its folder; requires TensorFlow."""
    task, options = read_job(folder)
    FORMATS[options.format].write(task, folder / NEW_FOLDER / options.name, options)


def run_job_in_child_process(folder: Path) -> None:
    """Runs `run_job` in a child process with the TensorFlow backend.

    If it fails, the message of the `ExportError` is the child process'.
    """
    process = subprocess.run(
        [sys.executable, "-m", "keras_bert.export.job", str(folder)],
        env=_environment(),
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        check=False,
    )
    if process.returncode == 0:
        return
    error_file = folder / ERROR_FILE
    if error_file.exists():
        reason = error_file.read_text(encoding="utf-8")
    else:
        reason = f"exit status {process.returncode}: {process.stderr.strip()[-2000:]}"
    raise ExportError(
        "A SavedModel is written by a child process with the TensorFlow backend, and that failed: "
        # The folder is a temporary one.
        + reason.replace(str(folder), f"{folder.parent}")
    )


def _environment() -> dict[str, str]:
    environment = os.environ | {
        "KERAS_BACKEND": "tensorflow",
        # The backend of the parent process may use all memory of the accelerator.
        "CUDA_VISIBLE_DEVICES": "-1",
        "PYTHONPATH": os.pathsep.join(os.path.abspath(path) for path in sys.path),
    }
    # TensorFlow aborts at flags that only the XLA of another backend knows.
    environment.pop("XLA_FLAGS", None)
    return environment


def main() -> None:
    """Runs the job of the folder in the first argument."""
    folder = Path(sys.argv[1])
    try:
        run_job(folder)
    except Exception as error:
        message = f"{type(error).__name__}: {error}"
        (folder / ERROR_FILE).write_text(message, encoding="utf-8")
        raise


if __name__ == "__main__":
    main()
