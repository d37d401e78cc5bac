# SPDX-License-Identifier: Apache-2.0
"""The commands of this project's programs."""

from __future__ import annotations

# The name of this package: `training` in a checkout, another name in a wheel
PACKAGE = __name__.partition(".")[0]
# Whether this process runs by the command `keras-bert`, not by `python -m`; set by `command_line`.
is_command = False


def typed(program: str) -> str:
    """Returns the command for a program: `keras-bert predict`, or `python -m training.predict`."""
    # The child process of an installed program runs by its module
    if is_command or PACKAGE != "training":
        return f"keras-bert {program.replace('_', '-')}"
    return f"python -m {PACKAGE}.{program}"
