# SPDX-License-Identifier: Apache-2.0
"""Compares tokens by their embeddings, and one word in different texts."""

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
from keras_bert.data.packing import num_special_tokens, truncate_tokens
from keras_bert.insight.drawing import Tabular, axes_or_new
from keras_bert.insight.hidden_states import encoder_and_preprocessor, text_states
from keras_bert.models.backbone import Backbone
from keras_bert.tables import html_table
from keras_bert.tasks.task import Task
from keras_bert.text.word_search import word_pattern

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclasses.dataclass(frozen=True)
class Neighbors:
    """A token's nearest neighbors by embedding similarity.

    Attributes:
        token: The token.
        tokens: Its neighbors, nearest first.
        similarities: Cosine similarity of each neighbor to the token, float64 `(neighbors,)`.
    """

    token: str
    tokens: tuple[str, ...]
    similarities: np.ndarray

    @property
    def rows(self) -> list[dict[str, Any]]:
        """Dicts with `token` and `similarity`."""
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
        """Draws the similarities as bars, with the nearest token at the top.

        Args:
            axes: Axes to draw on. `None` creates a figure.

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
    """Finds a token's nearest neighbors by the cosine similarity of embeddings.

    Args:
        model: A task with a preprocessor, or a `Backbone`.
        token: A token, as written in the vocabulary.
        top_k: Number of neighbors.
        preprocessor: For a `Backbone`, its tokenizer.

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
            f"token must be in the vocabulary. Received: {token!r}. As a text, it is split into "
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
    """One word in multiple texts, as represented in each layer.

    Attributes:
        word: The word.
        texts: The texts.
        spans: `(start, end)` of the word in each text, in characters.
        vectors: Mean hidden state of the word's tokens, float32 `(layers + 1, texts, hidden)`. The
            first entry is for the embeddings.
        baseline: Mean cosine similarity between tokens in different texts, float64 `(layers + 1,)`.
            It shows how similar any two words are in a layer. Special tokens are excluded.
    """

    word: str
    texts: tuple[str, ...]
    spans: tuple[tuple[int, int], ...]
    vectors: np.ndarray
    baseline: np.ndarray

    @property
    def similarities(self) -> np.ndarray:
        """The cosine similarities of the word between texts, `(layers + 1, texts, texts)`."""
        units = _unit(self.vectors.astype("float64"))
        cosines: np.ndarray = np.matmul(units, units.transpose(0, 2, 1))
        return cosines

    @property
    def self_similarity(self) -> np.ndarray:
        """The mean cosine similarity of the word in two different texts, `(layers + 1,)`."""
        pairs = np.triu_indices(len(self.texts), k=1)
        mean: np.ndarray = np.mean(self.similarities[:, *pairs], axis=-1)
        return mean

    def to_dict(self) -> dict[str, Any]:
        """Converts the result to values that JSON can represent, without the vectors."""
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
        """Shows the texts with the word in bold, and the similarities by layer."""
        texts = "".join(
            f"<li>{html.escape(text[:start])}<b>{html.escape(text[start:end])}</b>"
            f"{html.escape(text[end:])}</li>"
            for text, (start, end) in zip(self.texts, self.spans, strict=True)
        )
        return f"<div><ol>{texts}</ol>{super()._repr_html_()}</div>"

    def plot(self, axes: Axes | None = None) -> Axes:
        """Draws the similarity of the word, and of any two tokens, by layer.

        Args:
            axes: Axes to draw on. `None` creates a figure.

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
    """Compares one word in multiple texts, layer by layer.

    Args:
        model: A task with a preprocessor, or a `Backbone`.
        word: The word. Case is ignored. A Korean particle may follow the word: 사과 is found in
            사과를, but not in 사과나무 and 사과했다. In scripts without spaces, the word may stand
            anywhere.
        texts: At least two texts. The first occurrence of the word in each text is used. All tokens
            with a character of the word represent it. A particle is included only if it shares a
            token with the word.
        preprocessor: For a `Backbone`, its tokenizer and maximum sequence length.

    Returns:
        A `WordContexts`. It prints as a table, is displayed in notebooks and has a `plot` method.

    Raises:
        ValueError: If `texts` has fewer than two texts, a text does not contain the word, or the
            word is truncated because it is beyond the maximum sequence length.

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
    pattern = re.compile(word_pattern([word]), re.IGNORECASE)
    spans = []
    for number, text in enumerate(texts):
        match = pattern.search(text)
        if match is None:
            raise ValueError(
                f"Text {number} must contain the word {word!r}. Received: {shorten_repr(text)}"
            )
        spans.append(match.span("word"))
    tokenizer = preprocessor.tokenizer
    whole = tokenizer.tokenize_with_offsets(list(texts))
    max_tokens = preprocessor.sequence_length - num_special_tokens(tokenizer)
    cut = truncate_tokens(tokenizer, whole, max_tokens)
    vectors, units = [], []
    # Only the word must be within the maximum sequence length.
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
                f"Text {number} must have {word!r} in the {max_tokens} tokens kept by truncation. "
                f"Received: {len(own)} of its {len(all_tokens)} tokens. Shorten the text, or use a "
                "preprocessor with a longer sequence_length."
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
    """Returns the mean cosine between tokens in different texts, `(layers,)`.

    `units` has one array `(layers, tokens, hidden)` per text.
    """
    # The dot products of all pairs add up to the squared norm of the sum. Pairs within a text are
    # subtracted.
    sums = np.stack([text.sum(axis=1) for text in units])
    counts = np.array([text.shape[1] for text in units])
    total = (sums.sum(axis=0) ** 2).sum(axis=-1) - (sums**2).sum(axis=(0, -1))
    mean: np.ndarray = total / (counts.sum() ** 2 - (counts**2).sum())
    return mean
