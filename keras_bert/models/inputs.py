# SPDX-License-Identifier: Apache-2.0
"""The inputs of all models in this package: token IDs, segment IDs and a padding mask."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import keras
import numpy as np

from keras_bert.ops.annotations import Tensor

INPUT_NAMES = ("token_ids", "segment_ids", "padding_mask")
PACKING_NAMES = ("sequence_ids", "position_ids")
# Embedders that leave prompts out of pooling have this optional input, bool `(batch, length)`. True
# means that a token is pooled.
POOLING_MASK = "pooling_mask"
# In `fit` with gradient accumulation, batches have float32 `(batch, losses)`. Its sum over the
# examples of all devices is each loss's divisor, the mean over the micro-batches in the step. The
# losses of tasks read it. It is not a model input.
LOSS_DIVISORS = "loss_divisors"
# Batches of tuples of texts that contain each text once have int32 `(rows, texts)`, the index of
# each text's features in the batch. The losses of tasks on tuples read it. It is not a model input.
ROWS_OF_TUPLES = "rows_of_tuples"
# Batches with padding examples have float32 `(rows,)`, 0 for padding examples. The losses of tasks
# read it, because they count other examples with a weight of 0. It is not a model input.
REAL_ROWS = "row_mask"
# Only `evaluate` uses it, for texts in windows: the outputs of the texts, which a model returns
# unchanged. Keras then computes the losses and metrics of texts instead of windows.
TEXT_OUTPUTS = "text_outputs"


def token_inputs(packed: bool = False, with_choices: bool = False) -> dict[str, Any]:
    """Creates a model's symbolic inputs, `(batch, length)`. All except `token_ids` are optional.

    With `packed`, they include `sequence_ids` and `position_ids`. With `with_choices`, their shape
    is `(batch, choices, length)`.
    """
    shape = (None, None) if with_choices else (None,)
    names = (*INPUT_NAMES, *PACKING_NAMES) if packed else INPUT_NAMES
    return {
        name: keras.Input(
            shape,
            dtype="bool" if name == "padding_mask" else "int32",
            name=name,
            optional=name != "token_ids",
        )
        for name in names
    }


def pooling_mask_input() -> Any:
    """Creates the optional symbolic input `POOLING_MASK`, `(batch, length)`."""
    return keras.Input((None,), dtype="bool", name=POOLING_MASK, optional=True)


def first_positions(token_ids: Tensor) -> Tensor:
    """Returns the position of the first token, 0, as a symbolic int tensor `(batch, 1)`."""
    return keras.ops.zeros_like(token_ids[:, :1])


def given_outputs(inputs: Tensor) -> Tensor | None:
    """Returns the outputs in inputs that are `TEXT_OUTPUTS`, or `None` for all other inputs."""
    return inputs.get(TEXT_OUTPUTS) if isinstance(inputs, Mapping) else None


def fill_inputs(inputs: Tensor, names: Iterable[str] = INPUT_NAMES) -> dict[str, Tensor]:
    """Converts a model's inputs to a dict, with `None` for missing optional inputs.

    The inputs may also be just token IDs. Lists are converted to arrays.
    """
    names = tuple(names)
    if not isinstance(inputs, Mapping):
        inputs = {"token_ids": inputs}
    if inputs.get("token_ids") is None:
        raise ValueError(
            f"The inputs must contain token_ids. Received the inputs: {sorted(inputs)}"
        )
    # Keras would flatten the dict and shift every input that follows an unknown one.
    unknown = sorted(set(inputs) - {*names, LOSS_DIVISORS, ROWS_OF_TUPLES, REAL_ROWS})
    if unknown:
        raise ValueError(
            f"The inputs must be among {', '.join(names)}. Received: "
            f"{', '.join(map(repr, unknown))}"
        )
    values = ((name, inputs.get(name)) for name in names)
    return {name: np.asarray(x) if isinstance(x, (list, tuple)) else x for name, x in values}


def check_ids(name: str, ids: Tensor, limit: int) -> None:
    """Checks that IDs in a NumPy array are within their embedding table.

    Tensors are not checked, since this would wait for the device. Floats with integer values are
    accepted.
    """
    if not isinstance(ids, np.ndarray):
        return
    if ids.dtype.kind not in "iufb":
        hint = ". `fit`, `evaluate` and `predict` accept text." if ids.dtype.kind in "USOT" else ""
        raise ValueError(f"{name} must be integers. Received the dtype: {ids.dtype}{hint}")
    if ids.dtype.kind == "f" and (fractions := ids[ids != np.floor(ids)]).size:
        raise ValueError(f"{name} must be integers. Received: {fractions.flat[0]}")
    bad = ids[(ids < 0) | (ids >= limit)]
    if bad.size:
        raise ValueError(f"{name} must be at least 0 and below {limit}. Received: {bad.flat[0]}")
