# SPDX-License-Identifier: Apache-2.0
"""The inputs of all models of this package: token ids, segment ids and a padding mask."""

from __future__ import annotations

import contextlib
import gc
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import keras
import numpy as np

from keras_bert.aliases import refuse_aliases
from keras_bert.atomic import atomic_path
from keras_bert.layers.frozen import NO_CLONE
from keras_bert.layers.shapes import too_long
from keras_bert.models.thread_safe import ThreadSafeModel
from keras_bert.ops.annotations import Tensor
from keras_bert.ops.layout import unpadded_form
from keras_bert.ops.lazy_tensorflow import without_tensorflow_import

INPUT_NAMES = ("token_ids", "segment_ids", "padding_mask")
PACKING_NAMES = ("sequence_ids", "position_ids")
# Of batches of `fit` with gradient accumulation, float32 `(rows, losses)`. The sum over the rows of
# all devices is the divisor of each loss: the mean divisor of the micro-batches of the update. It
# is read by the losses of tasks, and is no input of a model.
LOSS_DIVISORS = "loss_divisors"


class TokenModel(ThreadSafeModel):
    """A functional model of `token_inputs()`, whose optional inputs can be omitted.

    Subclasses set `config`, a `BertConfig`, which token, segment and position ids are checked
    against.
    """

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        # Here, since subclasses read their arguments before they call `__init__` of this class.
        refuse_aliases(cls.__init__, kwargs, cls.__name__)
        return super().__new__(cls, *args, **kwargs)

    def __call__(self, inputs: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        # Here and not only in `call`, before Keras converts arrays to tensors.
        inputs = fill_inputs(inputs, self.input)
        self.check_inputs(inputs)
        return super().__call__(inputs, *args, **kwargs)

    def check_inputs(self, inputs: Mapping[str, Tensor]) -> None:
        """Checks the ids of inputs that are NumPy arrays; see `check_ids`."""
        check_ids("token_ids", inputs.get("token_ids"), self.config.vocabulary_size)
        if self.config.num_segments:  # segment ids are ignored without segment embeddings
            check_ids("segment_ids", inputs.get("segment_ids"), self.config.num_segments)
        check_ids("position_ids", inputs.get("position_ids"), self.config.max_sequence_length)

    def call(
        self, inputs: Tensor, training: bool | None = None, mask: Tensor | None = None
    ) -> Tensor:
        return super().call(fill_inputs(inputs, self.input), training=training, mask=mask)

    def predict_step(self, *arguments: Any) -> Any:
        with unpadded_form():
            return super().predict_step(*arguments)

    def test_step(self, *arguments: Any) -> Any:
        with unpadded_form():
            return super().test_step(*arguments)

    def quantize(self, *arguments: Any, **options: Any) -> None:
        super().quantize(*arguments, **options)
        # On PyTorch, the weights that were replaced are part of cycles.
        gc.collect()

    def make_train_function(self, force: bool = False) -> Any:
        # On TensorFlow, Keras leaves it to the first step, which is then traced a second time:
        # without the initialization of variables.
        optimizer = getattr(self, "optimizer", None)
        if optimizer is not None and not optimizer.built:
            optimizer.build(self.trainable_variables)
        return super().make_train_function(force)

    def make_predict_function(self, force: bool = False) -> Any:
        super().make_predict_function(force)
        function = getattr(self, "predict_function", None)
        if hasattr(function, "get_concrete_function"):
            from keras_bert.ops.tensorflow_graphs import traced_for_any_size

            function = traced_for_any_size(function, self.input, self._check_shape)
            self.predict_function = function
        return function

    def _maybe_symbolic_build(self, iterator: Any = None, data_batch: Any = None) -> None:
        """Builds metrics and optimizer under a `tf.distribute.Strategy`, of a replica's batch.

        Keras would average the batches of the replicas, which must then have as many rows each, and
        no values that are not numbers, such as those of a `padding_mask`.
        """
        strategy = self.distribute_strategy
        if iterator is not None and strategy.num_replicas_in_sync > 1:
            for _, _, batches in iterator:
                data_batch = keras.tree.map_structure(
                    lambda values: strategy.experimental_local_results(values)[0], next(batches)
                )
                break
            iterator = None
        super()._maybe_symbolic_build(iterator, data_batch)

    def _check_shape(self, name: str, shape: Sequence[int]) -> None:
        limit = self.config.max_sequence_length
        if name == "token_ids" and "position_ids" not in self.input and shape[-1] > limit:
            raise ValueError(too_long(shape[-1], limit))

    def get_config(self) -> dict[str, Any]:
        """Implemented by subclasses; other instances share the weights of an encoder.

        Raises:
            NotImplementedError: If the model is such an instance.
        """
        raise NotImplementedError(NO_CLONE)

    def save(
        self, filepath: Any, overwrite: bool = True, zipped: bool | None = None, **kwargs: Any
    ) -> None:
        """Saves the model as `keras.Model.save` does, but atomically.

        An existing file is replaced only when the new one is complete.

        Raises:
            FileNotFoundError: If the folder of a file does not exist.
        """
        # A model that is not zipped is a folder.
        with (
            self._turn_on_jax(),
            without_tensorflow_import(),
            _without_distribution(),
            _replaced(filepath, overwrite, zipped is not False) as path,
        ):
            super().save(path, overwrite=overwrite, zipped=zipped, **kwargs)

    def save_weights(
        self, filepath: Any, overwrite: bool = True, max_shard_size: float | None = None
    ) -> None:
        """Saves the weights as `keras.Model.save_weights` does, but atomically.

        An existing file is replaced only when the new one is complete.

        Raises:
            FileNotFoundError: If the folder of a file does not exist.
        """
        with (
            self._turn_on_jax(),
            _without_distribution(),
            _replaced(filepath, overwrite, max_shard_size is None) as path,
        ):
            super().save_weights(path, overwrite=overwrite, max_shard_size=max_shard_size)

    def compute_output_spec(
        self, inputs: Tensor, training: bool | None = None, mask: Tensor | None = None
    ) -> Tensor:
        # Keras needs the shape of every input. `None` has none, and does not affect output shapes.
        shape = inputs["token_ids"].shape
        shaped = {
            name: keras.KerasTensor(shape, reference.dtype)
            if inputs[name] is None
            else inputs[name]
            for name, reference in self.input.items()
        }
        return super().compute_output_spec(shaped, training=training, mask=mask)


@contextlib.contextmanager
def _without_distribution() -> Iterator[None]:
    """Has one of several processes of a `keras.distribution` save a model by itself.

    Keras creates an optimizer to see which attributes all have, and its variables, if they were
    distributed, would wait for the other processes.
    """
    distribution = keras.distribution.distribution()
    keras.distribution.set_distribution(None)
    try:
        yield
    finally:
        keras.distribution.set_distribution(distribution)


@contextlib.contextmanager
def _replaced(filepath: Any, overwrite: bool, is_one_file: bool) -> Iterator[Any]:
    """Yields a temporary path next to a file, and renames it to the file at the end.

    For URLs (`gs://…`), folders and sharded weights, and if an existing file must not be
    overwritten, it yields the path itself and leaves everything to Keras.
    """
    target = Path(os.path.realpath(str(filepath)))
    is_one_file &= target.suffix in (".keras", ".h5") and "://" not in str(filepath)
    if not is_one_file or target.is_dir() or (target.exists() and not overwrite):
        yield filepath
        return
    with atomic_path(target) as temporary:
        yield temporary


def token_inputs(packed: bool = False) -> dict[str, Any]:
    """Creates the symbolic inputs of the models of this package, each `(batch, length)`.

    Args:
        packed: Whether to include `sequence_ids` and `position_ids`.

    Returns:
        A dict of symbolic inputs, all of them but `token_ids` optional.
    """
    names = PACKING_NAMES if packed else ()
    return {
        "token_ids": keras.Input((None,), dtype="int32", name="token_ids"),
        "segment_ids": keras.Input((None,), dtype="int32", name="segment_ids", optional=True),
        "padding_mask": keras.Input((None,), dtype="bool", name="padding_mask", optional=True),
        **{name: keras.Input((None,), dtype="int32", name=name, optional=True) for name in names},
    }


def first_positions(token_ids: Tensor) -> Tensor:
    """Returns the position of each row's first token, 0, as a symbolic int tensor `(batch, 1)`."""
    return keras.ops.zeros_like(token_ids[:, :1])


def fill_inputs(inputs: Tensor, names: Iterable[str] = INPUT_NAMES) -> dict[str, Tensor]:
    """Completes the inputs of a model: a dict with `None` for the inputs that were omitted.

    Args:
        inputs: A dict of inputs, or token ids alone. Lists are converted to arrays.
        names: The names of all inputs of the model.

    Returns:
        A dict with all names as keys.

    Raises:
        ValueError: If `token_ids` is missing, or an input is not one of the model's.
    """
    names = tuple(names)
    if not isinstance(inputs, Mapping):
        inputs = {"token_ids": inputs}
    if inputs.get("token_ids") is None:
        raise ValueError(f"`token_ids` is missing; received the inputs {sorted(inputs)}.")
    # Keras would flatten the dict and shift every input that follows an unknown one.
    unknown = sorted(set(inputs) - {*names, LOSS_DIVISORS})
    if unknown:
        raise ValueError(
            f"The model has no input {', '.join(map(repr, unknown))}; its inputs are "
            f"{', '.join(names)}."
        )
    return {name: _list_to_array(inputs.get(name)) for name in names}


def _list_to_array(value: Any) -> Any:
    return np.asarray(value) if isinstance(value, (list, tuple)) else value


def check_ids(name: str, ids: Tensor, limit: int) -> None:
    """Checks that the ids of a NumPy array are rows of their embedding table.

    Tensors are not checked, since this would wait for the device.

    Args:
        name: The name of the input, for the error message.
        ids: Token, segment or position ids.
        limit: Number of rows of the embedding table.

    Raises:
        ValueError: If ids are not integers, or one is negative or not below `limit`. Floats with
            the values of integers are taken.
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
