# SPDX-License-Identifier: Apache-2.0
"""What every model of this package takes: token ids, segments and a mask."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import keras
import numpy as np

INPUT_NAMES = ("token_ids", "segment_ids", "padding_mask")


class TokenModel(keras.Model):
    """A functional model over `token_inputs()` in which the optional ones may be left out.

    A subclass sets `config`, a `BertConfig`, against whose vocabulary ids are checked.
    """

    def __call__(self, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        # Here and not only in `call`: by then Keras has made tensors of arrays.
        inputs = fill_inputs(inputs)
        check_token_ids(inputs["token_ids"], self.config.vocabulary_size)
        return super().__call__(inputs, *args, **kwargs)

    def call(self, inputs: Any, training: bool | None = None, mask: Any = None) -> Any:
        return super().call(fill_inputs(inputs), training=training, mask=mask)


def token_inputs() -> dict[str, Any]:
    """The symbolic inputs of every model of this package, any length."""
    return {
        "token_ids": keras.Input((None,), dtype="int32", name="token_ids"),
        "segment_ids": keras.Input((None,), dtype="int32", name="segment_ids", optional=True),
        "padding_mask": keras.Input((None,), dtype="bool", name="padding_mask", optional=True),
    }


def fill_inputs(inputs: Any) -> dict[str, Any]:
    """Names bare token ids, and puts `None` for the inputs that were left out.

    Raises:
        ValueError: If `token_ids` is missing.
    """
    if not isinstance(inputs, Mapping):
        inputs = {"token_ids": inputs}
    if inputs.get("token_ids") is None:
        raise ValueError(f"`token_ids` is missing; received the inputs {sorted(inputs)}.")
    return {**dict.fromkeys(INPUT_NAMES), **inputs}


def check_token_ids(token_ids: Any, vocabulary_size: int) -> None:
    """Raises if an array of ids holds one that the vocabulary has not.

    Tensors are not looked into: a backend's answer would have to be waited for.

    Raises:
        ValueError: If an id is negative or not below `vocabulary_size`.
    """
    if not isinstance(token_ids, (np.ndarray, list, tuple)):
        return
    ids = np.asarray(token_ids)
    bad = ids[(ids < 0) | (ids >= vocabulary_size)]
    if bad.size:
        raise ValueError(
            f"token_ids holds {bad.flat[0]}; ids must be at least 0 and below the "
            f"vocabulary's size, {vocabulary_size}."
        )
