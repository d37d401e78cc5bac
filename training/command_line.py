# SPDX-License-Identifier: Apache-2.0
"""The command `keras-bert`: every program by its name.

    keras-bert                                  # the commands, a line each
    keras-bert finetune --train_file=reviews.csv
    keras-bert finetune --help                  # a command's flags with their defaults

A command is a module of this package, which `python -m` runs too: `keras-bert finetune` does what
`python -m training.finetune` does in a checkout.
"""

from __future__ import annotations

import ast
import difflib
import importlib.metadata
import importlib.util
import runpy
import sys
from pathlib import Path

from .engine import child_programs

# By what they are for, in the order in which a user needs them
COMMANDS = {
    "Begin": ("quickstart",),
    "Fine-tune": (
        "finetune",
        "finetune-squad",
        "finetune-tagging",
        "finetune-choice",
        "rerank",
        "finetune-glue",
        "feature-tagging",
    ),
    "Use and evaluate": ("predict", "evaluate"),
    "Pre-train": ("train-tokenizer", "create-pretraining-data", "pretrain"),
    "Measure": (
        "benchmark",
        "serving-benchmark",
        "defaults-sweep",
        "pretraining-ablation",
        "ngram-baselines",
    ),
}
_HELP = ("--help", "-h", "help")
_WRONG_COMMAND = 2


def main() -> None:
    """Runs the command that the first argument names, with the other arguments."""
    names = [name for group in COMMANDS.values() for name in group]
    command = sys.argv[1] if len(sys.argv) > 1 else "--help"
    if command in _HELP:
        print(overview())
    elif command == "--version":
        print(importlib.metadata.version("keras3-bert"))
    elif command in names:
        sys.argv[:2] = [f"{sys.argv[0]} {command}"]
        child_programs.is_command = True
        # As `__main__`, so that flags and the help are those of the program
        runpy.run_module(module_of(command), run_name="__main__", alter_sys=True)
    else:
        near = difflib.get_close_matches(command.replace("_", "-"), names, n=1, cutoff=0.5)
        meant = f" Did you mean {near[0]}?" if near else ""
        print(
            f"error: there is no command {command!r}.{meant} `keras-bert` lists the commands.",
            file=sys.stderr,
        )
        sys.exit(_WRONG_COMMAND)


def module_of(command: str) -> str:
    """The module that a command runs."""
    return f"{__package__}.{command.replace('-', '_')}"


def overview() -> str:
    """Every command with the first line of its program's docstring; imports none of them."""
    width = max(len(name) for group in COMMANDS.values() for name in group) + 2
    lines = ["usage: keras-bert COMMAND [--flag=value ...]", ""]
    for group, names in COMMANDS.items():
        lines.append(group)
        lines += [f"  {name.ljust(width)}{_summary(name)}" for name in names]
        lines.append("")
    lines.append("keras-bert COMMAND --help shows a command's flags with their defaults.")
    return "\n".join(lines)


def _summary(command: str) -> str:
    spec = importlib.util.find_spec(module_of(command))
    if spec is None or spec.origin is None:
        raise ImportError(f"{module_of(command)} is not installed")
    docstring = ast.get_docstring(ast.parse(Path(spec.origin).read_text(encoding="utf-8"))) or ""
    return docstring.partition("\n\n")[0].replace("\n", " ").removesuffix(".")


if __name__ == "__main__":
    main()
