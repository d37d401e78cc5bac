# SPDX-License-Identifier: Apache-2.0
"""The signatures of served classifiers and embedders, and the rules of all signatures.

`serving_default` takes text, strings `(batch,)`; `serve_ids` takes `token_ids`, int32 `(batch,
length)`, in which padding is recognized by its id; `count_tokens` takes text and says whether all
of it is read, see `token_counts`. Every function validates its inputs, and returns a dict of
tensors. The task has a preprocessor, and is on the TensorFlow backend.

A server joins the requests of several clients to one batch, and an error in the graph fails all of
them. Therefore a fault in a single row of ids, or in its count, marks that row alone: its `error`
is the reason, its strings are empty, its integers -1 and its other numbers -1e6. Only a fault of a
whole request, such as inputs that differ in their number of rows, is an error.

A server that is told to pad rows pads each request with the first element of its tensor. Strings
`(batch,)` need no padding, and in ids, `[CLS]` after the first column counts as padding. In words
and choices, padding looks like data, so an export for such servers (`padded_batches`) always takes
the number of elements of each row.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from keras_bert.export.description import RowRequest
from keras_bert.export.options import ExportOptions, Servable
from keras_bert.export.served_inputs import features_of_ids, token_counts, validate_texts
from keras_bert.export.served_outputs import NO_VALUE, ServedOutputs, add_row_errors

TEXT_SIGNATURE = "serving_default"
IDS_SIGNATURE = "serve_ids"
EXAMPLES_SIGNATURE = "serve_examples"
TOKENS_SIGNATURE = "count_tokens"

# How to read the labels of a classifier with `multi_label`
LABELS_REQUESTS = (RowRequest(items={"label": "labels", "score": "scores"}, count="num_labels"),)


def signature(function: Any, **inputs: tuple[Any, int]) -> Any:
    """Returns a `tf.function` with the dtype and rank of each input; all sizes are dynamic."""
    specs = [tf.TensorSpec([None] * rank, dtype, name) for name, (dtype, rank) in inputs.items()]
    return tf.function(function, input_signature=specs, autograph=False)


def classifier_signatures(task: Servable, options: ExportOptions) -> dict[str, Any]:
    """Returns the functions of the SavedModel of a classifier or a regression.

    - `serving_default`: `text`, and with `pair` also `text_pair`. Returns `label`, string
      `(batch,)`; `score`, the label's probability, float32 `(batch,)`; and `probabilities`, float32
      `(batch, classes)`. A regression returns `score` only. With `multi_label`, it returns
      `labels`, string, the ones that reach their thresholds, in descending order of probability;
      `scores`, float32, their probabilities; both `(batch, classes)`, padded with empty strings and
      0; `num_labels`, int32 `(batch,)`, their number; and `probabilities`.
    - `serve_ids`: `token_ids`, and with `pair` also `segment_ids`. Returns the same, `logits`, and
      `error`, string `(batch,)`.
    - `serve_examples`, for the server's `:classify` and `:regress`: `inputs`, string `(batch,)`,
      each a serialized `tf.train.Example` with the bytes feature `text`, and with `pair` also
      `text_pair`. Returns `classes`, string, and `scores`, the probabilities, float32, both
      `(batch, classes)`; for a regression `outputs`, float32 `(batch,)`. The scores of an example
      that does not have one text of each name are -1e6: the server allows no further output.
    """
    outputs = ServedOutputs(task, options)
    names = ("text", "text_pair") if options.pair else ("text",)
    id_names = ("token_ids", "segment_ids") if options.pair else ("token_ids",)
    thresholds = getattr(task, "thresholds", None)
    probabilities_of = tf.nn.softmax if thresholds is None else tf.sigmoid

    def answers(logits: tf.Tensor) -> dict[str, tf.Tensor]:
        if options.class_names is None:
            return {"score": logits[:, 0]}
        probabilities = probabilities_of(logits)
        if thresholds is not None:
            return labels_that_apply(probabilities, options.class_names, thresholds)
        best = tf.argmax(probabilities, axis=-1)
        return {
            "label": tf.gather(tf.constant(options.class_names, tf.string), best),
            "score": tf.reduce_max(probabilities, axis=-1),
            "probabilities": probabilities,
        }

    def compute_logits(texts: Sequence[tf.Tensor]) -> tf.Tensor:
        valid_texts = validate_texts(texts, " and ".join(names), options)
        return outputs.compute_single_output(task.preprocessor(*valid_texts))

    def serve_text(*texts: tf.Tensor) -> dict[str, tf.Tensor]:
        return answers(compute_logits(texts))

    def count_tokens(*texts: tf.Tensor) -> dict[str, tf.Tensor]:
        max_tokens = task.preprocessor.max_tokens(len(names))
        return token_counts(texts, " and ".join(names), max_tokens, task, options)

    def serve_examples(inputs: tf.Tensor) -> dict[str, tf.Tensor]:
        inputs = tf.ensure_shape(inputs, [None])
        # Ragged, since an example without a text would otherwise be an error of the whole batch
        examples = tf.io.parse_example(inputs, dict.fromkeys(names, tf.io.RaggedFeature(tf.string)))
        texts = [examples[name] for name in names]
        is_valid = tf.reduce_all([text.row_lengths() == 1 for text in texts], axis=0)
        logits = compute_logits([text.to_tensor("", shape=[None, 1])[:, 0] for text in texts])
        if options.class_names is None:
            return {"outputs": tf.where(is_valid, logits[:, 0], NO_VALUE)}
        classes = tf.constant([options.class_names], tf.string)
        return {
            "classes": tf.tile(classes, [tf.size(inputs), 1]),
            "scores": tf.where(is_valid[:, tf.newaxis], probabilities_of(logits), NO_VALUE),
        }

    def serve_ids(*ids: tf.Tensor) -> dict[str, tf.Tensor]:
        features, error = features_of_ids(dict(zip(id_names, ids, strict=True)), task, options)
        logits = outputs.compute_single_output(features)
        return add_row_errors({**answers(logits), "logits": logits}, error)

    return {
        TEXT_SIGNATURE: signature(serve_text, **dict.fromkeys(names, (tf.string, 1))),
        IDS_SIGNATURE: signature(serve_ids, **dict.fromkeys(id_names, (tf.int32, 2))),
        EXAMPLES_SIGNATURE: signature(serve_examples, inputs=(tf.string, 1)),
        TOKENS_SIGNATURE: signature(count_tokens, **dict.fromkeys(names, (tf.string, 1))),
    }


def labels_that_apply(
    probabilities: tf.Tensor, class_names: Sequence[str], thresholds: Sequence[float]
) -> dict[str, tf.Tensor]:
    """Returns the outputs of a classifier with `multi_label`; see `classifier_signatures`."""
    applies = probabilities >= tf.constant(thresholds, tf.float32)
    scores_of_labels = tf.where(applies, probabilities, -1.0)
    order = tf.argsort(scores_of_labels, direction="DESCENDING", stable=True)
    num_labels = tf.reduce_sum(tf.cast(applies, tf.int32), axis=-1)
    is_label = tf.sequence_mask(num_labels, len(class_names))
    return {
        "labels": tf.where(is_label, tf.gather(tf.constant(class_names, tf.string), order), ""),
        "scores": tf.where(is_label, tf.gather(probabilities, order, batch_dims=1), 0.0),
        "num_labels": num_labels,
        "probabilities": probabilities,
    }


def embedding_signatures(task: Servable, options: ExportOptions) -> dict[str, Any]:
    """Returns the functions of the SavedModel of an embedder.

    - `serving_default`: `text`. Returns `embedding`, float32 `(batch, hidden)`.
    - `serve_ids`: `token_ids`. Returns the same, and `error`, string `(batch,)`.
    """
    outputs = ServedOutputs(task, options)

    def serve_text(text: tf.Tensor) -> dict[str, tf.Tensor]:
        (text,) = validate_texts((text,), "text", options)
        return {"embedding": outputs.compute_single_output(task.preprocessor(text))}

    def count_tokens(text: tf.Tensor) -> dict[str, tf.Tensor]:
        return token_counts((text,), "text", task.preprocessor.max_tokens(1), task, options)

    def serve_ids(token_ids: tf.Tensor) -> dict[str, tf.Tensor]:
        features, error = features_of_ids({"token_ids": token_ids}, task, options)
        return add_row_errors({"embedding": outputs.compute_single_output(features)}, error)

    return {
        TEXT_SIGNATURE: signature(serve_text, text=(tf.string, 1)),
        IDS_SIGNATURE: signature(serve_ids, token_ids=(tf.int32, 2)),
        TOKENS_SIGNATURE: signature(count_tokens, text=(tf.string, 1)),
    }
