# SPDX-License-Identifier: Apache-2.0
"""A SavedModel that takes text: tokenizer, encoder and head in one TensorFlow graph."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tensorflow as tf

from keras_bert.export.job import ExportOptions
from keras_bert.export.serving_files import write_batching_parameters, write_warm_up_requests
from keras_bert.export.serving_ops import check_serving_ops

TEXT_SIGNATURE = "serving_default"
IDS_SIGNATURE = "serve_ids"


def write_saved_model(
    task: Any, folder: Path, options: ExportOptions, functions: dict[str, Any]
) -> None:
    """Writes signatures, weights and the server's own files.

    Args:
        task: A task with a preprocessor, on the TensorFlow backend.
        folder: Where to; must not exist.
        options: What the SavedModel shall be.
        functions: A `tf.function` with its input signature for each signature; the inputs of
            `serving_default` are strings `(batch,)`, or `(batch, several)`.

    Raises:
        ExportError: If a server could not run the model.
    """
    signatures = {name: function.get_concrete_function() for name, function in functions.items()}
    save_signatures(signatures, folder, task.preprocessor.tokenizer.resources)
    check_serving_ops(folder)
    write_batching_parameters(folder, options.max_batch_size)
    if options.warm_up:
        write_warm_up_requests(
            folder,
            signature=TEXT_SIGNATURE,
            inputs=functions[TEXT_SIGNATURE].input_signature,
            max_batch_size=options.max_batch_size,
            sequence_length=task.preprocessor.sequence_length,
        )


def save_signatures(
    signatures: dict[str, Any], folder: Path, resources: Sequence[Any] = ()
) -> None:
    """Writes concrete functions, and the variables that they read, as a SavedModel.

    Args:
        signatures: The functions by their names.
        folder: Where to; must not exist.
        resources: What else they read: a tokenizer's tables.
    """
    # To track the model itself would store each weight a second time, and the states of its
    # random generators.
    variables = {id(v): v for function in signatures.values() for v in function.variables}
    root = tf.Module()
    root.weights = list(variables.values())
    root.resources = list(resources)
    tf.saved_model.save(root, str(folder), signatures=signatures)


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


def features_of_ids(ids: dict[str, tf.Tensor], task: Any) -> dict[str, Any]:
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
