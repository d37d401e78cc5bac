# SPDX-License-Identifier: Apache-2.0
"""The options of an export, what a format declares, and the interface required of a task."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol


class ExportError(RuntimeError):
    """Raised if a model cannot be exported."""


@dataclasses.dataclass(frozen=True)
class ExportFormat:
    """A format of exports.

    Args:
        write: Writes a task, which is on the TensorFlow backend, to a path.
        is_export: Returns whether a file, which is not empty, has the description of an export.
        suffixes: The suffixes of its files, first the given path's; `""` for a folder.
        dtypes: The precisions that it can be exported in.
        packages: The packages that it needs besides TensorFlow.
        int8_packages: Further packages for int8.
        text_packages: Further packages for an export with text; `None` if it takes ids alone.
        is_calibrated: Whether int8 takes calibration rows.
        has_fixed_length: Whether all rows have the same length.
    """

    write: Callable[[Servable, Path, ExportOptions], None]
    is_export: Callable[[Path], bool]
    suffixes: tuple[str, ...]
    dtypes: tuple[str, ...]
    packages: tuple[str, ...] = ()
    int8_packages: tuple[str, ...] = ()
    text_packages: tuple[str, ...] | None = None
    is_calibrated: bool = False
    has_fixed_length: bool = False


class Servable(Protocol):
    """The interface of a task that can be exported."""

    config: Any
    input: Any
    output: Any
    preprocessor: Any
    output_name: str
    predict_method: str
    fields: tuple[str, ...]
    optional_fields: tuple[str, ...]
    list_fields: tuple[str, ...]

    def __call__(self, inputs: Any, training: bool | None = None) -> Any: ...

    def save_weights(self, filepath: Any) -> None: ...

    def serving_signatures(self, options: ExportOptions) -> dict[str, Any]: ...

    def serving_requests(self) -> tuple[Any, ...]: ...


@dataclasses.dataclass(frozen=True)
class ExportOptions:
    """The options of an export; see `export_task`.

    Args:
        name: The name of the file or folder.
        format: A name in `FORMATS`.
        class_names: The labels; `None` for a regression, and for tasks without classes.
        dtype: The precision of the encoder's weights and products: `float32`, `bfloat16`, `int8`.
        pair: Whether the signatures take two texts.
        max_batch_size: The largest batch that a server forms.
        warm_up: Whether to add requests that a server runs before it serves others.
        sequence_length: The only length, in tokens, that a LiteRT model takes.
        text: Whether an OpenVINO model takes text.
        max_text_bytes: The number of bytes read of each text; `None` for no limit.
        chunk_tokens: The number of tokens that a SavedModel computes at a time, padding included.
        calibration: The calibration rows, of one or two texts each, of an int8 SavedModel or
            OpenVINO model.
        padded_batches: Whether servers may pad the rows of several requests to one length.
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
