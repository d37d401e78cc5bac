# SPDX-License-Identifier: Apache-2.0
"""Serving signatures for taggers. The graph splits texts into words and windows."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from keras_bert.export.description import RowRequest
from keras_bert.export.options import ExportOptions, Servable
from keras_bert.export.served_inputs import (
    counts_without_padding,
    features_of_ids,
    validate_counts,
    validate_texts,
)
from keras_bert.export.served_outputs import ServedOutputs, add_row_errors
from keras_bert.export.signatures import IDS_SIGNATURE, TEXT_SIGNATURE, signature
from keras_bert.ops.linear_chain import Potentials, decode_with_scores
from keras_bert.text.graph.words import words_with_offsets

WORDS_SIGNATURE = "serve_words"
COUNTED_WORDS_SIGNATURE = "serve_counted_words"
TAGS_SIGNATURE = "serve_tags"

_TAG = {"word": "words", "label": "labels", "score": "scores"}
# How texts or lists of words are sent to the signatures below
TAGGING_REQUESTS = (
    RowRequest(TEXT_SIGNATURE, items={**_TAG, "start": "starts", "end": "ends"}, count="num_words"),
    RowRequest(COUNTED_WORDS_SIGNATURE, inputs={"words": "text"}, items=_TAG, count="num_words"),
)


def tagging_signatures(task: Servable, options: ExportOptions) -> dict[str, Any]:
    """Returns the signature functions for a tagger's SavedModel.

    - `serving_default` accepts `text`, string `(batch,)`. It splits texts into words as
      `TokenClassifier.tag` does, and long texts into windows. Invalid UTF-8 is dropped before
      characters are counted. Outputs are padded to the longest text with empty strings or 0:
        - `num_words`: Number of words in each text, int32 `(batch,)`.
        - `words`: Words in UTF-8, string `(batch, words)`.
        - `labels`: Label of each word, string `(batch, words)`.
        - `scores`: Probability of each label, float32 `(batch, words)`.
        - `starts`, `ends`: Offsets of each word in characters (Unicode code points), int32 `(batch,
          words)`.
    - `serve_tags` accepts `text`. It returns `tags`, string `(batch,)`. Each string is a JSON array
      with the `label`, `score`, `start` and `end` of the text's words, without padding.
    - `serve_counted_words` is for texts already split into words. It accepts `words`, string
      `(batch, words)`, and `num_words`, int32 `(batch,)`. All words after the first `num_words` are
      padding. It returns `labels` and `scores` with the shape of `words`, and `error`, string
      `(batch,)`.
    - `serve_words` only accepts `words`. An example's last word is its last non-empty string. It
      returns the same outputs except `error`. Exports for servers that pad do not have it.
    - `serve_ids` accepts `token_ids`, int32 `(batch, length)`. Padding is recognized by its id. It
      returns the `labels`, `scores` and `logits` of every token, and `error`, string `(batch,)`.
      With a CRF or a tagging scheme, it only returns `logits` and `error`, because sequences are
      decoded over words.
    """
    outputs = ServedOutputs(task, options)
    unit = task.preprocessor.text_unit
    potentials: Potentials | None = getattr(task, "potentials", None)
    if unit == "segmented":
        task.preprocessor.warn_of_segments("The training words came from a segmenter")

    def tagged(
        words: tf.RaggedTensor, class_names: Sequence[str] | None = options.class_names
    ) -> dict[str, tf.RaggedTensor]:
        """Predicts the label and score of each word, ragged `(batch, None)`."""
        preprocessor = task.preprocessor
        windows = preprocessor.windows(words)
        logits = outputs.compute_single_output(preprocessor.pad(windows))
        # (windows, length, classes) -> (words, classes)
        first_pieces = tf.stack([windows.word_window, windows.word_position], axis=1)
        word_logits = tf.gather_nd(logits, first_pieces)
        if potentials is None:
            answers = _answers(word_logits, class_names)
        else:
            answers = _decoded(words.with_values(word_logits), potentials, class_names)
        return {name: words.with_values(values) for name, values in answers.items()}

    def split(text: tf.Tensor) -> tuple[tf.RaggedTensor, tf.RaggedTensor, tf.RaggedTensor]:
        (text,) = validate_texts((text,), "text", options)
        words, starts, ends = words_with_offsets(text, unit)
        return words, starts, ends

    def serve_text(text: tf.Tensor) -> dict[str, tf.Tensor]:
        words, starts, ends = split(text)
        answers = {"words": words, "starts": starts, "ends": ends, **tagged(words)}
        return {
            **{name: values.to_tensor() for name, values in answers.items()},
            "num_words": tf.cast(words.row_lengths(), tf.int32),
        }

    def serve_tags(text: tf.Tensor) -> dict[str, tf.Tensor]:
        words, starts, ends = split(text)
        answers = tagged(words, [json.dumps(name) for name in options.class_names or ()])
        scores = tf.strings.as_string(answers["scores"].flat_values, precision=6)
        start, end = (tf.strings.as_string(values.flat_values) for values in (starts, ends))
        fields = ['{"label": ', answers["labels"].flat_values, ', "score": ', scores]
        fields += [', "start": ', start, ', "end": ', end, "}"]
        tags = tf.strings.reduce_join(
            words.with_values(tf.strings.join(fields)), axis=1, separator=", "
        )
        return {"tags": tf.strings.join(["[", tags, "]"])}

    def tag_words(words: tf.Tensor, counts: tf.Tensor) -> dict[str, tf.Tensor]:
        lengths = tf.cast(counts, tf.int64)
        tags = tagged(tf.RaggedTensor.from_tensor(words, lengths=lengths))
        shape = tf.shape(words, tf.int64)
        return {name: values.to_tensor(shape=shape) for name, values in tags.items()}

    def serve_counted_words(words: tf.Tensor, num_words: tf.Tensor) -> dict[str, tf.Tensor]:
        words = tf.ensure_shape(words, [None, None])
        counts, error = validate_counts("num_words", num_words, words)
        return add_row_errors(tag_words(words, counts), error)

    def serve_words(words: tf.Tensor) -> dict[str, tf.Tensor]:
        words = tf.ensure_shape(words, [None, None])
        return tag_words(words, counts_without_padding(words))

    def serve_ids(token_ids: tf.Tensor) -> dict[str, tf.Tensor]:
        features, error = features_of_ids({"token_ids": token_ids}, task, options)
        # This is not computed in chunks, so that padding also has outputs.
        (logits,) = outputs.compute(features).values()
        answers = {"logits": logits}
        if potentials is None:
            answers |= _answers(logits, options.class_names)
        num_columns = tf.shape(token_ids)[1] - tf.shape(logits)[1]
        return add_row_errors(
            {name: _pad(value, num_columns) for name, value in answers.items()}, error
        )

    signatures = {
        TEXT_SIGNATURE: signature(serve_text, text=(tf.string, 1)),
        TAGS_SIGNATURE: signature(serve_tags, text=(tf.string, 1)),
        COUNTED_WORDS_SIGNATURE: signature(
            serve_counted_words, words=(tf.string, 2), num_words=(tf.int32, 1)
        ),
        IDS_SIGNATURE: signature(serve_ids, token_ids=(tf.int32, 2)),
    }
    if not options.padded_batches:
        signatures[WORDS_SIGNATURE] = signature(serve_words, words=(tf.string, 2))
    return signatures


def _pad(values: tf.Tensor, columns: tf.Tensor) -> tf.Tensor:
    """Appends columns of empty strings or zeros to values `(batch, length, …)`."""
    shape = tf.shape(values)
    padding = tf.concat([shape[:1], [columns], shape[2:]], axis=0)
    return tf.concat([values, tf.fill(padding, tf.zeros([], values.dtype))], axis=1)


def _decoded(
    logits: tf.RaggedTensor, potentials: Potentials, class_names: Sequence[str] | None
) -> dict[str, tf.Tensor]:
    """Converts logits `(batch, None, classes)` to labels and marginal probabilities, `(words,)`."""
    # With an additional column, the loops have a step even if no text has words.
    emissions = tf.pad(logits.to_tensor(), [[0, 0], [0, 1], [0, 0]])
    mask = tf.sequence_mask(logits.row_lengths(), tf.shape(emissions)[1])
    labels, scores = decode_with_scores(emissions, mask, potentials)
    names = tf.constant(class_names, tf.string)
    return {
        "labels": tf.gather(names, tf.boolean_mask(labels, mask)),
        "scores": tf.boolean_mask(scores, mask),
    }


def _answers(logits: tf.Tensor, class_names: Sequence[str] | None) -> dict[str, tf.Tensor]:
    """Converts logits `(..., classes)` to labels and their probabilities, `(...,)`."""
    probabilities = tf.nn.softmax(logits)
    return {
        "labels": tf.gather(tf.constant(class_names, tf.string), tf.argmax(probabilities, axis=-1)),
        "scores": tf.reduce_max(probabilities, axis=-1),
    }
