# SPDX-License-Identifier: Apache-2.0
"""What is exported: a task that can be served, and how."""

from __future__ import annotations

import dataclasses
from typing import Any, Protocol


class ExportError(RuntimeError):
    """A model could not be exported; the message says why."""


class Servable(Protocol):
    """What an export needs to know of a task."""

    backbone: Any
    config: Any
    input: Any
    output: Any
    preprocessor: Any
    output_name: str

    def __call__(self, inputs: Any, training: bool | None = None) -> Any: ...

    def save_weights(self, filepath: Any) -> None: ...

    def serving_signatures(self, options: ExportOptions) -> dict[str, Any]: ...


@dataclasses.dataclass(frozen=True)
class ExportOptions:
    """What shall be written.

    Args:
        name: The file's or folder's name.
        format: `tf_saved_model`, `onnx`, `openvino` or `litert`.
        class_names: The labels to return; `None` for a regression, and for tasks without.
        dtype: Of the encoder's weights and products: `float32`, `bfloat16` or `int8`.
        pair: Whether the signatures take two texts.
        max_batch_size: The largest batch that a server forms.
        warm_up: Whether to add requests that a server runs before it answers any.
        sequence_length: The one length that a LiteRT model takes, in tokens.
        text: Whether an OpenVINO model takes text.
        max_text_bytes: What is behind this many bytes of a text is not read; `None` for no limit.
        calibration: The texts, one or two a row, that an OpenVINO model in int8 is fitted to.
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
    calibration: tuple[tuple[str, ...], ...] = ()
