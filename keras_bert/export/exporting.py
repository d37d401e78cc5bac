# SPDX-License-Identifier: Apache-2.0
"""Exports any task from any backend to any format."""

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
from keras_bert.data.prompts import Prompts
from keras_bert.export.formats import FORMATS
from keras_bert.export.job import NEW_DIRECTORY, run_job, run_job_in_child_process, write_job
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

    - `tf_saved_model`: A directory that TensorFlow Serving loads, or `tf.saved_model.load` after
      `import tensorflow_text`. It contains the vocabulary and the weights. The signature
      `serving_default` accepts text, and `serve_ids` accepts token ids. The signatures of each task
      are documented in `keras_bert.export.signatures`, `question_signatures`, `tagging_signatures`
      and `choice_signatures`. The directory also contains `batching_params.pbtxt` and, if the
      package `tensorflow-serving-api` is installed, warm-up requests.
    - `onnx`, `openvino`, `litert`: The network without the tokenizer, in float32 or int8. Its
      inputs are `token_ids`, `segment_ids` and `padding_mask`, int32 `(batch, length)`, or `(batch,
      choices, length)` for multiple choice. It has the task's outputs. A single output is called
      `logits`, or `embedding` for an embedder. A sparse embedder's `embedding` is dense, float32
      `(batch, vocabulary)`. A late-interaction embedder also accepts `pooling_mask`, int32 `(batch,
      length)`, and its output is `vectors`, float32 `(batch, length, dim)`. A tagger with a CRF or
      a scheme also accepts `word_mask`, int32 `(batch, length)`, which is 1 at each word's first
      token. It also outputs `labels`, the class IDs of the most probable label sequence, and their
      `scores`, see `TokenClassifier.tag`. At other tokens, they are -1 and 0.
    - `mediapipe`: A LiteRT model of a classifier, regression or dense embedder, with the vocabulary
      and the labels, for MediaPipe's `TextClassifier` and `TextEmbedder`. It outputs probabilities.
      The tokenizer must be an uncased WordPiece tokenizer. See
      `keras_bert.export.formats.mediapipe`.
    - `onnx_hugging_face`: A directory in the layout of the Hugging Face Hub, for transformers.js
      and fastembed. It contains `config.json`, the tokenizer, `onnx/model.onnx` in float32 and
      `onnx/model_quantized.onnx` in int8. Inputs and outputs have their names and dtypes in
      `transformers`: `input_ids`, `attention_mask` and, with segments, `token_type_ids`, int64. An
      embedder's output is `last_hidden_state`, or for a sparse embedder the masked LM's `logits`,
      and its pooling and normalization are in the files of sentence-transformers.
    - `openvino` with `text=True`: A classifier, regression or embedder with its tokenizer. See
      `keras_bert.export.openvino_text`. To run it, you need the packages `openvino` and
      `openvino_tokenizers`, or OpenVINO Model Server, but not TensorFlow.

    Args:
        task: A classifier, question answerer, tagger, multiple-choice task or embedder.
        filepath: Path to write to. For TensorFlow Serving, the last directory is the model's
            version, a number, for example `export/sst2/1`. In the other formats, it is a file that
            ends in `.onnx`, `.xml` (a `.bin` file is written next to it) or `.tflite`, or for
            `onnx_hugging_face` a directory.
        format: `"tf_saved_model"`, `"onnx"`, `"onnx_hugging_face"`, `"openvino"`, `"litert"` or
            `"mediapipe"`.
        class_names: The classifier's or tagger's labels, in the order of the class ids. Defaults to
            the task's class names, or to the ids if it has no class names.
        dtype: `"float32"`, `"bfloat16"` (SavedModel only) or `"int8"`. `"bfloat16"` halves the size
            of the weights and computes matmuls in bfloat16. LayerNorm, the head and the outputs
            stay in float32. `"int8"` computes 8-bit matmuls. A SavedModel is quantized by
            `quantize` with `calibration`, for TensorFlow Serving 2.18 or later on x86 CPUs. An
            OpenVINO model is quantized by NNCF. ONNX and LiteRT models (also for MediaPipe) are
            quantized by ONNX Runtime and TensorFlow, with static weights and dynamic activations.
            Evaluate an int8 model before serving, because its predictions differ.
        calibration: About 300 texts similar to the served texts. For a text pair classifier, pass
            pairs of texts. For a question answerer, pass (question, passage) pairs. Required for an
            int8 SavedModel or OpenVINO model. For `onnx_hugging_face`, the int8 file is not written
            if it loses more than 0.5 points on these texts, see `keras_bert.export.calibration`.
            Not supported by the other formats.
        pair: Whether a classifier accepts text pairs. A `NextSentencePredictor` always does.
        text: Whether an OpenVINO model accepts text instead of ids. A SavedModel always accepts
            text. ONNX and LiteRT models cannot.
        max_batch_size: Largest batch that a server forms from waiting requests.
        warm_up: Whether to add warm-up requests. A server runs them before all other requests. By
            default, they are added if `tensorflow-serving-api` is installed, because it writes
            them.
        sequence_length: Fixed sequence length in tokens, for LiteRT models (also for MediaPipe).
            Defaults to the preprocessor's sequence length, or to the model's maximum if the task
            has no preprocessor. The other formats accept any length.
        max_text_bytes: Number of UTF-8 bytes that a SavedModel reads from each text. Longer texts
            are truncated after the last whole character. By default, texts of any length are read,
            and split into windows if the task has windows.
        chunk_tokens: Number of tokens, including padding, that a SavedModel computes at a time. The
            examples in a batch are computed in parallel, in chunks of similar lengths. The default
            is for CPUs. We recommend 16,384 or more for a GPU. A sparse embedder has a logit for
            each of these tokens and each token in the vocabulary, 2 GB for 16,384 tokens and BERT.
        padded_batches: Whether a SavedModel is for servers that pad requests of different lengths,
            so that they can share a batch. Its `batching_params.pbtxt` then enables padding.
            Signatures that accept words or choices then require their number, because padding looks
            like them. Text does not need this option.
        overwrite: Whether to replace an existing export atomically. Other files and directories,
            and exports with additional files, are never replaced.

    Raises:
        ValueError: If an argument is invalid, or the task has no preprocessor.
        FileExistsError: If `filepath` exists and `overwrite` is `False`, or if it is not an export.
        ExportError: If the task is quantized, the format does not support the task with these
            options, a package is missing, the graph has an operation that the oldest supported
            server lacks, or the exporting child process fails.
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
                f"{name} is only supported with format='tf_saved_model'. Received: "
                f"{name}={value}, format={format!r}"
            )
    rows = _calibration_rows(task, format, dtype, calibration)
    if "text_pair" in task.fields and (text or format == "tf_saved_model"):
        pair = True
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
        sequence_length=sequence_length or _sequence_length(task),
        max_text_bytes=max_text_bytes,
        chunk_tokens=chunk_tokens,
        padded_batches=padded_batches,
    )
    if (check := FORMATS[format].check) is not None:
        check(task, options)
    check_exports(paths, format, "" if overwrite else "pass overwrite=True to replace it")
    with atomic_destination(paths) as directory:
        write_job(task, options, directory)
        # The other converters change TensorFlow's global state, so they run in a child process.
        if keras.backend.backend() == "tensorflow" and format == "tf_saved_model":
            run_job(directory)
        else:
            run_job_in_child_process(directory)
    if format == "tf_saved_model" and not paths[0].name.isdecimal():
        warnings.warn(
            "TensorFlow Serving only loads directories whose names are version numbers. Received: "
            f"{paths[0].name!r}. Export to {paths[0] / '1'} to serve the model.",
            stacklevel=3,
        )


def _labels(task: Any, class_names: Sequence[str] | None) -> tuple[str, ...] | None:
    """Returns a task's labels, or `None` for tasks without classes."""
    if not hasattr(task, "num_classes") or getattr(task, "is_regression", False):
        if class_names is not None:
            raise ValueError(
                f"class_names must be None for a {type(task).__name__} without classes. Received: "
                f"{class_names!r}"
            )
        return None
    num_classes = task.num_classes
    names = task.class_names if class_names is None else class_names
    if names is None:
        return tuple(str(index) for index in range(num_classes))
    checks.check_names("class_names", names)
    if len(names) != num_classes:
        raise ValueError(
            f"class_names must have {num_classes} names, one per class. Received: {len(names)}"
        )
    return tuple(names)


def _sequence_length(task: Any) -> int:
    """Returns the sequence length of a task's preprocessor, or without it, of its encoder."""
    try:
        return int(task.preprocessor.sequence_length)
    except ValueError:
        return int(task.config.max_sequence_length)


def _paths(filepath: str | os.PathLike[str], format: str) -> list[Path]:
    name, suffixes = os.fspath(filepath), FORMATS[format].suffixes
    if "://" in name:
        raise ValueError(f"filepath must be local. Received: {name!r}. Copy the export from there.")
    if not name.endswith(suffixes[0]):
        raise ValueError(
            f"filepath must end in {suffixes[0]} for format={format!r}. Received: {name!r}"
        )
    path = Path(name).absolute()
    if path.is_symlink():
        path = path.resolve()  # The link itself is kept.
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
            # TensorFlow Text has no Windows wheels.
            is_missing_there = package == "tensorflow_text" and sys.platform == "win32"
            advice = (
                "It does not support Windows: export on Linux, WSL or macOS"
                if is_missing_there
                else f"Run `pip install {package}`"
            )
            raise ExportError(f"format={format!r} requires the package {package}. {advice}.")
    if needs.has_fixed_length and len(task.input["token_ids"].shape) > 2:
        raise ValueError(
            "format must be 'tf_saved_model', 'onnx' or 'openvino' for multiple choice, because "
            f"other formats require a fixed input shape. Received: {format!r}"
        )
    if not needs.supports_ensembles and hasattr(task, "members"):
        raise ExportError(
            f"format={format!r} requires a model with a single encoder. Received: an ensemble of "
            f"{len(task.members)} members. Pass format='onnx', or export a member."
        )
    if pair and "text_pair" not in {*task.fields, *task.optional_fields}:
        raise ValueError(
            f"pair must be False for a {type(task).__name__}, because it does not classify text "
            f"pairs. Received: {pair}"
        )
    if needs.has_tokenizer or text:
        _ = task.preprocessor  # Raises ValueError if the task has no preprocessor.
    elif pair:
        raise ValueError(
            f"pair must be False for format={format!r}, because it does not accept text pairs. "
            f"Received: {pair}"
        )
    for layer in task._flatten_layers(include_self=False):
        if layer.quantization_mode is not None:
            raise ExportError(
                "A quantized model cannot be exported. Received: "
                f"{layer.path} ({layer.quantization_mode}). Export the model before it is "
                "quantized. Pass dtype='bfloat16' for a smaller model."
            )


def _calibration_rows(
    task: Any, format: str, dtype: str, calibration: Any
) -> tuple[tuple[str, ...], ...]:
    """Returns the texts of each calibration example, or an empty tuple if they are not used."""
    includes_int8 = FORMATS[format].includes_int8
    is_used = includes_int8 or (dtype == "int8" and FORMATS[format].is_calibrated)
    if calibration is not None and not is_used:
        raise ValueError(
            "calibration is only supported with dtype='int8' and format='tf_saved_model' or "
            "'openvino', or with format='onnx_hugging_face'. Received: "
            f"dtype={dtype!r}, format={format!r}"
        )
    if not is_used or (includes_int8 and calibration is None):
        return ()
    if not (task.is_sequence_level or "question" in task.fields):
        what = "calibration" if includes_int8 else "dtype='int8'"
        advice = "Omit calibration" if includes_int8 else "Pass format='onnx' for int8"
        raise ExportError(
            f"format={format!r} with {what} is only supported for classifiers, regressions, "
            f"embedders and question answerers. Received: a {type(task).__name__}. {advice}."
        )
    _ = task.preprocessor  # Raises ValueError if the task has no preprocessor.
    if calibration is None or isinstance(calibration, str) or not len(calibration):
        raise ValueError(
            f"format={format!r} with dtype='int8' requires calibration, about 300 texts or text "
            f"pairs similar to the served texts. Received: {calibration!r}"
        )
    rows = tuple((row,) if isinstance(row, str) else tuple(row) for row in calibration)
    for index, row in enumerate(rows):
        if len(row) != len(rows[0]) or len(row) > 2 or not all(isinstance(x, str) for x in row):
            raise ValueError(
                "calibration must contain only texts or only pairs of texts. Received: "
                f"{calibration[index]!r} (index {index})"
            )
    if "question" in task.fields and len(rows[0]) != 2:
        raise ValueError(
            f"calibration[0] must be a question and its passage. Received: {calibration[0]!r}"
        )
    return rows


def _check_takes_text(task: Any, format: str) -> None:
    """Checks that a task's export to a format can accept text."""
    if FORMATS[format].text_packages is None:
        raise ExportError(
            f"text=True is not supported with format={format!r}, because it accepts token ids. "
            "Pass format='openvino' for a model that accepts text without TensorFlow, or "
            "format='tf_saved_model'."
        )
    if format == "openvino" and not task.is_sequence_level:
        raise ExportError(
            "text=True with format='openvino' is only supported for classifiers, regressions and "
            "embedders, because OpenVINO's tokenizers do not return token offsets. Received: "
            f"a {type(task).__name__}. Pass format='tf_saved_model' for a model that accepts text, "
            "or omit text=True for a model that accepts ids."
        )
    if Prompts.from_task(task).text():
        raise ValueError(
            "default_prompt_name must be None for an OpenVINO model that accepts text, because it "
            "adds no prompt. Received: a task with a default prompt. Export a SavedModel, or pass "
            "text=False."
        )


def _is_warmed_up(warm_up: bool | None) -> bool:
    is_possible = importlib.util.find_spec("tensorflow_serving") is not None
    if warm_up and not is_possible:
        raise ExportError(f"warm_up={warm_up} requires `pip install tensorflow-serving-api`.")
    return is_possible and warm_up is not False


@contextlib.contextmanager
def atomic_destination(paths: Sequence[Path]) -> Iterator[Path]:
    """Creates a scratch directory. At the end, the files in its directory `new` replace `paths`.

    All paths are in the same directory. The scratch directory is on the same disk and is removed
    afterwards. Each path is replaced atomically. An OpenVINO model's two files are not replaced
    together, because other files in the user's directory must be kept.
    """
    existing = [path for path in paths if os.path.lexists(path)]
    parent = paths[0].absolute().parent
    make_directory(parent)
    with scratch_directory(parent, paths[0].name) as directory:
        (directory / NEW_DIRECTORY).mkdir()
        yield directory
        with contextlib.ExitStack() as undo:
            for path in paths:
                move = exchange if path in existing else os.rename
                new = directory / NEW_DIRECTORY / path.name
                move(new, path)
                undo.callback(move, path, new)
            undo.pop_all()
