# SPDX-License-Identifier: Apache-2.0
"""Error and warning classes for checkpoints."""

from keras_bert import checks


class CheckpointError(ValueError):
    """Raised if a checkpoint is missing, invalid, unsupported, or does not match the model.

    The message contains the file and, if applicable, the tensor or field.
    """


class CheckpointWarning(UserWarning):
    """Warns that a checkpoint was loaded, but some weights were missing or not used."""


def check_same(name: str, saved: object, read: object) -> None:
    """Checks that a saved value is read back from the files unchanged.

    Raises:
        CheckpointError: If the values differ. The message contains both values.
    """
    if saved != read:
        raise CheckpointError(
            f"{name} cannot be saved in this format. Received: {saved!r}. It would be read as "
            f"{read!r}. No file was replaced."
        )


def warn(message: str) -> None:
    """Issues a `CheckpointWarning` that points to the caller's line outside this package."""
    checks.warn(message, CheckpointWarning)
