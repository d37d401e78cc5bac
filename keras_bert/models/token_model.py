# SPDX-License-Identifier: Apache-2.0
"""Base class of all models in this package: a Keras model with token IDs as input."""

from __future__ import annotations

import contextlib
import gc
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import keras

from keras_bert.atomic import atomic_path
from keras_bert.layers.base import check_length
from keras_bert.layers.frozen import NO_CLONE
from keras_bert.migration_hints import reject_aliases
from keras_bert.models.calibration import quantize_statically
from keras_bert.models.inputs import check_ids, fill_inputs, given_outputs
from keras_bert.models.threads import (
    check_process,
    model_lock_if_stateful,
    note_model,
    synchronized,
    synchronized_if_stateful,
)
from keras_bert.ops.annotations import Tensor
from keras_bert.ops.dispatch import backend_steps
from keras_bert.ops.lazy_tensorflow import without_tensorflow_import
from keras_bert.ops.unpadding import allow_unpadding


class TokenModel(keras.Model):
    """A functional model of `token_inputs()` that supports multiple threads on every backend.

    Optional inputs can be omitted. Subclasses set `config`, a `BertConfig`, to check token, segment
    and position IDs.

    Calls from multiple threads wait for each other if necessary, see `keras_bert.models.threads`.
    The weights and existing files stay valid if a call is interrupted.
    """

    # Keras' functions on an iterator of batches, and on JAX the running call's state
    train_function: Any
    test_function: Any
    predict_function: Any
    _jax_state: Any

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        # Subclasses create layers and use their arguments before they call `__init__`.
        note_model()
        reject_aliases(cls.__init__, kwargs, cls.__name__)
        model: Self = super().__new__(cls, *args, **kwargs)
        return model

    def __call__(self, inputs: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        check_process()
        if (outputs := given_outputs(inputs)) is not None:
            return outputs
        # Check the inputs here, because Keras converts arrays to tensors before `call`.
        inputs = fill_inputs(inputs, self.input)
        self.check_inputs(inputs)
        return super().__call__(inputs, *args, **kwargs)

    def check_inputs(self, inputs: Mapping[str, Tensor]) -> None:
        """Checks the IDs in NumPy inputs, see `check_ids`."""
        check_ids("token_ids", inputs.get("token_ids"), self.config.vocabulary_size)
        if self.config.num_segments:  # Models without segment embeddings ignore segment IDs.
            check_ids("segment_ids", inputs.get("segment_ids"), self.config.num_segments)
        check_ids("position_ids", inputs.get("position_ids"), self.config.max_sequence_length)

    def call(
        self, inputs: Tensor, training: bool | None = None, mask: Tensor | None = None
    ) -> Tensor:
        # On JAX, Keras does not call `__call__`.
        if (outputs := given_outputs(inputs)) is not None:
            return outputs
        return super().call(fill_inputs(inputs, self.input), training=training, mask=mask)

    def predict_step(self, *arguments: Any) -> Any:
        with allow_unpadding():
            return super().predict_step(*arguments)

    def test_step(self, *arguments: Any) -> Any:
        with allow_unpadding():
            return super().test_step(*arguments)

    def quantize(
        self,
        mode: str | None = None,
        config: Any = None,
        filters: Any = None,
        *,
        calibration: Any = None,
        **options: Any,
    ) -> None:
        """Quantizes like `keras.Model.quantize`, or the encoder's matmuls with static scales.

        With `calibration`, the matmuls in the encoder's blocks use 8-bit integers, and everything
        else is unchanged. These matmuls take nearly all of the time. The scales are computed from a
        `predict` on the calibration data, so a prediction does not depend on the other examples in
        its batch. TensorFlow on an x86 CPU has fast kernels for this. Elsewhere, slower Keras
        operations multiply the same integers. The model cannot be trained afterwards.

        Args:
            mode: A Keras quantization mode. Must be `"int8"` with `calibration`.
            config: A Keras quantization config.
            filters: The layers to quantize, as in `keras.Model.quantize`.
            calibration: About 100 inputs for `predict`, similar to those that will be served. With
                `None`, the default, Keras quantizes, and computes input scales in each call.
            **options: Other Keras options.

        Raises:
            ValueError: If `calibration` is given and the mode is not `"int8"`, layers are already
                quantized or have LoRA, or feed-forward networks are gated.
        """
        if calibration is not None:
            if mode != "int8" or filters is not None:
                raise ValueError(
                    "calibration requires mode='int8' and quantizes all blocks. Received: "
                    f"mode={mode!r} and filters={filters!r}"
                )
            quantize_statically(self, calibration)
        else:
            super().quantize(mode, config=config, filters=filters, **options)
        # On PyTorch, the replaced weights are part of reference cycles.
        gc.collect()

    # === Threads and backends ===

    fit = synchronized("fit")
    evaluate = synchronized("evaluate")
    train_on_batch = synchronized("train_on_batch")
    test_on_batch = synchronized("test_on_batch")
    predict = synchronized_if_stateful("predict")
    predict_on_batch = synchronized_if_stateful("predict_on_batch")

    def make_train_function(self, force: bool = False) -> Any:
        # On TensorFlow, Keras builds the optimizer in the first step. Then it traces the step again
        # without the initialization of variables.
        optimizer = getattr(self, "optimizer", None)
        if optimizer is not None and not optimizer.built:
            optimizer.build(self.trainable_variables)
        if self.train_function is None or force:
            self.train_function = backend_steps().train_function(self)
        return self.train_function or super().make_train_function(force)

    def make_test_function(self, force: bool = False) -> Any:
        if self.test_function is None or force:
            self.test_function = backend_steps().test_function(self)
        return self.test_function or super().make_test_function(force)

    def make_predict_function(self, force: bool = False) -> Any:
        if self.predict_function is None or force:
            self.predict_function = backend_steps().predict_function(self)
        return self.predict_function or super().make_predict_function(force)

    def _purge_model_variables(self, optimizer_variables: bool = False, **kinds: bool) -> None:
        """Takes the arrays out of variables only for training, because training donates them.

        Keras calls it only on JAX.
        """
        if optimizer_variables:
            from keras_bert.ops.jax_steps import training_state

            self._jax_state = training_state(self)
            self._jax_state_synced = False
            super()._purge_model_variables(optimizer_variables=True, **kinds)

    def build_by_example(self, example: Any) -> None:
        """Builds metrics, losses and the optimizer, so that Keras reads no batch to build them.

        Args:
            example: A small batch of NumPy arrays, `(features, labels, weights)`.
        """
        if keras.backend.backend() == "tensorflow":
            self._maybe_symbolic_build(data_batch=example)
        else:
            self._symbolic_build(data_batch=example)

    def _maybe_symbolic_build(self, iterator: Any = None, data_batch: Any = None) -> None:
        """Builds metrics and the optimizer for a replica's batch under a `tf.distribute.Strategy`.

        Keras would read a batch even if everything is built, and average the batches of the
        replicas. They would need equal numbers of examples and only numeric values, so a
        `padding_mask` would fail.
        """
        strategy = self._distribute_strategy
        if strategy is None:
            return

        def batches_of_replica() -> Iterator[Any]:
            for first, last, batches in iterator:
                yield first, last, map(replica_shard, batches)

        def replica_shard(batch: Any) -> Any:
            return keras.tree.map_structure(
                lambda values: strategy.experimental_local_results(values)[0], batch
            )

        with strategy.scope():
            self._symbolic_build(batches_of_replica(), data_batch)

    def check_shape(self, name: str, shape: Sequence[int]) -> None:
        """Checks the length of token IDs by their shape, for graphs that do not know the length."""
        if name == "token_ids" and "position_ids" not in self.input:
            check_length(shape[-1], self.config.max_sequence_length)

    # === Files ===

    def get_config(self) -> dict[str, Any]:
        """Returns the config. Only subclasses have it. Other instances share an encoder's weights.

        Raises:
            NotImplementedError: If the model is such an instance.
        """
        raise NotImplementedError(NO_CLONE)

    def save(
        self, filepath: Any, overwrite: bool = True, zipped: bool | None = None, **kwargs: Any
    ) -> None:
        """Saves the model like `keras.Model.save`, but atomically.

        An existing file is only replaced once the new file is complete.

        Raises:
            FileNotFoundError: If the file's directory does not exist.
        """
        # An unzipped model is a directory.
        with (
            model_lock_if_stateful(self),
            without_tensorflow_import(),
            _outside_distribution(),
            _replaced(filepath, overwrite, zipped is not False) as path,
        ):
            super().save(path, overwrite=overwrite, zipped=zipped, **kwargs)

    def save_weights(
        self, filepath: Any, overwrite: bool = True, max_shard_size: float | None = None
    ) -> None:
        """Saves the weights like `keras.Model.save_weights`, but atomically.

        An existing file is only replaced once the new file is complete.

        Raises:
            FileNotFoundError: If the file's directory does not exist.
        """
        with (
            model_lock_if_stateful(self),
            _outside_distribution(),
            _replaced(filepath, overwrite, max_shard_size is None) as path,
        ):
            super().save_weights(path, overwrite=overwrite, max_shard_size=max_shard_size)

    def compute_output_spec(
        self, inputs: Tensor, training: bool | None = None, mask: Tensor | None = None
    ) -> Tensor:
        # Keras needs a shape for every input, but `None` has no shape. It does not affect output
        # shapes.
        shape = inputs["token_ids"].shape
        shaped = {
            name: keras.KerasTensor(shape, reference.dtype)
            if inputs[name] is None
            else inputs[name]
            for name, reference in self.input.items()
        }
        return super().compute_output_spec(shaped, training=training, mask=mask)


@contextlib.contextmanager
def _outside_distribution() -> Iterator[None]:
    """Lets one process of a `keras.distribution` save a model without the other processes.

    Keras creates an optimizer to find out which attributes all optimizers have. If its variables
    were distributed, their creation would wait for the other processes.
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

    For URLs (`gs://…`), directories and sharded weights, and if an existing file must not be
    overwritten, it yields the path itself and leaves everything to Keras.
    """
    target = Path(os.path.realpath(str(filepath)))
    is_one_file &= target.suffix in (".keras", ".h5") and "://" not in str(filepath)
    if not is_one_file or target.is_dir() or (target.exists() and not overwrite):
        yield filepath
        return
    with atomic_path(target) as temporary:
        yield temporary
