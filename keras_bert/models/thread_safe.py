# SPDX-License-Identifier: Apache-2.0
"""Models that several threads may use, and that keep their weights when a call is interrupted."""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import threading
import weakref
from collections.abc import Iterator
from typing import Any, Self

import keras

from keras_bert.layers.embeddings import TokenEmbedding

_LOCKS: weakref.WeakKeyDictionary[keras.layers.Layer, tuple[int, Any]] = weakref.WeakKeyDictionary()
_LOCKS_ARE_CREATED = threading.Lock()
_NUMBERS = itertools.count()


class _Process:
    """What this process and the one that it was forked from have done."""

    has_models = False
    was_forked_from_models = False


def _after_fork() -> None:
    _Process.was_forked_from_models = _Process.has_models


if hasattr(os, "register_at_fork"):  # not on Windows, which has no fork
    os.register_at_fork(after_in_child=_after_fork)


def check_process() -> None:
    """Refuses to compute in a process that was forked after its parent had created a model.

    The threads of TensorFlow, JAX and PyTorch do not exist in the child, which waits for them.

    Raises:
        RuntimeError: If this is such a process.
    """
    if _Process.was_forked_from_models:
        raise RuntimeError(
            "This process was forked from one that had already created a model, so that the call "
            f"would never return: a fork does not copy the threads of {keras.backend.backend()}. "
            "Create or load models after the fork only (with gunicorn, without --preload), or "
            'start processes with multiprocessing.get_context("spawn").'
        )


def _documented_as(method: Any) -> Any:
    """Returns a decorator that gives a method the signature and the docstring of Keras' method."""
    return functools.wraps(method)


class ThreadSafeModel(keras.Model):
    """A Keras model whose calls from several threads take turns where they must.

    Training and evaluation change variables, those of metrics at least. On JAX, moreover, Keras
    takes the weights out of a model while it is trained, and has one place per model for the state
    of a running call, be it of `predict`. So on every backend one thread at a time trains or
    evaluates a model, and on JAX also predicts; models that share an embedding table, such as a
    task and its encoder, take turns with each other. A call inside a call, such as the validation
    of `fit` or a callback's prediction, belongs to the same turn.
    """

    # Keras' functions of an iterator of batches, and its state of a running call on JAX
    train_function: Any
    test_function: Any
    predict_function: Any
    _jax_state: Any

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        # Here, since subclasses create layers before they call `__init__` of this class.
        check_process()
        _Process.has_models = True
        model: Self = super().__new__(cls, *args, **kwargs)
        return model

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        check_process()
        return super().__call__(*args, **kwargs)

    @contextlib.contextmanager
    def _turn(self) -> Iterator[None]:
        """Waits for the calls of other threads; on JAX, puts the variables back at the end."""
        check_process()
        with contextlib.ExitStack() as held:
            for lock in _table_locks(self):
                held.enter_context(lock)
            if keras.backend.backend() != "jax":
                yield
                return
            self.jax_state_sync()  # of the training whose callback this is
            try:
                yield
            finally:
                # Keras does this only in `fit`.
                self.jax_state_sync()
                self._jax_state = None
                self._jax_state_synced = True

    def _turn_on_jax(self) -> contextlib.AbstractContextManager[None]:
        check_process()
        is_jax = keras.backend.backend() == "jax"
        return self._turn() if is_jax else contextlib.nullcontext()

    @_documented_as(keras.Model.fit)
    def fit(self, *args: Any, **kwargs: Any) -> Any:
        with self._turn():
            return super().fit(*args, **kwargs)

    @_documented_as(keras.Model.evaluate)
    def evaluate(self, *args: Any, **kwargs: Any) -> Any:
        with self._turn():
            return super().evaluate(*args, **kwargs)

    @_documented_as(keras.Model.predict)
    def predict(self, *args: Any, **kwargs: Any) -> Any:
        with self._turn_on_jax():
            return super().predict(*args, **kwargs)

    @_documented_as(keras.Model.train_on_batch)
    def train_on_batch(self, *args: Any, **kwargs: Any) -> Any:
        with self._turn():
            return super().train_on_batch(*args, **kwargs)

    @_documented_as(keras.Model.test_on_batch)
    def test_on_batch(self, *args: Any, **kwargs: Any) -> Any:
        with self._turn():
            return super().test_on_batch(*args, **kwargs)

    @_documented_as(keras.Model.predict_on_batch)
    def predict_on_batch(self, *args: Any, **kwargs: Any) -> Any:
        with self._turn_on_jax():
            return super().predict_on_batch(*args, **kwargs)

    def make_train_function(self, force: bool = False) -> Any:
        if self.train_function is not None and not force:
            return self.train_function
        function = None
        if keras.backend.backend() == "jax":
            from keras_bert.ops import jax_steps

            function = self._make_function(jax_steps.training_step(self))
        elif keras.backend.backend() == "torch":
            from keras_bert.ops import torch_steps

            function = torch_steps.compiled_training_function(self)
        if function is None:
            return super().make_train_function(force)
        self.train_function = function
        return function

    def make_test_function(self, force: bool = False) -> Any:
        if keras.backend.backend() != "jax":
            return super().make_test_function(force)
        if self.test_function is None or force:
            from keras_bert.ops import jax_steps

            step = jax_steps.step_without_donation(self, self.test_step)
            self.test_function = self._make_function(step)
        return self.test_function

    def make_predict_function(self, force: bool = False) -> Any:
        if keras.backend.backend() != "jax":
            return super().make_predict_function(force)
        if self.predict_function is None or force:
            from keras_bert.ops import jax_steps

            def predict_step(state: Any, data: Any) -> tuple[Any, Any]:
                outputs, non_trainable_variables = self.predict_step(state, data)
                outputs = jax_steps.whole_in_each_process(outputs)
                return outputs, (state[0], non_trainable_variables)

            step = jax_steps.step_without_donation(self, predict_step)
            self.predict_function = self._make_function(step, concatenate_outputs=True)
        return self.predict_function

    def _purge_model_variables(self, optimizer_variables: bool = False, **kinds: bool) -> None:
        """Takes the arrays out of variables on JAX, for training alone, which donates them."""
        if optimizer_variables:
            from keras_bert.ops import jax_steps

            self._jax_state = jax_steps.training_state(self)
            self._jax_state_synced = False
            super()._purge_model_variables(optimizer_variables=True, **kinds)


def _table_locks(model: keras.Model) -> list[Any]:
    """Returns the locks of the embedding tables in a model, in the order that all models have.

    There is more than one in a model of several encoders, such as a `Distiller`.
    """
    layers = [layer for layer in model._flatten_layers() if isinstance(layer, TokenEmbedding)]
    with _LOCKS_ARE_CREATED:
        for layer in layers or [model]:
            if layer not in _LOCKS:
                _LOCKS[layer] = next(_NUMBERS), threading.RLock()
        return [lock for _, lock in sorted({_LOCKS[layer] for layer in layers or [model]})]
