# SPDX-License-Identifier: Apache-2.0
"""Exports models for serving without Keras or Python."""

from keras_bert.lazy import lazy_imports

# Imported on first use, because commands list the formats before they import Keras.
with lazy_imports(globals()):
    from keras_bert.export.deployment import deploy as deploy
    from keras_bert.export.exporting import export_task as export_task
    from keras_bert.export.formats import FORMATS as FORMATS
    from keras_bert.export.options import ExportError as ExportError
    from keras_bert.export.options import ExportOptions as ExportOptions
    from keras_bert.export.options import ExportWarning as ExportWarning
    from keras_bert.export.served_model import ServedModel as ServedModel
