# SPDX-License-Identifier: Apache-2.0
"""Multi-head self-attention with a single projection to queries, keys and values."""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import keras
from keras import ops

from keras_bert import checks
from keras_bert.layers.dense import Dense
from keras_bert.layers.initial_weights import TruncatedNormal
from keras_bert.layers.shapes import check_same_shape
from keras_bert.ops import (
    SeedGenerator,
    attention,
    attention_with_scores,
    bias_add,
    dispatch,
    in_sliding_window,
    local_attention,
    rotate,
    take,
    tokens_at,
)
from keras_bert.ops.annotations import Shape, Tensor
from keras_bert.ops.attention_kernels import ROWS, WINDOW
from keras_bert.ops.local_attention import attention_in_blocks, mask_of_blocks
from keras_bert.ops.shapes import length_of
from keras_bert.ops.unpadded import Rows, grouped, groups_of, is_unpadded, ungrouped
from keras_bert.ops.unpadded_attention import attention_of_rows, has_kernel_for_rows


class _BiasedProduct(Dense):
    """A dense layer in which the gradient of the bias is summed in float32.

    LoRA updates are included in `kernel`; with int8 weights, Keras calls `quantized_call` instead.
    """

    def call(self, inputs: Tensor, training: bool | None = None) -> Tensor:
        product = ops.matmul(inputs, self.kernel)
        if self.bias is None:
            return product
        return bias_add(product, self.bias, training=bool(training))


@keras.saving.register_keras_serializable(package="keras_bert")
class Attention(keras.layers.Layer):
    """Multi-head self-attention.

    The output projection has no bias of its own: `output_bias` is a weight of this layer, so that
    it can be fused with what follows the product.

    Args:
        num_heads: Number of attention heads.
        num_key_value_heads: Number of heads of the keys and values, each of which is shared by
            `num_heads / num_key_value_heads` heads of the queries. Defaults to `num_heads`.
        head_dim: Dimension of a head. Defaults to the hidden dimension divided by `num_heads`,
            which must divide it; layers whose heads were pruned have fewer heads of the same
            dimension.
        window: The largest distance of two tokens that attend to each other; `None` for no limit.
            Time and memory then grow with length times window, unless scores are returned.
        causal: Whether tokens attend only to themselves and to the tokens before them.
        use_bias: Whether the projections have biases.
        dropout: Dropout rate on the attention probabilities.
        initializer_range: Standard deviation of the kernels' truncated normal initializer.
        output_initializer_range: That of the last product. Defaults to `initializer_range`.
        return_scores: Whether to return the attention probabilities too.
        max_length: The longest rows that are expected, if they are not packed; see
            `keras_bert.ops.attention`. Longer ones are computed too.

    Call arguments:
        inputs: Float `(batch, length, hidden)`.
        padding_mask: Bool `(batch, length)`, False at tokens that are not attended to; `None` for a
            batch without padding, which is faster.
        sequence_ids: int `(batch, length)`, for packed rows: tokens attend only to tokens with the
            same id; `None` if every row is one sequence.
        rotation: The output of `RotaryPositions`, by which queries and keys are rotated; `None` for
            no rotation.
        output_positions: int `(batch, slots)`, the positions of the tokens to compute outputs for;
            `None` for all tokens.
        unpadded_rows: What `keras_bert.ops.unpadded_rows` returned, if the inputs are the tokens of
            its rows end to end, `(1, tokens, hidden)`; the masks are in it.
        add_bias: Whether to add the bias of the output projection. A block adds it together with
            the dropout, the residual connection and the norm.
        training: Whether dropout is active.

    Output shape:
        `(batch, length, hidden)`, or `(batch, slots, hidden)` with `output_positions`; with
        `return_scores`, a tuple of it and of the probabilities `(batch, heads, length, length)`.

    Raises:
        ValueError: If `head_dim` is `None` and `num_heads` does not divide the hidden dimension,
            `num_key_value_heads` does not divide `num_heads`, or the shape of a mask does not
            match.

    Reference:
        [Attention Is All You Need](https://arxiv.org/abs/1706.03762), section 3.2;
        [GQA](https://arxiv.org/abs/2305.13245), section 2.2, for `num_key_value_heads`;
        [Longformer](https://arxiv.org/abs/2004.05150), section 3.1, for `window`.
    """

    def __init__(
        self,
        num_heads: int,
        num_key_value_heads: int | None = None,
        head_dim: int | None = None,
        window: int | None = None,
        causal: bool = False,
        use_bias: bool = True,
        dropout: float = 0.0,
        initializer_range: float = 0.02,
        output_initializer_range: float | None = None,
        return_scores: bool = False,
        max_length: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        checks.POSITIVE_INT.check(num_heads=num_heads)
        checks.POSITIVE_INT.check_given(
            num_key_value_heads=num_key_value_heads,
            head_dim=head_dim,
            window=window,
            max_length=max_length,
        )
        checks.PROPER_FRACTION.check(dropout=dropout)
        checks.POSITIVE.check(initializer_range=initializer_range)
        checks.POSITIVE.check_given(output_initializer_range=output_initializer_range)
        if num_key_value_heads is not None and num_heads % num_key_value_heads:
            raise ValueError(
                f"num_key_value_heads is {num_key_value_heads}; it must divide num_heads, which is "
                f"{num_heads}."
            )
        self.num_heads = num_heads
        self.num_key_value_heads = num_key_value_heads
        self.head_dim = head_dim
        self.window = window
        self.causal = causal
        self.use_bias = use_bias
        self.dropout = dropout
        self.initializer_range = initializer_range
        self.output_initializer_range = output_initializer_range
        self.return_scores = return_scores
        self.max_length = max_length
        self._head_weights: Iterator[Tensor] | None = None
        self.seed_generator = SeedGenerator()

    def build(
        self,
        inputs_shape: Shape,
        padding_mask_shape: Shape | None = None,
        sequence_ids_shape: Shape | None = None,
        rotation_shape: Shape | None = None,
        output_positions_shape: Shape | None = None,
        unpadded_rows_shape: Any = None,
    ) -> None:
        hidden_dim = inputs_shape[-1]
        if self.head_dim is None and hidden_dim % self.num_heads:
            raise ValueError(
                f"num_heads is {self.num_heads}; it must divide the hidden dimension {hidden_dim}."
            )
        head_dim = self.head_dim or hidden_dim // self.num_heads
        self.query_width = self.num_heads * head_dim
        self.key_width = (self.num_key_value_heads or self.num_heads) * head_dim
        # The optimizer LAMB takes a kernel of the first name as three.
        is_grouped = self.key_width < self.query_width
        self.query_key_value = self._new(
            _BiasedProduct,
            self.query_width + 2 * self.key_width,
            "grouped_query_key_value" if is_grouped else "query_key_value",
            self.use_bias,
        )
        self.query_key_value.build((None, hidden_dim))
        self.output_projection = self._new(
            Dense, hidden_dim, "output_projection", False, self.output_initializer_range
        )
        self.output_projection.build((None, self.query_width))
        self.output_bias = None
        if self.use_bias:
            self.output_bias = self.add_weight(
                name="output_bias", shape=(hidden_dim,), initializer="zeros", autocast=False
            )

    def _new(
        self,
        cls: type[Dense],
        units: int,
        name: str,
        use_bias: bool,
        stddev: float | None = None,
    ) -> Dense:
        return cls(
            units,
            use_bias=use_bias,
            kernel_initializer=TruncatedNormal(stddev=stddev or self.initializer_range),
            dtype=self.dtype_policy,
            name=name,
        )

    @contextlib.contextmanager
    def weighing_heads(self, weights: Sequence[Tensor]) -> Iterator[None]:
        """Multiplies what each head outputs by a weight, to measure or to remove heads.

        It has an effect on calls, and not on functions that were traced before.

        Args:
            weights: For each use of this layer in a pass through the encoder, of which there are
                several if layers share weights, float `(batch, heads)` or `(1, heads)`.
        """
        self._head_weights = itertools.cycle(weights)
        try:
            yield
        finally:
            self._head_weights = None

    def call(
        self,
        inputs: Tensor,
        padding_mask: Tensor | None = None,
        sequence_ids: Tensor | None = None,
        rotation: Tensor | None = None,
        output_positions: Tensor | None = None,
        unpadded_rows: Rows | None = None,
        add_bias: bool = True,
        training: bool = False,
    ) -> Tensor:
        length = length_of(inputs)
        projected = self._projected(inputs, length, rotation, training)
        rows = unpadded_rows if is_unpadded(unpadded_rows) else None
        scores = None
        if self.return_scores:
            mask = self._mask(inputs, padding_mask, sequence_ids)
            context, scores = attention_with_scores(
                projected, mask, dropout=self.dropout if training else 0.0, seed=self.seed_generator
            )
        elif rows is not None:
            context = self._context_of_rows(projected, rows, training)
        else:
            context = self._context(projected, padding_mask, sequence_ids, training)
        outputs = self._joined(self._weighed(context, rows), length, output_positions, training)
        if add_bias and self.use_bias:
            outputs = bias_add(outputs, self.output_bias, training=training)
        return (outputs, scores) if self.return_scores else outputs

    def _context(
        self, projected: Any, padding_mask: Tensor, sequence_ids: Tensor, training: bool
    ) -> Tensor:
        """Computes the context of all heads, `(batch, length, heads, head_dim)`."""
        options: dict[str, Any] = {
            "dropout": self.dropout,
            "seed": self.seed_generator,
            "training": training,
        }
        if self.window is None:
            values = projected[0] if isinstance(projected, tuple) else projected
            mask = self._mask(values, padding_mask, sequence_ids)
            # Packed rows are as long as whoever packed them wanted.
            max_length = self.max_length if sequence_ids is None else None
            return attention(projected, mask, max_length=max_length, **options)
        if not isinstance(projected, tuple):
            projected = ops.unstack(projected, 3, axis=2)
        query, key, value = projected
        _check_masks(query, padding_mask, sequence_ids)
        is_masked = padding_mask is not None or sequence_ids is not None
        # (Converters of exported graphs want operations, and not calls of functions.)
        if training and is_masked and not self.dropout and dispatch.is_tensorflow_graph():
            graphs = _graphs(self.window, self.causal, training)
            (mask,) = graphs.masks([(padding_mask, sequence_ids)])
            return graphs.context((query, key, value), mask)
        return local_attention(
            query,
            key,
            value,
            padding_mask,
            sequence_ids,
            window=self.window,
            causal=self.causal,
            **options,
        )

    def _context_of_rows(self, projected: Any, rows: Rows, training: bool) -> Tensor:
        """Computes the context of tokens that are end to end, by a kernel where there is one."""
        dropout = self.dropout if training else 0.0
        if self.window is not None and has_kernel_for_rows(projected, WINDOW, dropout):
            # As a packed row, of which only tokens within the window are computed
            is_key, row_ids = rows["attended"][None], rows["row_ids"][None]
            return self._context(projected, is_key, row_ids, training)
        is_whole = self.window is None and not self.causal
        if is_whole and has_kernel_for_rows(projected, ROWS, dropout):
            return attention_of_rows(projected, rows)
        return self._context_of_groups(projected, rows, training)

    def _context_of_groups(self, projected: Any, rows: Rows, training: bool) -> Tensor:
        """Computes the context of tokens that are end to end, one group of rows at a time."""
        if not training and dispatch.is_tensorflow_graph():
            graphs, masks = _graphs(self.window, self.causal, training), groups_of(rows)
            # (The graph does not know which groups have no rows.)
            all_rows = {**rows, "masks": masks}
            return graphs.groups(projected, all_rows, graphs.masks([(x, None) for x in masks]))

        def context(group: Any, mask: Tensor) -> Tensor:
            return self._context(group, mask, None, training)

        return _by_groups(context, projected, rows, groups_of(rows), training)

    def _joined(
        self, context: Tensor, length: Tensor, output_positions: Tensor, training: bool
    ) -> Tensor:
        """Projects the context of all heads `(batch, length, heads, head_dim)` to the outputs."""
        if output_positions is not None:
            context = ops.reshape(context, (-1, length, self.query_width))
            context = tokens_at(context, output_positions, training)
            length = length_of(output_positions)
        # (batch, tokens, width) -> (batch * tokens, width): one matrix product of rank 2
        outputs = self.output_projection(ops.reshape(context, (-1, self.query_width)))
        return ops.reshape(outputs, (-1, length, outputs.shape[-1]))

    def _weighed(self, context: Tensor, rows: Rows | None) -> Tensor:
        """Multiplies heads `(batch, length, heads, head_dim)` by weights, if there are any."""
        if self._head_weights is None:
            return context
        weights = ops.cast(next(self._head_weights), context.dtype)
        if rows is None or weights.shape[0] == 1:
            return context * weights[:, None, :, None]
        return context * take(weights, rows["row_ids"])[None, :, :, None]

    def probabilities(
        self,
        inputs: Tensor,
        padding_mask: Tensor | None = None,
        sequence_ids: Tensor | None = None,
        rotation: Tensor | None = None,
    ) -> Tensor:
        """Computes the attention probabilities alone, whether or not calls return them.

        Args:
            inputs: See the call arguments.
            padding_mask: See the call arguments.
            sequence_ids: See the call arguments.
            rotation: See the call arguments.

        Returns:
            A tensor `(batch, heads, length, length)` in the compute dtype.
        """
        inputs = ops.cast(inputs, self.compute_dtype)
        mask = self._mask(inputs, padding_mask, sequence_ids)
        return attention_with_scores(self._projected(inputs, length_of(inputs), rotation), mask)[1]

    def _projected(
        self, inputs: Tensor, length: Tensor, rotation: Tensor, training: bool = False
    ) -> Any:
        """Returns queries, keys and values, as `keras_bert.ops.attention` takes them."""
        # (batch, length, hidden) -> (batch * length, hidden): one matrix product
        tokens = ops.reshape(inputs, (-1, inputs.shape[-1]))
        projected = self.query_key_value(tokens, training=training)
        head_dim = self.query_width // self.num_heads
        if rotation is None and self.key_width == self.query_width:
            return ops.reshape(projected, (-1, length, 3, self.num_heads, head_dim))
        ends = (self.query_width, self.query_width + self.key_width)
        query, key, value = (
            ops.reshape(part, (-1, length, part.shape[-1] // head_dim, head_dim))
            for part in ops.split(projected, ends, axis=-1)
        )
        if rotation is not None:
            query, key = (rotate(part, rotation, training) for part in (query, key))
        return query, key, value

    def _mask(self, inputs: Tensor, padding_mask: Tensor, sequence_ids: Tensor) -> Tensor:
        """Combines all masks to an attention mask, True where a query may attend to a key.

        Returns:
            A bool tensor that can be broadcast to `(batch, 1, length, length)`; or `None`.
        """
        _check_masks(inputs, padding_mask, sequence_ids)
        return _combined(inputs, padding_mask, sequence_ids, self.window, self.causal)

    def compute_output_spec(
        self,
        inputs: Tensor,
        padding_mask: Tensor | None = None,
        sequence_ids: Tensor | None = None,
        rotation: Tensor | None = None,
        output_positions: Tensor | None = None,
        unpadded_rows: Rows | None = None,
        add_bias: bool = True,
        training: bool = False,
    ) -> Tensor:
        _check_masks(inputs, padding_mask, sequence_ids)
        batch, length, hidden_dim = inputs.shape
        tokens = (batch, length) if output_positions is None else output_positions.shape
        outputs = keras.KerasTensor((*tokens, hidden_dim), dtype=self.compute_dtype)
        if not self.return_scores:
            return outputs
        return outputs, keras.KerasTensor(
            (batch, self.num_heads, length, length), dtype=self.compute_dtype
        )

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "num_heads": self.num_heads,
            "num_key_value_heads": self.num_key_value_heads,
            "head_dim": self.head_dim,
            "window": self.window,
            "causal": self.causal,
            "use_bias": self.use_bias,
            "dropout": self.dropout,
            "initializer_range": self.initializer_range,
            "output_initializer_range": self.output_initializer_range,
            "return_scores": self.return_scores,
            "max_length": self.max_length,
        }


def _by_groups(
    function: Callable[[Any, Tensor], Tensor],
    projected: Any,
    rows: Rows,
    masks: Sequence[Tensor],
    training: bool = False,
) -> Tensor:
    """Computes a function of the projections of each group of rows and of its mask."""
    if isinstance(projected, tuple):
        parts = (grouped(tensor, rows, training) for tensor in projected)
        groups = list(zip(*parts, strict=True))
    else:
        groups = grouped(projected, rows, training)
    contexts = [function(group, mask) for group, mask in zip(groups, masks, strict=True)]
    return ungrouped(contexts, rows, training)


class _Graphs(NamedTuple):
    """Functions of attention without dropout, of which all layers have one graph on TensorFlow.

    Tracing them in each layer took most of the time in which a deep encoder is traced. The masks
    have a graph of their own: TensorFlow computes them once for all layers.

    Attributes:
        masks: Computes attention masks from pairs of a padding mask and sequence ids.
        context: Computes the context from the projections and one of the masks.
        groups: Computes the context of groups of rows from the projections of tokens that are end
            to end, from the rows, and from the masks of the groups.
    """

    masks: Callable[[list[tuple[Tensor, Tensor]]], list[Tensor]]
    context: Callable[[Any, Tensor], Tensor]
    groups: Callable[[Any, Rows, list[Tensor]], Tensor]


@functools.cache
def _graphs(window: int | None, causal: bool, training: bool) -> _Graphs:
    from keras_bert.ops.tensorflow_graphs import traced_once

    def mask(padding_mask: Tensor, sequence_ids: Tensor) -> Tensor:
        given = padding_mask if sequence_ids is None else sequence_ids
        if window is None:
            return _combined(given, padding_mask, sequence_ids, None, causal)
        return mask_of_blocks(ops.shape(given), padding_mask, sequence_ids, window, causal)

    def context(group: Any, mask: Tensor) -> Tensor:
        if window is None:
            return attention(group, mask, training=training)
        group = group if isinstance(group, tuple) else ops.unstack(group, 3, axis=2)
        return attention_in_blocks(group, mask, window=window, causal=causal, training=training)

    def groups(projected: Any, rows: Rows, masks: list[Tensor]) -> Tensor:
        return _by_groups(context, projected, rows, masks)

    return _Graphs(
        masks=traced_once(lambda inputs: [mask(*pair) for pair in inputs]),
        context=traced_once(context),
        groups=traced_once(groups),
    )


def _combined(
    inputs: Tensor,
    padding_mask: Tensor | None,
    sequence_ids: Tensor | None,
    window: int | None,
    causal: bool,
) -> Tensor | None:
    """Combines masks to an attention mask; see `Attention._mask`."""
    masks = []
    if causal or window is not None:
        positions = ops.arange(length_of(inputs))
        distances = positions[:, None] - positions
        masks.append(in_sliding_window(distances, window, causal)[None, None])
    if padding_mask is not None:
        # (batch, length) -> (batch, 1, 1, length): only keys are masked
        masks.append(ops.cast(padding_mask, "bool")[:, None, None, :])
    if sequence_ids is not None:
        masks.append(ops.equal(sequence_ids[:, None, :, None], sequence_ids[:, None, None, :]))
    return functools.reduce(ops.logical_and, masks) if masks else None


def _check_masks(inputs: Tensor, padding_mask: Tensor, sequence_ids: Tensor) -> None:
    for name, mask in {"padding_mask": padding_mask, "sequence_ids": sequence_ids}.items():
        if mask is not None:
            check_same_shape(name, mask.shape, inputs.shape[:2])
