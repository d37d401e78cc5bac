# SPDX-License-Identifier: Apache-2.0
"""`export_task`: exports any task, on any backend, to any format."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import keras

from keras_bert import checks
from keras_bert.atomic import exchange, make_directory, scratch_directory
from keras_bert.export.formats import FORMATS
from keras_bert.export.job import NEW_FOLDER, run_job, run_job_in_child_process, write_job
from keras_bert.export.options import ExportError, ExportOptions
from keras_bert.export.own_files import check_exports


def export_task(
    task: Any,
    filepath: str | os.PathLike[str],
    format: str = "tf_saved_model",
    *,
    class_names: Sequence[str] | None = None,
    dtype: str = "float32",
    calibration: Sequence[str] | Sequence[tuple[str, str]] | None = None,
    pair: bool = False,
    text: bool = False,
    max_batch_size: int = 32,
    warm_up: bool | None = None,
    sequence_length: int | None = None,
    max_text_bytes: int | None = None,
    chunk_tokens: int = 256,
    padded_batches: bool = False,
    overwrite: bool = False,
) -> None:
    """Exports a task for serving, on any backend.

    - `tf_saved_model`: a folder that TensorFlow Serving loads, or `tf.saved_model.load` after
      `import tensorflow_text`. It includes the vocabulary and the weights, and pads rows to the
      longest of their chunk. Its signatures depend on the task, see `keras_bert.export.signatures`,
      `question_signatures` and `tagging_signatures`: `serving_default` takes text, `serve_ids`
      takes token ids. The folder also contains `batching_params.pbtxt` and, if the package
      `tensorflow-serving-api` is installed, warm-up requests.
    - `onnx`, `openvino`, `litert`: the network without the tokenizer, in float32 or int8. Its
      inputs are `token_ids`, `segment_ids` and `padding_mask`, int32 `(batch, length)`, or
      `(batch, choices, length)` for multiple choice. It has the outputs of the task; a single
      output is named `logits`, or `embedding`.
    - `openvino` with `text=True`: a classifier, a regression or an embedder with its tokenizer, see
      `keras_bert.export.openvino_text`. It requires the packages `openvino` and
      `openvino_tokenizers`, or OpenVINO Model Server, but not TensorFlow.

    Args:
        task: A classifier, question answerer, tagger, multiple-choice task or embedder.
        filepath: The path to write to. For TensorFlow Serving, the last folder is the version of
            the model, a number: `export/sst2/1`. The other formats are files that end in `.onnx`,
            `.xml` (a `.bin` is written beside it) and `.tflite`.
        format: `"tf_saved_model"`, `"onnx"`, `"openvino"` or `"litert"`.
        class_names: The labels of a classifier or tagger, in the order of the class ids. Defaults
            to the task's, or to the ids if it has none.
        dtype: `"float32"`. A SavedModel may also be `"bfloat16"`, which halves the size of weights
            and computes matrix products in bfloat16, but LayerNorm, the head and the outputs in
            float32. `"int8"` has 8-bit products: in a SavedModel those of `quantize` with
            `calibration`, for TensorFlow Serving 2.18 or later on x86 CPUs; in the other formats
            quantized by NNCF (`openvino`), ONNX Runtime or TensorFlow (`onnx`, `litert`: weights
            statically, activations dynamically). An int8 model answers differently: evaluate it
            before serving.
        calibration: About 300 texts like those that will be served; pairs of texts for a classifier
            of pairs, and of a question and its passage for a question answerer. Required for
            a SavedModel and for `openvino` in int8, which are calibrated with their activations;
            the other formats take none.
        pair: Whether a classifier takes two texts.
        text: Whether an OpenVINO model takes text instead of ids. A SavedModel always does; ONNX
            and LiteRT cannot.
        max_batch_size: The largest batch that a server forms of waiting requests.
        warm_up: Whether to add requests that a server runs before it serves others. By default
            they are added where `tensorflow-serving-api` is installed, which writes them.
        sequence_length: The only length, in tokens, that a LiteRT model takes. Defaults to the
            longest possible. The other formats take any length.
        max_text_bytes: The number of bytes of UTF-8 that a SavedModel reads of each text; longer
            texts are truncated at the last whole character. By default, texts of any length are
            read, in windows if the task has windows.
        chunk_tokens: The number of tokens, padding included, that a SavedModel computes at a time.
            The rows of a batch are computed in chunks of similar lengths, in parallel. The default
            is for CPUs; for a GPU, some 16,384 or more.
        padded_batches: Whether a SavedModel is for servers that pad requests of unequal lengths, so
            that they can share a batch. Its `batching_params.pbtxt` tells the server to do so, and
            its signatures that take words or choices require their number, since padding looks like
            them. Text does not need it.
        overwrite: Whether to replace an existing export, atomically. What is no export, or has
            files that no export has, is not replaced.

    Raises:
        ValueError: If an argument is invalid, or the task has no preprocessor.
        FileExistsError: If `filepath` exists and `overwrite` is `False`, or it is no export.
        ExportError: If the graph has an operation that the oldest supported server lacks, a
            package is missing, or the child process that exports fails.
    """
    checks.POSITIVE_INT.check(max_batch_size=max_batch_size, chunk_tokens=chunk_tokens)
    checks.POSITIVE_INT.check_optional(
        sequence_length=sequence_length, max_text_bytes=max_text_bytes
    )
    checks.check_choice(FORMATS, format=format)
    checks.check_choice(FORMATS[format].dtypes, dtype=dtype)
    paths = _paths(filepath, format)
    labels = _labels(task, class_names)
    for name, value in (("max_text_bytes", max_text_bytes), ("padded_batches", padded_batches)):
        if value and format != "tf_saved_model":
            raise ValueError(
                f"{name} is {value}; it is for format='tf_saved_model', received format={format!r}."
            )
    rows = _calibration_rows(task, format, dtype, calibration)
    _check_exportable(task, format, dtype, pair, text)
    options = ExportOptions(
        name=paths[0].name,
        format=format,
        class_names=labels,
        dtype=dtype,
        pair=pair,
        text=text,
        calibration=rows,
        max_batch_size=max_batch_size,
        warm_up=format == "tf_saved_model" and _is_warmed_up(warm_up),
        sequence_length=sequence_length or task.config.max_sequence_length,
        max_text_bytes=max_text_bytes,
        chunk_tokens=chunk_tokens,
        padded_batches=padded_batches,
    )
    check_exports(paths, format, "" if overwrite else "pass overwrite=True to replace it")
    with atomic_destination(paths) as folder:
        write_job(task, options, folder)
        # The other converters change TensorFlow's global state, so they run in a child process.
        if keras.backend.backend() == "tensorflow" and format == "tf_saved_model":
            run_job(folder)
        else:
            run_job_in_child_process(folder)
    if format == "tf_saved_model" and not paths[0].name.isdecimal():
        warnings.warn(
            f"TensorFlow Serving looks for folders that are version numbers; {paths[0].name!r} "
            f"is none. Export to {paths[0] / '1'} to serve it.",
            stacklevel=3,
        )


def _labels(task: Any, class_names: Sequence[str] | None) -> tuple[str, ...] | None:
    """Returns the labels of a task with classes, `None` for other tasks."""
    if not hasattr(task, "num_classes") or getattr(task, "is_regression", False):
        if class_names is not None:
            raise ValueError(
                f"class_names is {class_names!r}; this {type(task).__name__} has no classes."
            )
        return None
    num_classes = task.num_classes
    names = task.class_names if class_names is None else class_names
    if names is None:
        return tuple(str(index) for index in range(num_classes))
    checks.check_names("class_names", names)
    if len(names) != num_classes:
        raise ValueError(f"class_names has {len(names)} names; the task has {num_classes} classes.")
    return tuple(names)


def _paths(filepath: str | os.PathLike[str], format: str) -> list[Path]:
    name, suffixes = os.fspath(filepath), FORMATS[format].suffixes
    if "://" in name:
        raise ValueError(f"filepath must be local. Received: {name!r}. Copy the export from there.")
    if not name.endswith(suffixes[0]):
        raise ValueError(f"filepath is {name!r}; for format={format!r} it ends in {suffixes[0]}.")
    path = Path(name).absolute()
    if path.is_symlink():
        path = path.resolve()  # The link stays.
    return [path, *(path.with_suffix(suffix) for suffix in suffixes[1:])]


def _check_exportable(task: Any, format: str, dtype: str, pair: bool, text: bool) -> None:
    if text:
        _check_takes_text(task, format)
    needs = FORMATS[format]
    packages = (
        "tensorflow",
        *needs.packages,
        *((needs.text_packages or ()) if text else ()),
        *(needs.int8_packages if dtype == "int8" else ()),
    )
    for package in packages:
        if importlib.util.find_spec(package) is None:
            # (Its project publishes no wheels for Windows.)
            is_missing_there = package == "tensorflow_text" and sys.platform == "win32"
            advice = (
                "which Windows does not have: export on Linux, WSL or macOS"
                if is_missing_there
                else f"`pip install {package}`"
            )
            raise ExportError(f"format={format!r} needs the package {package}: {advice}.")
    if needs.has_fixed_length and len(task.input["token_ids"].shape) > 2:
        raise ValueError(
            f"format is {format!r}, which needs one shape for all inputs; multiple choice has "
            "tf_saved_model, onnx and openvino."
        )
    if pair and "text_pair" not in task.optional_fields:
        raise ValueError(f"pair is {pair}; a {type(task).__name__} does not classify two texts.")
    if format == "tf_saved_model" or text:
        _ = task.preprocessor  # Raises where there is none
    elif pair:
        raise ValueError(f"pair is {pair}; format={format!r} takes ids.")
    for layer in task._flatten_layers(include_self=False):
        if layer.quantization_mode is not None:
            raise ExportError(
                f"{layer.path} is quantized ({layer.quantization_mode}), which an export does not "
                "keep. Export the model as it was before, with dtype='bfloat16' for a smaller one."
            )


def _calibration_rows(
    task: Any, format: str, dtype: str, calibration: Any
) -> tuple[tuple[str, ...], ...]:
    """Returns the texts of each calibration row; an empty tuple if they are not used."""
    if dtype != "int8" or not FORMATS[format].is_calibrated:
        if calibration is not None:
            raise ValueError(
                "calibration is for dtype='int8' of 'tf_saved_model' and 'openvino'; received it "
                f"with format={format!r} and dtype={dtype!r}."
            )
        return ()
    if not (task.is_sequence_level or "question" in task.fields):
        raise ExportError(
            f"format={format!r} with dtype='int8' is for classifiers, regressions, embedders and "
            f"question answerers; for a {type(task).__name__} there is 'onnx' with dtype='int8'."
        )
    _ = task.preprocessor  # Raises where there is none
    if calibration is None or isinstance(calibration, str) or not len(calibration):
        raise ValueError(
            f"format={format!r} with dtype='int8' needs calibration: a list of texts, or of pairs, "
            f"like those that will be served, some 300 of them; received {calibration!r}."
        )
    rows = tuple((row,) if isinstance(row, str) else tuple(row) for row in calibration)
    for index, row in enumerate(rows):
        if len(row) != len(rows[0]) or len(row) > 2 or not all(isinstance(x, str) for x in row):
            raise ValueError(
                f"calibration[{index}] must be a text, or a pair of texts if all of them are. "
                f"Received: {calibration[index]!r}"
            )
    if "question" in task.fields and len(rows[0]) != 2:
        raise ValueError(
            f"calibration[0] must be a question and its passage. Received: {calibration[0]!r}"
        )
    return rows


def _check_takes_text(task: Any, format: str) -> None:
    """Raises an error if the export of a task cannot take text in a format."""
    if FORMATS[format].text_packages is None:
        raise ExportError(
            f"format={format!r} takes token ids: it has no tokenizer that reads a batch of texts. "
            "Text in, answers out without TensorFlow is format='openvino' with text=True; with "
            "TensorFlow it is 'tf_saved_model'."
        )
    if format == "openvino" and not task.is_sequence_level:
        raise ExportError(
            f"text=True with format='openvino' is for classifiers, regressions and embedders. A "
            f"{type(task).__name__} needs more than the ids of one text or pair, such as the "
            "offsets of tokens in it, which OpenVINO's tokenizers do not give. Export a "
            "'tf_saved_model', which takes text, or leave out text=True for a model of ids."
        )


def _is_warmed_up(warm_up: bool | None) -> bool:
    is_possible = importlib.util.find_spec("tensorflow_serving") is not None
    if warm_up and not is_possible:
        raise ExportError(
            f"warm_up is {warm_up}, which needs `pip install tensorflow-serving-api`."
        )
    return is_possible and warm_up is not False


@contextlib.contextmanager
def atomic_destination(paths: Sequence[Path]) -> Iterator[Path]:
    """Creates a working folder; files in its folder `new` replace `paths` at the end.

    The paths are in the same folder. The working folder is on the same disk, and is removed
    afterwards. Each path is replaced in one step, but not the two files of OpenVINO together: they
    are in a folder of the user, whose other files must stay.
    """
    existing = [path for path in paths if os.path.lexists(path)]
    parent = paths[0].absolute().parent
    make_directory(parent)
    with scratch_directory(parent, paths[0].name) as folder:
        (folder / NEW_FOLDER).mkdir()
        yield folder
        with contextlib.ExitStack() as undo:
            for path in paths:
                move = exchange if path in existing else os.rename
                new = folder / NEW_FOLDER / path.name
                move(new, path)
                undo.callback(move, path, new)
            undo.pop_all()
