# SPDX-License-Identifier: Apache-2.0
"""Programs of earlier versions that are parts of others now. Their names are kept for one release.

`keras-bert finetune-squad` and `python -m training.finetune_squad` say in a line what the command
is now, and run it. Python finds this file under each of these names, see `Finder`.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import runpy
import sys
from collections.abc import Sequence
from types import ModuleType

# Earlier module -> the module that does the same, and the flags that it needs
PROGRAMS = {
    "finetune_squad": ("finetune", "--task=questions"),
    "finetune_tagging": ("finetune", "--task=tagging"),
    "finetune_choice": ("finetune", "--task=choice"),
    "rerank": ("finetune", "--task=ranking"),
    "train_tokenizer": ("tokenizer",),
    "pretraining_ablation": ("ablation", "--of=tasks"),
    "size_ablation": ("ablation", "--of=size"),
}


class Finder(importlib.abc.MetaPathFinder):
    """Finds this file for `python -m training.finetune_squad` and the other modules of before."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        package, _, name = fullname.rpartition(".")
        if package != __package__ or name not in PROGRAMS:
            return None
        return importlib.util.spec_from_file_location(fullname, __file__)


def current(command: Sequence[str]) -> list[str]:
    """Returns a command as it is written now.

    Args:
        command: A module in this package, such as `training.finetune_squad`, and its flags.
    """
    package, _, name = command[0].rpartition(".")
    program, *flags = PROGRAMS.get(name, (name,))
    return [f"{package}.{program}", *flags, *command[1:]]


def run(name: str) -> None:
    """Runs what a program has become, with the arguments of this process."""
    from .engine import child_programs

    program, *flags = PROGRAMS[name]
    now = " ".join([child_programs.typed(program), *flags])
    print(
        f"warning: {child_programs.typed(name)} is now {now}; its earlier name will be removed",
        file=sys.stderr,
    )
    sys.argv[1:1] = flags
    runpy.run_module(f"{__package__}.{program}", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    run(__spec__.name.rpartition(".")[2])
