# SPDX-License-Identifier: Apache-2.0
"""Connects this process to the other processes in multi-host training, and stops if one is lost.

`hosts` exchanges values between the processes once this module has connected them.
"""

from __future__ import annotations

import atexit
import contextlib
import dataclasses
import functools
import os
import socket
import sys
import threading
import time
from collections.abc import Iterator

from absl import logging

from . import hosts
from .options import ALL_BY_ENVIRONMENT, HostOptions

# Processes may start at different times, so they may take this multiple of the timeout to join.
_TIMEOUTS_TO_JOIN = 5
# How long to wait for a stopped process's error message
_SECONDS_FOR_REASON = 3.0
_SECONDS_BETWEEN_LOOKS = 1.0
_FAILURE = "failure"
_LOST = (
    "the connection to another process is lost, because it has stopped. Start the same command on "
    "all hosts again, or on a different number of hosts, to resume from the last checkpoint"
)
# Words in the errors of collective operations after another process has stopped
_CONNECTION_WORDS = ("Gloo", "NCCL", "UNAVAILABLE", "Connection", "connection", "DEADLINE")
# The last result of `_failure`. It is still needed after the store has stopped with process 0.
_known_failure = ""


class LostProcessError(ConnectionError):
    """Raised if another process of the run has failed or does not respond."""


@contextlib.contextmanager
def join_processes(options: HostOptions) -> Iterator[None]:
    """Joins the other processes in multi-host training. They then share each batch.

    Does nothing in a single-process run, or if this process has already joined.

    Within the block, only the main process prints. If the block fails, the other processes stop
    within seconds and report its error.

    Raises:
        ValueError: If the backend does not support multi-host training, or if the environment does
            not describe the processes.
        LostProcessError: If not all processes join in time, or if one of them fails.
    """
    if not options.coordinator or hosts.count() > 1:
        yield
        return
    hosts.enter(_join(options))
    has_ended = threading.Event()
    watch = threading.Thread(target=_end_with_another, args=(has_ended,), daemon=True)
    watch.start()
    if not hosts.is_main_process():
        logging.set_verbosity(logging.ERROR)  # Do not repeat the main process's warnings.
    logging.info("process %d of %d has joined", hosts.index(), hosts.count())
    try:
        machines = hosts.gather(socket.gethostname())
        is_first = machines[hosts.index()] not in machines[: hosts.index()]
        hosts.enter(dataclasses.replace(hosts.current(), is_first_of_host=is_first))
        with open(os.devnull, "w", encoding="utf-8") as nowhere:
            output = sys.stdout if hosts.is_main_process() else nowhere
            with contextlib.redirect_stdout(output):
                yield
        hosts.barrier()
    except BaseException as error:
        # At exit, JAX would wait for the other processes and then abort, because they may be
        # waiting for this process. Handlers are called in reverse order, so this handler runs
        # before JAX's handler.
        atexit.register(_end_at_once)
        # Before the handlers, Python would wait for threads, and a thread that writes a checkpoint
        # waits for the other processes.
        threading.Thread(target=_end_after_main_thread, daemon=True).start()
        reason = _reason_of_another(error)
        if reason:
            raise LostProcessError(reason) from error
        _tell_others(error)
        raise
    finally:
        has_ended.set()
        watch.join()


def _join(options: HostOptions) -> hosts.Processes:
    """Connects this process to the other processes, and makes Keras split each batch among them."""
    import keras

    backend = keras.backend.backend()
    if backend != "jax":
        raise ValueError(
            f"--coordinator is only supported on the JAX backend. Received: {backend}. Set "
            "KERAS_BACKEND=jax. TensorFlow's MultiWorkerMirroredStrategy does not support Keras 3 "
            "(https://github.com/keras-team/keras/issues/20585), and keras.distribution does not "
            "support PyTorch in Keras 3.15"
        )
    import jax

    from keras_bert.ops.jax_private import distributed_client
    from keras_bert.ops.lazy_tensorflow import set_random_seed

    seconds_to_join = _TIMEOUTS_TO_JOIN * options.host_timeout
    is_auto = options.coordinator == ALL_BY_ENVIRONMENT
    try:
        _end_without_abort()
        # `keras.distribution.initialize` also calls this, but without the timeouts.
        jax.distributed.initialize(
            None if is_auto else options.coordinator,
            options.num_processes,
            options.process_id,
            # Otherwise, a cluster's environment variables would choose among the devices of this
            # process.
            cluster_detection_method=None if is_auto else "deactivate",
            initialization_timeout=seconds_to_join,
            heartbeat_timeout_seconds=options.host_timeout,
            shutdown_timeout_seconds=options.host_timeout,
        )
    except ValueError as error:
        raise ValueError(
            f"--coordinator={ALL_BY_ENVIRONMENT} finds no cluster in the environment ({error}). "
            "Use it in a SLURM step (srun), an indexed Kubernetes Job with the package kubernetes, "
            "a TPU pod or Open MPI. Otherwise, pass --coordinator=host:port, --num_processes and "
            "--process_id"
        ) from error
    except RuntimeError as error:
        raise LostProcessError(
            f"not all processes have joined within {seconds_to_join} s: {_first_line(error)}"
        ) from error
    # `keras.distribution.initialize` does the same. Variables that each process creates, for
    # example when it loads a model, must have the same values in all processes.
    set_random_seed(0)
    keras.distribution.set_distribution(
        # Each process reads its own shard, whatever the data format. Keras would only shard
        # `tf.data`.
        keras.distribution.DataParallel(auto_shard_dataset=False)
    )
    return hosts.Processes(
        jax.process_index(),
        jax.process_count(),
        distributed_client(),
        timeout=options.host_timeout,
    )


def is_of_connection(error: BaseException) -> bool:
    """Returns whether a lost process may have caused this error."""
    return hosts.count() > 1 and any(word in str(error) for word in _CONNECTION_WORDS)


def _tell_others(error: BaseException) -> None:
    words = [] if isinstance(error, (OSError, ValueError)) else [type(error).__name__]
    words += [_first_line(error)] if str(error) else []
    reason = f"process {hosts.index()} on {socket.gethostname()} has stopped: {': '.join(words)}"
    with contextlib.suppress(Exception):
        hosts.current().client.key_value_set(_FAILURE, reason)
        if hosts.is_main_process():
            time.sleep(1)  # The store stops with this process, so wait until the reason is read.


def _reason_of_another(error: BaseException) -> str:
    """Returns why another process failed, if its failure caused this error, or `""`."""
    if isinstance(error, (hosts.ProcessMismatchError, KeyboardInterrupt)):
        return ""
    is_lost = is_of_connection(error)
    end = time.monotonic() + (_SECONDS_FOR_REASON if is_lost else 0)
    while not (reason := _failure()) and time.monotonic() < end:
        time.sleep(0.1)
    if reason or not is_lost:
        return reason
    return f"{_LOST} ({_first_line(error)})"


def _end_with_another(has_ended: threading.Event) -> None:
    """Stops this process after another process failed, even while it waits for a device."""
    while not has_ended.wait(_SECONDS_BETWEEN_LOOKS):
        reason = _failure()
        # If the main thread has also failed, it reports the error itself.
        if reason and not has_ended.wait(_SECONDS_FOR_REASON):
            print(f"error: {reason}", file=sys.stderr)
            _end_at_once()


def _failure() -> str:
    """Returns why a process failed, or `""` if no process has reported a failure."""
    global _known_failure
    with contextlib.suppress(Exception):
        _known_failure = str(hosts.current().client.key_value_try_get(_FAILURE))
    return _known_failure


@functools.cache
def _end_without_abort() -> None:
    """Makes this process print one line, not a C++ stack trace, if another process is lost."""
    from keras_bert.ops.jax_private import on_lost_process

    def end() -> None:
        print(f"error: {_known_failure or _LOST}", file=sys.stderr)
        _end_at_once()

    on_lost_process(end)


def _end_at_once() -> None:
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(1)


def _end_after_main_thread() -> None:
    threading.main_thread().join()
    _end_at_once()


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [""])[0][:500]
