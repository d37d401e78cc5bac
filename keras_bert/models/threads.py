# SPDX-License-Identifier: Apache-2.0
"""Turns of the threads that call a model, and processes that were forked from one with models.

Training and evaluation change variables, those of metrics at least. On JAX, moreover, Keras takes
the weights out of a model while it is trained, and has one place per model for the state of a
running call, be it of `predict`. So on every backend one thread at a time trains or evaluates a
model, and on JAX also predicts; models that share an embedding table, such as a task and its
encoder, take turns with each other. A call inside a call, such as the validation of `fit` or a
callback's prediction, belongs to the same turn; so do calls of the input that `fit` reads, even
where TensorFlow reads it in another thread.
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
import itertools
import os
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import keras

from keras_bert.layers.embeddings import TokenEmbedding
from keras_bert.ops.context_variables import set_variable
from keras_bert.ops.dispatch import backend_steps

_LOCKS: weakref.WeakKeyDictionary[keras.layers.Layer, tuple[int, Any]] = weakref.WeakKeyDictionary()
_LOCKS_ARE_CREATED = threading.Lock()
_NUMBERS = itertools.count()
# The thread that this one computes for, if it is another one
_CALLER: contextvars.ContextVar[int | None] = contextvars.ContextVar("_CALLER", default=None)
# The model that the caller evaluates on what this thread computes, if it evaluates any
_EVALUATED: contextvars.ContextVar[Any] = contextvars.ContextVar("_EVALUATED", default=None)


class _Turns:
    """A reentrant lock, which a thread holds together with those that compute for it."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._holder: int | None = None
        self._depth = 0

    def __enter__(self) -> None:
        caller = _CALLER.get() or threading.get_ident()
        with self._condition:
            self._condition.wait_for(lambda: self._holder in (None, caller))
            self._holder = caller
            self._depth += 1

    def __exit__(self, *_: object) -> None:
        with self._condition:
            self._depth -= 1
            if not self._depth:
                self._holder = None
                self._condition.notify_all()


@contextlib.contextmanager
def computing_for(thread: int, evaluated: Any = None) -> Iterator[None]:
    """Has this thread take part in the turns of another, which waits for it.

    `evaluated` is the model that the other thread evaluates on what this thread computes.
    """
    with set_variable(_CALLER, thread), set_variable(_EVALUATED, evaluated):
        yield


def check_is_not_evaluated(model: keras.Model) -> None:
    """Checks that this thread does not compute the batches that a model is evaluated on.

    A second evaluation would reset the metrics of the first; on TensorFlow, both would wait for
    each other.

    Raises:
        RuntimeError: If it does.
    """
    if _EVALUATED.get() is model:
        raise RuntimeError(
            "A model must not be evaluated by the data set that it is being evaluated on. "
            "Received: a call of `evaluate` while `evaluate` or the validation of `fit` waits for "
            "a batch. Compute what the batch needs before, or by `predict`."
        )


class _Process:
    """What this process and the one that it was forked from have done."""

    has_models = False
    was_forked_from_models = False


def _after_fork() -> None:
    _Process.was_forked_from_models = _Process.has_models


if hasattr(os, "register_at_fork"):  # not on Windows, which has no fork
    os.register_at_fork(after_in_child=_after_fork)


def note_model() -> None:
    """Notes that this process has a model, which none that is forked from it may use."""
    check_process()
    _Process.has_models = True


def check_process() -> None:
    """Refuses to compute in a process that was forked after its parent had created a model.

    The threads of TensorFlow, JAX and PyTorch do not exist in the child, which waits for them.
    """
    if _Process.was_forked_from_models:
        raise RuntimeError(
            "This process was forked from one that had already created a model, so that the call "
            f"would never return: a fork does not copy the threads of {keras.backend.backend()}. "
            "Create or load models after the fork only (with gunicorn, without --preload), or "
            'start processes with multiprocessing.get_context("spawn").'
        )


@contextlib.contextmanager
def model_lock(model: keras.Model) -> Iterator[None]:
    """Waits for the calls of other threads; on JAX, puts the variables back at the end."""
    check_process()
    with contextlib.ExitStack() as stack:
        for lock in _table_locks(model):
            stack.enter_context(lock)
        stack.enter_context(backend_steps().put_variables_back(model))
        yield


def model_lock_if_stateful(model: keras.Model) -> contextlib.AbstractContextManager[None]:
    """Returns `model_lock` on JAX; other backends predict and save in several threads at once."""
    check_process()
    return model_lock(model) if backend_steps().calls_move_variables else contextlib.nullcontext()


def synchronized(name: str, lock: Callable[[Any], Any] = model_lock) -> Any:
    """Returns a method of `keras.Model` that takes turns, with its signature and docstring."""

    @functools.wraps(getattr(keras.Model, name))
    def wrapped(self: Any, *args: Any, **kwargs: Any) -> Any:
        with lock(self):
            # Looked up at each call, since libraries that log training replace it.
            return getattr(keras.Model, name)(self, *args, **kwargs)

    return wrapped


synchronized_if_stateful = functools.partial(synchronized, lock=model_lock_if_stateful)


def _table_locks(model: keras.Model) -> list[Any]:
    """Returns the locks of the embedding tables in a model, in the order that all models have.

    There is more than one in a model of several encoders, such as a `Distiller`.
    """
    layers = [layer for layer in model._flatten_layers() if isinstance(layer, TokenEmbedding)]
    with _LOCKS_ARE_CREATED:
        for layer in layers or [model]:
            if layer not in _LOCKS:
                _LOCKS[layer] = next(_NUMBERS), _Turns()
        return [lock for _, lock in sorted({_LOCKS[layer] for layer in layers or [model]})]
