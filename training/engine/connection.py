# SPDX-License-Identifier: Apache-2.0
"""The connection of a process with the others of a run, and its end when another one ends.

What the processes do together in between is in `hosts`, whose `Processes` this module enters.
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

# Processes start at different times: they may take this many timeouts to join
_TIMEOUTS_TO_JOIN = 5
# How long to wait for the reason why another process has ended
_SECONDS_FOR_REASON = 3.0
_SECONDS_BETWEEN_LOOKS = 1.0
_FAILURE = "failure"
_LOST = (
    "the connection to another process is lost: it has ended. Start the same command on all hosts "
    "again, or on another number of them; it resumes from the last checkpoint"
)
# Words in the errors of collectives of which another process has ended
_CONNECTION_WORDS = ("Gloo", "NCCL", "UNAVAILABLE", "Connection", "connection", "DEADLINE")
# The last answer of `_failure`, for when the store has ended with the first process
_known_failure = ""


class LostProcessError(ConnectionError):
    """Raised if another process of the run has failed, or does not answer."""


@contextlib.contextmanager
def join_processes(options: HostOptions) -> Iterator[None]:
    """Joins the other processes, which share each batch from then on.

    Does nothing if there are no others, or within another such block.

    Within the block, only the main process prints. If the block fails, the others end with
    its error within seconds.

    Raises:
        ValueError: If the backend cannot train on several hosts, or the environment does not
            describe the processes.
        LostProcessError: If they do not all join, or one of them fails.
    """
    if not options.coordinator or hosts.count() > 1:
        yield
        return
    hosts.enter(_join(options))
    has_ended = threading.Event()
    watch = threading.Thread(target=_end_with_another, args=(has_ended,), daemon=True)
    watch.start()
    if not hosts.is_main_process():
        logging.set_verbosity(logging.ERROR)  # It would repeat the warnings of the main process.
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
        # At exit, JAX would wait for the others, which may wait for this process, and then abort.
        # This handler comes before JAX's, since they are called in reverse order.
        atexit.register(_end_at_once)
        # Before handlers, Python would wait for a thread that writes a checkpoint with the others.
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
    """Connects this process with the others, and has Keras share each batch among them."""
    import keras

    backend = keras.backend.backend()
    if backend != "jax":
        raise ValueError(
            f"--coordinator needs the JAX backend, and this is {backend}: set KERAS_BACKEND=jax. "
            "TensorFlow's MultiWorkerMirroredStrategy does not train models of Keras 3 "
            "(https://github.com/keras-team/keras/issues/20585), and the distribution of Keras "
            "3.15 has no PyTorch"
        )
    import jax

    from keras_bert.ops.jax_private import distributed_client
    from keras_bert.ops.lazy_tensorflow import set_random_seed

    seconds_to_join = _TIMEOUTS_TO_JOIN * options.host_timeout
    is_auto = options.coordinator == ALL_BY_ENVIRONMENT
    try:
        _end_without_abort()
        # `keras.distribution.initialize` calls this too, without the timeouts.
        jax.distributed.initialize(
            None if is_auto else options.coordinator,
            options.num_processes,
            options.process_id,
            # Otherwise environment variables of a cluster would choose among this process's
            # devices.
            cluster_detection_method=None if is_auto else "deactivate",
            initialization_timeout=seconds_to_join,
            heartbeat_timeout_seconds=options.host_timeout,
            shutdown_timeout_seconds=options.host_timeout,
        )
    except ValueError as error:
        raise ValueError(
            f"--coordinator={ALL_BY_ENVIRONMENT} finds no cluster in the environment ({error}): "
            "expected a step of SLURM (srun), an indexed Job of Kubernetes with the package "
            "kubernetes, a TPU pod or Open MPI; or --coordinator=host:port, --num_processes and "
            "--process_id"
        ) from error
    except RuntimeError as error:
        raise LostProcessError(
            f"not all processes have joined within {seconds_to_join} s: {_first_line(error)}"
        ) from error
    # As `keras.distribution.initialize` does: the variables that each process creates, such as
    # those of a model that is loaded, must have the same values.
    set_random_seed(0)
    keras.distribution.set_distribution(
        # Each process reads its own rows, of any kind of data; Keras would shard `tf.data` only.
        keras.distribution.DataParallel(auto_shard_dataset=False)
    )
    return hosts.Processes(
        jax.process_index(),
        jax.process_count(),
        distributed_client(),
        timeout=options.host_timeout,
    )


def is_of_connection(error: BaseException) -> bool:
    """Returns whether an error may come from the end of another process."""
    return hosts.count() > 1 and any(word in str(error) for word in _CONNECTION_WORDS)


def _tell_others(error: BaseException) -> None:
    words = [] if isinstance(error, (OSError, ValueError)) else [type(error).__name__]
    words += [_first_line(error)] if str(error) else []
    reason = f"process {hosts.index()} on {socket.gethostname()} has ended: {': '.join(words)}"
    with contextlib.suppress(Exception):
        hosts.current().client.key_value_set(_FAILURE, reason)
        if hosts.is_main_process():
            time.sleep(1)  # The store ends with this process.


def _reason_of_another(error: BaseException) -> str:
    """Returns why another process has failed, if that made this one fail."""
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
    """Ends this process when another one has failed, even while the device waits for it."""
    while not has_ended.wait(_SECONDS_BETWEEN_LOOKS):
        reason = _failure()
        # The main thread may have failed too, and says so itself.
        if reason and not has_ended.wait(_SECONDS_FOR_REASON):
            print(f"error: {reason}", file=sys.stderr)
            _end_at_once()


def _failure() -> str:
    """Returns the reason why a process has failed; empty if none has said that it did."""
    global _known_failure
    with contextlib.suppress(Exception):
        _known_failure = str(hosts.current().client.key_value_try_get(_FAILURE))
    return _known_failure


@functools.cache
def _end_without_abort() -> None:
    """Makes this process end with one line, not a C++ stack, when another one is lost."""
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
