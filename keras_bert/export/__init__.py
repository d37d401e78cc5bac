# SPDX-License-Identifier: Apache-2.0
"""Models for serving: text in, answers out, without Keras or Python."""

from typing import TYPE_CHECKING

from keras_bert.lazy import lazy_names

# Imported on first use, so that the formats are known before Keras is imported.
if TYPE_CHECKING:
    from keras_bert.export.deployment import deploy as deploy
    from keras_bert.export.exporting import export_task as export_task
    from keras_bert.export.formats import FORMATS as FORMATS
    from keras_bert.export.options import ExportError as ExportError
    from keras_bert.export.options import ExportOptions as ExportOptions
    from keras_bert.export.served_model import ServedModel as ServedModel

__all__, __getattr__, __dir__ = lazy_names(__name__)
