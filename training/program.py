# SPDX-License-Identifier: Apache-2.0
"""How a program meets its user: its arguments, its errors, its results."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

from absl import app

from training import config_flags
from training.data_splits import counts_table


def refuse_arguments(arguments: list[str]) -> None:
    """Raises if there is more on the command line than flags.

    Args:
        arguments: What absl hands to `main`: the program's name, and what is no flag.
    """
    if len(arguments) > 1:
        raise app.UsageError(f"expected flags only, received {arguments[1:]}")


@contextlib.contextmanager
def plain_errors() -> Iterator[None]:
    """Ends the program with a line at an error that its user can mend: that needs no traceback."""
    try:
        yield
    except subprocess.CalledProcessError as error:
        sys.exit(f"error: {' '.join(map(str, error.cmd[1:]))} failed, see above")
    except (ImportError, OSError, ValueError) as error:
        sys.exit(f"error: {error}")


def train_and_report(
    arguments: list[str],
    config_class: type,
    read_data: Callable[[Any], Any],
    train: Callable[[Any, Any], dict[str, Any]],
) -> None:
    """The `main` of a program that trains: flags, data, training, and the summary on the screen.

    Args:
        arguments: As for `refuse_arguments`.
        config_class: The dataclass that the flags were made from.
        read_data: Reads what a config names. What is wrong with either is found before training.
            The result has a method `counts`, whose table is printed.
        train: Trains with a config on data; returns what `results.json` holds.
    """
    refuse_arguments(arguments)
    with plain_errors():
        config = config_flags.configuration(config_class)
        data = read_data(config)
    print(counts_table(data.counts()), flush=True)
    print(json.dumps(train(config, data)["summary"], indent=2))
