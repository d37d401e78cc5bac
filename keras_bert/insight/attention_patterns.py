# SPDX-License-Identifier: Apache-2.0
"""Attention patterns: where the heads in an encoder attend."""

from __future__ import annotations

import dataclasses
import html
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from keras_bert.insight.drawing import draw_heads, shaded, table_of_cells
from keras_bert.insight.hidden_states import encoder_and_preprocessor, read_texts, text_states
from keras_bert.models.backbone import Backbone
from keras_bert.tasks.task import Task

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Head measure -> its title in tables
MEASURES = {
    "entropy": "entropy (nats)",
    "distance": "mean distance (tokens)",
    "first": "attention to the first token ([CLS])",
    "separators": "attention to separators ([SEP])",
    "itself": "attention to the same token",
    "previous": "attention to the previous token",
    "next": "attention to the next token",
}
_SHARES = ("first", "separators", "itself", "previous", "next")
# SciPy's maximum flow requires 32-bit integers, so capacities are multiples of 2 ** -30.
_CAPACITY_BITS = 30


@dataclasses.dataclass(frozen=True)
class AttentionPatterns:
    """The attention probabilities for texts, and measures of each head.

    Attributes:
        texts: The text or text pair in each example.
        tokens: The tokens of each example, including special tokens.
        scores: Attention probabilities in each layer for each example, float32 `(heads, tokens,
            tokens)`. Matrix row i shows where token i attends.
        measures: Float64 `(layers, heads)` for each name in `MEASURES`, averaged over all tokens in
            all examples. Fractions of the attention are in `[0, 1]`. The first token is excluded
            from the mean for the previous token, and the last token from the mean for the next
            token. NaN where a layer has fewer heads than other layers.
        measures_without_separators: The same measures without separators. Attention to separators
            is removed (the other probabilities are divided by their sum), and separators do not
            attend.
    """

    texts: tuple[tuple[str, ...], ...]
    tokens: tuple[tuple[str, ...], ...]
    scores: tuple[tuple[np.ndarray, ...], ...]
    measures: dict[str, np.ndarray]
    measures_without_separators: dict[str, np.ndarray]

    def rollout(self, text: int = 0) -> np.ndarray:
        """Computes how much of each input token reaches each token per layer (attention rollout).

        In each layer, the mean over heads plus the identity, for the residual connection, is
        divided by its row sums. These matrices are multiplied from the first layer upwards.

        Args:
            text: Index of the example.

        Returns:
            Float64 `(layers, tokens, tokens)`. Each row sums to 1.

        Raises:
            IndexError: If the example does not exist.

        Reference:
            [Quantifying attention flow in transformers](https://arxiv.org/abs/2005.00928),
            section 3, equation 1.
        """
        product = np.eye(len(self._text_tokens(text)))
        layers = []
        for layer in self._residual_attention(text):
            product = layer @ product
            layers.append(product)
        return np.stack(layers)

    def flow(
        self,
        text: int = 0,
        positions: Sequence[int] = (0,),
        layer: int = -1,
        max_tokens: int | None = 256,
    ) -> np.ndarray:
        """Computes how much could flow from each input token to a layer's tokens (attention flow).

        The nodes in the network are the tokens in all layers. An edge leads from each token to each
        token in the layer below. Its capacity is the mean over heads plus the identity, divided by
        the row sum, as in `rollout`. Rollout multiplies along a path. Here, a path carries as much
        as its narrowest edge. Each value is a separate maximum flow, so a row does not sum to 1.
        The authors' code divides each row by its sum.

        Each position and input token requires one maximum flow in a network with layers x tokens x
        tokens edges, computed by `scipy.sparse.csgraph.maximum_flow`. For one position and all
        input tokens, in 6 layers on a busy core, this took 0.5 s for 128 tokens, 9 s for 256 tokens
        and 72 s for 512 tokens. In 12 layers, it took twice as long.

        Args:
            text: Index of the example.
            positions: Tokens that receive the flow. Defaults to the first token ([CLS]).
            layer: Layer of these tokens, from 0. Negative numbers count from the last layer.
            max_tokens: Maximum number of tokens. `None` for no limit.

        Returns:
            Float64 `(len(positions), tokens)`, in `[0, 1]`. Capacities are rounded down to
            multiples of 2^-30, so a value is too small by at most 1e-9 per edge in the minimum cut.

        Raises:
            ImportError: If SciPy is not installed.
            ValueError: If the example has more than `max_tokens` tokens.
            IndexError: If the example, the layer or a position does not exist.

        Reference:
            [Quantifying attention flow in transformers](https://arxiv.org/abs/2005.00928),
            section 3, attention flow.
        """
        from scipy import sparse
        from scipy.sparse.csgraph import maximum_flow

        width = len(self._text_tokens(text))
        if max_tokens is not None and width > max_tokens:
            raise ValueError(
                f"Text {text} must have at most {max_tokens} tokens, because attention flow is "
                f"slow for long texts. Received: {width}. Pass a larger max_tokens."
            )
        top = range(len(self.scores[text]))[layer] + 1
        capacities = sparse.block_diag(self._residual_attention(text)[:top], format="coo")
        nodes = (top + 1) * width
        # Node `depth * width + index` is token `index` in layer `depth`, or in the input for 0.
        network = sparse.csr_array(
            (
                np.floor(capacities.data * 2**_CAPACITY_BITS).astype("int32"),
                (capacities.row + width, capacities.col),
            ),
            shape=(nodes, nodes),
        )
        sources = [top * width + range(width)[position] for position in positions]
        flows = [
            [maximum_flow(network, source, sink).flow_value for sink in range(width)]
            for source in sources
        ]
        return np.asarray(np.array(flows, "float64").reshape(-1, width) / 2**_CAPACITY_BITS)

    def _text_tokens(self, text: int) -> tuple[str, ...]:
        count = len(self.tokens)
        if not -count <= text < count:
            raise IndexError(f"text must be 0 to {count - 1}. Received: {text}")
        return self.tokens[text]

    def _residual_attention(self, text: int) -> list[np.ndarray]:
        """Returns each layer's mean over heads with the residual connection, `(tokens, tokens)`."""
        matrices = []
        for layer in self.scores[text]:
            mean = layer.astype("float64").mean(axis=0)
            mean += np.eye(len(mean))
            matrices.append(mean / mean.sum(axis=-1, keepdims=True))
        return matrices

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The measures of each head, as dicts with `layer` and `head` (from 0) and `MEASURES`.

        Measures without separators have the suffix `_without_separators`.
        """
        head_rows = []
        for layer, head in np.argwhere(~np.isnan(self.measures["entropy"])).tolist():
            head_rows.append(
                {"layer": layer, "head": head}
                | {name: float(values[layer, head]) for name, values in self.measures.items()}
                | {
                    f"{name}_without_separators": float(values[layer, head])
                    for name, values in self.measures_without_separators.items()
                }
            )
        return head_rows

    def to_dict(self, scores: bool = False) -> dict[str, Any]:
        """Converts the result to values that JSON can represent.

        Args:
            scores: Whether to include the attention probabilities. They are large.
        """
        rows: list[dict[str, Any]] = [
            {"texts": list(texts), "tokens": list(tokens)}
            for texts, tokens in zip(self.texts, self.tokens, strict=True)
        ]
        if scores:
            for row, layers in zip(rows, self.scores, strict=True):
                row["scores"] = [layer.tolist() for layer in layers]
        return {"heads": self.rows, "texts": rows}

    def __str__(self) -> str:
        count = sum(map(len, self.tokens))
        lines = [
            f"{count} tokens, texts: {len(self.tokens)}. The three heads with the highest values:"
        ]
        for name, title in MEASURES.items():
            values = self.measures[name]
            order = np.argsort(-np.nan_to_num(values, nan=-1.0), axis=None)[:3]
            best = [np.unravel_index(index, values.shape) for index in order]
            highest = [f"{values[at]:.2f} (layer {at[0]}, head {at[1]})" for at in best]
            lines.append(f"{title:37} {', '.join(highest)}")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        """Shows the first example, shaded by rollout to its first token, and a table of heads."""
        weights = self.rollout()[-1, 0]
        words = " ".join(
            shaded(token, weight / weights.max(), tag="span", hint=f"{weight:.4f}")
            for token, weight in zip(self.tokens[0], weights, strict=True)
        )
        scale = {
            name: 1.0 if name in _SHARES else float(np.nanmax(values)) or 1.0
            for name, values in self.measures.items()
        }
        rows = []
        for row in self.rows:
            cells = [shaded(f"{row[name]:.3f}", row[name] / scale[name]) for name in MEASURES]
            rows.append(([row["layer"], row["head"]], "".join(cells)))
        table = table_of_cells(["layer", "head", *MEASURES.values()], rows)
        title = f"<b>Rollout to {html.escape(self.tokens[0][0])}</b>"
        return f"<div><p>{title}</p><p>{words}</p>{table}</div>"

    def plot(
        self, measure: str = "entropy", separators: bool = True, axes: Axes | None = None
    ) -> Axes:
        """Draws one measure of every head as a heat map, with the first layer at the bottom.

        Args:
            measure: One of `MEASURES`.
            separators: Whether to include separators.
            axes: Axes to draw on. `None` creates a figure.

        Raises:
            ImportError: If matplotlib is not installed.
            ValueError: If the measure does not exist.
        """
        if measure not in MEASURES:
            raise ValueError(f"measure must be one of {', '.join(MEASURES)}. Received: {measure!r}")
        values = (self.measures if separators else self.measures_without_separators)[measure]
        title = MEASURES[measure] + ("" if separators else ", without separators")
        return draw_heads(values, title, axes, highest=1 if measure in _SHARES else None)

    def plot_heads(
        self, text: int = 0, layers: Sequence[int] | None = None, heads: Sequence[int] | None = None
    ) -> Figure:
        """Draws the attention matrices of one example, with one image per head.

        Args:
            text: Index of the example.
            layers: Layers to draw, from 0. `None` for all layers.
            heads: Heads to draw, from 0. `None` for all heads.

        Raises:
            ImportError: If matplotlib is not installed.
            IndexError: If the example, a layer or a head does not exist.
        """
        import matplotlib.pyplot as plt

        tokens = self._text_tokens(text)
        scores = self.scores[text]
        layer_indices = range(len(scores)) if layers is None else layers
        heads_by_layer = {
            layer: range(len(scores[layer])) if heads is None else list(heads)
            for layer in layer_indices
        }
        columns = max(map(len, heads_by_layer.values()))
        side = max(1.2, 0.16 * len(tokens) + 0.4)
        figure, grid = plt.subplots(
            len(heads_by_layer),
            columns,
            figsize=(side * columns, side * len(heads_by_layer)),
            layout="constrained",
            squeeze=False,
        )
        for axes in grid.flat:
            axes.set_axis_off()
        for row, (layer, numbers) in enumerate(heads_by_layer.items()):
            for column, head in enumerate(numbers):
                axes = grid[row, column]
                axes.set_axis_on()
                axes.imshow(scores[layer][head], cmap="Blues", vmin=0, vmax=1)
                axes.set_title(f"layer {layer}, head {head}", fontsize=7)
                is_last, is_left = row == len(heads_by_layer) - 1, column == 0
                axes.set_xticks(
                    range(len(tokens)), tokens if is_last else [], rotation=90, parse_math=False
                )
                axes.set_yticks(range(len(tokens)), tokens if is_left else [], parse_math=False)
                axes.tick_params(labelsize=6)
        return figure


def attention_patterns(
    model: Backbone | Task,
    x: Any,
    *,
    preprocessor: Any = None,
) -> AttentionPatterns:
    """Computes where every attention head attends in texts.

    Args:
        model: A task with a preprocessor, or a `Backbone`.
        x: A text, a pair (a tuple of two texts), or a list of texts or pairs.
        preprocessor: For a `Backbone`, its tokenizer and maximum sequence length.

    Returns:
        An `AttentionPatterns`. It prints as a table, is displayed in notebooks and has plot
        methods. It stores all probabilities: layers x heads x tokens x tokens x 4 bytes per text.

    Raises:
        ValueError: If the model has no tokenizer, `x` has an unsupported type, or a text or pair is
            longer than the maximum sequence length.

    Example:

    ```python
    patterns = attention_patterns(classifier, ["The film was dull.", "Nobody laughed."])
    patterns.measures["previous"]    # (layers, heads)
    patterns.plot("separators")
    patterns.plot_heads(text=0, layers=[2])
    patterns.rollout(0)[-1, 0]       # how much of each token is in [CLS] of the first text
    patterns.flow(0)[0]              # how much of each token could reach it at most
    ```

    Reference:
        [What does BERT look at?](https://arxiv.org/abs/1906.04341), section 3.
    """
    backbone, preprocessor = encoder_and_preprocessor(model, preprocessor)
    tokenizer = preprocessor.tokenizer
    rows = read_texts(x)
    states = list(text_states(backbone, preprocessor, rows, attention=True))
    shape = (len(backbone.blocks), max(len(layer) for layer in states[0].attention))
    totals = [{name: np.full(shape, np.nan) for name in MEASURES} for _ in range(2)]
    for layer in range(shape[0]):
        for number, drop_separators in enumerate((False, True)):
            row_sums = [
                _head_measures(
                    row.attention[layer],
                    np.arange(len(row.tokens)) == 0,
                    row.token_ids == tokenizer.sep_token_id,
                    drop_separators=drop_separators,
                )
                for row in states
            ]
            for name in MEASURES:
                count = sum(row_sum[name][1] for row_sum in row_sums)
                mean = np.sum([row_sum[name][0] for row_sum in row_sums], axis=0) / max(count, 1)
                totals[number][name][layer, : len(mean)] = mean
    return AttentionPatterns(
        texts=tuple(rows),
        tokens=tuple(row.tokens for row in states),
        scores=tuple(row.attention for row in states),
        measures=totals[0],
        measures_without_separators=totals[1],
    )


def _head_measures(
    scores: np.ndarray, is_first: np.ndarray, is_separator: np.ndarray, drop_separators: bool
) -> dict[str, tuple[np.ndarray, int]]:
    """Sums each measure over the tokens in a matrix, `(heads,)`, and counts the tokens."""
    scores = scores.astype("float64")
    positions = np.arange(scores.shape[-1])
    if drop_separators:
        is_other = ~is_separator
        scores, positions = scores[:, is_other][:, :, is_other], positions[is_other]
        is_first, is_separator = is_first[is_other], is_separator[is_other]
        # Within its precision, a head may attend only to separators, so the sum may be 0.
        scores = scores / np.maximum(scores.sum(axis=-1, keepdims=True), 1e-30)
    # (queries, keys): the key's position minus the query's position
    offset = positions - positions[:, np.newaxis]
    logarithms = np.log(np.where(scores > 0, scores, 1.0))
    queries = len(positions)
    measures = {
        "entropy": (-(scores * logarithms).sum(axis=(1, 2)), queries),
        "distance": ((scores * np.abs(offset)).sum(axis=(1, 2)), queries),
        "first": (scores[:, :, is_first].sum(axis=(1, 2)), queries),
        "separators": (scores[:, :, is_separator].sum(axis=(1, 2)), queries),
    }
    for name, distance in (("itself", 0), ("previous", -1), ("next", 1)):
        at = offset == distance
        measures[name] = (scores[:, at].sum(axis=1), int(at.any(axis=1).sum()))
    return measures
