# SPDX-License-Identifier: Apache-2.0
"""The error and the warning class of checkpoints."""

from keras_bert import checks


class CheckpointError(ValueError):
    """Raised if a checkpoint is missing, malformed, unsupported, or does not match the model.

    The message names the file, and the tensor or field if there is one.
    """


class CheckpointWarning(UserWarning):
    """Warns that a checkpoint was loaded, but some weights were missing or not used."""


def warn(message: str) -> None:
    """Issues a `CheckpointWarning` that shows the line of code outside this package."""
    checks.warn(message, CheckpointWarning)
