# SPDX-License-Identifier: Apache-2.0
"""The signatures of served classifiers, embedders and multiple-choice tasks.

`serving_default` takes text, strings `(batch,)`; `serve_ids` takes `token_ids`, int32 `(batch,
length)`, in which padding is known by its id. Every function is checked and traced with its input
signature, and returns a dict of tensors.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from keras_bert.export.options import ExportOptions, Servable

TEXT_SIGNATURE = "serving_default"
IDS_SIGNATURE = "serve_ids"


def signature(function: Any, **inputs: tuple[Any, int]) -> Any:
    """A function with its input signature.

    Args:
        function: Of tensors, in the order of the inputs.
        **inputs: The dtype and the rank of each; no dimension is fixed.
    """
    specs = [tf.TensorSpec([None] * rank, dtype, name) for name, (dtype, rank) in inputs.items()]
    return tf.function(function, input_signature=specs, autograph=False)


def classifier_signatures(task: Servable, options: ExportOptions) -> dict[str, Any]:
    """The functions of a classifier's or a regression's SavedModel.

    - `serving_default`: `text`, and with `pair` also `text_pair`. Returns `label`, string
      `(batch,)`; `score`, the label's probability, float32 `(batch,)`; and `probabilities`, float32
      `(batch, classes)`. A regression returns `score` alone.
    - `serve_ids`: `token_ids`, and with `pair` also `segment_ids`. Returns the same, and `logits`.

    Args:
        task: A text classifier with a preprocessor, on the TensorFlow backend.
        options: Labels, and whether there are two texts.
    """
    names = ("text", "text_pair") if options.pair else ("text",)
    id_names = ("token_ids", "segment_ids") if options.pair else ("token_ids",)

    def answers(logits: tf.Tensor) -> dict[str, tf.Tensor]:
        if options.class_names is None:
            return {"score": logits[:, 0]}
        probabilities = tf.nn.softmax(logits)
        best = tf.argmax(probabilities, axis=-1)
        return {
            "label": tf.gather(tf.constant(options.class_names, tf.string), best),
            "score": tf.reduce_max(probabilities, axis=-1),
            "probabilities": probabilities,
        }

    def serve_text(*texts: tf.Tensor) -> dict[str, tf.Tensor]:
        checked = checked_texts(texts, " and ".join(names))
        return answers(task(task.preprocessor(*checked), training=False))

    def serve_ids(*ids: tf.Tensor) -> dict[str, tf.Tensor]:
        features = features_of_ids(dict(zip(id_names, ids, strict=True)), task)
        logits = task(features, training=False)
        return {**answers(logits), "logits": logits}

    return {
        TEXT_SIGNATURE: signature(serve_text, **dict.fromkeys(names, (tf.string, 1))),
        IDS_SIGNATURE: signature(serve_ids, **dict.fromkeys(id_names, (tf.int32, 2))),
    }


def embedding_signatures(task: Servable) -> dict[str, Any]:
    """The functions of an embedder's SavedModel.

    - `serving_default`: `text`. Returns `embedding`, float32 `(batch, hidden)`.
    - `serve_ids`: `token_ids`. Returns the same.

    Args:
        task: An embedder with a preprocessor, on the TensorFlow backend.
    """

    def serve_text(text: tf.Tensor) -> dict[str, tf.Tensor]:
        (text,) = checked_texts((text,), "text")
        return {"embedding": task(task.preprocessor(text), training=False)}

    def serve_ids(token_ids: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"embedding": task(features_of_ids({"token_ids": token_ids}, task), training=False)}

    return {
        TEXT_SIGNATURE: signature(serve_text, text=(tf.string, 1)),
        IDS_SIGNATURE: signature(serve_ids, token_ids=(tf.int32, 2)),
    }


def choice_signatures(task: Servable) -> dict[str, Any]:
    """The functions of a multiple-choice SavedModel.

    - `serving_default`: `text`, string `(batch,)`, and `choices`, string `(batch, choices)`, rows
      with fewer filled up with empty strings. Returns `choice`, the position of the best, int32
      `(batch,)`; `score`, its probability, float32 `(batch,)`; `probabilities`, float32 `(batch,
      choices)`, in the order of the choices; and, from the best to the worst, `ranking`, their
      positions, int32, `ranked_choices`, string, and `ranked_scores`, float32, `(batch, choices)`.
      Choices that are empty, or say what the first one of their row says, have probability 0: a
      server that batches requests fills shorter ones up with their first element.
    - `serve_ids`: `token_ids` and `segment_ids`, int32 `(batch, choices, length)`; padding is known
      by its id, and a choice of padding alone has probability 0. Returns the same but for
      `ranked_choices`, and `logits`, float32 `(batch, choices)`.

    Args:
        task: A multiple-choice task with a preprocessor, on the TensorFlow backend.
    """

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
        ranked = answers(task(features, training=False))
        texts = tf.gather(choices, ranked["ranking"], batch_dims=1)
        return {**ranked, "ranked_choices": texts}

    def serve_ids(token_ids: tf.Tensor, segment_ids: tf.Tensor) -> dict[str, tf.Tensor]:
        features = features_of_ids({"token_ids": token_ids, "segment_ids": segment_ids}, task)
        # Where nothing is behind the first token, there is no choice.
        is_choice = tf.reduce_any(features["padding_mask"][:, :, 1:], axis=-1, keepdims=True)
        features["padding_mask"] &= is_choice
        logits = task(features, training=False)
        return {**answers(logits), "logits": logits}

    return {
        TEXT_SIGNATURE: signature(serve_text, text=(tf.string, 1), choices=(tf.string, 2)),
        IDS_SIGNATURE: signature(serve_ids, token_ids=(tf.int32, 3), segment_ids=(tf.int32, 3)),
    }


def checked_texts(texts: Sequence[tf.Tensor], names: str) -> list[tf.Tensor]:
    """Strings `(batch,)`, as many of one input as of another.

    Args:
        texts: The inputs of a signature.
        names: What they are called, for the message.
    """
    # A server hands scalars through; without this check one of them ended the process.
    texts = [tf.ensure_shape(text, [None]) for text in texts]
    if len(texts) == 1:
        return texts
    same = tf.debugging.assert_equal(
        tf.size(texts[0]), tf.size(texts[1]), f"{names} differ in number"
    )
    with tf.control_dependencies([same]):
        return [tf.identity(text) for text in texts]


def features_of_ids(ids: dict[str, tf.Tensor], task: Servable) -> dict[str, Any]:
    """Checked ids, and the mask that they imply.

    Args:
        ids: `token_ids` and, for pairs, `segment_ids`, int32 `(batch, length)`, or `(batch,
            choices, length)` as the task takes them.
        task: Whose vocabulary, segments and positions they must keep to. Segment ids of an encoder
            without segments are not looked at.
    """
    tokenizer, config = task.preprocessor.tokenizer, task.config
    limits = {"token_ids": config.vocabulary_size, "segment_ids": config.num_segments}
    shape = [None] * len(task.input["token_ids"].shape)
    ids = {name: tf.ensure_shape(value, shape) for name, value in ids.items()}
    token_ids = ids["token_ids"]
    checks = [
        tf.debugging.assert_less_equal(
            tf.shape(token_ids)[-1],
            config.max_sequence_length,
            f"token_ids are longer than the {config.max_sequence_length} positions of the model",
        )
    ]
    for name, value in ids.items():
        checks.append(
            tf.debugging.assert_equal(
                tf.shape(value), tf.shape(token_ids), f"{name} and token_ids differ in shape"
            )
        )
        if limits[name]:
            message = f"{name} must be at least 0 and below {limits[name]}"
            checks += [
                tf.debugging.assert_non_negative(value, message),
                tf.debugging.assert_less(value, limits[name], message),
            ]
    with tf.control_dependencies(checks):
        ids = {name: tf.identity(value) for name, value in ids.items()}
    # A server that pads requests to a common length repeats their first element, so that [CLS]
    # behind column 0 is padding too.
    is_first = tf.range(tf.shape(token_ids)[-1]) == 0
    is_padding = (token_ids == tokenizer.pad_token_id) | (token_ids == tokenizer.cls_token_id)
    return {
        "token_ids": ids["token_ids"],
        "segment_ids": ids.get("segment_ids"),
        "padding_mask": is_first | ~is_padding,
    }
