# SPDX-License-Identifier: Apache-2.0
"""What a served multiple-choice task takes and returns."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from keras_bert.export.job import ExportOptions
from keras_bert.export.saved_model import IDS_SIGNATURE, TEXT_SIGNATURE, features_of_ids


def choice_signatures(task: Any, options: ExportOptions) -> dict[str, Any]:
    """The functions of a multiple-choice SavedModel, by signature.

    Args:
        task: A multiple-choice task with a preprocessor, on the TensorFlow backend.
        options: Nothing of them is looked at.
    """
    return {TEXT_SIGNATURE: _text_signature(task), IDS_SIGNATURE: _ids_signature(task)}


def _text_signature(task: Any) -> Any:
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
        answers = _answers(task(features, training=False))
        ranked = tf.gather(choices, answers["ranking"], batch_dims=1)
        return {**answers, "ranked_choices": ranked}

    specs = [tf.TensorSpec([None], tf.string, "text")]
    specs.append(tf.TensorSpec([None, None], tf.string, "choices"))
    return tf.function(serve_text, input_signature=specs, autograph=False)


def _ids_signature(task: Any) -> Any:
    def serve_ids(token_ids: tf.Tensor, segment_ids: tf.Tensor) -> dict[str, tf.Tensor]:
        features = features_of_ids({"token_ids": token_ids, "segment_ids": segment_ids}, task)
        # Where nothing is behind the first token, there is no choice.
        is_choice = tf.reduce_any(features["padding_mask"][:, :, 1:], axis=-1, keepdims=True)
        features["padding_mask"] &= is_choice
        logits = task(features, training=False)
        return {**_answers(logits), "logits": logits}

    specs = [
        tf.TensorSpec([None, None, None], tf.int32, name) for name in ("token_ids", "segment_ids")
    ]
    return tf.function(serve_ids, input_signature=specs, autograph=False)


def _answers(logits: tf.Tensor) -> dict[str, tf.Tensor]:
    """From logits `(batch, choices)` to what both signatures return."""
    probabilities = tf.nn.softmax(logits)
    ranking = tf.argsort(logits, direction="DESCENDING", stable=True)
    ranked_scores = tf.gather(probabilities, ranking, batch_dims=1)
    return {
        "choice": ranking[:, 0],
        "score": ranked_scores[:, 0],
        "probabilities": probabilities,
        "ranking": ranking,
        "ranked_scores": ranked_scores,
    }
