# SPDX-License-Identifier: Apache-2.0
"""Serving signatures of multiple-choice tasks."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from keras_bert.export.description import RowRequest
from keras_bert.export.options import ExportOptions, Servable
from keras_bert.export.served_inputs import (
    counts_without_padding,
    features_of_ids,
    not_empty,
    token_counts,
    truncate_to_max_bytes,
    validate_counts,
)
from keras_bert.export.served_outputs import ServedOutputs, add_row_errors
from keras_bert.export.signatures import (
    IDS_SIGNATURE,
    TEXT_SIGNATURE,
    TOKENS_SIGNATURE,
    signature,
)

COUNTED_CHOICES_SIGNATURE = "serve_counted_choices"

# How examples are sent to the signatures below
CHOICE_REQUESTS = (
    RowRequest(
        COUNTED_CHOICES_SIGNATURE,
        items={"choice": "ranking", "text": "ranked_choices", "score": "ranked_scores"},
        count="num_choices",
    ),
)


def choice_signatures(task: Servable, options: ExportOptions) -> dict[str, Any]:
    """Returns the signature functions for a multiple-choice task's SavedModel.

    - `serve_counted_choices` accepts `text`, string `(batch,)`, `choices`, string `(batch,
      choices)`, and `num_choices`, int32 `(batch,)`. All choices after the first `num_choices` are
      padding. It returns:
        - `choice`: Index of the best choice, int32 `(batch,)`.
        - `score`: Probability of the best choice, float32 `(batch,)`.
        - `probabilities`: Probability of each choice, float32 `(batch, choices)`, 0 for padding.
        - `ranking`, `ranked_choices`, `ranked_scores`: Indices (int32), texts (string) and
          probabilities (float32) of the choices in descending order of probability, each `(batch,
          choices)`.
        - `error`: Error message of each example, string `(batch,)`.
    - `serving_default` only accepts `text` and `choices`. An example's last choice is its last
      non-empty string, and every example has at least one choice. It returns the same outputs
      except `error`. In exports for servers that pad, it is the same as `serve_counted_choices`.
    - `serve_ids` accepts `token_ids` and `segment_ids`, int32 `(batch, choices, length)`. Padding
      is recognized by its id, and a choice without tokens has probability 0. It returns `logits`,
      float32 `(batch, choices)`, and the outputs above except `ranked_choices`.
    - `count_tokens` accepts the inputs of `serving_default`. It returns the token counts of the
      text with each choice, `(batch, choices)`, 0 for padding. See `token_counts`.
    """
    outputs = ServedOutputs(task, options)

    def answers(logits: tf.Tensor) -> dict[str, tf.Tensor]:
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

    def ranked(text: tf.Tensor, choices: tf.Tensor, counts: tf.Tensor) -> dict[str, tf.Tensor]:
        is_choice = tf.sequence_mask(counts, tf.shape(choices)[1])
        features = task.preprocessor(
            truncate_to_max_bytes(text, options), truncate_to_max_bytes(choices, options)
        )
        features["padding_mask"] &= is_choice[:, :, tf.newaxis]
        answer = answers(outputs.compute_single_output(features))
        texts = tf.gather(choices, answer["ranking"], batch_dims=1)
        return {**answer, "ranked_choices": texts}

    def checked(text: tf.Tensor, choices: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        text, choices = tf.ensure_shape(text, [None]), tf.ensure_shape(choices, [None, None])
        same = tf.debugging.assert_equal(
            tf.size(text), tf.shape(choices)[0], "text and choices must have equal batch sizes"
        )
        with tf.control_dependencies([same, *not_empty("choices", choices)]):
            return tf.identity(text), tf.identity(choices)

    def serve_counted(
        text: tf.Tensor, choices: tf.Tensor, num_choices: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        text, choices = checked(text, choices)
        counts, error = validate_counts("num_choices", num_choices, choices, lowest=1)
        return add_row_errors(ranked(text, choices, counts), error)

    def serve_text(text: tf.Tensor, choices: tf.Tensor) -> dict[str, tf.Tensor]:
        text, choices = checked(text, choices)
        return ranked(text, choices, tf.maximum(1, counts_without_padding(choices)))

    def count_tokens(
        text: tf.Tensor, choices: tf.Tensor, *num_choices: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        text, choices = checked(text, choices)
        shape = tf.shape(choices)
        is_choice = tf.sequence_mask(*num_choices or [counts_without_padding(choices)], shape[1])
        pairs = (tf.repeat(text, shape[1]), tf.reshape(choices, [-1]))
        max_tokens = task.preprocessor.pairs.max_tokens(2)
        counts = token_counts(pairs, "text and choices", max_tokens, task, options)
        rows = {name: tf.reshape(value, shape) for name, value in counts.items()}
        return {name: tf.where(is_choice, row, tf.zeros_like(row)) for name, row in rows.items()}

    def serve_ids(token_ids: tf.Tensor, segment_ids: tf.Tensor) -> dict[str, tf.Tensor]:
        ids = {"token_ids": token_ids, "segment_ids": segment_ids}
        features, error = features_of_ids(ids, task, options)
        # A sequence with one token is not a choice.
        is_choice = tf.reduce_any(features["padding_mask"][:, :, 1:], axis=-1, keepdims=True)
        features["padding_mask"] &= is_choice
        has_choices = tf.reduce_any(is_choice, axis=[1, 2])
        no_choice = tf.where(has_choices, "", "token_ids must have tokens in at least one choice")
        logits = outputs.compute_single_output(features)
        error = tf.where(error == "", no_choice, error)
        return add_row_errors({**answers(logits), "logits": logits}, error)

    texts = {"text": (tf.string, 1), "choices": (tf.string, 2)}
    number = {"num_choices": (tf.int32, 1)}
    serve_counts = signature(serve_counted, **texts, **number)
    return {
        TEXT_SIGNATURE: serve_counts if options.padded_batches else signature(serve_text, **texts),
        COUNTED_CHOICES_SIGNATURE: serve_counts,
        IDS_SIGNATURE: signature(serve_ids, token_ids=(tf.int32, 3), segment_ids=(tf.int32, 3)),
        TOKENS_SIGNATURE: signature(
            count_tokens, **texts, **(number if options.padded_batches else {})
        ),
    }
