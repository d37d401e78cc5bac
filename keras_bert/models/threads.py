# SPDX-License-Identifier: Apache-2.0
"""Synchronizes threads that call a model, and detects forks of processes with models.

Training and evaluation change variables, at least the metrics' variables. On JAX, Keras also takes
the weights out of a model during training, and can only store one running call's state per model,
even for `predict`. So only one thread at a time can train or evaluate a model, and on JAX also
predict. Models that share an embedding table, for example a task and its encoder, share the lock.

A nested call does not wait for the outer call. For example, `fit` validates, and a callback may
predict. The same holds if the data that `fit` reads calls the model, even if TensorFlow reads it in
a different thread.
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
# The thread that this thread computes for, if it is a different one
_CALLER: contextvars.ContextVar[int | None] = contextvars.ContextVar("_CALLER", default=None)
# The model that the caller evaluates on the results of this thread, if any
_EVALUATED: contextvars.ContextVar[Any] = contextvars.ContextVar("_EVALUATED", default=None)


class _Turns:
    """A reentrant lock that a thread holds together with the threads that compute for it."""

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
    """Lets this thread share the locks of a thread that waits for it.

    `evaluated` is the model that the waiting thread evaluates on this thread's results.
    """
    with set_variable(_CALLER, thread), set_variable(_EVALUATED, evaluated):
        yield


def check_is_not_evaluated(model: keras.Model) -> None:
    """Checks that this thread does not compute batches for the evaluation of the same model.

    A second evaluation would reset the metrics of the first. On TensorFlow, both would wait for
    each other.

    Raises:
        RuntimeError: If the model is being evaluated on the results of this thread.
    """
    if _EVALUATED.get() is model:
        raise RuntimeError(
            "A model must not be evaluated by the data set that it is being evaluated on. "
            "Received: a call of `evaluate` while `evaluate` or the validation of `fit` waits for "
            "a batch. Compute what the batch needs before, or with `predict`."
        )


class _Process:
    """Whether this process, and the process that it was forked from, have created models."""

    has_models = False
    was_forked_from_models = False


def _after_fork() -> None:
    _Process.was_forked_from_models = _Process.has_models


if hasattr(os, "register_at_fork"):  # Windows has no fork.
    os.register_at_fork(after_in_child=_after_fork)


def note_model() -> None:
    """Records that this process has a model. Processes forked from it must not use it."""
    check_process()
    _Process.has_models = True


def check_process() -> None:
    """Raises an error if this process was forked after its parent created a model.

    The threads of TensorFlow, JAX and PyTorch do not exist in the child process, so it would wait
    for them forever.

    Raises:
        RuntimeError: If this process was forked from a process with models.
    """
    if _Process.was_forked_from_models:
        raise RuntimeError(
            "Models must be created or loaded after a fork. Received: a process forked after its "
            "parent created a model, in which the call would never return, because a fork does not "
            f"copy the threads of {keras.backend.backend()}. With gunicorn, do not use --preload. "
            'Otherwise, start processes with multiprocessing.get_context("spawn").'
        )


@contextlib.contextmanager
def model_lock(model: keras.Model) -> Iterator[None]:
    """Waits for calls in other threads. On JAX, it puts the variables back at the end."""
    check_process()
    with contextlib.ExitStack() as stack:
        for lock in _table_locks(model):
            stack.enter_context(lock)
        stack.enter_context(backend_steps().put_variables_back(model))
        yield


def model_lock_if_stateful(model: keras.Model) -> contextlib.AbstractContextManager[None]:
    """Returns `model_lock` on JAX. Other backends predict and save in multiple threads at once."""
    check_process()
    return model_lock(model) if backend_steps().calls_move_variables else contextlib.nullcontext()


def synchronized(name: str, lock: Callable[[Any], Any] = model_lock) -> Any:
    """Returns a synchronized method of `keras.Model`, with its signature and docstring."""

    @functools.wraps(getattr(keras.Model, name))
    def wrapped(self: Any, *args: Any, **kwargs: Any) -> Any:
        with lock(self):
            # Look the method up at each call, because libraries that log training replace it.
            return getattr(keras.Model, name)(self, *args, **kwargs)

    return wrapped


synchronized_if_stateful = functools.partial(synchronized, lock=model_lock_if_stateful)


def _table_locks(model: keras.Model) -> list[Any]:
    """Returns the locks for a model's embedding tables, in the same order for all models.

    A model with multiple encoders, for example a `Distiller`, has multiple locks.
    """
    layers = [layer for layer in model._flatten_layers() if isinstance(layer, TokenEmbedding)]
    with _LOCKS_ARE_CREATED:
        for layer in layers or [model]:
            if layer not in _LOCKS:
                _LOCKS[layer] = next(_NUMBERS), _Turns()
        return [lock for _, lock in sorted({_LOCKS[layer] for layer in layers or [model]})]
