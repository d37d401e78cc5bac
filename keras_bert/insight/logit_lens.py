# SPDX-License-Identifier: Apache-2.0
"""The logit lens: predictions from each layer in a masked LM."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import keras
import numpy as np

from keras_bert import checks
from keras_bert.checks import shorten_repr
from keras_bert.data.labels import softmax
from keras_bert.insight.drawing import axes_or_new, shaded, table_of_cells
from keras_bert.insight.hidden_states import (
    encoder_and_preprocessor,
    require_masked_lm,
    text_states,
)
from keras_bert.models.pretraining import decode_masked_lm
from keras_bert.tables import text_table
from keras_bert.tasks.task import Task

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclasses.dataclass(frozen=True)
class LayerPredictions:
    """Predictions of the masked LM head from the hidden states in each layer.

    Attributes:
        text: The text.
        tokens: Its tokens, including special tokens.
        predictions: Most probable tokens for each layer and token. The first entry is for the
            embeddings.
        probabilities: Their probabilities, float32 `(layers + 1, tokens, top_k)`.
        ranks: Rank in each layer of the token that the last layer finds most probable, int `(layers
            + 1, tokens)`, from 0.
    """

    text: str
    tokens: tuple[str, ...]
    predictions: tuple[tuple[tuple[str, ...], ...], ...]
    probabilities: np.ndarray
    ranks: np.ndarray

    @property
    def stable_from_layer(self) -> list[int]:
        """For each token, the first layer after the last change of its prediction."""
        is_different = self.ranks != 0
        return [
            int(np.flatnonzero(column).max(initial=-1)) + 1 for column in is_different.transpose()
        ]

    def to_dict(self) -> dict[str, Any]:
        """Converts the result to values that JSON can represent."""
        return {
            "text": self.text,
            "tokens": list(self.tokens),
            "stable_from_layer": self.stable_from_layer,
            "layers": [
                [
                    [
                        {"token": token, "score": float(score)}
                        for token, score in zip(token_predictions, scores, strict=True)
                    ]
                    for token_predictions, scores in zip(
                        layer_predictions, layer_probabilities, strict=True
                    )
                ]
                for layer_predictions, layer_probabilities in zip(
                    self.predictions, self.probabilities, strict=True
                )
            ],
            "ranks": self.ranks.tolist(),
        }

    def __str__(self) -> str:
        rows = [
            [f"layer {number}" if number else "embeddings", *(best[0] for best in layer)]
            for number, layer in enumerate(self.predictions)
        ]
        columns = ["", *self.tokens]
        return text_table(columns, rows, numbers_from=len(columns))

    def _repr_html_(self) -> str:
        """Shows the most probable token in each layer, with the last layer at the top."""
        rows = []
        for number, (layer, scores) in enumerate(
            zip(self.predictions, self.probabilities[:, :, 0], strict=True)
        ):
            cells = [
                shaded(best[0], score, hint=f"{score:.4f}")
                for best, score in zip(layer, scores, strict=True)
            ]
            rows.append(([number or "embeddings"], "".join(cells)))
        return table_of_cells(["layer", *self.tokens], rows[::-1])

    def plot(self, axes: Axes | None = None) -> Axes:
        """Draws each layer's most probable token and its probability, first layer at the bottom.

        Args:
            axes: Axes to draw on. `None` creates a figure.

        Raises:
            ImportError: If matplotlib is not installed.
        """
        layers, tokens = self.ranks.shape
        axes = axes_or_new(axes, 0.8 * tokens + 1.5, 0.35 * layers + 1)
        scores = self.probabilities[:, :, 0]
        image = axes.imshow(scores, origin="lower", cmap="Blues", vmin=0, vmax=1, aspect="auto")
        axes.figure.colorbar(image, ax=axes, label="probability")
        for layer, token in np.ndindex(layers, tokens):
            color = "white" if scores[layer, token] > 0.6 else "black"
            word = self.predictions[layer][token][0]
            axes.text(
                token,
                layer,
                word,
                ha="center",
                va="center",
                fontsize=7,
                color=color,
                parse_math=False,
            )
        axes.set_xticks(range(tokens), self.tokens, rotation=90, parse_math=False)
        axes.set_yticks(range(layers), ["embeddings", *map(str, range(1, layers))])
        axes.set_ylabel("layer")
        return axes


def logit_lens(masked_lm: Task, text: str, top_k: int = 5) -> LayerPredictions:
    """Computes the tokens that each layer would predict if it were the last layer.

    The masked LM head is applied to the hidden states of every layer, after the final norm if the
    encoder has one (pre-norm). The head was only trained on the last layer. Poor predictions in
    earlier layers may therefore be caused by the head.

    Args:
        masked_lm: A `MaskedLM` or `Pretrainer` with a preprocessor.
        text: A text, with or without `[MASK]` (RoBERTa: `<mask>`).
        top_k: Number of tokens to return for each layer and token.

    Returns:
        A `LayerPredictions`. It prints as a table, is displayed in notebooks and has a `plot`
        method. In a causal model, each token's predictions are for the next token.

    Raises:
        ValueError: If the task has no masked LM head, or `text` is not a string or is longer than
            the maximum sequence length.

    Example:

    ```python
    lens = logit_lens(masked_lm, "Paris is the [MASK] of France.")
    lens.predictions[4][4]     # layer 4's predictions for the fifth token
    lens.stable_from_layer     # the layer from which each prediction stays the same
    ```

    Reference:
        [Interpreting GPT: the logit lens](https://www.lesswrong.com/posts/AcKRB8wDpdaN6v6ru).
    """
    require_masked_lm(masked_lm)
    if not isinstance(text, str):
        raise ValueError(f"text must be a string. Received: {shorten_repr(text)}")
    backbone, preprocessor = encoder_and_preprocessor(masked_lm)
    vocabulary = preprocessor.tokenizer.vocabulary
    checks.NumberRange(at_least=1, at_most=len(vocabulary), integer=True).check(top_k=top_k)
    head = masked_lm.heads["masked_lm"]
    (row,) = text_states(backbone, preprocessor, [(text,)], special_tokens_in_text=True)
    layer_results: list[Any] = []
    # The last layer comes first, because the other layers are compared with its predictions.
    for states in row.hidden_states[::-1]:
        hidden = keras.ops.convert_to_tensor(states[np.newaxis])
        if layer_results and backbone.final_norm is not None:
            hidden = backbone.final_norm(hidden)
        logits = decode_masked_lm(backbone, head, hidden)
        # (tokens, vocabulary). The embedding table may be padded.
        scores = softmax(keras.ops.convert_to_numpy(logits)[0, :, : len(vocabulary)])
        best = np.argsort(-scores, axis=-1, kind="stable")[:, :top_k]
        if not layer_results:
            final = best[:, :1]
        final_scores = np.take_along_axis(scores, final, axis=-1)
        layer_results.append(
            (
                tuple(tuple(vocabulary[token] for token in tokens) for tokens in best),
                np.take_along_axis(scores, best, axis=-1),
                (scores > final_scores).sum(axis=-1),
            )
        )
    predictions, probabilities, ranks = zip(*reversed(layer_results), strict=True)
    return LayerPredictions(
        text=text,
        tokens=row.tokens,
        predictions=predictions,
        probabilities=np.stack(probabilities),
        ranks=np.stack(ranks),
    )
