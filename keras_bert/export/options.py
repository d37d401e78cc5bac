# SPDX-License-Identifier: Apache-2.0
"""Export options, format declarations, and the interface of exportable tasks."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol


class ExportError(RuntimeError):
    """Raised if a model cannot be exported."""


class ExportWarning(UserWarning):
    """A warning about an export. It is also shown if a child process writes the export."""


@dataclasses.dataclass(frozen=True)
class ExportFormat:
    """Declares an export format.

    Args:
        write: Writes a task on the TensorFlow backend to a path.
        is_export: Returns whether a directory or a non-empty file contains an export's description.
        suffixes: File suffixes, starting with the given path's suffix. `""` for a directory.
        dtypes: Supported precisions.
        packages: Required packages in addition to TensorFlow.
        int8_packages: Additional packages for int8.
        text_packages: Additional packages for models that accept text. `None` if the format only
            supports ids.
        is_calibrated: Whether int8 quantization uses calibration examples.
        includes_int8: Whether each export also has an int8 model. It is checked with calibration
            examples if they are given.
        has_fixed_length: Whether all sequences must have the same length.
        supports_ensembles: Whether an `Ensemble` can be exported.
        check: Raises an `ExportError` if the format does not support a task with these options, or
            a `ValueError` if the task has no preprocessor. `None` if the format supports all tasks.
        has_tokenizer: Whether the export always includes the tokenizer.
        directory_files: Matches the relative path of each file and directory in a directory. `None`
            if the export is a file.
    """

    write: Callable[[Servable, Path, ExportOptions], None]
    is_export: Callable[[Path], bool]
    suffixes: tuple[str, ...]
    dtypes: tuple[str, ...]
    packages: tuple[str, ...] = ()
    int8_packages: tuple[str, ...] = ()
    text_packages: tuple[str, ...] | None = None
    is_calibrated: bool = False
    includes_int8: bool = False
    has_fixed_length: bool = False
    supports_ensembles: bool = True
    check: Callable[[Any, ExportOptions], None] | None = None
    has_tokenizer: bool = False
    directory_files: re.Pattern[str] | None = None


class Servable(Protocol):
    """The interface of exportable tasks."""

    config: Any
    input: Any
    output: Any
    preprocessor: Any
    output_name: str
    predict_method: str
    embedding_kind: str
    fields: tuple[str, ...]
    optional_fields: tuple[str, ...]
    list_fields: tuple[str, ...]
    network_inputs: tuple[str, ...]

    def __call__(self, inputs: Any, training: bool | None = None) -> Any: ...

    def network_outputs(self, features: Any) -> dict[str, Any]: ...

    def save_weights(self, filepath: Any) -> None: ...

    def merge_windows(self, outputs: Any, counts: Any) -> Any: ...

    def serving_signatures(self, options: ExportOptions) -> dict[str, Any]: ...

    def serving_requests(self) -> tuple[Any, ...]: ...


@dataclasses.dataclass(frozen=True)
class ExportOptions:
    """Export options. See `export_task`.

    Args:
        name: File or directory name.
        format: A name in `FORMATS`.
        class_names: Class labels. `None` for regressions and for tasks without classes.
        dtype: Precision of the encoder's weights and matmuls: `float32`, `bfloat16` or `int8`.
        pair: Whether the signatures accept text pairs.
        max_batch_size: Largest batch that a server may form.
        warm_up: Whether to add warm-up requests. A server runs them before all other requests.
        sequence_length: Fixed sequence length in tokens, for LiteRT models (also for MediaPipe).
        text: Whether an OpenVINO model accepts text.
        max_text_bytes: Number of bytes read from each text. `None` for no limit.
        chunk_tokens: Number of tokens that a SavedModel computes at a time, including padding.
        calibration: Calibration examples for an int8 model. Each example has one or two texts.
        padded_batches: Whether servers may pad multiple requests to the same length.
    """

    name: str
    format: str
    class_names: tuple[str, ...] | None
    dtype: str
    pair: bool
    max_batch_size: int
    warm_up: bool
    sequence_length: int
    text: bool = False
    max_text_bytes: int | None = None
    chunk_tokens: int = 256
    calibration: tuple[tuple[str, ...], ...] = ()
    padded_batches: bool = False
