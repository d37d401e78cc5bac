# SPDX-License-Identifier: Apache-2.0
"""Models for serving: text in, answers out, without Keras or Python."""

import importlib
from typing import TYPE_CHECKING, Any

from keras_bert.export.formats import FORMATS
from keras_bert.export.options import ExportError, ExportOptions

if TYPE_CHECKING:
    from keras_bert.export.deployment import deploy
    from keras_bert.export.exporting import export_task
    from keras_bert.export.served_model import ServedModel

# Imported on first use, so that the formats are known before Keras is imported.
_LAZY_IMPORTS = {
    "ServedModel": "keras_bert.export.served_model",
    "deploy": "keras_bert.export.deployment",
    "export_task": "keras_bert.export.exporting",
}

__all__ = [
    "FORMATS",
    "ExportError",
    "ExportOptions",
    "ServedModel",
    "deploy",
    "export_task",
]


def __getattr__(name: str) -> Any:
    if name in _LAZY_IMPORTS:
        return getattr(importlib.import_module(_LAZY_IMPORTS[name]), name)
    raise AttributeError(f"module 'keras_bert.export' has no attribute {name!r}")
