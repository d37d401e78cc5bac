# SPDX-License-Identifier: Apache-2.0
"""The `keras-bert` command, with one subcommand per task.

    keras-bert                                  # lists the commands
    keras-bert finetune --train_file=reviews.csv
    keras-bert finetune --help                  # lists a command's flags with their defaults

Each command runs a module in this package. In a checkout, `keras-bert finetune` is equivalent to
`python -m training.finetune`.
"""

from __future__ import annotations

import ast
import importlib.metadata
import importlib.util
import runpy
import sys
from pathlib import Path

from keras_bert import checks

from .engine import child_commands
from .engine.child_commands import COMMANDS, module_name

# Names of commands in other libraries, and the commands that they may mean
_MEANT = {"train": "finetune or pretrain", "fit": "finetune", "test": "evaluate"}
_HELP = ("--help", "-h", "help")
_WRONG_COMMAND = 2


def main() -> None:
    """Runs the command given by the first argument, with the other arguments."""
    names = [name for group in COMMANDS.values() for name in group]
    command = sys.argv[1] if len(sys.argv) > 1 else "--help"
    if command == "help" and sys.argv[2:3] and sys.argv[2] in names:
        sys.argv[1:3] = [sys.argv[2], "--help"]
        command = sys.argv[1]
    if command in (*_HELP, "--version"):
        from .engine import program

        with program.ignore_broken_pipe():
            is_version = command == "--version"
            print(importlib.metadata.version("keras3-bert") if is_version else overview())
    elif command in names:
        sys.argv[:2] = [f"{sys.argv[0]} {command}"]
        child_commands.is_command = True
        # Run the module as `__main__`, so that the flags and help belong to the command.
        runpy.run_module(module_name(command), run_name="__main__", alter_sys=True)
    else:
        meant = f" Did you mean {_MEANT[command]}?" if command in _MEANT else ""
        print(
            f"error: unknown command {command!r}."
            f"{meant or checks.did_you_mean(command.replace('_', '-'), names)} "
            "`keras-bert` lists the commands.",
            file=sys.stderr,
        )
        sys.exit(_WRONG_COMMAND)


def overview() -> str:
    """Lists the commands with the first lines of their docstrings, without importing them."""
    width = max(len(name) for group in COMMANDS.values() for name in group) + 2
    lines = ["usage: keras-bert COMMAND [--flag=value ...]", ""]
    for group, names in COMMANDS.items():
        lines.append(group)
        lines += [f"  {name.ljust(width)}{_summary(name)}" for name in names]
        lines.append("")
    lines.append("keras-bert COMMAND --help lists a command's flags with their defaults.")
    return "\n".join(lines)


def _summary(command: str) -> str:
    spec = importlib.util.find_spec(module_name(command))
    if spec is None or spec.origin is None:
        raise ImportError(f"{module_name(command)} is not installed")
    docstring = ast.get_docstring(ast.parse(Path(spec.origin).read_text(encoding="utf-8"))) or ""
    return docstring.partition("\n\n")[0].replace("\n", " ").removesuffix(".")


if __name__ == "__main__":
    main()
