# SPDX-License-Identifier: Apache-2.0
"""Generates the command-line reference, one page per command, from the output of `--help`."""

from __future__ import annotations

import functools
import re
import subprocess
import sys
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from training.engine import child_commands
from training.jobs import tasks

ROOT = Path(__file__).resolve().parent.parent.parent
_FLAG = re.compile(r"^  --(\[no\])?(\w+)=(.*)\n((?: {8}.*\n?)*)", re.M)
_FLAGS_TITLE = "Flags, with their defaults:\n"


@dataclass(frozen=True)
class Flag:
    """A command-line flag.

    Attributes:
        name: Name without dashes.
        default: Default value as text, or empty.
        description: Description on one line.
        is_switch: Whether the flag is boolean (`--name` or `--noname`).
    """

    name: str
    default: str
    description: str
    is_switch: bool


@dataclass(frozen=True)
class Command:
    """A `keras-bert` command.

    Attributes:
        name: Name, such as `finetune-glue`.
        description: Docstring of the command's module.
        flags: Flags in the order of `--help`.
        by_task: For `finetune`, each task's additional flags and flags with different defaults, by
            task names.
    """

    name: str
    description: str
    flags: tuple[Flag, ...]
    by_task: dict[str, tuple[Flag, ...]] = field(default_factory=dict)

    @property
    def all_flags(self) -> tuple[Flag, ...]:
        """The flags, including the flags for all tasks."""
        return (*self.flags, *(flag for own in self.by_task.values() for flag in own))

    @property
    def module(self) -> str:
        """The module to run in a checkout, for example `training.paper.finetune_glue`."""
        return child_commands.module_name(self.name)

    @property
    def summary(self) -> str:
        """The first sentence of the description, on one line."""
        return " ".join(self.description.partition("\n\n")[0].split())


@functools.cache
def read(name: str) -> Command:
    """Runs a command with `--help` and reads what it prints.

    Raises:
        ValueError: If the command fails or does not list flags.
    """
    description, flags = _help(name)
    by_task = {}
    if name == "finetune":
        for names in tasks.tasks_by_config().values():
            own = _help(name, f"--task={names[0]}")[1]
            if others := tuple(flag for flag in own if flag not in flags):
                by_task[", ".join(names)] = others
    return Command(name, description, flags, by_task)


def _help(name: str, *arguments: str) -> tuple[str, tuple[Flag, ...]]:
    """Returns the description and flags from a command's `--help`."""
    run = subprocess.run(
        [sys.executable, "-m", "training.command_line", name, *arguments, "--help"],
        cwd=ROOT,
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    description, _, flags_text = run.stdout.partition(_FLAGS_TITLE)
    flags = tuple(
        Flag(
            name=found[2],
            default=found[3],
            description=" ".join(found[4].split()),
            is_switch=bool(found[1]),
        )
        for found in _FLAG.finditer(flags_text)
    )
    if run.returncode or not flags:
        raise ValueError(f"keras-bert {name} --help listed no flags: {run.stdout}{run.stderr}")
    return description.strip(), flags


@functools.cache
def read_all() -> tuple[Command, ...]:
    """Reads all commands, in the order of `keras-bert`."""
    names = [name for group in child_commands.COMMANDS.values() for name in group]
    with ThreadPoolExecutor(2) as pool:
        return tuple(pool.map(read, names))


def pages() -> dict[str, str]:
    """Returns the Markdown of each page by its path."""
    commands = {command.name: command for command in read_all()}
    overview = [
        "# Command line",
        "",
        "```bash",
        "keras-bert                          # lists the commands",
        "keras-bert COMMAND --help           # lists the command's flags",
        "keras-bert COMMAND --flag=value     # runs a command",
        "```",
        "",
        "In a clone, `python -m training.finetune` is the same as `keras-bert finetune`.",
        "",
    ]
    for group, names in child_commands.COMMANDS.items():
        overview += [f"## {group}", "", "| Command | Description |", "|---|---|"]
        overview += [f"| [`{name}`]({name}.md) | {commands[name].summary} |" for name in names]
        overview.append("")
    directory = "reference/commands"
    return {
        f"{directory}/index.md": "\n".join(overview),
        **{f"{directory}/{name}.md": _page(command) for name, command in commands.items()},
    }


def _page(command: Command) -> str:
    lines = [
        f"# keras-bert {command.name}",
        "",
        _fenced_examples(command.description),
        "",
        f"In a clone, you can also run `python -m {command.module}`.",
        "",
        "## Flags",
        "",
        "Each flag is listed with its default.",
        "",
    ]
    lines += _listed(command.flags)
    for names, flags in command.by_task.items():
        lines += [
            f"### Task {names}",
            "",
            "Additional flags and different defaults:",
            "",
        ]
        lines += _listed(flags)
    return "\n".join(lines) + "\n"


def _listed(flags: Iterable[Flag]) -> list[str]:
    lines = []
    for flag in flags:
        name = f"--[no]{flag.name}" if flag.is_switch else f"--{flag.name}"
        description = flag.description.replace("[", "\\[")  # no link
        lines += [f"`{name}={flag.default}`", f":   {description}", ""]
    return lines


def _fenced_examples(description: str) -> str:
    """Converts indented blocks in a docstring to fenced blocks of shell code or plain text."""
    blocks = re.split(r"\n\n", description)
    return "\n\n".join(
        f"```{'bash' if 'keras-bert' in block else 'text'}\n"
        + re.sub(r"^ {4}", "", block, flags=re.M)
        + "\n```"
        if block.startswith("    ")
        else block
        for block in blocks
    )
