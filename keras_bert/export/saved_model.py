# SPDX-License-Identifier: Apache-2.0
"""A SavedModel that takes text: tokenizer, encoder and head in one TensorFlow graph."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import tensorflow as tf

from keras_bert.export.job import ExportOptions
from keras_bert.export.serving_files import write_batching_parameters, write_warm_up_requests
from keras_bert.export.serving_ops import check_serving_ops

TEXT_SIGNATURE = "serving_default"
IDS_SIGNATURE = "serve_ids"


def write_saved_model(task: Any, folder: Path, options: ExportOptions) -> None:
    """Writes signatures, weights and the server's own files.

    Args:
        task: A text classifier with a preprocessor, on the TensorFlow backend.
        folder: Where to; must not exist.
        options: What the SavedModel shall be.

    Raises:
        ExportError: If a server could not run the model.
    """
    signatures = {
        TEXT_SIGNATURE: _text_signature(task, options).get_concrete_function(),
        IDS_SIGNATURE: _ids_signature(task, options).get_concrete_function(),
    }
    save_signatures(signatures, folder)
    check_serving_ops(folder)
    write_batching_parameters(folder, options.max_batch_size)
    if options.warm_up:
        write_warm_up_requests(
            folder,
            signature=TEXT_SIGNATURE,
            inputs=_text_inputs(options),
            max_batch_size=options.max_batch_size,
            sequence_length=task.preprocessor.sequence_length,
        )


def save_signatures(signatures: dict[str, Any], folder: Path) -> None:
    """Writes concrete functions, and the variables that they read, as a SavedModel."""
    # To track the model itself would store each weight a second time, and the states of its
    # random generators.
    variables = {id(v): v for function in signatures.values() for v in function.variables}
    root = tf.Module()
    root.weights = list(variables.values())
    tf.saved_model.save(root, str(folder), signatures=signatures)


def _text_inputs(options: ExportOptions) -> tuple[str, ...]:
    return ("text", "text_pair") if options.pair else ("text",)


def _text_signature(task: Any, options: ExportOptions) -> Any:
    preprocessor = task.preprocessor
    answers = _answers(options.class_names)

    def serve_text(*texts: tf.Tensor) -> dict[str, tf.Tensor]:
        # A server hands scalars through; without this check one of them ended the process.
        texts = tuple(tf.ensure_shape(text, [None]) for text in texts)
        if len(texts) > 1:
            same = tf.debugging.assert_equal(
                tf.size(texts[0]), tf.size(texts[1]), "text and text_pair differ in number"
            )
            with tf.control_dependencies([same]):
                texts = tuple(tf.identity(text) for text in texts)
        return answers(task(preprocessor(*texts), training=False))

    specs = [tf.TensorSpec([None], tf.string, name) for name in _text_inputs(options)]
    return tf.function(serve_text, input_signature=specs, autograph=False)


def _ids_signature(task: Any, options: ExportOptions) -> Any:
    answers = _answers(options.class_names)
    names = ("token_ids", "segment_ids") if options.pair else ("token_ids",)

    def serve_ids(*ids: tf.Tensor) -> dict[str, tf.Tensor]:
        features = _features_of_ids(dict(zip(names, ids, strict=True)), task)
        logits = task(features, training=False)
        return {**answers(logits), "logits": logits}

    specs = [tf.TensorSpec([None, None], tf.int32, name) for name in names]
    return tf.function(serve_ids, input_signature=specs, autograph=False)


def _features_of_ids(ids: dict[str, tf.Tensor], task: Any) -> dict[str, tf.Tensor | None]:
    """Checked ids, and the mask that they imply."""
    tokenizer, config = task.preprocessor.tokenizer, task.config
    limits = {"token_ids": config.vocabulary_size, "segment_ids": config.num_segments}
    ids = {name: tf.ensure_shape(value, [None, None]) for name, value in ids.items()}
    token_ids = ids["token_ids"]
    checks = [
        tf.debugging.assert_less_equal(
            tf.shape(token_ids)[1],
            config.max_sequence_length,
            f"token_ids are longer than the {config.max_sequence_length} positions of the model",
        )
    ]
    for name, value in ids.items():
        message = f"{name} must be at least 0 and below {limits[name]}"
        checks += [
            tf.debugging.assert_non_negative(value, message),
            tf.debugging.assert_less(value, limits[name], message),
            tf.debugging.assert_equal(
                tf.shape(value), tf.shape(token_ids), f"{name} and token_ids differ in shape"
            ),
        ]
    with tf.control_dependencies(checks):
        ids = {name: tf.identity(value) for name, value in ids.items()}
    # A server that pads requests to a common length repeats their first element, so that [CLS]
    # behind column 0 is padding too.
    is_first = tf.range(tf.shape(token_ids)[1]) == 0
    is_padding = (token_ids == tokenizer.pad_token_id) | (token_ids == tokenizer.cls_token_id)
    return {
        "token_ids": ids["token_ids"],
        "segment_ids": ids.get("segment_ids"),
        "padding_mask": is_first | ~is_padding,
    }


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
