# SPDX-License-Identifier: Apache-2.0
"""The signatures of served classifiers, embedders and multiple-choice tasks.

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
from keras_bert.ops.tensorflow_graphs import traced_once
from keras_bert.ops.varlen import padded_form, rounded_up

TEXT_SIGNATURE = "serving_default"
IDS_SIGNATURE = "serve_ids"
EXAMPLES_SIGNATURE = "serve_examples"
COUNTED_CHOICES_SIGNATURE = "serve_counted_choices"
TOKENS_SIGNATURE = "count_tokens"

# The name of the output with the error of each row, empty if there is none
ERROR = "error"
# Stands for the numbers of a row with an error: finite, since JSON has no NaN
NO_VALUE = -1e6

# How to read the labels of a classifier with `multi_label`
LABELS_REQUESTS = (RowRequest(items={"label": "labels", "score": "scores"}, count="num_labels"),)

# How texts with choices are sent to the signatures below
CHOICE_REQUESTS = (
    RowRequest(
        COUNTED_CHOICES_SIGNATURE,
        items={"choice": "ranking", "text": "ranked_choices", "score": "ranked_scores"},
        count="num_choices",
    ),
)

# Number of chunks of a batch that may be in memory at a time
_PARALLEL_CHUNKS = 32


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
        valid_texts = checked_texts(texts, " and ".join(names), options)
        return outputs.one_in_chunks(task.preprocessor(*valid_texts))

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
        logits = outputs.one_in_chunks(features)
        return with_errors({**answers(logits), "logits": logits}, error)

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
        (text,) = checked_texts((text,), "text", options)
        return {"embedding": outputs.one_in_chunks(task.preprocessor(text))}

    def count_tokens(text: tf.Tensor) -> dict[str, tf.Tensor]:
        return token_counts((text,), "text", task.preprocessor.max_tokens(1), task, options)

    def serve_ids(token_ids: tf.Tensor) -> dict[str, tf.Tensor]:
        features, error = features_of_ids({"token_ids": token_ids}, task, options)
        return with_errors({"embedding": outputs.one_in_chunks(features)}, error)

    return {
        TEXT_SIGNATURE: signature(serve_text, text=(tf.string, 1)),
        IDS_SIGNATURE: signature(serve_ids, token_ids=(tf.int32, 2)),
        TOKENS_SIGNATURE: signature(count_tokens, text=(tf.string, 1)),
    }


def choice_signatures(task: Servable, options: ExportOptions) -> dict[str, Any]:
    """Returns the functions of the SavedModel of a multiple-choice task.

    - `serve_counted_choices`: `text`, string `(batch,)`; `choices`, string `(batch, choices)`; and
      `num_choices`, int32 `(batch,)`, the number of choices of each row; the rest is padding.
      Returns `choice`, the index of the best choice, int32 `(batch,)`; `score`, its probability,
      float32 `(batch,)`; `probabilities`, float32 `(batch, choices)`, in the order of the choices;
      in descending order of probability `ranking`, the indices, int32, `ranked_choices`, string,
      and `ranked_scores`, float32, all `(batch, choices)`; and `error`, string `(batch,)`. Padding
      has probability 0.
    - `serving_default`: `text` and `choices` only; a row ends with its last choice that is not
      empty, and has at least one. Returns the same except `error`. In an export for servers that
      pad, it is the signature above.
    - `serve_ids`: `token_ids` and `segment_ids`, int32 `(batch, choices, length)`; padding is
      recognized by its id, and a choice without tokens has probability 0. Returns the same except
      `ranked_choices`, and `logits`, float32 `(batch, choices)`, and `error`.
    - `count_tokens`: the inputs of `serving_default`. Returns the counts of the text with each
      choice, `(batch, choices)`, of padding 0; see `token_counts`.
    """
    outputs = ServedOutputs(task, options)

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

    def ranked(text: tf.Tensor, choices: tf.Tensor, counts: tf.Tensor) -> dict[str, tf.Tensor]:
        is_choice = tf.sequence_mask(counts, tf.shape(choices)[1])
        features = task.preprocessor(limited(text, options), limited(choices, options))
        features["padding_mask"] &= is_choice[:, :, tf.newaxis]
        answer = answers(outputs.one_in_chunks(features))
        texts = tf.gather(choices, answer["ranking"], batch_dims=1)
        return {**answer, "ranked_choices": texts}

    def checked(text: tf.Tensor, choices: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        text, choices = tf.ensure_shape(text, [None]), tf.ensure_shape(choices, [None, None])
        same = tf.debugging.assert_equal(
            tf.size(text), tf.shape(choices)[0], "text and choices differ in their rows"
        )
        with tf.control_dependencies([same, *not_empty("choices", choices)]):
            return tf.identity(text), tf.identity(choices)

    def serve_counted(
        text: tf.Tensor, choices: tf.Tensor, num_choices: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        text, choices = checked(text, choices)
        counts, error = checked_counts("num_choices", num_choices, choices, lowest=1)
        return with_errors(ranked(text, choices, counts), error)

    def serve_text(text: tf.Tensor, choices: tf.Tensor) -> dict[str, tf.Tensor]:
        text, choices = checked(text, choices)
        return ranked(text, choices, tf.maximum(1, counts_without_padding(choices)))

    def count_tokens(
        text: tf.Tensor, choices: tf.Tensor, *num_choices: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        text, choices = checked(text, choices)
        shape = tf.shape(choices)
        is_choice = tf.sequence_mask(*num_choices or [counts_without_padding(choices)], shape[1])
        pairs = (tf.repeat(text, shape[1]), tf.reshape(choices, [-1]))
        max_tokens = task.preprocessor.pairs.max_tokens(2)
        counts = token_counts(pairs, "text and choices", max_tokens, task, options)
        rows = {name: tf.reshape(value, shape) for name, value in counts.items()}
        return {name: tf.where(is_choice, row, tf.zeros_like(row)) for name, row in rows.items()}

    def serve_ids(token_ids: tf.Tensor, segment_ids: tf.Tensor) -> dict[str, tf.Tensor]:
        ids = {"token_ids": token_ids, "segment_ids": segment_ids}
        features, error = features_of_ids(ids, task, options)
        # A row of one token is not a choice.
        is_choice = tf.reduce_any(features["padding_mask"][:, :, 1:], axis=-1, keepdims=True)
        features["padding_mask"] &= is_choice
        has_choices = tf.reduce_any(is_choice, axis=[1, 2])
        no_choice = tf.where(has_choices, "", "token_ids: no choice of the row has tokens")
        logits = outputs.one_in_chunks(features)
        error = tf.where(error == "", no_choice, error)
        return with_errors({**answers(logits), "logits": logits}, error)

    texts = {"text": (tf.string, 1), "choices": (tf.string, 2)}
    number = {"num_choices": (tf.int32, 1)}
    serve_counts = signature(serve_counted, **texts, **number)
    return {
        TEXT_SIGNATURE: serve_counts if options.padded_batches else signature(serve_text, **texts),
        COUNTED_CHOICES_SIGNATURE: serve_counts,
        IDS_SIGNATURE: signature(serve_ids, token_ids=(tf.int32, 3), segment_ids=(tf.int32, 3)),
        TOKENS_SIGNATURE: signature(
            count_tokens, **texts, **(number if options.padded_batches else {})
        ),
    }


def limited(text: tf.Tensor, options: ExportOptions) -> tf.Tensor:
    """Truncates texts to at most `max_text_bytes`, at the end of a character."""
    limit = options.max_text_bytes
    if limit is None:
        return text
    prefix = tf.strings.substr(text, 0, limit)
    # The rest of a character that was split is invalid UTF-8, and dropped.
    whole = tf.strings.unicode_transcode(prefix, "UTF-8", "UTF-8", errors="ignore")
    return tf.where(tf.strings.length(text) > limit, whole, text)


def checked_texts(
    texts: Sequence[tf.Tensor], names: str, options: ExportOptions
) -> list[tf.Tensor]:
    """Validates strings `(batch,)`, the same number for each of `names`, and truncates them."""
    # Servers pass scalars, which would crash the process without this check.
    texts = [limited(tf.ensure_shape(text, [None]), options) for text in texts]
    if len(texts) == 1:
        return texts
    same = tf.debugging.assert_equal(
        tf.size(texts[0]), tf.size(texts[1]), f"{names} differ in number"
    )
    with tf.control_dependencies([same]):
        return [tf.identity(text) for text in texts]


def token_counts(
    texts: Sequence[tf.Tensor], names: str, max_tokens: int, task: Servable, options: ExportOptions
) -> dict[str, tf.Tensor]:
    """Counts the tokens of texts, and marks the texts that the model truncates.

    This is a signature of its own, so that answers have the outputs of the task alone. The texts
    `(batch,)` with these `names` share a row, which has space for `max_tokens`. The outputs,
    `(batch,)`, are `num_tokens`, int32, of all texts without special tokens, up to `max_text_bytes`
    of each; `max_tokens`, int32; and `truncated`, bool.
    """
    limited_texts = checked_texts(texts, names, options)
    counts = [task.preprocessor.tokenizer.graph(text).row_lengths() for text in limited_texts]
    num_tokens = tf.cast(tf.add_n(counts), tf.int32)
    is_cut = [
        tf.strings.length(text) > tf.strings.length(limited_text)
        for text, limited_text in zip(texts, limited_texts, strict=True)
    ]
    return {
        "num_tokens": num_tokens,
        "max_tokens": tf.fill(tf.shape(num_tokens), max_tokens),
        "truncated": tf.reduce_any([num_tokens > max_tokens, *is_cut], axis=0),
    }


def checked_counts(
    name: str, counts: tf.Tensor, values: tf.Tensor, *, lowest: int = 0
) -> tuple[tf.Tensor, tf.Tensor]:
    """Validates the number of elements of each row of `values`, int32 `(batch,)`.

    Returns the counts, clipped to the possible range, and the error of each row, string `(batch,)`,
    empty if its count was in range.
    """
    counts = tf.ensure_shape(counts, [None])
    rows, width = tf.unstack(tf.shape(values))
    same = tf.debugging.assert_equal(tf.size(counts), rows, f"{name}: expected one for each row")
    with tf.control_dependencies([same]):
        counts = tf.identity(counts)
    error = row_errors(
        (counts < lowest, f"{name} must be at least {lowest}"),
        (counts > width, f"{name}: more than the row has elements"),
    )
    return tf.clip_by_value(counts, tf.minimum(lowest, width), width), error


def counts_without_padding(values: tf.Tensor) -> tf.Tensor:
    """Counts the strings of each row, `(batch, width)`, up to the last that is not empty."""
    numbers = tf.range(1, tf.shape(values)[1] + 1)
    # The maximum over no columns is the lowest integer.
    return tf.maximum(0, tf.reduce_max(tf.where(values == "", 0, numbers), axis=1))


def row_errors(*checks: tuple[tf.Tensor, str]) -> tf.Tensor:
    """Returns the message of the first check that each row fails, or an empty string."""
    error = tf.fill(tf.shape(checks[0][0]), "")
    for fails, message in reversed(checks):
        error = tf.where(fails, message, error)
    return error


def with_errors(outputs: dict[str, tf.Tensor], error: tf.Tensor) -> dict[str, tf.Tensor]:
    """Adds the errors of rows `(batch,)` to the outputs, and removes those rows' answers."""
    marked = {ERROR: error}
    for name, value in outputs.items():
        is_valid = tf.reshape(error == "", [-1, *[1] * (len(value.shape) - 1)])
        nothing: Any = NO_VALUE if value.dtype.is_floating else -1
        marked[name] = tf.where(is_valid, value, "" if value.dtype == tf.string else nothing)
    return marked


def not_empty(name: str, values: tf.Tensor) -> list[tf.Operation]:
    """Returns a check that no row is empty."""
    shape = tf.shape(values)
    has_elements = (shape[0] == 0) | (tf.reduce_prod(shape[1:]) > 0)
    message = f"{name}: a row is empty; each needs one element at least"
    return [tf.debugging.assert_equal(has_elements, True, message)]


def may_have_padding(values: tf.Tensor) -> tf.Tensor:
    """Returns which rows of values `(batch, elements)` a server may have padded, bool `(batch,)`.

    A server pads the rows of a request with the first element of its first row. A row may be padded
    if its last element, and the last elements of all rows from some row up to it, equal the first
    element of that row. Rows of one element are not padded, nor is a batch of a single row.
    """
    values = _flat_rows(values)
    first, last = values[:, :1], values[:, -1:]
    # (batch, 1) or, where rows are empty, (batch, 0) -> (batch,)
    may_begin = tf.reduce_any(first == last, axis=1)
    # In a run, all rows end in the same element. A row may be padded if it, or a row before it in
    # its run, begins with that element.
    changes = tf.concat([[False], tf.reduce_any(last[1:] != last[:-1], axis=1)], axis=0)
    run = tf.cumsum(tf.cast(changes[: tf.shape(values)[0]], tf.int32))
    count = tf.cumsum(tf.cast(may_begin, tf.int32))
    before = tf.math.unsorted_segment_min(
        count - tf.cast(may_begin, tf.int32), run, tf.shape(values)[0]
    )
    is_wide = (tf.shape(values)[0] > 1) & (tf.shape(values)[1] > 1)
    return (count > tf.gather(before, run)) & is_wide


def _flat_rows(values: tf.Tensor) -> tf.Tensor:
    """Reshapes `(batch, …)` to `(batch, elements)`; there may be no elements."""
    shape = tf.shape(values)
    return tf.reshape(values, [shape[0], tf.reduce_prod(shape[1:])])


class ServedOutputs:
    """Computes the outputs of a task, for all signatures by one graph.

    With a graph for each signature, a SavedModel would be that many times larger, and slower to
    write and to load.
    """

    def __init__(self, task: Servable, options: ExportOptions) -> None:
        self._task = task
        self._part_tokens = options.part_tokens

        def compute(features: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
            with padded_form():  # A chunk has next to no padding.
                return self._by_name(task(features, training=False))

        self._graph = traced_once(compute, inline=True)
        self._graph_in_chunks = traced_once(self._compute_in_chunks, inline=True)

    def of_rows(self, features: dict[str, Any]) -> dict[str, tf.Tensor]:
        """Computes the outputs of rows by name, padding included."""
        return dict(self._graph(_with_segments(features)))

    def in_chunks(self, features: dict[str, Any]) -> dict[str, tf.Tensor]:
        """Computes the outputs in chunks of rows of similar lengths.

        On a CPU, a batch of a few hundred tokens is as fast per token as one of thousands. Chunks
        of that size have hardly any padding, whatever rows a server batches, memory is bounded, and
        several cores compute a chunk each. A chunk has at most `part_tokens` tokens, padding
        included, or is a single row.
        """
        return dict(self._graph_in_chunks(_with_segments(features)))

    def _compute_in_chunks(self, features: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        mask = features["padding_mask"]
        length = tf.shape(mask)[-1]
        # One past the last token, (rows, [choices,] length) -> (rows,)
        ends = tf.reduce_max(
            tf.where(mask, tf.range(1, length + 1), 0), axis=list(range(1, len(mask.shape)))
        )
        order = tf.argsort(ends, direction="DESCENDING", stable=True)
        ends = tf.gather(ends, order)
        # Room for the lengths of chunks, which are `_rounded_up`
        extra_columns = self._rounded_up(length) - length
        features = {
            name: tf.pad(tf.gather(x, order), [*[[0, 0]] * (len(x.shape) - 1), [0, extra_columns]])
            for name, x in features.items()
        }
        # The number of choices of multiple choice; without rows, it may be 0
        num_sequences = tf.maximum(1, tf.reduce_prod(tf.shape(mask)[1:-1]))

        def bounds(start: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            """Returns the length of a chunk, and the first row after it."""
            # Without rows, the outputs get their shape from an empty chunk.
            longest = tf.reduce_max(tf.concat([[1], ends[start : start + 1]], axis=0))
            longest = self._rounded_up(longest)
            return longest, start + tf.maximum(1, self._part_tokens // (longest * num_sequences))

        def has_rows(start: tf.Tensor, *_: Any) -> tf.Tensor:
            return start < tf.maximum(1, tf.size(ends))

        _, num_chunks = tf.while_loop(
            has_rows, lambda start, index: (bounds(start)[1], index + 1), (0, 0)
        )
        outputs = self._by_name(self._task.output)
        names = sorted(outputs)
        # Whether an output has a value for each token: its second axis is not the choices
        of_tokens = {
            name: len(mask.shape) == 2 and outputs[name].shape[1] is None for name in names
        }

        def chunk(start: tf.Tensor, index: tf.Tensor, *arrays: tf.TensorArray) -> tuple[Any, ...]:
            longest, following = bounds(start)
            rows = {name: x[start:following, ..., :longest] for name, x in features.items()}
            values = dict(self._graph(rows))
            for name in names:
                if of_tokens[name]:
                    value = values[name][:, :length]
                    num_missing = length - tf.shape(value)[1]
                    values[name] = tf.pad(
                        value, [[0, 0], [0, num_missing], *[[0, 0]] * (len(value.shape) - 2)]
                    )
            new_arrays = (
                array.write(index, values[name]) for name, array in zip(names, arrays, strict=True)
            )
            return (following, index + 1, *new_arrays)

        arrays = [
            tf.TensorArray(
                tf.float32,
                num_chunks,
                infer_shape=False,
                element_shape=[None, *outputs[name].shape[1:]],
            )
            for name in names
        ]
        _, _, *arrays = tf.while_loop(
            has_rows, chunk, (0, 0, *arrays), parallel_iterations=_PARALLEL_CHUNKS
        )
        # (chunks, rows of a chunk, …) -> (rows, …)
        position = tf.math.invert_permutation(order)
        return {
            name: tf.gather(array.concat(), position)
            for name, array in zip(names, arrays, strict=True)
        }

    def _rounded_up(self, length: tf.Tensor) -> tf.Tensor:
        """Rounds a length up as `rounded_up`, where the model has that many positions."""
        longer = rounded_up(length)
        limit = self._task.config.max_sequence_length
        return longer if limit is None else tf.maximum(length, tf.minimum(longer, limit))

    def one_in_chunks(self, features: dict[str, Any]) -> tf.Tensor:
        """Computes the only output of the task in chunks; see `in_chunks`."""
        (output,) = self.in_chunks(features).values()
        return output

    def _by_name(self, outputs: Any) -> dict[str, Any]:
        return dict(outputs) if isinstance(outputs, dict) else {self._task.output_name: outputs}


def _with_segments(features: dict[str, Any]) -> dict[str, tf.Tensor]:
    """Drops features that are `None`, and adds segment ids: the same for all signatures."""
    present = {name: x for name, x in features.items() if x is not None}
    return {"segment_ids": tf.zeros_like(present["token_ids"]), **present}


def features_of_ids(
    ids: dict[str, tf.Tensor], task: Servable, options: ExportOptions
) -> tuple[dict[str, Any], tf.Tensor]:
    """Validates ids, and returns the features with the padding mask that they imply.

    The ids are `token_ids` and, for pairs, `segment_ids`, int32 `(batch, length)`, or for multiple
    choice `(batch, choices, length)`. Segment ids are ignored if the encoder has no segments. The
    features have at most as many columns as the model has positions, and padding in rows with an
    error. The second result is the error of each row, string `(batch,)`, empty if there is none.
    """
    tokenizer, config = task.preprocessor.tokenizer, task.config
    limits = {"token_ids": config.vocabulary_size, "segment_ids": config.num_segments}
    rank = len(task.input["token_ids"].shape)
    ids = {name: tf.ensure_shape(value, [None] * rank) for name, value in ids.items()}
    token_ids = ids["token_ids"]
    same_shapes = [
        tf.debugging.assert_equal(
            tf.shape(value), tf.shape(token_ids), f"{name} and token_ids differ in shape"
        )
        for name, value in ids.items()
        if name != "token_ids"
    ]
    with tf.control_dependencies([*same_shapes, *not_empty("token_ids", token_ids)]):
        ids = {name: tf.identity(value) for name, value in ids.items()}
    token_ids = ids["token_ids"]

    def any_of_row(values: tf.Tensor) -> tf.Tensor:
        return tf.reduce_any(values, axis=list(range(1, rank)))

    # A server pads with the first element, so that [CLS] after the first column is padding too.
    is_first = tf.range(tf.shape(token_ids)[-1]) == 0
    is_padding = (token_ids == tokenizer.pad_token_id) | (token_ids == tokenizer.cls_token_id)
    is_token = is_first | ~is_padding
    checks = [
        (
            any_of_row((value < 0) | (value >= limits[name])),
            f"{name} must be at least 0 and below {limits[name]}",
        )
        for name, value in ids.items()
        if limits[name]
    ]
    length = config.max_sequence_length
    checks.append(
        (
            any_of_row(is_token[..., length:]),
            f"token_ids are longer than the {length} positions of the model",
        )
    )
    if options.padded_batches:
        ends_in_token = tf.reduce_any(_flat_rows(~is_padding)[:, -1:], axis=1)
        checks.append(
            (
                may_have_padding(token_ids) & ends_in_token,
                "token_ids: the row ends in the id that it or a row before it begins with, as a "
                "server pads shorter requests; rows must begin with the id of [CLS], "
                f"{tokenizer.cls_token_id}",
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
