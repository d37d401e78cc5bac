# SPDX-License-Identifier: Apache-2.0
"""Computes served tasks' outputs in chunks, and marks invalid examples."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from keras_bert.data.packing import num_special_tokens
from keras_bert.data.tfdata.arrays import TENSORFLOW
from keras_bert.export.options import ExportOptions, Servable
from keras_bert.models.inputs import POOLING_MASK
from keras_bert.ops.tensorflow_graphs import trace_once
from keras_bert.ops.unpadding import forbid_unpadding
from keras_bert.ops.varlen import round_up

# The output with each example's error message. It is empty for valid examples.
ERROR = "error"
# Replaces numbers in invalid examples. It is finite, because JSON has no NaN.
NO_VALUE = -1e6

# Maximum number of chunks in memory at a time
_PARALLEL_CHUNKS = 32


class ServedOutputs:
    """Computes a task's outputs with one graph for all signatures.

    With a separate graph for each signature, the SavedModel would be much larger and slower to
    write and load.
    """

    def __init__(self, task: Servable, options: ExportOptions) -> None:
        self._task = task
        self._chunk_tokens = options.chunk_tokens

        def compute(features: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
            with forbid_unpadding():  # A chunk has almost no padding.
                return self._outputs_as_dict(task(features, training=False))

        self._graph = trace_once(compute, inline=True)
        self._graph_in_chunks = trace_once(self._compute_chunks, inline=True)

    def compute(self, features: dict[str, Any]) -> dict[str, tf.Tensor]:
        """Computes all outputs by name, including outputs at padding."""
        return dict(self._graph(self._complete(features)))

    def compute_in_chunks(self, features: dict[str, Any]) -> dict[str, tf.Tensor]:
        """Computes the outputs in chunks of examples with similar lengths.

        On a CPU, a batch with a few hundred tokens is as fast per token as a batch with thousands.
        Chunks of this size have almost no padding for any mix of examples, limit the memory, and
        run in parallel on multiple cores. A chunk has at most `chunk_tokens` tokens, including
        padding, or is a single example.
        """
        return dict(self._graph_in_chunks(self._complete(features)))

    def _compute_chunks(self, features: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        mask = features["padding_mask"]
        length = tf.shape(mask)[-1]
        # Late interaction uses vectors at padding.
        ends = _example_lengths(mask | features.get(POOLING_MASK, mask))
        order = tf.argsort(ends, direction="DESCENDING", stable=True)
        ends = tf.gather(ends, order)
        # Chunk lengths are rounded up, and may exceed the length of the batch.
        extra_columns = self._rounded_up(length) - length
        features = {
            name: _append_zeros(tf.gather(x, order), extra_columns, axis=-1)
            for name, x in features.items()
        }
        # Number of choices in multiple choice. Without examples, it may be 0.
        num_sequences = tf.maximum(1, tf.reduce_prod(tf.shape(mask)[1:-1]))

        def bounds(start: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            """Returns a chunk's length and the first example after it."""
            # Without examples, the outputs get their shape from an empty chunk.
            longest = tf.reduce_max(tf.concat([[1], ends[start : start + 1]], axis=0))
            longest = self._rounded_up(longest)
            return longest, start + tf.maximum(1, self._chunk_tokens // (longest * num_sequences))

        def has_rows(start: tf.Tensor, *_: Any) -> tf.Tensor:
            return start < tf.maximum(1, tf.size(ends))

        _, num_chunks = tf.while_loop(
            has_rows, lambda start, index: (bounds(start)[1], index + 1), (0, 0)
        )
        shapes = {name: x.shape[1:] for name, x in self._outputs_as_dict(self._task.output).items()}
        # Token outputs are as long as their chunk. Tasks with choices have no token outputs.
        token_outputs = [
            name for name in shapes if len(mask.shape) == 2 and shapes[name][0] is None
        ]
        arrays = {
            name: tf.TensorArray(
                tf.float32, num_chunks, infer_shape=False, element_shape=[None, *shape]
            )
            for name, shape in shapes.items()
        }

        def compute(start: tf.Tensor, index: tf.Tensor, arrays: Any) -> tuple[Any, ...]:
            longest, following = bounds(start)
            rows = {name: x[start:following, ..., :longest] for name, x in features.items()}
            values = dict(self._graph(rows))
            for name in token_outputs:
                value = values[name][:, :length]
                values[name] = _append_zeros(value, length - tf.shape(value)[1], axis=1)
            arrays = {name: array.write(index, values[name]) for name, array in arrays.items()}
            return following, index + 1, arrays

        _, _, arrays = tf.while_loop(
            has_rows, compute, (0, 0, arrays), parallel_iterations=_PARALLEL_CHUNKS
        )
        # (chunks, examples in a chunk, …) -> (examples, …)
        position = tf.math.invert_permutation(order)
        return {name: tf.gather(array.concat(), position) for name, array in arrays.items()}

    def _rounded_up(self, length: tf.Tensor) -> tf.Tensor:
        """Rounds a length up with `round_up`, within the model's maximum sequence length."""
        longer = round_up(length)
        limit = self._task.config.max_sequence_length
        return tf.maximum(length, tf.minimum(longer, limit))

    def compute_single_output(self, features: dict[str, Any]) -> tf.Tensor:
        """Computes the task's only output in chunks. See `compute_in_chunks`."""
        (output,) = self.compute_in_chunks(features).values()
        return output

    def compute_of_texts(
        self, *texts: tf.Tensor, num_prompt_tokens: tf.Tensor | int | None = None
    ) -> tuple[tf.Tensor, tf.Tensor | None]:
        """Computes the task's only output for texts or pairs, strings `(batch,)`.

        If the preprocessor splits long texts, the outputs of their windows are merged.
        `num_prompt_tokens`, int32 `(batch,)` or a number, counts the tokens up to the end of each
        prompt. Each window contains them. With `include_prompt=False`, they are not pooled.

        Returns:
            The output, and each text's number of windows, int32 `(batch,)`, or `None` if texts are
            not split.
        """
        excludes_prompt = POOLING_MASK in self._task.input
        preprocessor = self._task.preprocessor
        if not preprocessor.splits_texts:
            features = preprocessor(*texts)
            if excludes_prompt:
                mask = features["padding_mask"]
                is_pooled = tf.range(tf.shape(mask)[1]) >= tf.reshape(num_prompt_tokens, [-1, 1])
                features = {**features, POOLING_MASK: mask & is_pooled}
            return self.compute_single_output(features), None
        prompt_lengths = None
        if num_prompt_tokens is not None:
            prompt_lengths = tf.maximum(tf.cast(num_prompt_tokens, tf.int64) - 1, 0)
        sequences, counts = preprocessor.pack_windows(
            *texts, prompt_lengths=prompt_lengths, pools_prompt=not excludes_prompt
        )
        tokenizer = preprocessor.tokenizer
        features = sequences.padded_to_longest(
            TENSORFLOW, num_special_tokens(tokenizer), tokenizer.pad_token_id
        )
        if excludes_prompt:
            features[POOLING_MASK] = tf.cast(features[POOLING_MASK], tf.bool)
        outputs = self._task.merge_windows(self.compute_single_output(features), counts)
        return outputs, tf.cast(counts, tf.int32)

    def _complete(self, features: dict[str, Any]) -> dict[str, tf.Tensor]:
        """Fills in features that are `None` or missing, so that all signatures share a graph."""
        present = {name: x for name, x in features.items() if x is not None}
        defaults = {"segment_ids": tf.zeros_like(present["token_ids"])}
        if POOLING_MASK in self._task.input:
            defaults[POOLING_MASK] = present["padding_mask"]
        return {**defaults, **present}

    def _outputs_as_dict(self, outputs: Any) -> dict[str, Any]:
        return dict(outputs) if isinstance(outputs, dict) else {self._task.output_name: outputs}


def _example_lengths(mask: tf.Tensor) -> tf.Tensor:
    """Returns each example's length up to its last token, for `(rows, [choices,] length)`."""
    numbers = tf.range(1, tf.shape(mask)[-1] + 1)
    return tf.reduce_max(tf.where(mask, numbers, 0), axis=list(range(1, len(mask.shape))))


def _append_zeros(x: tf.Tensor, count: tf.Tensor, axis: int) -> tf.Tensor:
    paddings: list[list[Any]] = [[0, 0] for _ in x.shape]
    paddings[axis][1] = count
    return tf.pad(x, paddings)


def add_row_errors(outputs: dict[str, tf.Tensor], error: tf.Tensor) -> dict[str, tf.Tensor]:
    """Adds error messages `(batch,)` to the outputs, and clears invalid examples' outputs."""
    marked = {ERROR: error}
    for name, value in outputs.items():
        is_valid = tf.reshape(error == "", [-1, *[1] * (len(value.shape) - 1)])
        nothing: Any = NO_VALUE if value.dtype.is_floating else -1
        marked[name] = tf.where(is_valid, value, "" if value.dtype == tf.string else nothing)
    return marked
