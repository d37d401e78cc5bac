# SPDX-License-Identifier: Apache-2.0
"""What a served embedder takes and returns."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from keras_bert.export.job import ExportOptions
from keras_bert.export.saved_model import (
    IDS_SIGNATURE,
    TEXT_SIGNATURE,
    checked_texts,
    features_of_ids,
)

OUTPUT = "embedding"


def embedding_signatures(task: Any, options: ExportOptions) -> dict[str, Any]:
    """The functions of an embedder's SavedModel, by signature.

    Args:
        task: An embedder with a preprocessor, on the TensorFlow backend.
        options: Nothing of them is looked at.
    """

    def serve_text(text: tf.Tensor) -> dict[str, tf.Tensor]:
        (text,) = checked_texts((text,), "text")
        return {OUTPUT: task(task.preprocessor(text), training=False)}

    def serve_ids(token_ids: tf.Tensor) -> dict[str, tf.Tensor]:
        return {OUTPUT: task(features_of_ids({"token_ids": token_ids}, task), training=False)}

    text = tf.TensorSpec([None], tf.string, "text")
    ids = tf.TensorSpec([None, None], tf.int32, "token_ids")
    return {
        TEXT_SIGNATURE: tf.function(serve_text, input_signature=[text], autograph=False),
        IDS_SIGNATURE: tf.function(serve_ids, input_signature=[ids], autograph=False),
    }
