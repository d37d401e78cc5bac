# SPDX-License-Identifier: Apache-2.0
"""The door to every format a task can be exported to."""

from __future__ import annotations

import importlib.util
import os
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import keras

from keras_bert.export.child_process import export_in_child_process
from keras_bert.export.destination import new_destination
from keras_bert.export.errors import ExportError
from keras_bert.export.job import ExportOptions, write_options, write_task

# What the names of the files end in, the one asked for first; a SavedModel is a folder.
SUFFIXES = {
    "tf_saved_model": ("",),
    "onnx": (".onnx",),
    "openvino": (".xml", ".bin"),
    "litert": (".tflite",),
}
_NEEDED_PACKAGE = {"onnx": "tf2onnx", "openvino": "openvino"}
DTYPES = ("float32", "bfloat16")


def export_task(
    task: Any,
    filepath: str | os.PathLike[str],
    format: str,
    *,
    kind: str,
    class_names: tuple[str, ...] | None = None,
    dtype: str = "float32",
    pair: bool = False,
    max_batch_size: int = 32,
    warm_up: bool = True,
    sequence_length: int | None = None,
    overwrite: bool = False,
) -> None:
    """Writes a task for serving, from every backend; each kind of task has its own function.

    Args:
        task: The task.
        filepath: Where to.
        format: `tf_saved_model`, `onnx`, `openvino` or `litert`.
        kind: Which signatures a SavedModel has: a key of `run_job.SIGNATURES`.
        class_names, dtype, pair, max_batch_size, warm_up, sequence_length, overwrite: As in
            `export_text_classifier`.

    Raises:
        ValueError, FileExistsError, ExportError: As in `export_text_classifier`.
    """
    paths = check_destination(filepath, format, dtype)
    _check_exportable(task, format, dtype, pair)
    options = ExportOptions(
        name=paths[0].name,
        kind=kind,
        format=format,
        class_names=class_names,
        dtype=dtype,
        pair=pair,
        max_batch_size=_at_least_one("max_batch_size", max_batch_size),
        warm_up=format == "tf_saved_model" and warm_up and _can_warm_up(),
        sequence_length=_at_least_one(
            "sequence_length", sequence_length or task.config.max_sequence_length
        ),
    )
    with new_destination(paths, overwrite=overwrite) as folder:
        write_task(task, folder)
        write_options(options, folder)
        _run(folder, format)
    if format == "tf_saved_model" and not paths[0].name.isdecimal():
        warnings.warn(
            f"TensorFlow Serving looks for folders that are version numbers; {paths[0].name!r} "
            f"is none. Export to {paths[0] / '1'} to serve it.",
            stacklevel=4,
        )


def check_destination(filepath: str | os.PathLike[str], format: str, dtype: str) -> list[Path]:
    """The files or folders to write.

    Raises:
        ValueError: If the format or the precision is none there is, or the name is not of the
            format.
    """
    _check_choice("format", format, tuple(SUFFIXES))
    _check_choice("dtype", dtype, DTYPES)
    return _paths(filepath, format)


def labels_of(task: Any, class_names: Sequence[str] | None) -> tuple[str, ...]:
    """The labels that a model with classes returns.

    Args:
        task: The task.
        class_names: Labels in the order of the class ids; `None` takes the task's own, or the ids
            if it has none.

    Raises:
        ValueError: If they are no strings, or not as many as there are classes.
    """
    names = task.class_names if class_names is None else class_names
    if names is None:
        return tuple(str(index) for index in range(task.num_classes))
    if isinstance(names, str) or not all(isinstance(name, str) for name in names):
        raise ValueError(f"class_names must be a list of strings; received {names!r}.")
    if len(names) != task.num_classes:
        raise ValueError(
            f"class_names has {len(names)} names; the task has {task.num_classes} classes."
        )
    return tuple(names)


def _run(folder: Path, format: str) -> None:
    # The other converters change TensorFlow's global state: not in a process that goes on.
    if keras.backend.backend() != "tensorflow" or format != "tf_saved_model":
        export_in_child_process(folder)
        return
    from keras_bert.export.run_job import run_job

    run_job(folder)


def _check_choice(name: str, value: str, choices: Sequence[str]) -> None:
    if value not in choices:
        raise ValueError(f"{name} is {value!r}; it must be one of {', '.join(choices)}.")


def _at_least_one(name: str, value: int) -> int:
    if value < 1:
        raise ValueError(f"{name} is {value}; it must be at least 1.")
    return value


def _paths(filepath: str | os.PathLike[str], format: str) -> list[Path]:
    name, suffixes = os.fspath(filepath), SUFFIXES[format]
    if "://" in name:
        raise ValueError(f"filepath is {name!r}; it must be local. Copy the export from there.")
    if not name.endswith(suffixes[0]):
        raise ValueError(f"filepath is {name!r}; for format={format!r} it ends in {suffixes[0]}.")
    path = Path(name).absolute()
    return [path, *(path.with_suffix(suffix) for suffix in suffixes[1:])]


def _check_exportable(task: Any, format: str, dtype: str, pair: bool) -> None:
    package = _NEEDED_PACKAGE.get(format)
    if package is not None and importlib.util.find_spec(package) is None:
        raise ExportError(
            f"format={format!r} needs the package {package}: `pip install {package}`."
        )
    if format == "tf_saved_model":
        _ = task.preprocessor  # Raises where there is none
    elif dtype != "float32" or pair:
        raise ValueError(
            f"dtype is {dtype!r} and pair {pair}; format={format!r} takes ids, in float32 alone."
        )
    for layer in task._flatten_layers(include_self=False):
        if layer.quantization_mode is not None:
            raise ExportError(
                f"{layer.path} is quantized ({layer.quantization_mode}), which an export does not "
                "keep. Export the model as it was before, with dtype='bfloat16' for a smaller one."
            )


def _can_warm_up() -> bool:
    if importlib.util.find_spec("tensorflow_serving") is not None:
        return True
    warnings.warn(
        "The export has no warm-up requests, for the package tensorflow-serving-api is missing: "
        "`pip install tensorflow-serving-api`, or pass warm_up=False.",
        stacklevel=5,
    )
    return False
