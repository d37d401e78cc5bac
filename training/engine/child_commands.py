# SPDX-License-Identifier: Apache-2.0
"""The commands of this project's programs."""

from __future__ import annotations

# The name of this package: `training` in a checkout, another name in a wheel
PACKAGE = __name__.partition(".")[0]
# The commands by purpose; the first are those that a user needs, in that order
COMMANDS = {
    "Commands": (
        *("quickstart", "inspect", "finetune", "serve", "predict", "evaluate", "insight", "export"),
        *("tokenizer", "pretrain", "create-pretraining-data", "plan"),
    ),
    "Measure": ("benchmark", "compare-exports", "memory"),
    "Reproduce": ("finetune-glue", "feature-tagging", "ablation"),
}
# The packages of those that are not at the top
_FOLDERS = {"Measure": "benchmarks.", "Reproduce": "paper."}
_MODULES = {
    name: _FOLDERS.get(group, "") + name.replace("-", "_")
    for group, names in COMMANDS.items()
    for name in names
}
# Whether this process runs by the command `keras-bert`, not by `python -m`; set by `command_line`.
is_command = False


def module_name(command: str) -> str:
    """Returns the module that a command, such as `finetune-glue`, runs."""
    return f"{PACKAGE}.{_MODULES.get(command, command)}"


def command_name(program: str) -> str:
    """Returns the command for a program: `keras-bert predict`, or `python -m training.predict`."""
    command = program.replace("_", "-")
    # The child process of an installed program runs by its module
    if is_command or PACKAGE != "training":
        return f"keras-bert {command}"
    return f"python -m {module_name(command)}"
