# SPDX-License-Identifier: Apache-2.0
"""What an export raises."""


class ExportError(RuntimeError):
    """A model could not be exported; the message says why."""
