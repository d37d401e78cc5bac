# SPDX-License-Identifier: Apache-2.0
"""What a served tagger takes and returns: text is split into words and windows in the graph."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from keras_bert.export.options import ExportOptions, Servable
from keras_bert.export.signatures import (
    IDS_SIGNATURE,
    TEXT_SIGNATURE,
    checked_texts,
    features_of_ids,
    signature,
)

WORDS_SIGNATURE = "serve_words"


def tagging_signatures(task: Servable, options: ExportOptions) -> dict[str, Any]:
    """The functions of a tagger's SavedModel.

    - `serving_default`: `text`, string `(batch,)`. Returns `num_words`, int32 `(batch,)`: how
      many words each text has; and, each `(batch, words)` with the words of the text that has
      most, `words`, string, in UTF-8; `labels`, string; `scores`, the labels' probabilities,
      float32; `starts` and `ends`, the characters (Unicode code points) between which a word
      lies, int32. What is behind a text's last word is empty or 0. Texts are split into words
      as in `TokenClassifier.tag`; those of any length are read in windows inside the graph.
      Bytes that are no UTF-8 are left out before characters are counted.
    - `serve_words`: `words`, string `(batch, words)`, shorter rows filled up with empty strings:
      for text that is split into words already. Returns `labels` and `scores`, of that shape.
    - `serve_ids`: `token_ids`, int32 `(batch, length)`; padding is known by its id. Returns
      `labels`, `scores` and `logits` of every token.

    Args:
        task: A token classifier with a preprocessor, on the TensorFlow backend.
        options: Labels.
    """

    def serve_text(text: tf.Tensor) -> dict[str, tf.Tensor]:
        (text,) = checked_texts((text,), "text")
        words, starts, ends = task.preprocessor.split(text)
        found = {"words": words, "starts": starts, "ends": ends}
        return {
            **{name: values.to_tensor() for name, values in found.items()},
            **_tags(task, words, options),
            "num_words": tf.cast(words.row_lengths(), tf.int32),
        }

    def serve_words(words: tf.Tensor) -> dict[str, tf.Tensor]:
        words = tf.ensure_shape(words, [None, None])
        # A row ends behind its last word that is not empty.
        numbers = tf.range(1, tf.shape(words, tf.int64)[1] + 1)
        lengths = tf.reduce_max(tf.where(words == "", tf.zeros([], tf.int64), numbers), axis=1)
        # The maximum of no columns is the lowest number there is.
        lengths = tf.maximum(lengths, 0)
        tags = _tags(task, tf.RaggedTensor.from_tensor(words, lengths=lengths), options)
        missing = tf.shape(words)[1] - tf.shape(tags["labels"])[1]
        return {name: tf.pad(values, [[0, 0], [0, missing]]) for name, values in tags.items()}

    def serve_ids(token_ids: tf.Tensor) -> dict[str, tf.Tensor]:
        logits = task(features_of_ids({"token_ids": token_ids}, task), training=False)
        return {**_answers(logits, options), "logits": logits}

    return {
        TEXT_SIGNATURE: signature(serve_text, text=(tf.string, 1)),
        WORDS_SIGNATURE: signature(serve_words, words=(tf.string, 2)),
        IDS_SIGNATURE: signature(serve_ids, token_ids=(tf.int32, 2)),
    }


def _tags(task: Servable, words: tf.RaggedTensor, options: ExportOptions) -> dict[str, tf.Tensor]:
    """The label and the score of each word, padded with empty labels of score 0."""
    preprocessor = task.preprocessor
    windows = preprocessor.windows(words)
    logits = task(preprocessor.padded(windows), training=False)
    # (windows, length, classes) -> (words, classes)
    first_pieces = tf.stack([windows.word_window, windows.word_position], axis=1)
    answers = _answers(tf.gather_nd(logits, first_pieces), options)
    return {name: words.with_values(values).to_tensor() for name, values in answers.items()}


def _answers(logits: tf.Tensor, options: ExportOptions) -> dict[str, tf.Tensor]:
    """From logits `(..., classes)` to what a signature returns, `(...,)`."""
    probabilities = tf.nn.softmax(logits)
    return {
        "labels": tf.gather(
            tf.constant(options.class_names, tf.string), tf.argmax(probabilities, axis=-1)
        ),
        "scores": tf.reduce_max(probabilities, axis=-1),
    }
