# SPDX-License-Identifier: Apache-2.0
"""The error and the warning of checkpoints."""


class CheckpointError(ValueError):
    """A checkpoint is missing, malformed, unsupported, or does not fit the model.

    The message names the file, and the tensor or field where there is one.
    """


class CheckpointWarning(UserWarning):
    """A checkpoint was read, but some weights were not found or not used."""
