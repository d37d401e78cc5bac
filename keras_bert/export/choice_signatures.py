# SPDX-License-Identifier: Apache-2.0
"""What a served multiple-choice task takes and returns."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from keras_bert.export.job import ExportOptions
from keras_bert.export.saved_model import TEXT_SIGNATURE


def choice_signatures(task: Any, options: ExportOptions) -> dict[str, Any]:
    """The functions of a multiple-choice SavedModel, by signature.

    Args:
        task: A multiple-choice task with a preprocessor, on the TensorFlow backend.
        options: Nothing of them is looked at.
    """

    def serve_text(text: tf.Tensor, choices: tf.Tensor) -> dict[str, tf.Tensor]:
        text, choices = tf.ensure_shape(text, [None]), tf.ensure_shape(choices, [None, None])
        same = tf.debugging.assert_equal(
            tf.size(text), tf.shape(choices)[0], "text and choices differ in their rows"
        )
        with tf.control_dependencies([same]):
            text = tf.identity(text)
        features = task.preprocessor(text, choices)
        is_first = tf.range(tf.shape(choices)[1]) == 0
        is_choice = is_first | ((choices != "") & (choices != choices[:, :1]))
        features["padding_mask"] &= is_choice[:, :, tf.newaxis]
        return _answers(task(features, training=False), choices)

    specs = [tf.TensorSpec([None], tf.string, "text")]
    specs.append(tf.TensorSpec([None, None], tf.string, "choices"))
    return {TEXT_SIGNATURE: tf.function(serve_text, input_signature=specs, autograph=False)}


def _answers(logits: tf.Tensor, choices: tf.Tensor) -> dict[str, tf.Tensor]:
    """From logits `(batch, choices)` to what the signature returns."""
    probabilities = tf.nn.softmax(logits)
    ranking = tf.argsort(logits, direction="DESCENDING", stable=True)
    ranked_scores = tf.gather(probabilities, ranking, batch_dims=1)
    return {
        "choice": ranking[:, 0],
        "score": ranked_scores[:, 0],
        "probabilities": probabilities,
        "ranking": ranking,
        "ranked_choices": tf.gather(choices, ranking, batch_dims=1),
        "ranked_scores": ranked_scores,
    }
