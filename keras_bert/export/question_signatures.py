# SPDX-License-Identifier: Apache-2.0
"""Serving signatures of question answerers. The graph contains windows and the span search."""

from __future__ import annotations

from typing import Any, Protocol

import tensorflow as tf

from keras_bert.data.questions import QuestionWindows, likely_spans
from keras_bert.data.tfdata.arrays import TENSORFLOW
from keras_bert.export.options import ExportOptions, Servable
from keras_bert.export.served_inputs import features_of_ids, token_counts, validate_texts
from keras_bert.export.served_outputs import ServedOutputs, add_row_errors
from keras_bert.export.signatures import (
    IDS_SIGNATURE,
    TEXT_SIGNATURE,
    TOKENS_SIGNATURE,
    signature,
)
from keras_bert.text.graph.normalization import drop_invalid

# Number of candidate start and end tokens per window, as in `QuestionAnswerer.answer`
N_BEST = 20
# Score of spans that cannot be answers. It is finite, because segment maxima do not preserve
# infinity.
NO_SPAN = -1e6


class ServableAnswerer(Servable, Protocol):
    """The additional interface that the span search requires."""

    max_answer_length: int
    null_threshold: float | None


def question_signatures(task: ServableAnswerer, options: ExportOptions) -> dict[str, Any]:
    """Returns the signature functions for a question answerer's SavedModel.

    - `serving_default` accepts `question` and `context`, strings `(batch,)`. Long contexts are
      split into windows. Invalid UTF-8 is dropped before characters are counted. It returns:
        - `answer`: Span of the context, string `(batch,)`. If the task has a `null_threshold`, the
          answer may be empty, and both offsets are then 0.
        - `start`, `end`: The answer's offsets in characters (Unicode code points), int32
          `(batch,)`.
        - `score`: The answer's probability, float32 `(batch,)`.
    - `serve_ids` accepts `token_ids` and `segment_ids`, int32 `(batch, length)`. Padding is
      recognized by its id. It returns `start_logits` and `end_logits`, float32 `(batch,
      positions)`, and `error`, string `(batch,)`. The logits cover all positions of the model and
      are -1e6 at padding. A server can only split large requests if the outputs have a fixed width.
    - `count_tokens` accepts `question` and `context`. It returns the question's token counts. See
      `keras_bert.export.served_inputs.token_counts`.
    """
    outputs = ServedOutputs(task, options)

    def serve_questions(question: tf.Tensor, context: tf.Tensor) -> dict[str, tf.Tensor]:
        preprocessor = task.preprocessor
        question, context = validate_texts((question, context), "question and context", options)
        windows = preprocessor(question, context)
        features = preprocessor.pad(windows)
        logits = outputs.compute_in_chunks(features)
        start, end, score = best_spans(
            logits, features["padding_mask"], windows, tf.size(question), task
        )
        answer = tf.strings.substr(drop_invalid(context), start, end - start, unit="UTF8_CHAR")
        return {"answer": answer, "start": start, "end": end, "score": score}

    def count_tokens(question: tf.Tensor, context: tf.Tensor) -> dict[str, tf.Tensor]:
        # Contexts are split into windows, so only `max_text_bytes` truncates them.
        _, limited_context = validate_texts((question, context), "question and context", options)
        max_tokens = task.preprocessor.max_query_length
        counts = token_counts((question,), "question", max_tokens, task, options)
        is_truncated = tf.strings.length(context) > tf.strings.length(limited_context)
        return {**counts, "truncated": counts["truncated"] | is_truncated}

    def serve_ids(token_ids: tf.Tensor, segment_ids: tf.Tensor) -> dict[str, tf.Tensor]:
        ids = {"token_ids": token_ids, "segment_ids": segment_ids}
        features, error = features_of_ids(ids, task, options)
        mask, length = features["padding_mask"], task.config.max_sequence_length
        paddings = [[0, 0], [0, length - tf.shape(mask)[1]]]
        # (batch, length) -> (batch, positions)
        logits = {
            name: tf.ensure_shape(
                tf.pad(tf.where(mask, value, NO_SPAN), paddings, constant_values=NO_SPAN),
                [None, length],
            )
            for name, value in outputs.compute_in_chunks(features).items()
        }
        return add_row_errors(logits, error)

    return {
        TEXT_SIGNATURE: signature(serve_questions, question=(tf.string, 1), context=(tf.string, 1)),
        IDS_SIGNATURE: signature(serve_ids, token_ids=(tf.int32, 2), segment_ids=(tf.int32, 2)),
        TOKENS_SIGNATURE: signature(count_tokens, question=(tf.string, 1), context=(tf.string, 1)),
    }


def best_spans(
    logits: dict[str, tf.Tensor],
    mask: tf.Tensor,
    windows: QuestionWindows,
    num_questions: tf.Tensor,
    task: ServableAnswerer,
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Finds the best answer to each question, as `QuestionAnswerer.answer` does.

    Args:
        logits: `start_logits` and `end_logits`, float32 `(windows, length)`.
        mask: True at non-padding tokens, boolean `(windows, length)`.
        windows: The questions' windows, in the order of `logits`.
        num_questions: Number of questions.
        task: The task. Only `max_answer_length` and `null_threshold` are used.

    Returns:
        Each answer's start, end (exclusive) and probability, each `(questions,)`.
    """
    question = tf.cast(windows.question_index, tf.int32)
    # Dense tensors with the shape of the logits, False and 0 at padding
    is_max_context, char_starts, char_ends = (
        TENSORFLOW.to_dense(rows, tf.shape(mask)[1], 0)
        for rows in (windows.is_max_context, windows.char_starts, windows.char_ends)
    )
    start_logits, end_logits = logits["start_logits"], logits["end_logits"]
    first, last, is_allowed = likely_spans(
        (start_logits, end_logits),
        mask,
        is_max_context > 0,
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
    question_best = tf.gather(best, question)
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

    # Find the first window with the best pair, and the pair's index in the window.
    number = tf.range(tf.size(question))
    window = tf.math.unsorted_segment_min(
        tf.where(window_best == question_best, number, number.dtype.max), question, num_questions
    )
    pair = tf.gather(tf.argmax(scores, axis=1, output_type=tf.int32), window)
    count = tf.shape(first)[1]
    start_token = tf.gather(tf.gather(first, window), pair // count, batch_dims=1)
    end_token = tf.gather(tf.gather(last, window), pair % count, batch_dims=1)
    start, end = (
        tf.where(is_null, 0, tf.gather_nd(values, tf.stack([window, token], axis=1)))
        for values, token in ((char_starts, start_token), (char_ends, end_token))
    )
    return start, end, score
