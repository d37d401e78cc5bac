# SPDX-License-Identifier: Apache-2.0
"""The error and the warning class of checkpoints."""

import sys
import warnings

_PACKAGE = __name__.partition(".")[0]


class CheckpointError(ValueError):
    """Raised if a checkpoint is missing, malformed, unsupported, or does not match the model.

    The message names the file, and the tensor or field if there is one.
    """


class CheckpointWarning(UserWarning):
    """Warns that a checkpoint was loaded, but some weights were missing or not used."""


def warn(message: str) -> None:
    """Issues a `CheckpointWarning` that shows the line of code outside this package."""
    frame, level = sys._getframe(), 1
    while frame.f_back and frame.f_globals.get("__name__", "").partition(".")[0] == _PACKAGE:
        frame, level = frame.f_back, level + 1
    warnings.warn(message, CheckpointWarning, stacklevel=level)
