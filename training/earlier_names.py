# SPDX-License-Identifier: Apache-2.0
"""Programs of earlier versions that are parts of others now. Their names are kept for one release.

`keras-bert finetune-squad` and `python -m training.finetune_squad` say in a line what the command
is now, and run it. Python finds this file under each of these names, see `Finder`.
"""

from __future__ import annotations

import argparse
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
    "serving_benchmark": ("benchmark", "--what=serve"),
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
    now = ("--preset=minilm" if flag == "--preset=" else flag for flag in command[1:])
    return [f"{package}.{program}", *flags, *now]


def run(name: str) -> None:
    """Runs what a program has become, with the arguments of this process."""
    from .engine import child_programs

    program, *flags = PROGRAMS[name]
    arguments = sys.argv[1:]
    if name == "serving_benchmark" and "--help" not in arguments:
        arguments = benchmark_flags(arguments)
    now = " ".join([child_programs.typed(program), *flags])
    print(
        f"warning: {child_programs.typed(name)} is now {now}; its earlier name will be removed",
        file=sys.stderr,
    )
    sys.argv[1:] = [*flags, *arguments]
    runpy.run_module(f"{__package__}.{program}", run_name="__main__", alter_sys=True)


def benchmark_flags(arguments: Sequence[str]) -> list[str]:
    """Returns the flags of `benchmark` that measure the same as those of `serving-benchmark`.

    `--max_rows`, `--max_requests` and `--seed` have no successor, and are ignored.
    """
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--url", default="http://localhost:8501")
    parser.add_argument("--rows", default="1")
    for name in ("model", "version", "input", "max_rows", "max_requests", "seed"):
        parser.add_argument(f"--{name}", default="")
    earlier, others = parser.parse_known_args(arguments)
    version = f"/versions/{earlier.version}" if earlier.version else ""
    return [
        f"--subjects={earlier.url.rstrip('/')}/v1/models/{earlier.model}{version}",
        *(f"--batch_size={earlier.rows}", "--rounds=1", "--clients=1,4,16"),
        *([f"--texts={earlier.input}"] if earlier.input else []),
        *others,
    ]


if __name__ == "__main__":
    run(__spec__.name.rpartition(".")[2])
