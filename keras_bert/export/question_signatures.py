# SPDX-License-Identifier: Apache-2.0
"""What a served question answerer takes and returns: windows and search are in the graph."""

from __future__ import annotations

from typing import Any, Protocol

import tensorflow as tf

from keras_bert.data.question_batches import likely_spans
from keras_bert.export.options import Servable
from keras_bert.export.signatures import (
    IDS_SIGNATURE,
    TEXT_SIGNATURE,
    checked_texts,
    features_of_ids,
    signature,
)

# First and last tokens that are looked at in each window, as in `QuestionAnswerer.answer`
N_BEST = 20
# Windows that the model reads at a time
PART = 32
# The score of what cannot be an answer; no infinity, which the maximum of a segment does not keep
NO_SPAN = -1e6


class ServableAnswerer(Servable, Protocol):
    """What the search for spans needs to know besides."""

    max_answer_length: int
    null_threshold: float | None


def question_signatures(task: ServableAnswerer) -> dict[str, Any]:
    """The functions of a question answerer's SavedModel.

    - `serving_default`: `question` and `context`, strings `(batch,)`. Returns, each `(batch,)`,
      `answer`, a part of the context, string; `start` and `end`, the characters (Unicode code
      points) of the context between which it lies, int32; and `score`, its probability, float32.
      A context of any length is read in windows inside the graph, 32 at a time. With the task's
      `null_threshold` an answer may be empty, from 0 to 0. Bytes of a
      context that are no UTF-8 are left out before characters are counted.
    - `serve_ids`: `token_ids` and `segment_ids`, int32 `(batch, length)`; padding is known by its
      id. Returns `start_logits` and `end_logits`, float32 `(batch, length)`.

    Args:
        task: A question answerer with a preprocessor, on the TensorFlow backend.
    """

    def serve_questions(question: tf.Tensor, context: tf.Tensor) -> dict[str, tf.Tensor]:
        preprocessor = task.preprocessor
        question, context = checked_texts((question, context), "question and context")
        windows = preprocessor(question, context)
        features = preprocessor.padded(windows)
        logits = logits_in_parts(task, features)
        start, end, score = best_spans(
            logits, features["padding_mask"], windows, tf.size(question), task
        )
        answer = preprocessor.passage_slice(context, start, end)
        return {"answer": answer, "start": start, "end": end, "score": score}

    def serve_ids(token_ids: tf.Tensor, segment_ids: tf.Tensor) -> dict[str, tf.Tensor]:
        ids = {"token_ids": token_ids, "segment_ids": segment_ids}
        return dict(task(features_of_ids(ids, task), training=False))

    return {
        TEXT_SIGNATURE: signature(serve_questions, question=(tf.string, 1), context=(tf.string, 1)),
        IDS_SIGNATURE: signature(serve_ids, token_ids=(tf.int32, 2), segment_ids=(tf.int32, 2)),
    }


def logits_in_parts(task: Servable, features: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
    """The logits of windows, some at a time: a book as passage must not take a server's memory.

    Args:
        task: The question answerer.
        features: Of any number of windows, `(windows, length)` each.

    Returns:
        `start_logits` and `end_logits`, float32 `(windows, length)`.
    """
    names = sorted(task.output)
    # One part where there is no window: outputs have their shape from the model.
    num_parts = tf.maximum(1, -(-tf.shape(features["token_ids"])[0] // PART))

    def part(index: tf.Tensor, *outputs: tf.TensorArray) -> tuple[Any, ...]:
        rows = {name: x[index * PART : (index + 1) * PART] for name, x in features.items()}
        logits = task(rows, training=False)
        written = (
            array.write(index, logits[name]) for name, array in zip(names, outputs, strict=True)
        )
        return (index + 1, *written)

    arrays = [
        tf.TensorArray(tf.float32, num_parts, infer_shape=False, element_shape=[None, None])
        for _ in names
    ]
    _, *outputs = tf.while_loop(
        lambda index, *_: index < num_parts, part, (0, *arrays), parallel_iterations=1
    )
    # (parts, part's windows, length) -> (windows, length)
    return {name: array.concat() for name, array in zip(names, outputs, strict=True)}


def best_spans(
    logits: dict[str, tf.Tensor],
    mask: tf.Tensor,
    windows: Any,
    num_questions: tf.Tensor,
    task: ServableAnswerer,
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """The best answer of each question, as `QuestionAnswerer.answer` finds it.

    Args:
        logits: `start_logits` and `end_logits`, float32 `(windows, length)`.
        mask: True at real tokens, boolean `(windows, length)`.
        windows: The `Windows` of the preprocessor.
        num_questions: How many questions they are of.
        task: Decides on the longest answer, and on when there is none.

    Returns:
        The first character, one past the last, and the probability, `(questions,)` each.
    """
    question = tf.cast(windows.question_index, tf.int32)
    # As dense as the logits, False and 0 at padding
    is_max_context, char_ends = (
        ragged.to_tensor(shape=tf.shape(mask, ragged.row_splits.dtype))
        for ragged in (windows.is_max_context, windows.char_ends)
    )
    start_logits, end_logits = logits["start_logits"], logits["end_logits"]
    first, last, is_allowed = likely_spans(
        (start_logits, end_logits),
        mask,
        is_max_context,
        char_ends > 0,
        n_best=N_BEST,
        max_answer_length=task.max_answer_length,
    )
    scores = (
        tf.gather(start_logits, first, batch_dims=1)[:, :, None]
        + tf.gather(end_logits, last, batch_dims=1)[:, None, :]
    )
    scores = tf.where(is_allowed, scores, NO_SPAN)
    # (windows, best, best) -> (windows, pairs)
    scores = tf.reshape(scores, [tf.shape(scores)[0], -1])
    window_best = tf.reduce_max(scores, axis=1)
    best = tf.math.unsorted_segment_max(window_best, question, num_questions)
    of_best = tf.gather(best, question)
    null = tf.math.unsorted_segment_min(
        start_logits[:, 0] + end_logits[:, 0], question, num_questions
    )
    is_null, largest = best <= NO_SPAN, best
    if task.null_threshold is not None:
        is_null |= null - best > task.null_threshold
        largest = tf.maximum(best, null)
    weights = tf.exp(scores - tf.gather(largest, question)[:, None])
    weights = tf.reduce_sum(tf.where(scores > NO_SPAN, weights, 0.0), axis=1)
    total = tf.math.unsorted_segment_sum(weights, question, num_questions)
    if task.null_threshold is not None:
        total += tf.exp(null - largest)
        best = tf.where(is_null, null, best)
    score = tf.math.divide_no_nan(tf.exp(best - largest), total)

    # The first window that holds the best pair, and that pair's number in it
    number = tf.range(tf.size(question))
    window = tf.math.unsorted_segment_min(
        tf.where(window_best == of_best, number, number.dtype.max), question, num_questions
    )
    pair = tf.gather(tf.argmax(scores, axis=1, output_type=tf.int32), window)
    count = tf.shape(first)[1]
    start_token = tf.gather(tf.gather(first, window), pair // count, batch_dims=1)
    end_token = tf.gather(tf.gather(last, window), pair % count, batch_dims=1)
    start, end = (
        tf.where(is_null, 0, tf.gather_nd(values.to_tensor(), tf.stack([window, token], axis=1)))
        for values, token in ((windows.char_starts, start_token), (windows.char_ends, end_token))
    )
    return start, end, score
