# SPDX-License-Identifier: Apache-2.0
"""The base class of layers whose config is their arguments."""

from __future__ import annotations

import inspect
from typing import Any

import keras

from keras_bert import checks


class Layer(keras.layers.Layer):
    """A layer that keeps each argument of its class as an attribute of the same name."""

    def get_config(self) -> dict[str, Any]:
        # Subclasses of a user may have further arguments.
        classes = [cls for cls in type(self).__mro__ if issubclass(cls, Layer) and cls is not Layer]
        names = {name for cls in classes for name in inspect.signature(cls.__init__).parameters}
        config = {name: getattr(self, name) for name in sorted(names) if hasattr(self, name)}
        options: dict[str, Any] = checks.plain({**config, **super().get_config()})
        return options
