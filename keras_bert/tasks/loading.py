# SPDX-License-Identifier: Apache-2.0
"""Loading a saved task, whichever it is."""

from __future__ import annotations

import os
from typing import Any

import keras

# Keras finds the classes that were imported, and no others.
from keras_bert.tasks import (  # noqa: F401
    distiller,
    masked_lm,
    multiple_choice,
    pretrainer,
    question_answerer,
    replaced_token_detector,
    text_classifier,
    text_embedder,
    token_classifier,
)


def load_model(filepath: str | os.PathLike[str], *, compile: bool = True) -> Any:
    """A model that `save` wrote: any task or backbone of this package.

    `keras.models.load_model` does the same once the model's class has been imported.

    Args:
        filepath: A `.keras` file.
        compile: Whether it comes with its optimizer and loss, to be trained further.

    Raises:
        ValueError: If there is no such file, or it is no saved model.
    """
    return keras.models.load_model(filepath, compile=compile)
