# SPDX-License-Identifier: Apache-2.0
"""The base of all models of this package: a Keras model of token ids."""

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
from keras_bert.models.inputs import check_ids, fill_inputs
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
    """A functional model of `token_inputs()`, in as many threads and on whichever backend.

    Optional inputs can be omitted. Subclasses set `config`, a `BertConfig`, which token, segment
    and position ids are checked against.

    Calls from several threads take turns where they must; see `keras_bert.models.threads`. A call
    that is interrupted, and a file that is being written, leave the weights as they were.
    """

    # Keras' functions of an iterator of batches, and its state of a running call on JAX
    train_function: Any
    test_function: Any
    predict_function: Any
    _jax_state: Any

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        # Here, since subclasses create layers and read their arguments before they call `__init__`.
        note_model()
        reject_aliases(cls.__init__, kwargs, cls.__name__)
        model: Self = super().__new__(cls, *args, **kwargs)
        return model

    def __call__(self, inputs: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        check_process()
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
        """Quantizes as `keras.Model.quantize` does, or the encoder's products with static scales.

        With `calibration`, the products of the blocks, which take nearly all of the time, are of
        8-bit integers, and everything else stays as it is. The scales are computed here, by a
        `predict` of the calibration rows, so that an answer does not depend on the other rows of
        its batch. TensorFlow on an x86 CPU has fast kernels for it; elsewhere the same integers are
        multiplied by Keras' operations, which is slow. The model cannot be trained afterwards.

        Args:
            mode: A mode of Keras; `"int8"` with `calibration`.
            config: A configuration of Keras.
            filters: The layers to quantize, as Keras takes them.
            calibration: Some 100 inputs of `predict`, like those that will be served. Defaults to
                `None`: Keras quantizes, and scales inputs as they come.
            **options: Other options of Keras.

        Raises:
            ValueError: If there is `calibration`, and the mode is not `"int8"`, layers are
                quantized or have LoRA, or feed-forward networks are gated.
        """
        if calibration is not None:
            if mode != "int8" or filters is not None:
                raise ValueError(
                    "calibration is for mode='int8' of all blocks; received "
                    f"mode={mode!r} and filters={filters!r}."
                )
            quantize_statically(self, calibration)
        else:
            super().quantize(mode, config=config, filters=filters, **options)
        # On PyTorch, the weights that were replaced are part of cycles.
        gc.collect()

    # === Threads and backends ===

    fit = synchronized("fit")
    evaluate = synchronized("evaluate")
    train_on_batch = synchronized("train_on_batch")
    test_on_batch = synchronized("test_on_batch")
    predict = synchronized_if_stateful("predict")
    predict_on_batch = synchronized_if_stateful("predict_on_batch")

    def make_train_function(self, force: bool = False) -> Any:
        # On TensorFlow, Keras leaves it to the first step, which is then traced a second time:
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
        """Takes the arrays out of variables, only for training, which donates them.

        Keras calls it on JAX only.
        """
        if optimizer_variables:
            from keras_bert.ops.jax_steps import training_state

            self._jax_state = training_state(self)
            self._jax_state_synced = False
            super()._purge_model_variables(optimizer_variables=True, **kinds)

    def build_by_example(self, example: Any) -> None:
        """Builds metrics, losses and the optimizer, so that Keras reads no batch to build them.

        Args:
            example: A batch of some rows, `(features, labels, weights)`, of NumPy arrays.
        """
        if keras.backend.backend() == "tensorflow":
            self._maybe_symbolic_build(data_batch=example)
        else:
            self._symbolic_build(data_batch=example)

    def _maybe_symbolic_build(self, iterator: Any = None, data_batch: Any = None) -> None:
        """Builds metrics and optimizer under a `tf.distribute.Strategy`, of a replica's batch.

        Keras would read a batch even if all is built, and average the batches of the replicas,
        which must then have as many rows each, and no values that are not numbers, such as those of
        a `padding_mask`.
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
        """Checks the length of token ids by their shape, for graphs that do not know it."""
        if name == "token_ids" and "position_ids" not in self.input:
            check_length(shape[-1], self.config.max_sequence_length)

    # === Files ===

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
            model_lock_if_stateful(self),
            without_tensorflow_import(),
            _outside_distribution(),
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
            model_lock_if_stateful(self),
            _outside_distribution(),
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
def _outside_distribution() -> Iterator[None]:
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
