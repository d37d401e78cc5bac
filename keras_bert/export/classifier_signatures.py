# SPDX-License-Identifier: Apache-2.0
"""What a served text classifier takes and returns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from keras_bert.export.job import ExportOptions
from keras_bert.export.saved_model import (
    IDS_SIGNATURE,
    TEXT_SIGNATURE,
    checked_texts,
    features_of_ids,
)


def classifier_signatures(task: Any, options: ExportOptions) -> dict[str, Any]:
    """The functions of a classifier's or a regression's SavedModel, by signature.

    Args:
        task: A text classifier with a preprocessor, on the TensorFlow backend.
        options: Labels, and whether there are two texts.
    """
    return {
        TEXT_SIGNATURE: _text_signature(task, options),
        IDS_SIGNATURE: _ids_signature(task, options),
    }


def _text_signature(task: Any, options: ExportOptions) -> Any:
    preprocessor = task.preprocessor
    answers = _answers(options.class_names)
    names = ("text", "text_pair") if options.pair else ("text",)

    def serve_text(*texts: tf.Tensor) -> dict[str, tf.Tensor]:
        checked = checked_texts(texts, " and ".join(names))
        return answers(task(preprocessor(*checked), training=False))

    specs = [tf.TensorSpec([None], tf.string, name) for name in names]
    return tf.function(serve_text, input_signature=specs, autograph=False)


def _ids_signature(task: Any, options: ExportOptions) -> Any:
    answers = _answers(options.class_names)
    names = ("token_ids", "segment_ids") if options.pair else ("token_ids",)

    def serve_ids(*ids: tf.Tensor) -> dict[str, tf.Tensor]:
        features = features_of_ids(dict(zip(names, ids, strict=True)), task)
        logits = task(features, training=False)
        return {**answers(logits), "logits": logits}

    specs = [tf.TensorSpec([None, None], tf.int32, name) for name in names]
    return tf.function(serve_ids, input_signature=specs, autograph=False)


def _answers(
    class_names: tuple[str, ...] | None,
) -> Callable[[tf.Tensor], dict[str, tf.Tensor]]:
    """From logits `(batch, classes)` to what a signature returns."""

    def regression(logits: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"score": logits[:, 0]}

    def classes(logits: tf.Tensor) -> dict[str, tf.Tensor]:
        probabilities = tf.nn.softmax(logits)
        best = tf.argmax(probabilities, axis=-1)
        return {
            "label": tf.gather(tf.constant(class_names, tf.string), best),
            "score": tf.reduce_max(probabilities, axis=-1),
            "probabilities": probabilities,
        }

    return regression if class_names is None else classes
