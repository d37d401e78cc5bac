# SPDX-License-Identifier: Apache-2.0
"""Runs an export from a directory that contains the task and its options.

On the TensorFlow backend, a SavedModel is exported in the same process. Other formats and backends
use a child process: `python -m keras_bert.export.job DIRECTORY`. In both cases, the task is created
again from its files, in the precision of the export.
"""

from __future__ import annotations

import dataclasses
import importlib
import json
import os
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import keras

from keras_bert.export.formats import FORMATS
from keras_bert.export.options import ExportError, ExportOptions, ExportWarning
from keras_bert.ops.lazy_tensorflow import serialize_keras_object

# Names in the scratch directory for the finished export, and for the child process's error message
# and warnings
NEW_DIRECTORY, ERROR_FILE, WARNINGS_FILE = "new", "error.txt", "warnings.json"


def write_job(task: Any, options: ExportOptions, directory: Path) -> None:
    """Writes the input for `run_job` as a JSON file and the weights in their own dtype."""
    config = serialize_keras_object(task)
    config.pop("compile_config", None)  # An export is not trained.
    # These are the task and its encoder, or an ensemble with all members and their encoders.
    models = [layer for layer in task._flatten_layers() if isinstance(layer, keras.Model)]
    modules = sorted({type(model).__module__ for model in models})
    job = {"modules": modules, "task": config, "options": dataclasses.asdict(options)}
    (directory / "job.json").write_text(json.dumps(job))
    task.save_weights(directory / "task.weights.h5")


def read_job(directory: Path) -> tuple[Any, ExportOptions]:
    """Loads the task that `write_job` saved, in the precision of the export, and the options."""
    job = json.loads((directory / "job.json").read_text())
    names = job["options"].pop("class_names")
    options = ExportOptions(class_names=None if names is None else tuple(names), **job["options"])
    for module in job["modules"]:
        importlib.import_module(module)  # Registers the classes with Keras
    config = job["task"]
    for member in config["config"].get("members", [config]):
        member["config"]["backbone"]["config"]["dtype"] = (
            # The model is quantized afterwards, by this package or the format's library.
            "float32" if options.dtype == "int8" else options.dtype
        )
    task = keras.saving.deserialize_keras_object(config)
    task.load_weights(directory / "task.weights.h5")
    return task, options


def run_job(directory: Path) -> None:
    """Exports the task that `write_job` saved to the subdirectory `new`. Requires TensorFlow."""
    task, options = read_job(directory)
    FORMATS[options.format].write(task, directory / NEW_DIRECTORY / options.name, options)


def run_job_in_child_process(directory: Path) -> None:
    """Runs `run_job` in a child process with the TensorFlow backend.

    If it fails, the `ExportError` contains the child process's error message.
    """
    process = subprocess.run(
        [sys.executable, "-m", "keras_bert.export.job", str(directory)],
        env=_environment(),
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        check=False,
    )
    if process.returncode == 0:
        for message in json.loads((directory / WARNINGS_FILE).read_text()):
            warnings.warn(message, ExportWarning, stacklevel=4)
        return
    error_file = directory / ERROR_FILE
    if error_file.exists():
        reason = error_file.read_text(encoding="utf-8")
    else:
        reason = f"exit status {process.returncode}: {process.stderr.strip()[-2000:]}"
    raise ExportError(
        "The export failed in its child process, which uses the TensorFlow backend: "
        # The scratch directory is removed, so show its parent.
        + reason.replace(str(directory), f"{directory.parent}")
    )


def _environment() -> dict[str, str]:
    environment = os.environ | {
        "KERAS_BACKEND": "tensorflow",
        # The backend of the parent process may use all memory of the accelerator.
        "CUDA_VISIBLE_DEVICES": "-1",
        "PYTHONPATH": os.pathsep.join(os.path.abspath(path) for path in sys.path),
    }
    # TensorFlow aborts if XLA_FLAGS has flags that only another backend's XLA supports.
    environment.pop("XLA_FLAGS", None)
    return environment


def main() -> None:
    """Runs the job in the directory given by the first argument."""
    directory = Path(sys.argv[1])
    try:
        with warnings.catch_warnings(record=True) as caught:
            run_job(directory)
        messages = [str(each.message) for each in caught if each.category is ExportWarning]
        (directory / WARNINGS_FILE).write_text(json.dumps(messages))
    except Exception as error:
        message = f"{type(error).__name__}: {error}"
        (directory / ERROR_FILE).write_text(message, encoding="utf-8")
        raise


if __name__ == "__main__":
    main()
