# SPDX-License-Identifier: Apache-2.0
"""How a program meets its user: its arguments, its help, its errors, its end."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import logging as standard_logging
import os
import re
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from absl import app, flags, logging

from ..readers.data_splits import counts_table
from . import child_programs, config_flags, output_folder, run_report
from .job import Job

_HELP = frozenset({"--help", "-help", "-h", "-?", "--helpshort", "-helpshort"})
_INTERRUPTED = 130
_NOTHING = "nothing had been written yet"
# How long Python may take to end by itself after Ctrl-C: native code does not let it.
_SECONDS_TO_END = 1.0
# What the libraries that the extra `training` brings are imported as.
TRAINING_LIBRARIES = ("matplotlib", "scipy", "sklearn")


def run(main: Callable[[list[str]], Any]) -> None:
    """Runs a program: shows its help, or calls `main`, with one line for an error or for Ctrl-C.

    What a program file ends with, after it has defined its flags. What takes long to import is
    imported by `main`, so that neither the help nor a mistyped flag has to wait for it.

    Args:
        main: Takes the program's name and the arguments that are not flags.
    """
    if _HELP & set(sys.argv[1:]):
        print(help_text(), end="")
        return
    warnings.formatwarning = plain_warning
    # On a machine without a TPU, JAX tells that it failed to open one's library
    standard_logging.getLogger("jax").setLevel(standard_logging.WARNING)
    # TensorFlow tells each step of an export, by its own logger and by absl's, which is ours too
    standard_logging.getLogger("tensorflow").setLevel(standard_logging.WARNING)
    standard_logging.getLogger("absl").addFilter(_is_no_detail_of_tensorflow)
    watch = _InterruptWatch()
    try:
        with plain_errors():
            app.run(main)
    except KeyboardInterrupt as error:
        watch.end((*getattr(error, "__notes__", ()), _NOTHING)[0])


def _is_no_detail_of_tensorflow(record: standard_logging.LogRecord) -> bool:
    in_tensorflow = "tensorflow" in Path(record.pathname).parts
    return record.levelno > standard_logging.INFO or not in_tensorflow


def help_text(flag_values: flags.FlagValues = flags.FLAGS) -> str:
    """The program's docstring, and each of its flags with its default and its description."""
    text = sys.modules["__main__"].__doc__ or ""
    # As the user has typed it
    text = re.sub(r"python -m training\.(\w+)", lambda found: child_programs.typed(found[1]), text)
    lines = [text.strip(), "", "Flags, with their defaults:", ""]
    for flag in flag_values.get_key_flags_for_module(sys.argv[0]):
        name = f"[no]{flag.name}" if flag.boolean else flag.name
        default = flag.default_as_str.strip("'") if flag.default is not None else ""
        lines.append(f"  --{name}={default}")
        lines += textwrap.wrap(
            flag.help,
            100,
            initial_indent=" " * 8,
            subsequent_indent=" " * 8,
            break_long_words=False,
        )
    return "\n".join(lines) + "\n"


def plain_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    line: str | None = None,
    formatted: Callable[..., str] = warnings.formatwarning,
) -> str:
    """How a program shows a warning: those for its user in one line, without file and line.

    Args:
        message, category, filename, lineno, line: As for `warnings.formatwarning`.
        formatted: What formats the others.
    """
    if issubclass(category, UserWarning):
        return f"warning: {message}\n"
    return formatted(message, category, filename, lineno, line)


def refuse_arguments(arguments: list[str]) -> None:
    """Raises if there is more on the command line than flags.

    Args:
        arguments: What absl hands to `main`: the program's name, and what is no flag.
    """
    if len(arguments) > 1:
        raise app.UsageError(f"expected flags only, received {arguments[1:]}")


def require(names: tuple[str, ...], extra: str) -> None:
    """Raises if a library that the program needs later is not installed.

    Args:
        names: The libraries, as they are imported.
        extra: The extra of this project that brings them.

    Raises:
        ImportError: If one is not there; the message says how to install it.
    """
    missing = [name for name in names if importlib.util.find_spec(name) is None]
    if missing:
        raise ImportError(f"{', '.join(missing)} is not installed: {child_programs.install(extra)}")


def import_quietly(name: str = "tensorflow") -> None:
    """Imports a library without what its native code writes to the standard error meanwhile.

    TensorFlow tells of libraries and of processors before it can be told not to. What was written
    is shown if the import fails.

    Raises:
        ImportError: If it cannot be imported.
    """
    sys.stderr.flush()
    standard_error = os.dup(2)
    with tempfile.TemporaryFile() as hidden:
        os.dup2(hidden.fileno(), 2)
        try:
            importlib.import_module(name)
        except BaseException:
            hidden.seek(0)
            os.write(standard_error, hidden.read())
            raise
        finally:
            os.dup2(standard_error, 2)
            os.close(standard_error)


@contextlib.contextmanager
def plain_errors() -> Iterator[None]:
    """Ends the program with one line at an error that its user can mend.

    With `--verbosity=1` the traceback is printed too.
    """
    try:
        yield
    except subprocess.CalledProcessError as error:
        if error.returncode in (_INTERRUPTED, -signal.SIGINT):
            interrupt = KeyboardInterrupt()
            interrupt.__notes__ = getattr(error, "__notes__", [])
            raise interrupt from None
        _end(error, f"{' '.join(map(str, error.cmd[1:]))} failed, see above")
    except (ImportError, OSError, ValueError) as error:
        _end(error, str(error))
    except Exception as error:
        # TensorFlow's own errors of files and memory are no OSErrors.
        if not _is_of_the_system(error):
            raise
        _end(error, f"{type(error).__name__}: {error}")


def _is_of_the_system(error: Exception) -> bool:
    names = ("ResourceExhaustedError", "PermissionDeniedError", "NotFoundError")
    is_tensorflows = type(error).__module__.startswith("tensorflow.")
    return is_tensorflows and (type(error).__name__ in names or "No space left" in str(error))


def _end(error: Exception, message: str) -> None:
    logging.debug("the error's traceback", exc_info=True)
    notes = "".join(f" ({note})" for note in getattr(error, "__notes__", ()))
    sys.exit(f"error: {message.strip()}{notes}")


class _InterruptWatch:
    """Ends the process after Ctrl-C, even while native code keeps Python from noticing it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        read, write = os.pipe()
        os.set_blocking(write, False)
        signal.set_wakeup_fd(write, warn_on_full_buffer=False)
        threading.Thread(target=self._watch, args=(read,), daemon=True).start()

    def _watch(self, read: int) -> None:
        while os.read(read, 1) != bytes([signal.SIGINT]):
            pass
        folders = output_folder.claimed_folders()
        time.sleep(_SECONDS_TO_END)
        self.end(output_folder.kept(folders[0]) if folders else _NOTHING)

    def end(self, what_is_left: str) -> None:
        """Prints one line and ends the process, without waiting for other threads."""
        self._lock.acquire()  # never released: whoever is second waits for the end
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
            print(f"\ninterrupted: {what_is_left}", file=sys.stderr, flush=True)
        os._exit(_INTERRUPTED)


def fine_tune(arguments: list[str], job_class: type[Job]) -> None:
    """The `main` of a fine-tuning program: flags, data, training, and the report on the screen.

    Args:
        arguments: As for `refuse_arguments`.
        job_class: The task. What is wrong with its flags or its files is found before training.
    """
    refuse_arguments(arguments)
    require(TRAINING_LIBRARIES, "training")
    config = config_flags.configuration(job_class.config_class)
    start = time.perf_counter()
    data = job_class.read(config)
    seconds = {"reading": time.perf_counter() - start}
    print(counts_table(data.counts()), flush=True)
    import_quietly()
    with output_folder.claimed(config.output_dir):
        from . import finetuning

        results = finetuning.run(job_class, config, data)
    print(run_report.report(results, seconds, job_class.example_input))
