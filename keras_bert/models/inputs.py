# SPDX-License-Identifier: Apache-2.0
"""The inputs of all models of this package: token ids, segment ids and a padding mask."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import keras
import numpy as np

from keras_bert.ops.annotations import Tensor

INPUT_NAMES = ("token_ids", "segment_ids", "padding_mask")
PACKING_NAMES = ("sequence_ids", "position_ids")
# Of batches of `fit` with gradient accumulation, float32 `(rows, losses)`. The sum over the rows of
# all devices is the divisor of each loss: the mean divisor of the micro-batches of the update. It
# is read by the losses of tasks, and is no input of a model.
LOSS_DIVISORS = "loss_divisors"
# Of batches of pairs with each text once, int32 `(2 * pairs,)`: the row of each text of the pairs.
# It is read by the loss of `TextEmbedder`, and is no input of a model.
ROWS_OF_PAIRS = "rows_of_pairs"
# Of batches that are completed with padding rows, float32 `(rows,)`: 0 for these. It is read by the
# losses of tasks, which count other rows of weight 0, and is no input of a model.
REAL_ROWS = "row_mask"


def token_inputs(packed: bool = False, with_choices: bool = False) -> dict[str, Any]:
    """Creates the symbolic inputs of models, `(batch, length)`; all but `token_ids` are optional.

    With `packed`, `sequence_ids` and `position_ids` are among them. `with_choices` makes them
    `(batch, choices, length)`.
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


def first_positions(token_ids: Tensor) -> Tensor:
    """Returns the position of each row's first token, 0, as a symbolic int tensor `(batch, 1)`."""
    return keras.ops.zeros_like(token_ids[:, :1])


def fill_inputs(inputs: Tensor, names: Iterable[str] = INPUT_NAMES) -> dict[str, Tensor]:
    """Completes the inputs of a model: a dict with `None` for the inputs that were omitted.

    Token ids alone are an input too. Lists are converted to arrays.
    """
    names = tuple(names)
    if not isinstance(inputs, Mapping):
        inputs = {"token_ids": inputs}
    if inputs.get("token_ids") is None:
        raise ValueError(f"`token_ids` is missing; received the inputs {sorted(inputs)}.")
    # Keras would flatten the dict and shift every input that follows an unknown one.
    unknown = sorted(set(inputs) - {*names, LOSS_DIVISORS, ROWS_OF_PAIRS, REAL_ROWS})
    if unknown:
        raise ValueError(
            f"The model has no input {', '.join(map(repr, unknown))}; its inputs are "
            f"{', '.join(names)}."
        )
    values = ((name, inputs.get(name)) for name in names)
    return {name: np.asarray(x) if isinstance(x, (list, tuple)) else x for name, x in values}


def check_ids(name: str, ids: Tensor, limit: int) -> None:
    """Checks that the ids of a NumPy array are rows of their embedding table.

    Tensors are not checked, since this would wait for the device. Floats with the values of
    integers are taken.
    """
    if not isinstance(ids, np.ndarray):
        return
    if ids.dtype.kind not in "iufb":
        hint = " `fit`, `evaluate` and `predict` take text." if ids.dtype.kind in "USOT" else ""
        raise ValueError(f"{name} holds {ids.dtype} values; it must hold integers.{hint}")
    if ids.dtype.kind == "f" and (fractions := ids[ids != np.floor(ids)]).size:
        raise ValueError(f"{name} holds {fractions.flat[0]}; ids must be integers.")
    bad = ids[(ids < 0) | (ids >= limit)]
    if bad.size:
        raise ValueError(f"{name} holds {bad.flat[0]}; ids must be at least 0 and below {limit}.")
