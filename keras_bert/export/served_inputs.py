# SPDX-License-Identifier: Apache-2.0
"""Validates the inputs of serving signatures and finds errors in single examples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from keras_bert.data.prompts import num_prompt_tokens
from keras_bert.export.options import ExportOptions, Servable


def truncate_to_max_bytes(text: tf.Tensor, options: ExportOptions) -> tf.Tensor:
    """Truncates texts to `max_text_bytes` at a character boundary."""
    limit = options.max_text_bytes
    if limit is None:
        return text
    prefix = tf.strings.substr(text, 0, limit)
    # A split character is invalid UTF-8 and is dropped.
    whole = tf.strings.unicode_transcode(prefix, "UTF-8", "UTF-8", errors="ignore")
    return tf.where(tf.strings.length(text) > limit, whole, text)


def validate_texts(
    texts: Sequence[tf.Tensor], names: str, options: ExportOptions
) -> list[tf.Tensor]:
    """Checks that strings `(batch,)` have the same batch size, and truncates them."""
    # Servers may pass scalars. Without this check, they would crash the process.
    texts = [truncate_to_max_bytes(tf.ensure_shape(text, [None]), options) for text in texts]
    if len(texts) == 1:
        return texts
    same = tf.debugging.assert_equal(
        tf.size(texts[0]), tf.size(texts[1]), f"{names} must have equal batch sizes"
    )
    with tf.control_dependencies([same]):
        return [tf.identity(text) for text in texts]


def add_prompt(prompt: str | tf.Tensor, text: tf.Tensor) -> tf.Tensor:
    """Adds a prompt, or a prompt for each example, in front of texts `(batch,)`."""
    if isinstance(prompt, str) and not prompt:
        return text
    return tf.strings.join([prompt, text])


def token_counts(
    texts: Sequence[tf.Tensor],
    names: str,
    max_tokens: int,
    task: Servable,
    options: ExportOptions,
    prompt: str = "",
) -> dict[str, tf.Tensor]:
    """Counts the tokens in texts, and marks texts that the model truncates.

    This is a separate signature, so that predictions only have the task's outputs.

    Args:
        texts: Strings `(batch,)` that share a sequence, for example a text and its `text_pair`.
        names: Names of the texts for error messages.
        max_tokens: Number of tokens that fit in a sequence without special tokens.
        task: The task, with its preprocessor.
        options: Export options. Only `max_text_bytes` is used.
        prompt: A prompt in front of each text. Its tokens count.

    Returns:
        A dict with values `(batch,)`. `num_tokens`, int32, is the number of tokens in all texts
        without special tokens, up to `max_text_bytes` per text. The dict also has `max_tokens`,
        int32, and `truncated`, bool. If long texts are split into windows, it also has
        `num_windows`, int32.
    """
    limited_texts = validate_texts(texts, names, options)
    tokenizer = task.preprocessor.tokenizer
    prompted_texts = [add_prompt(prompt, text) for text in limited_texts]
    counts = [tokenizer.graph(text).row_lengths() for text in prompted_texts]
    num_tokens = tf.cast(tf.add_n(counts), tf.int32)
    is_truncated = [
        tf.strings.length(text) > tf.strings.length(limited_text)
        for text, limited_text in zip(texts, limited_texts, strict=True)
    ]
    outputs = {
        "num_tokens": num_tokens,
        "max_tokens": tf.fill(tf.shape(num_tokens), max_tokens),
        "truncated": tf.reduce_any([num_tokens > max_tokens, *is_truncated], axis=0),
    }
    if task.preprocessor.splits_texts:
        prompt_lengths = None
        if prompt:  # Without [CLS]
            length = num_prompt_tokens(task.preprocessor, prompt) - 1
            prompt_lengths = tf.fill(tf.shape(counts[0]), tf.constant(length, tf.int64))
        windows = task.preprocessor.windows(counts, prompt_lengths)
        outputs["num_windows"] = tf.cast(windows.counts, tf.int32)
    return outputs


def text_limit(preprocessor: Any, num_texts: int) -> int:
    """Returns the number of tokens in one or two texts that are read without truncation.

    If long texts are split into windows, it is the largest number.
    """
    limit: int = tf.int32.max if preprocessor.splits_texts else preprocessor.max_tokens(num_texts)
    return limit


def validate_counts(
    name: str, counts: tf.Tensor, values: tf.Tensor, *, lowest: int = 0
) -> tuple[tf.Tensor, tf.Tensor]:
    """Validates the number of elements in each example of `values`, int32 `(batch,)`.

    Returns:
        The counts, clipped to the valid range, and an error message for each example, string
        `(batch,)`, empty if its count was valid.
    """
    counts = tf.ensure_shape(counts, [None])
    rows, width = tf.unstack(tf.shape(values))
    same = tf.debugging.assert_equal(tf.size(counts), rows, f"{name} must have one per example")
    with tf.control_dependencies([same]):
        counts = tf.identity(counts)
    error = row_errors(
        (counts < lowest, f"{name} must be at least {lowest}"),
        (counts > width, f"{name} must not exceed the number of elements"),
    )
    return tf.clip_by_value(counts, tf.minimum(lowest, width), width), error


def counts_without_padding(values: tf.Tensor) -> tf.Tensor:
    """Counts the strings in each example, `(batch, width)`, up to the last non-empty string."""
    numbers = tf.range(1, tf.shape(values)[1] + 1)
    # The maximum over zero columns is the lowest integer.
    return tf.maximum(0, tf.reduce_max(tf.where(values == "", 0, numbers), axis=1))


def features_of_ids(
    ids: dict[str, tf.Tensor], task: Servable, options: ExportOptions
) -> tuple[dict[str, Any], tf.Tensor]:
    """Validates ids and returns the features, with a padding mask inferred from the ids.

    Args:
        ids: `token_ids` and, for pairs, `segment_ids`, int32 `(batch, length)` or, for multiple
            choice, `(batch, choices, length)`. Segment ids are ignored if the encoder has no
            segments.
        task: The task, with its preprocessor.
        options: Export options. Only `padded_batches` is used.

    Returns:
        The features and an error message for each example, string `(batch,)`, empty if it is valid.
        The features are truncated to the model's maximum sequence length, and invalid examples are
        replaced by padding.
    """
    tokenizer, config = task.preprocessor.tokenizer, task.config
    limits = {"token_ids": config.vocabulary_size, "segment_ids": config.num_segments}
    rank = len(task.input["token_ids"].shape)
    ids = {name: tf.ensure_shape(value, [None] * rank) for name, value in ids.items()}
    token_ids = ids["token_ids"]
    same_shapes = [
        tf.debugging.assert_equal(
            tf.shape(value), tf.shape(token_ids), f"{name} and token_ids must have equal shapes"
        )
        for name, value in ids.items()
        if name != "token_ids"
    ]
    with tf.control_dependencies([*same_shapes, *not_empty("token_ids", token_ids)]):
        ids = {name: tf.identity(value) for name, value in ids.items()}
    token_ids = ids["token_ids"]

    def any_in_example(values: tf.Tensor) -> tf.Tensor:
        return tf.reduce_any(values, axis=list(range(1, rank)))

    # A server pads with the first element, so [CLS] after the first column is also padding.
    is_first = tf.range(tf.shape(token_ids)[-1]) == 0
    is_padding = (token_ids == tokenizer.pad_token_id) | (token_ids == tokenizer.cls_token_id)
    is_token = is_first | ~is_padding
    checks = [
        (
            any_in_example((value < 0) | (value >= limits[name])),
            f"{name} must be at least 0 and below {limits[name]}",
        )
        for name, value in ids.items()
        if limits[name]
    ]
    length = config.max_sequence_length
    checks.append(
        (
            any_in_example(is_token[..., length:]),
            f"token_ids must not be longer than the model's {length} positions",
        )
    )
    if options.padded_batches:
        ends_in_token = tf.reduce_any(_flat_rows(~is_padding)[:, -1:], axis=1)
        checks.append(
            (
                may_have_padding(token_ids) & ends_in_token,
                f"token_ids must start with the [CLS] id, {tokenizer.cls_token_id}: this row ends "
                "in the first id of this or an earlier row, and a server appends it as padding",
            )
        )
    error = row_errors(*checks)
    is_valid = tf.reshape(error == "", [-1, *[1] * (rank - 1)])
    token_ids = tf.where(is_valid, token_ids, tokenizer.pad_token_id)
    segment_ids = ids.get("segment_ids")
    return {
        "token_ids": token_ids[..., :length],
        "segment_ids": None
        if segment_ids is None
        else tf.where(is_valid, segment_ids, 0)[..., :length],
        "padding_mask": (is_token & (is_valid | is_first))[..., :length],
    }, error


def row_errors(*checks: tuple[tf.Tensor, str]) -> tf.Tensor:
    """Returns the message of each example's first failed check, or an empty string."""
    error = tf.fill(tf.shape(checks[0][0]), "")
    for fails, message in reversed(checks):
        error = tf.where(fails, message, error)
    return error


def not_empty(name: str, values: tf.Tensor) -> list[tf.Operation]:
    """Returns a check that every example has at least one element."""
    shape = tf.shape(values)
    has_elements = (shape[0] == 0) | (tf.reduce_prod(shape[1:]) > 0)
    message = f"{name} must have at least one element per example"
    return [tf.debugging.assert_equal(has_elements, True, message)]


def may_have_padding(values: tf.Tensor) -> tf.Tensor:
    """Returns which examples a server may have padded, bool `(batch,)`.

    A server pads all rows in a request with the first element of the first row. So row i may be
    padded if, for some row j ≤ i, rows j to i all end in the first element of row j. Rows with one
    element are not padded, and neither is a batch with a single row.
    """
    values = _flat_rows(values)
    first, last = values[:, :1], values[:, -1:]
    # (batch, 1), or (batch, 0) if rows are empty -> (batch,)
    may_begin = tf.reduce_any(first == last, axis=1)
    # All rows in a run end in the same element. A row may be padded if it, or an earlier row in its
    # run, starts with this element.
    changes = tf.concat([[False], tf.reduce_any(last[1:] != last[:-1], axis=1)], axis=0)
    run = tf.cumsum(tf.cast(changes[: tf.shape(values)[0]], tf.int32))
    count = tf.cumsum(tf.cast(may_begin, tf.int32))
    before = tf.math.unsorted_segment_min(
        count - tf.cast(may_begin, tf.int32), run, tf.shape(values)[0]
    )
    is_wide = (tf.shape(values)[0] > 1) & (tf.shape(values)[1] > 1)
    return (count > tf.gather(before, run)) & is_wide


def _flat_rows(values: tf.Tensor) -> tf.Tensor:
    """Reshapes `(batch, …)` to `(batch, elements)`. Rows may be empty."""
    shape = tf.shape(values)
    return tf.reshape(values, [shape[0], tf.reduce_prod(shape[1:])])
