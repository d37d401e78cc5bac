# SPDX-License-Identifier: Apache-2.0
"""The error and the warning class of checkpoints."""

from keras_bert import checks


class CheckpointError(ValueError):
    """Raised if a checkpoint is missing, malformed, unsupported, or does not match the model.

    The message names the file, and the tensor or field if there is one.
    """


class CheckpointWarning(UserWarning):
    """Warns that a checkpoint was loaded, but some weights were missing or not used."""


def check_same(name: str, saved: object, read: object) -> None:
    """Checks that a value which was written is read again from the files.

    Raises:
        CheckpointError: If it is not; the message has both values.
    """
    if saved != read:
        raise CheckpointError(
            f"{name} cannot be saved in this format. Received: {saved!r}, which would be read as "
            f"{read!r}. No file was replaced."
        )


def warn(message: str) -> None:
    """Issues a `CheckpointWarning` that shows the line of code outside this package."""
    checks.warn(message, CheckpointWarning)
