# SPDX-License-Identifier: Apache-2.0
"""Runs commands with flags, help, plain warnings and one-line errors."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import io
import logging as standard_logging
import os
import re
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from absl import app, flags, logging

from keras_bert import checks, migration_hints, minilm

from ..readers import data_inspection
from ..readers.data_splits import counts_table
from . import child_commands, config_flags, interrupts, output_directory, run_presets, run_report
from .interrupts import INTERRUPTED, NOTHING
from .job import Job
from .options import DeviceOptions, HostOptions

if TYPE_CHECKING:
    from .grid_search import Grid

# absl attributes the flags to the module that calls `run`, so that `--help` shows them.
flags.disclaim_key_flags()

HELP_FLAGS = frozenset({"--help", "-help", "-h", "-?", "--helpshort", "-helpshort"})
# The exit status that a shell reports for a command that SIGPIPE stopped
_OUTPUT_CLOSED = 141
_WRONG_FLAG = 2
# If a file name is given without a flag, the error suggests the first of these flags that exists.
_FILE_FLAGS = ("train_file", "train_files", "data_file", "input", "model")
# Libraries that log details below the level of warnings. For example, JAX logs that it has found no
# TPU, TensorFlow and Orbax log every export and checkpoint step, and S3 clients log where they
# found credentials. Some use the root logger or absl's logger, like our commands.
_LIBRARIES_THAT_LOG = ("aiobotocore", "apache_beam", "botocore", "jax", "orbax", "tensorflow")
# Import names of the libraries that the extra `training` installs
TRAINING_LIBRARIES = ("matplotlib", "scipy", "sklearn")


def run(
    main: Callable[[Any], Any],
    config_class: type | None = None,
    *,
    with_recipes: bool = False,
    argument: str = "",
    remaining: str = "",
    help: Callable[[], str] | None = None,
) -> None:
    """Prints a command's help or calls `main`. Errors and Ctrl-C print one line.

    Call this function at the end of the command's file. `main` should import slow libraries itself,
    so that the help and errors about flags appear immediately.

    Args:
        main: Called with the config from the command line. Without a `config_class`, it is called
            with the command's name and its positional arguments.
        config_class: The class of the config. Its fields become the flags, see `config_flags`.
            `None` if the command has defined its flags itself.
        with_recipes: Whether the command has recipes and the flag `--recipe`.
        argument: The field that can also be set without the flag's name, or empty.
        remaining: The field that receives all arguments after `--`, or empty. Its type is
            `tuple[str, ...]`.
        help: Returns the text that `--help` prints. Defaults to `help_text`.
    """
    if config_class is not None:
        main = _with_config(main, config_class, with_recipes, argument, remaining)
    if HELP_FLAGS & set(sys.argv[1:]):
        with ignore_broken_pipe():
            print((help or help_text)(), end="")
        return
    warnings.formatwarning = plain_warning
    for name in _LIBRARIES_THAT_LOG:
        standard_logging.getLogger(name).setLevel(standard_logging.WARNING)
    for name in (None, "absl"):
        standard_logging.getLogger(name).addFilter(_is_relevant)
    logging.get_absl_handler().setFormatter(_PlainFormatter())
    interrupts.watch()
    try:
        with ignore_broken_pipe(_OUTPUT_CLOSED), exit_on_user_error():
            app.run(main, flags_parser=_parse_flags)
    except KeyboardInterrupt as error:
        interrupts.end((*getattr(error, "__notes__", ()), NOTHING)[0])


def _with_config(
    main: Callable[[Any], Any],
    config_class: type,
    with_recipes: bool,
    argument: str,
    remaining: str,
) -> Callable[[list[str]], Any]:
    """Defines the config's flags, and wraps `main` to accept the positional arguments."""
    if with_recipes:
        config_flags.define_recipe_flag()
    config_flags.define_flags(config_class)

    def call(arguments: list[str]) -> Any:
        if argument and len(arguments) == 2 and not flags.FLAGS[argument].present:
            setattr(flags.FLAGS, argument, arguments.pop())
        if remaining and "--" in sys.argv:
            after = sys.argv[sys.argv.index("--") + 1 :]
            arguments = arguments[: len(arguments) - len(after)]
            setattr(flags.FLAGS, remaining, [*getattr(flags.FLAGS, remaining), *after])
        reject_arguments(arguments)
        return main(config_flags.configuration(config_class))

    return call


def _parse_flags(arguments: list[str]) -> list[str]:
    """Parses flags. An unknown flag or invalid value exits with one line."""
    try:
        remaining: list[str] = flags.FLAGS(arguments)
    except flags.Error as error:
        command = child_commands.command_name(Path(arguments[0]).stem)
        advice = ""
        if isinstance(error, flags.UnrecognizedFlagError):
            advice = migration_hints.suggestion([error.flagname], set(flags.FLAGS))
        # absl writes "Did you mean: train_file ?", and no period after an invalid value.
        text = re.sub(r"Did you mean: (.*) \?", r"Did you mean --\1?", str(error))
        stop = "" if text.endswith(("?", ".")) else "."
        print(f"error: {text}{stop}{advice} `{command} --help` lists the flags.", file=sys.stderr)
        sys.exit(_WRONG_FLAG)
    return remaining


class _PlainFormatter(standard_logging.Formatter):
    """Formats messages without time, process and line. Warnings and errors start with the level."""

    def format(self, record: standard_logging.LogRecord) -> str:
        message = super().format(record)
        if record.levelno < standard_logging.WARNING:
            return message
        return f"{record.levelname.lower()}: {message}"


def _is_relevant(record: standard_logging.LogRecord) -> bool:
    path = Path(record.pathname).as_posix()
    # A directory of this project may have the same name as a library.
    names = [name for name in _LIBRARIES_THAT_LOG if f"-packages/{name}/" in path]
    if "orbax" in names and record.exc_info:
        return False  # Orbax also raises this error.
    if "apache_beam" in names and record.levelno == standard_logging.ERROR:
        return False  # Beam also raises this error, unless its retry succeeds.
    if path.endswith("apache_beam/io/gcp/internal/clients/bigquery/__init__.py"):
        return False  # Beam warns about its missing BigQuery client. We do not use it.
    return record.levelno > standard_logging.INFO or not names


@contextlib.contextmanager
def ignore_broken_pipe(status: int = 0) -> Iterator[None]:
    """Exits with one line if the output cannot be written, and silently if it was closed.

    Output is encoded in UTF-8 in any locale, like all files. File names with invalid UTF-8 keep
    their bytes.

    Args:
        status: The exit status if the reader of the output, such as `head`, has closed the pipe. If
            an error stops the command, the error's own status is used.

    Raises:
        SystemExit: If the output cannot be written.
    """
    if sys.stdout is None:  # For example, with `>&-`.
        sys.exit("error: standard output is closed. Redirect it to a file, such as >/dev/null")
    for stream, errors in ((sys.stdout, "surrogateescape"), (sys.stderr, "backslashreplace")):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors=errors)
    try:
        yield
        sys.stdout.flush()
    except (OSError, SystemExit) as error:
        try:
            print(end="", flush=True)
            if isinstance(error, BrokenPipeError):
                print(flush=True)  # Unbuffered output has no content to flush, so write a line.
        except OSError as failure:
            # At exit, Python would try to flush this stream again.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            if isinstance(error, SystemExit) and error.code:
                raise error from None
            if isinstance(failure, BrokenPipeError):
                sys.exit(status)
            sys.exit(f"error: standard output cannot be written to: {failure.strerror}")
        raise  # A different pipe broke, such as one to a child process, or the command exits.


def help_text(program_flags: Iterable[flags.Flag] | None = None) -> str:
    """Returns the command's docstring, and each flag with its default and description."""
    if program_flags is None:
        program_flags = flags.FLAGS.get_key_flags_for_module(sys.argv[0])
    text = sys.modules["__main__"].__doc__ or ""
    # Show the command as the user typed it.
    programs = r"python -m training\.(?:\w+\.)?(\w+)"
    text = re.sub(programs, lambda match: child_commands.command_name(match[1]), text)
    lines = [text.strip(), "", "Flags, with their defaults:", ""]
    for flag in program_flags:
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
    """Formats a `UserWarning` on one line, without file name and line number."""
    if issubclass(category, UserWarning):
        return f"warning: {message}\n"
    return formatted(message, category, filename, lineno, line)


def reject_arguments(arguments: list[str]) -> None:
    """Checks that the command line only contains flags.

    Raises:
        ValueError: If it contains other arguments.
    """
    if len(arguments) > 1:
        file_flags = [name for name in _FILE_FLAGS if name in flags.FLAGS]
        meant = f". Did you mean --{file_flags[0]}={arguments[1]}?" if file_flags else ""
        raise ValueError(f"expected only flags. Received: {' '.join(arguments[1:])}{meant}")


def require(names: tuple[str, ...], extra: str) -> None:
    """Checks that libraries are installed that the command imports later.

    Raises:
        ImportError: If a library is missing. The message contains the command to install it.
    """
    absent_names = [name for name in names if not _is_installed(name)]
    if absent_names:
        raise ImportError(f"{', '.join(absent_names)} is not installed: {checks.install(extra)}")


def _is_installed(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:  # The parent package is not installed.
        return False


def import_quietly(name: str = "keras") -> None:
    """Imports a library, and hides the messages that its native code writes to standard error.

    Keras imports its backend, and TensorFlow logs details about libraries and processors before its
    logging can be configured. If the import fails, the messages are shown.

    Raises:
        ImportError: If the library cannot be imported.
    """
    sys.stderr.flush()
    standard_error = os.dup(2)
    with tempfile.TemporaryFile() as hidden:
        os.dup2(hidden.fileno(), 2)
        try:
            with checks.importing_keras():
                importlib.import_module(name)
        except BaseException:
            hidden.seek(0)
            os.write(standard_error, hidden.read())
            raise
        finally:
            os.dup2(standard_error, 2)
            os.close(standard_error)


@contextlib.contextmanager
def exit_on_user_error() -> Iterator[None]:
    """Exits with a one-line message after an error that the user can fix.

    With `--verbosity=1`, the traceback is also printed.
    """
    try:
        yield
    except subprocess.CalledProcessError as error:
        if error.returncode in (INTERRUPTED, -signal.SIGINT):
            interrupt = KeyboardInterrupt()
            interrupt.__notes__ = getattr(error, "__notes__", [])
            raise interrupt from None
        _end(error, f"{' '.join(map(str, error.cmd[1:]))} failed, see above")
    except BrokenPipeError:
        raise
    except (ImportError, OSError, ValueError) as error:
        _end(error, str(error))
    except Exception as error:
        # keras_bert's own exceptions, such as `ExportError`, are written for users.
        if type(error).__module__.startswith("keras_bert."):
            _end(error, str(error))
        # TensorFlow's file and memory errors are not subclasses of OSError.
        if not _is_os_error(error):
            raise
        _end(error, f"{type(error).__name__}: {error}")


def _is_os_error(error: Exception) -> bool:
    names = ("ResourceExhaustedError", "PermissionDeniedError", "NotFoundError")
    is_tensorflows = type(error).__module__.startswith("tensorflow.")
    return is_tensorflows and (type(error).__name__ in names or "No space left" in str(error))


def _end(error: Exception, message: str) -> None:
    logging.debug("the error's traceback", exc_info=True)
    notes = "".join(f" ({note})" for note in getattr(error, "__notes__", ()))
    sys.exit(f"error: {run_presets.with_names(message.strip())}{notes}")


def fine_tune(config: Any, job_class: type[Job], grid: Grid | None = None) -> None:
    """Reads and validates the run's files, trains, and prints the report.

    Args:
        config: The config. With `grid`, its first config.
        job_class: The job of the task.
        grid: A grid to search. The report is about the best model.
    """
    require(TRAINING_LIBRARIES, "training")
    with joined_hosts(config.hosts, config.compute):
        if grid is None:
            output_directory.check_same_settings(Path(config.output_dir), config.settings())
        check_preset(config.preset)
        start = time.perf_counter()
        data = job_class.read(config)
        seconds = {"reading": time.perf_counter() - start}
        parts = data.parts()
        counts = {name: data_inspection.count_rows(part) for name, part in parts.items()}
        print(counts_table(counts), flush=True)
        rows = {name: data_inspection.text_rows(part) for name, part in parts.items()}
        for finding in data_inspection.findings(rows):
            print(f"note: {finding}", flush=True)
        import_quietly()
        from . import finetuning, hosts

        with (
            locked_by_main_process(config, "finetune", is_grid=grid is not None),
            hosts.energy_meter(config.costs.measure_energy, config.costs.country) as meter,
        ):
            if grid is not None:
                config = finetuning.search(grid, data)
            results = finetuning.run(job_class, config, data, meter)
        print(run_report.report(results, seconds, job_class.example_input, job_class.fields))


def check_new_file(flag: str, path: str, overwrite: bool, beginning: bytes = b"{") -> None:
    """Checks, before any work, that an output file does not exist or may be replaced.

    Empty files, devices and this process's open files, such as `/dev/stdout`, may always be written
    to.

    Args:
        flag: The flag, for the error message.
        path: The path of the file.
        overwrite: Whether an existing file may be replaced.
        beginning: The bytes at the start of the files that this command writes. Files that start
            differently are never replaced. Defaults to `{`, the start of JSON objects.

    Raises:
        FileExistsError: If the file must not be replaced.
    """
    file = Path(path)
    is_open = file.parent in (Path("/dev"), Path("/dev/fd"), Path("/proc/self/fd"))
    if not path or path == "-" or is_open or not (file.is_file() and file.stat().st_size):
        return
    with open(file, "rb") as content:
        if content.read(len(beginning)) != beginning:
            raise FileExistsError(
                f"{flag} must be a file that this command wrote, to be replaced. Received: {path}, "
                f"which does not start with {beginning!r}. Choose another file, or remove it"
            )
    if not overwrite:
        raise FileExistsError(
            f"{flag} must be a new file. Received: {path}, which exists. Choose another file, or "
            "replace it with --overwrite"
        )


def check_preset(preset: str) -> None:
    """Checks that a checkpoint can be opened, without reading weights. Skips directories and runs.

    Raises:
        CheckpointError: If the checkpoint is not found.
    """
    if preset == minilm.NAME or Path(preset).is_dir() or run_presets.find_model(Path(preset)):
        return
    import_quietly()
    from keras_bert import checkpoints

    checkpoints.open_checkpoint(preset, weights=False)


@contextlib.contextmanager
def joined_hosts(options: HostOptions, compute: DeviceOptions) -> Iterator[None]:
    """Joins the other processes in multi-host training, see `connection.join_processes`.

    A single process without a sharded optimizer does not import libraries here, so that errors in
    its files are reported early.

    Raises:
        ImportError: If Orbax is not installed. Multi-host training and sharded optimizers need it
            for checkpoints.
    """
    if options.coordinator or (compute.shard_optimizer and compute.devices > 1):
        import_quietly()
        import keras

        if (
            keras.backend.backend() == "jax"
        ):  # `connection.join_processes` rejects the other backends.
            require(("orbax.checkpoint",), "distributed")
    from . import connection

    with connection.join_processes(options):
        yield


@contextlib.contextmanager
def locked_by_main_process(config: Any, command: str, is_grid: bool = False) -> Iterator[None]:
    """Locks the run's directory in the main process, see `output_directory.lock_output_dir`.

    The settings of a grid are recorded by its runs.
    """
    from . import hosts

    if not hosts.is_main_process():
        yield
        return
    settings = None if is_grid else config.settings()
    with output_directory.lock_output_dir(config.output_dir, settings, command=command):
        yield
