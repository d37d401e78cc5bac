# SPDX-License-Identifier: Apache-2.0
"""Serving signatures for classifiers and embedders, and the rules for all signatures.

`serving_default` accepts text, strings `(batch,)`. `serve_ids` accepts `token_ids`, int32 `(batch,
length)`, and recognizes padding by its id. `count_tokens` accepts text and returns whether it would
be truncated (see `token_counts`). Every function validates its inputs and returns a dict of
tensors. The task must have a preprocessor and be on the TensorFlow backend.

A server combines requests from multiple clients into one batch, and an error in the graph fails all
of them. Therefore, invalid ids or counts in an example only mark this example. Its `error` is the
reason, its strings are empty, its integers are -1 and its floats are -1e6. Only an invalid request
raises an error, for example if its inputs have different batch sizes.

A server that pads appends the first element of the request's tensor. Strings `(batch,)` need no
padding, and in ids, `[CLS]` after the first column counts as padding. In words and choices, padding
looks like data, so exports for such servers (`padded_batches`) always require the number of
elements in each example.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from keras_bert.data.prompts import Prompts, num_prompt_tokens
from keras_bert.export.description import RowRequest
from keras_bert.export.options import ExportOptions, Servable
from keras_bert.export.served_inputs import (
    add_prompt,
    features_of_ids,
    row_errors,
    text_limit,
    token_counts,
    validate_texts,
)
from keras_bert.export.served_outputs import NO_VALUE, ServedOutputs, add_row_errors
from keras_bert.models.inputs import POOLING_MASK
from keras_bert.ops.tensorflow_graphs import trace_once

TEXT_SIGNATURE = "serving_default"
IDS_SIGNATURE = "serve_ids"
EXAMPLES_SIGNATURE = "serve_examples"
TOKENS_SIGNATURE = "count_tokens"
PROMPT_SIGNATURE = "serve_with_prompt"
QUERY_SIGNATURE = "serve_queries"

# How to read a multi-label classifier's labels
LABELS_REQUESTS = (RowRequest(items={"label": "labels", "score": "scores"}, count="num_labels"),)
# How to read a sparse embedder's tokens and weights
SPARSE_REQUESTS = (RowRequest(items={"embedding": "weights"}, keys="tokens", count="num_weights"),)
# How to read a late-interaction embedder's vectors
VECTORS_REQUESTS = (RowRequest(count="num_vectors"),)


def signature(function: Any, **inputs: tuple[Any, int]) -> Any:
    """Returns a `tf.function` with the dtype and rank of each input. All sizes are dynamic."""
    specs = [tf.TensorSpec([None] * rank, dtype, name) for name, (dtype, rank) in inputs.items()]
    return tf.function(function, input_signature=specs, autograph=False)


def classifier_signatures(task: Servable, options: ExportOptions) -> dict[str, Any]:
    """Returns the signature functions for a classifier's or regression's SavedModel.

    - `serving_default` accepts `text` and, with `pair`, `text_pair`. A regression only returns
      `score`. A classifier returns:
        - `label`: Predicted label, string `(batch,)`. Empty if the score is below `min_score`.
        - `score`: Probability of the label, float32 `(batch,)`.
        - `probabilities`: Probability of each class, float32 `(batch, classes)`.
    - With `multi_label`, `serving_default` returns `probabilities` and:
        - `labels`: Labels that reach their thresholds, in descending order of probability, string
          `(batch, classes)`, padded with empty strings.
        - `scores`: Probabilities of these labels, float32 `(batch, classes)`, padded with 0.
        - `num_labels`: Number of these labels, int32 `(batch,)`.
    - If `long_texts` splits texts, `serving_default` of a classifier also returns `num_windows`,
      int32 `(batch,)`. A single output, as in a regression, stays the only one, because clients
      receive it without its name. `count_tokens` always returns `num_windows`.
    - `serve_ids` accepts `token_ids` and, with `pair`, `segment_ids`. It returns the same outputs,
      `logits`, and `error`, string `(batch,)`.
    - `serve_examples` is for the server's `:classify` and `:regress` endpoints. It accepts
      `inputs`, string `(batch,)`, with serialized `tf.train.Example` messages. Their bytes features
      are `text` and, with `pair`, `text_pair`. A classifier returns `classes`, string, and
      `scores`, the probabilities, float32, both `(batch, classes)`. A regression returns `outputs`,
      float32 `(batch,)`. If a message does not have exactly one text per feature, its scores are
      -1e6, because these endpoints do not allow an `error` output.
    """
    outputs = ServedOutputs(task, options)
    names = ("text", "text_pair") if options.pair else ("text",)
    id_names = ("token_ids", "segment_ids") if options.pair else ("token_ids",)
    thresholds = getattr(task, "thresholds", None)
    min_score = getattr(task, "min_score", None)
    compute_probabilities = tf.nn.softmax if thresholds is None else tf.sigmoid

    def answers(logits: tf.Tensor) -> dict[str, tf.Tensor]:
        if options.class_names is None:
            return {"score": logits[:, 0]}
        probabilities = compute_probabilities(logits)
        if thresholds is not None:
            return labels_that_apply(probabilities, options.class_names, thresholds)
        best = tf.argmax(probabilities, axis=-1)
        label = tf.gather(tf.constant(options.class_names, tf.string), best)
        score = tf.reduce_max(probabilities, axis=-1)
        if min_score is not None:
            label = tf.where(score >= min_score, label, "")
        return {"label": label, "score": score, "probabilities": probabilities}

    def compute_logits(texts: Sequence[tf.Tensor]) -> tuple[tf.Tensor, tf.Tensor | None]:
        valid_texts = validate_texts(texts, " and ".join(names), options)
        return outputs.compute_of_texts(*valid_texts)

    def serve_text(*texts: tf.Tensor) -> dict[str, tf.Tensor]:
        logits, num_windows = compute_logits(texts)
        outputs = answers(logits)
        if num_windows is not None and options.class_names is not None:
            outputs["num_windows"] = num_windows
        return outputs

    def count_tokens(*texts: tf.Tensor) -> dict[str, tf.Tensor]:
        max_tokens = text_limit(task.preprocessor, len(names))
        return token_counts(texts, " and ".join(names), max_tokens, task, options)

    def serve_examples(inputs: tf.Tensor) -> dict[str, tf.Tensor]:
        inputs = tf.ensure_shape(inputs, [None])
        # The features are ragged, because otherwise one example without a text would fail the whole
        # batch.
        examples = tf.io.parse_example(inputs, dict.fromkeys(names, tf.io.RaggedFeature(tf.string)))
        texts = [examples[name] for name in names]
        is_valid = tf.reduce_all([text.row_lengths() == 1 for text in texts], axis=0)
        logits, _ = compute_logits([text.to_tensor("", shape=[None, 1])[:, 0] for text in texts])
        if options.class_names is None:
            return {"outputs": tf.where(is_valid, logits[:, 0], NO_VALUE)}
        classes = tf.constant([options.class_names], tf.string)
        return {
            "classes": tf.tile(classes, [tf.size(inputs), 1]),
            "scores": tf.where(is_valid[:, tf.newaxis], compute_probabilities(logits), NO_VALUE),
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
    """Returns a multi-label classifier's outputs. See `classifier_signatures`."""
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


def dense_outputs(embedding: tf.Tensor) -> dict[str, tf.Tensor]:
    """Returns an embedder's outputs. See `embedding_signatures`."""
    return {"embedding": embedding}


def sparse_outputs(
    tokens: Sequence[str], num_embeddings: int
) -> Callable[[tf.Tensor], dict[str, tf.Tensor]]:
    """Returns a function from the weights `(batch, embeddings)` to a sparse embedder's outputs.

    Args:
        tokens: The vocabulary. Embeddings beyond it have the token `""`.
        num_embeddings: Number of embeddings.
    """
    names = [*tokens, *[""] * (num_embeddings - len(tokens))]

    def answers(embedding: tf.Tensor) -> dict[str, tf.Tensor]:
        num_weights = tf.reduce_sum(tf.cast(embedding > 0, tf.int32), axis=-1)
        # The maximum over zero examples is the lowest integer.
        width = tf.maximum(0, tf.reduce_max(num_weights))
        weights, token_ids = tf.math.top_k(embedding, width)
        is_weight = tf.sequence_mask(num_weights, width)
        return {
            "tokens": tf.where(is_weight, tf.gather(tf.constant(names, tf.string), token_ids), ""),
            "token_ids": tf.where(is_weight, token_ids, -1),
            "weights": tf.where(is_weight, weights, 0.0),
            "num_weights": num_weights,
        }

    # All signatures share one copy of the vocabulary.
    return trace_once(answers)


def embedding_signatures(
    task: Servable,
    options: ExportOptions,
    answers: Callable[[tf.Tensor], dict[str, tf.Tensor]] = dense_outputs,
) -> dict[str, Any]:
    """Returns the signature functions for an embedder's SavedModel.

    - `serving_default` accepts `text` and adds the default prompt. A dense embedder returns
      `embedding`, float32 `(batch, hidden)`. A sparse embedder returns:
        - `tokens`: Tokens with a weight above 0, in descending order of weight, string `(batch,
          weights)`, padded with empty strings.
        - `token_ids`: IDs of these tokens, int32 `(batch, weights)`, padded with -1.
        - `weights`: Weights of these tokens, float32 `(batch, weights)`, padded with 0.
        - `num_weights`: Number of these tokens, int32 `(batch,)`.
    - `serve_ids` accepts `token_ids` and adds no prompt. It returns the same and `error`, string
      `(batch,)`.
    - `serve_with_prompt` accepts `text` and `prompt_name`, string `(batch,)`, which may be `""` for
      no prompt. It returns the same as `serve_ids`, and only exists if the task has prompts.

    Args:
        task: The embedder.
        options: Export options.
        answers: Function from the embeddings to the outputs.
    """
    outputs = ServedOutputs(task, options)
    prompts = Prompts.from_task(task)

    def serve_text(text: tf.Tensor) -> dict[str, tf.Tensor]:
        (text,) = validate_texts((text,), "text", options)
        default = prompts.text()
        count = num_prompt_tokens(task.preprocessor, default)
        embedding, _ = outputs.compute_of_texts(add_prompt(default, text), num_prompt_tokens=count)
        return answers(embedding)

    def serve_with_prompt(text: tf.Tensor, prompt_name: tf.Tensor) -> dict[str, tf.Tensor]:
        text, name = validate_texts((text, prompt_name), "text and prompt_name", options)
        names, texts = (
            tf.constant(["", *column]) for column in zip(*prompts.texts.items(), strict=True)
        )
        is_named = name[:, tf.newaxis] == names  # (batch, prompts)
        number = tf.argmax(tf.cast(is_named, tf.int32), axis=1)
        counts = [num_prompt_tokens(task.preprocessor, prompt) for prompt in prompts.texts.values()]
        error = row_errors((~tf.reduce_any(is_named, axis=1), prompts.rule))
        embedding, _ = outputs.compute_of_texts(
            add_prompt(tf.gather(texts, number), text),
            num_prompt_tokens=tf.gather(tf.constant([0, *counts]), number),
        )
        return add_row_errors(answers(embedding), error)

    def count_tokens(text: tf.Tensor) -> dict[str, tf.Tensor]:
        limit = text_limit(task.preprocessor, 1)
        return token_counts((text,), "text", limit, task, options, prompts.text())

    def serve_ids(token_ids: tf.Tensor) -> dict[str, tf.Tensor]:
        features, error = features_of_ids({"token_ids": token_ids}, task, options)
        return add_row_errors(answers(outputs.compute_single_output(features)), error)

    signatures = {
        TEXT_SIGNATURE: signature(serve_text, text=(tf.string, 1)),
        IDS_SIGNATURE: signature(serve_ids, token_ids=(tf.int32, 2)),
        TOKENS_SIGNATURE: signature(count_tokens, text=(tf.string, 1)),
    }
    if prompts.texts:
        inputs = dict.fromkeys(("text", "prompt_name"), (tf.string, 1))
        signatures[PROMPT_SIGNATURE] = signature(serve_with_prompt, **inputs)
    return signatures


def token_vector_signatures(task: Servable, options: ExportOptions) -> dict[str, Any]:
    """Returns the signature functions for a late-interaction embedder's SavedModel.

    `serving_default` accepts documents and `serve_queries` queries, each as `text`. They add the
    model's prompts for documents and queries, and return:
        - `vectors`: Vectors of the tokens that are not in the skip list, float32 `(batch, tokens,
          dim)`, padded with 0.
        - `num_vectors`: Number of these vectors, int32 `(batch,)`.

    `count_tokens` counts the tokens of documents, without the marker.
    """
    outputs = ServedOutputs(task, options)
    prompts = Prompts.from_task(task)
    document_prompt = prompts.text(prompts.document_name)

    def compute(text: tf.Tensor, prompt: str, *, is_query: bool) -> dict[str, tf.Tensor]:
        (text,) = validate_texts((text,), "text", options)
        features = task.preprocessor(add_prompt(prompt, text), is_query=is_query)
        is_used = tf.cast(features[POOLING_MASK], tf.bool)
        vectors = outputs.compute_single_output({**features, POOLING_MASK: is_used})
        used = tf.ragged.boolean_mask(vectors, is_used)
        return {
            "vectors": used.to_tensor(shape=[None, None, vectors.shape[-1]]),
            "num_vectors": tf.cast(used.row_lengths(), tf.int32),
        }

    def serve_documents(text: tf.Tensor) -> dict[str, tf.Tensor]:
        return compute(text, document_prompt, is_query=False)

    def serve_queries(text: tf.Tensor) -> dict[str, tf.Tensor]:
        return compute(text, prompts.text(prompts.query_name), is_query=True)

    def count_tokens(text: tf.Tensor) -> dict[str, tf.Tensor]:
        limit = task.preprocessor.max_tokens(is_query=False)
        return token_counts((text,), "text", limit, task, options, document_prompt)

    functions = {
        TEXT_SIGNATURE: serve_documents,
        QUERY_SIGNATURE: serve_queries,
        TOKENS_SIGNATURE: count_tokens,
    }
    return {name: signature(each, text=(tf.string, 1)) for name, each in functions.items()}
