# SPDX-License-Identifier: Apache-2.0
"""The commands of `keras-bert` and the modules that implement them."""

from __future__ import annotations

# `training` in a checkout, and a different name in a wheel
PACKAGE = __name__.partition(".")[0]
# The commands by purpose. The first group follows the order of a typical project.
COMMANDS = {
    "Commands": (
        *("quickstart", "inspect", "finetune", "serve", "predict", "evaluate", "insight", "export"),
        *("search", "tokenizer", "pretrain", "create-pretraining-data", "plan"),
    ),
    "Measure": ("benchmark", "compare-exports", "memory", "retrieval"),
    "Reproduce": ("finetune-glue", "feature-tagging", "directional-finetuning", "ablation"),
}
# Subpackages of the groups whose modules are not at the top level
_DIRECTORIES = {"Measure": "benchmarks.", "Reproduce": "paper."}
_MODULES = {
    name: _DIRECTORIES.get(group, "") + name.replace("-", "_")
    for group, names in COMMANDS.items()
    for name in names
}
# Whether this process was started as `keras-bert` rather than `python -m`. Set by `command_line`.
is_command = False


def module_name(command: str) -> str:
    """Returns the module that implements a command such as `finetune-glue`."""
    return f"{PACKAGE}.{_MODULES.get(command, command)}"


def command_name(program: str) -> str:
    """Returns what users type, for example `keras-bert predict` or `python -m training.predict`."""
    command = program.replace("_", "-")
    # An installed command starts child processes by module, so `is_command` is false there.
    if is_command or PACKAGE != "training":
        return f"keras-bert {command}"
    return f"python -m {module_name(command)}"
