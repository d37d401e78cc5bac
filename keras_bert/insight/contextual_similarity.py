# SPDX-License-Identifier: Apache-2.0
"""Similarity in a model: of tokens by their embeddings, and of one word in several sentences."""

from __future__ import annotations

import dataclasses
import html
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import keras
import numpy as np

from keras_bert import checks
from keras_bert.checks import shorten_repr
from keras_bert.data.packing import cut_tokens, num_special_tokens
from keras_bert.insight.drawing import Tabular, axes_or_new
from keras_bert.insight.hidden_states import encoder_and_preprocessor, text_states
from keras_bert.models.backbone import Backbone
from keras_bert.tables import html_table
from keras_bert.tasks.task import Task

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclasses.dataclass(frozen=True)
class Neighbors:
    """The tokens that are nearest to a token by their embeddings.

    Attributes:
        token: The token.
        tokens: Its neighbors, the nearest first.
        similarities: The cosine of each with the token, float64 `(neighbors,)`.
    """

    token: str
    tokens: tuple[str, ...]
    similarities: np.ndarray

    @property
    def rows(self) -> list[dict[str, Any]]:
        """Dicts of `token` and `similarity`."""
        return [
            {"token": token, "similarity": float(similarity)}
            for token, similarity in zip(self.tokens, self.similarities, strict=True)
        ]

    def __str__(self) -> str:
        return "\n".join(f"{row['similarity']:.4f}  {row['token']}" for row in self.rows)

    def _repr_html_(self) -> str:
        rows = [[row["token"], f"{row['similarity']:.4f}"] for row in self.rows]
        return html_table([self.token, "similarity"], rows)

    def plot(self, axes: Axes | None = None) -> Axes:
        """Draws the similarities as bars, the nearest token at the top.

        Args:
            axes: Where to draw; `None` makes a figure.

        Raises:
            ImportError: If matplotlib is not installed.
        """
        axes = axes_or_new(axes, 5, 0.25 * len(self.tokens) + 1)
        axes.barh(range(len(self.tokens)), self.similarities[::-1], color="#0b5394")
        axes.set_yticks(range(len(self.tokens)), self.tokens[::-1], parse_math=False)
        axes.set_xlabel(f"cosine with {self.token}")
        return axes


def neighbors(
    model: Backbone | Task, token: str, top_k: int = 10, *, preprocessor: Any = None
) -> Neighbors:
    """Finds the tokens that are nearest to a token by the cosine of their embeddings.

    Args:
        model: A task with a preprocessor, or a `Backbone`.
        token: A token of the vocabulary, as it is written there.
        top_k: How many neighbors to return.
        preprocessor: For a `Backbone`: has its tokenizer.

    Raises:
        ValueError: If the token is not in the vocabulary, or `top_k` is out of range.

    Example:

    ```python
    print(neighbors(masked_lm, "paris"))
    ```
    """
    backbone, preprocessor = encoder_and_preprocessor(model, preprocessor)
    tokenizer = preprocessor.tokenizer
    vocabulary = tokenizer.vocabulary
    if token not in vocabulary:
        token_ids = tokenizer(token)
        raise ValueError(
            f"{token!r} is not a token of the vocabulary; as a text it becomes "
            f"{[vocabulary[token_id] for token_id in token_ids]}."
        )
    checks.NumberRange(at_least=1, at_most=len(vocabulary) - 1, integer=True).check(top_k=top_k)
    table = keras.ops.convert_to_numpy(backbone.token_embedding_table)[: len(vocabulary)]
    units = _unit(table.astype("float64"))
    own = tokenizer.token_to_id(token)
    cosines = units @ units[own]
    order = [index for index in np.argsort(-cosines, kind="stable") if index != own][:top_k]
    return Neighbors(token, tuple(vocabulary[index] for index in order), cosines[order])


@dataclasses.dataclass(frozen=True)
class WordContexts(Tabular):
    """One word in several texts, as each layer represents it.

    Attributes:
        word: The word.
        texts: The texts.
        spans: Where the word is in each, `(start, end)` in characters.
        vectors: The mean of the hidden states of the word's tokens, the embeddings first, float32
            `(layers + 1, texts, hidden)`.
        baseline: The mean cosine of a token of one text with a token of another, float64
            `(layers + 1,)`: how similar two words are in a layer, whatever they mean. Special
            tokens do not count.
    """

    word: str
    texts: tuple[str, ...]
    spans: tuple[tuple[int, int], ...]
    vectors: np.ndarray
    baseline: np.ndarray

    @property
    def similarities(self) -> np.ndarray:
        """The cosine of the word in each text with that in each, `(layers + 1, texts, texts)`."""
        units = _unit(self.vectors.astype("float64"))
        cosines: np.ndarray = np.matmul(units, units.transpose(0, 2, 1))
        return cosines

    @property
    def self_similarity(self) -> np.ndarray:
        """The mean cosine of the word in two different texts, float64 `(layers + 1,)`."""
        pairs = np.triu_indices(len(self.texts), k=1)
        mean: np.ndarray = np.mean(self.similarities[:, *pairs], axis=-1)
        return mean

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON, without the vectors."""
        return {
            "word": self.word,
            "texts": list(self.texts),
            "spans": [list(span) for span in self.spans],
            "self_similarity": self.self_similarity.tolist(),
            "baseline": self.baseline.tolist(),
            "similarities": self.similarities.tolist(),
        }

    def table(self) -> tuple[list[str], list[list[str]]]:
        similarities = zip(self.self_similarity, self.baseline, strict=True)
        rows = [
            [f"layer {layer}" if layer else "embeddings", f"{own:.3f}", f"{other:.3f}"]
            for layer, (own, other) in enumerate(similarities)
        ]
        return ["", f"{self.word!r} in two texts", "any two tokens"], rows

    def _repr_html_(self) -> str:
        """The texts with the word in bold, and the similarities by layer."""
        texts = "".join(
            f"<li>{html.escape(text[:start])}<b>{html.escape(text[start:end])}</b>"
            f"{html.escape(text[end:])}</li>"
            for text, (start, end) in zip(self.texts, self.spans, strict=True)
        )
        return f"<div><ol>{texts}</ol>{super()._repr_html_()}</div>"

    def plot(self, axes: Axes | None = None) -> Axes:
        """Draws the similarities of the word and of any two tokens by layer.

        Args:
            axes: Where to draw; `None` makes a figure.

        Raises:
            ImportError: If matplotlib is not installed.
        """
        axes = axes_or_new(axes, 6, 4)
        numbers = range(len(self.baseline))
        axes.plot(numbers, self.self_similarity, marker="o", color="#0b5394", label=self.word)
        axes.plot(
            numbers, self.baseline, marker="o", linestyle="--", color="#777777", label="any two"
        )
        axes.set_xticks(numbers)
        axes.set_xlabel("layer (0: embeddings)")
        axes.set_ylabel("mean cosine in two texts")
        axes.legend()
        return axes


def contexts(
    model: Backbone | Task,
    word: str,
    texts: Sequence[str],
    *,
    preprocessor: Any = None,
) -> WordContexts:
    """Compares one word in several texts, layer by layer.

    Args:
        model: A task with a preprocessor, or a `Backbone`.
        word: The word, in either case.
        texts: At least two texts; its first occurrence in each counts.
        preprocessor: For a `Backbone`: has its tokenizer and the longest row.

    Returns:
        A `WordContexts`, which prints as a table, shows in a notebook and draws itself.

    Raises:
        ValueError: If there are fewer than two texts, or the word is not in one of them, or is cut
            off with the end of the text that does not fit in a row.

    Example:

    ```python
    bank = contexts(masked_lm, "bank", ["We sat on the bank.", "A river bank.", "The bank lends."])
    bank.similarities[-1]    # 3 x 3
    bank.plot()
    ```

    Reference:
        [How contextual are contextualized word representations?](https://arxiv.org/abs/1909.00512),
        sections 3.1 and 3.3.
    """
    if isinstance(texts, str) or len(texts) < 2:
        raise ValueError(f"texts must be at least two texts. Received: {shorten_repr(texts)}")
    backbone, preprocessor = encoder_and_preprocessor(model, preprocessor)
    spans = []
    for number, text in enumerate(texts):
        match = re.search(rf"(?<!\w){re.escape(word)}(?!\w)", text, re.IGNORECASE)
        if match is None:
            raise ValueError(f"Text {number} has no word {word!r}: {shorten_repr(text)}.")
        spans.append(match.span())
    tokenizer = preprocessor.tokenizer
    whole = tokenizer.tokenize_with_offsets(list(texts))
    max_tokens = preprocessor.sequence_length - num_special_tokens(tokenizer)
    cut = cut_tokens(tokenizer, whole, max_tokens)
    vectors, units = [], []
    # Only the word must be within the row
    rows = text_states(backbone, preprocessor, [(text,) for text in texts], truncate=True)
    for number, row in enumerate(rows):
        start, end = spans[number]
        all_tokens, own = (
            [
                index
                for index, bounds in enumerate(zip(starts[number], ends[number], strict=True), 1)
                if bounds[0] < end and bounds[1] > start
            ]
            for _, starts, ends in (whole, cut)
        )
        if not own or len(own) < len(all_tokens):
            raise ValueError(
                f"Text {number}: {word!r} is not in the {max_tokens} tokens that fit in a row."
            )
        vectors.append(row.hidden_states[:, own].mean(axis=1))
        units.append(_unit(row.hidden_states[:, 1:-1].astype("float64")))
    return WordContexts(
        word=word,
        texts=tuple(texts),
        spans=tuple(spans),
        vectors=np.stack(vectors, axis=1),
        baseline=_mean_cosine(units),
    )


def _unit(vectors: np.ndarray) -> np.ndarray:
    norms = np.linalg.norm(vectors, axis=-1, keepdims=True)
    unit: np.ndarray = vectors / np.maximum(norms, 1e-12)
    return unit


def _mean_cosine(units: Sequence[np.ndarray]) -> np.ndarray:
    """The mean product of vectors of two texts, `(layers,)`; each is `(layers, tokens, hidden)`."""
    # The products of all pairs, without the pairs within a text, are products of sums
    sums = np.stack([text.sum(axis=1) for text in units])
    counts = np.array([text.shape[1] for text in units])
    total = (sums.sum(axis=0) ** 2).sum(axis=-1) - (sums**2).sum(axis=(0, -1))
    mean: np.ndarray = total / (counts.sum() ** 2 - (counts**2).sum())
    return mean
