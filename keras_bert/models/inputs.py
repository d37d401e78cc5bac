# SPDX-License-Identifier: Apache-2.0
"""What every model of this package takes: token ids, segments and a mask."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import keras
import numpy as np

from keras_bert.atomic import atomic_path
from keras_bert.layers.frozen import NO_CLONE
from keras_bert.ops.annotations import Tensor

INPUT_NAMES = ("token_ids", "segment_ids", "padding_mask")
PACKING_NAMES = ("sequence_ids", "position_ids")


class TokenModel(keras.Model):
    """A functional model over `token_inputs()` in which the optional ones may be left out.

    A subclass sets `config`, a `BertConfig`, against whose vocabulary, segments and positions ids
    are checked.
    """

    def __call__(self, inputs: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        # Here and not only in `call`: by then Keras has made tensors of arrays.
        inputs = fill_inputs(inputs, self.input)
        check_ids("token_ids", inputs["token_ids"], self.config.vocabulary_size)
        if self.config.num_segments:  # without segments they are not looked at
            check_ids("segment_ids", inputs["segment_ids"], self.config.num_segments)
        check_ids("position_ids", inputs.get("position_ids"), self.config.max_sequence_length)
        return super().__call__(inputs, *args, **kwargs)

    def call(
        self, inputs: Tensor, training: bool | None = None, mask: Tensor | None = None
    ) -> Tensor:
        return super().call(fill_inputs(inputs, self.input), training=training, mask=mask)

    def get_config(self) -> dict[str, Any]:
        """Subclasses have one; other models are views of an encoder, without weights of their own.

        Raises:
            NotImplementedError: Of such a view.
        """
        raise NotImplementedError(NO_CLONE)

    def save(
        self, filepath: Any, overwrite: bool = True, zipped: bool | None = None, **kwargs: Any
    ) -> None:
        """`keras.Model.save`, atomic: a file that is there stays whole if writing fails."""
        # What is not zipped is a folder.
        with _replaced(filepath, overwrite, zipped is not False) as path:
            super().save(path, overwrite=overwrite, zipped=zipped, **kwargs)

    def save_weights(
        self, filepath: Any, overwrite: bool = True, max_shard_size: float | None = None
    ) -> None:
        """`keras.Model.save_weights`, atomic: a file that is there stays whole if writing fails."""
        with _replaced(filepath, overwrite, max_shard_size is None) as path:
            super().save_weights(path, overwrite=overwrite, max_shard_size=max_shard_size)

    def compute_output_spec(
        self, inputs: Tensor, training: bool | None = None, mask: Tensor | None = None
    ) -> Tensor:
        # Keras asks every input for its shape. None has none, and changes that of no output.
        shape = inputs["token_ids"].shape
        shaped = {
            name: keras.KerasTensor(shape, reference.dtype)
            if inputs[name] is None
            else inputs[name]
            for name, reference in self.input.items()
        }
        return super().compute_output_spec(shaped, training=training, mask=mask)


@contextlib.contextmanager
def _replaced(filepath: Any, overwrite: bool, is_one_file: bool) -> Iterator[Any]:
    """Yields a temporary path beside a file, which then replaces the file.

    What Keras keeps elsewhere (`gs://…`), in folders or in several files it writes itself, and it
    asks itself where a file is not to be overwritten.
    """
    target = Path(os.path.realpath(str(filepath)))
    is_one_file &= target.suffix in (".keras", ".h5") and "://" not in str(filepath)
    if not is_one_file or target.is_dir() or (target.exists() and not overwrite):
        yield filepath
        return
    with atomic_path(target, suffix="".join(target.suffixes)) as temporary:
        yield temporary


def token_inputs(packed: bool = False) -> dict[str, Any]:
    """The symbolic inputs of every model of this package, any length.

    Args:
        packed: Whether `sequence_ids` and `position_ids` are among them.
    """
    names = PACKING_NAMES if packed else ()
    return {
        "token_ids": keras.Input((None,), dtype="int32", name="token_ids"),
        "segment_ids": keras.Input((None,), dtype="int32", name="segment_ids", optional=True),
        "padding_mask": keras.Input((None,), dtype="bool", name="padding_mask", optional=True),
        **{name: keras.Input((None,), dtype="int32", name=name, optional=True) for name in names},
    }


def first_positions(token_ids: Tensor) -> Tensor:
    """The position of each row's first token, symbolic int `(batch, 1)`."""
    return keras.ops.zeros_like(token_ids[:, :1])


def fill_inputs(inputs: Tensor, names: Iterable[str] = INPUT_NAMES) -> dict[str, Tensor]:
    """Names bare token ids, makes arrays of lists, and puts `None` for what was left out.

    Args:
        inputs: A dict of inputs, or token ids alone.
        names: Every input that the model has.

    Raises:
        ValueError: If `token_ids` is missing, or the model has no such input.
    """
    names = tuple(names)
    if not isinstance(inputs, Mapping):
        inputs = {"token_ids": inputs}
    if inputs.get("token_ids") is None:
        raise ValueError(f"`token_ids` is missing; received the inputs {sorted(inputs)}.")
    # Keras would flatten the dict and shift every input that follows an unknown one.
    unknown = sorted(set(inputs) - set(names))
    if unknown:
        raise ValueError(
            f"The model has no input {', '.join(map(repr, unknown))}; its inputs are "
            f"{', '.join(names)}."
        )
    return {name: _list_to_array(inputs.get(name)) for name in names}


def _list_to_array(value: Any) -> Any:
    return np.asarray(value) if isinstance(value, (list, tuple)) else value


def check_ids(name: str, ids: Tensor, limit: int) -> None:
    """Raises if an array of ids holds one that its embedding table has not.

    Tensors are not looked into: a backend's answer would have to be waited for.

    Args:
        name: The input's name, for the message.
        ids: Token, segment or position ids.
        limit: Rows of the table.

    Raises:
        ValueError: If ids are no numbers, or one is negative or not below `limit`.
    """
    if not isinstance(ids, np.ndarray):
        return
    if ids.dtype.kind not in "iufb":
        raise ValueError(f"{name} holds {ids.dtype} values; it must hold integers.")
    bad = ids[(ids < 0) | (ids >= limit)]
    if bad.size:
        raise ValueError(f"{name} holds {bad.flat[0]}; ids must be at least 0 and below {limit}.")
