# SPDX-License-Identifier: Apache-2.0
"""Scores how likely a masked LM finds sentences."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import keras
import numpy as np

from keras_bert.checks import shorten_repr
from keras_bert.data.batch_options import BatchOptions
from keras_bert.insight.hidden_states import require_masked_lm
from keras_bert.ops.dispatch import compiles_each_shape
from keras_bert.tasks.masked_lm import MaskedLM, token_batches
from keras_bert.tasks.pretrainer import Pretrainer

BATCH_SIZE = 128


@dataclasses.dataclass(frozen=True)
class TextLikelihood:
    """How likely a masked LM finds each token in a text, given all other tokens.

    Attributes:
        text: The text.
        tokens: Its tokens.
        spans: `(start, end)` of each token, in characters.
        log_probabilities: Natural logarithm of each token's probability when the token is masked,
            float64 `(tokens,)`.
    """

    text: str
    tokens: tuple[str, ...]
    spans: tuple[tuple[int, int], ...]
    log_probabilities: np.ndarray

    @property
    def total(self) -> float:
        """The pseudo-log-likelihood: the sum of the log probabilities, in nats."""
        return float(self.log_probabilities.sum())

    @property
    def perplexity(self) -> float:
        """The pseudo-perplexity: `exp` of the mean negative log probability per token."""
        return float(np.exp(-self.log_probabilities.mean()))


def pseudo_log_likelihood(
    masked_lm: MaskedLM | Pretrainer,
    texts: Sequence[str],
    batch_size: int = BATCH_SIZE,
    verbose: int | str = 0,
) -> list[TextLikelihood]:
    """Scores texts by masking their tokens one at a time.

    A causal model predicts each token from the tokens before it, without a mask. The total is then
    the text's log-likelihood.

    Args:
        masked_lm: A `MaskedLM` or `Pretrainer` with a preprocessor.
        texts: Texts. Each text is computed once per token.
        batch_size: Number of sequences per batch.
        verbose: 1 shows a progress bar.

    Returns:
        One `TextLikelihood` for each text, in order.

    Raises:
        ValueError: If a text is empty or longer than the maximum sequence length.

    Reference:
        [Masked language model scoring](https://arxiv.org/abs/1910.14659), equation 1.
    """
    rows, spans = tokenize(masked_lm, texts)
    vocabulary = masked_lm.preprocessor.tokenizer.vocabulary
    positions = [range(1, len(row) - 1) for row in rows]
    scores = _token_log_probabilities(masked_lm, rows, positions, batch_size, verbose)
    return [
        TextLikelihood(text, tuple(vocabulary[token] for token in row[1:-1]), own, token_scores)
        for text, row, own, token_scores in zip(texts, rows, spans, scores, strict=True)
    ]


def masked_log_probabilities(
    masked_lm: MaskedLM | Pretrainer,
    rows: Sequence[Sequence[int]],
    positions: Sequence[Sequence[int]],
    batch_size: int = BATCH_SIZE,
    verbose: int | str = 0,
) -> list[np.ndarray]:
    """Computes log probabilities of tokens. Each token is masked separately.

    Args:
        masked_lm: A `MaskedLM` or `Pretrainer` with a preprocessor.
        rows: Token IDs of each sequence with special tokens, ragged `(rows, None)`.
        positions: Positions of the tokens to score, ragged `(rows, None)`.
        batch_size: Number of sequences per batch. Batches have similar lengths.
        verbose: 1 shows a progress bar.

    Returns:
        Float64 `(positions,)` for each sequence, in nats.

    Raises:
        ValueError: If the model is causal.
    """
    require_bidirectional(masked_lm)
    return _token_log_probabilities(masked_lm, rows, positions, batch_size, verbose)


def _token_log_probabilities(
    masked_lm: MaskedLM | Pretrainer,
    rows: Sequence[Sequence[int]],
    positions: Sequence[Sequence[int]],
    batch_size: int,
    verbose: int | str,
) -> list[np.ndarray]:
    """Computes `masked_log_probabilities`, also for causal models."""
    mask = masked_lm.preprocessor.tokenizer.mask_token_id
    # In a causal model, the token before a mask predicts it.
    offset = int(masked_lm.config.causal)
    slots = [(number, slot) for number, row in enumerate(positions) for slot in row]
    masked_rows = [
        [*rows[number][:slot], mask, *rows[number][slot + 1 :]] for number, slot in slots
    ]
    log_probabilities = candidate_log_probabilities(
        masked_lm,
        masked_rows,
        [slot - offset for _, slot in slots],
        [[rows[number][slot]] for number, slot in slots],
        batch_size,
        verbose,
    )
    scores = iter(log_probabilities)
    return [np.array([next(scores)[0] for _ in row], "float64") for row in positions]


def candidate_log_probabilities(
    masked_lm: MaskedLM | Pretrainer,
    rows: Sequence[Sequence[int]],
    positions: Sequence[int],
    candidates: Sequence[Sequence[int]],
    batch_size: int = BATCH_SIZE,
    verbose: int | str = 0,
) -> list[np.ndarray]:
    """Computes the log probabilities of candidate tokens at one position in each sequence.

    Args:
        masked_lm: A `MaskedLM` or `Pretrainer` with a preprocessor.
        rows: Token IDs with special tokens and masks, ragged `(rows, None)`. Equal sequences with
            the same position are only computed once.
        positions: Position of the candidates in each sequence.
        candidates: IDs of the candidates for each sequence, ragged `(rows, None)`.
        batch_size: Number of sequences per batch.
        verbose: 1 shows a progress bar.

    Returns:
        Float64 `(candidates,)` for each sequence, in nats.
    """
    if not rows:
        return []
    askers: dict[tuple[tuple[int, ...], int], list[int]] = {}
    for number, (row, position) in enumerate(zip(rows, positions, strict=True)):
        askers.setdefault((tuple(row), position), []).append(number)
    batches = token_batches(
        [row for row, _ in askers],
        masked_lm.preprocessor,
        BatchOptions(batch_size, compiles=compiles_each_shape()),
        [[position] for _, position in askers],
    )
    numbers = list(askers.values())
    log_probabilities = [np.zeros(0)] * len(rows)
    progress = keras.utils.Progbar(batches.num_batches, verbose=int(verbose != 0))
    for features, index in batches:
        outputs = masked_lm.predict_on_batch(features)
        # A Pretrainer has two outputs.
        outputs = outputs["masked_lm_logits"] if isinstance(outputs, dict) else outputs
        logits = keras.ops.convert_to_numpy(outputs)[:, 0]
        highest = logits.max(axis=-1, keepdims=True)
        normalizers = np.log(np.exp(logits - highest).sum(axis=-1, dtype="float64"))
        for row_candidates, row_logits, most, normalizer in zip(
            index, logits, highest, normalizers, strict=True
        ):
            for number in numbers[row_candidates]:
                candidate_logits = row_logits[list(candidates[number])]
                log_probabilities[number] = (candidate_logits - most).astype("float64") - normalizer
        progress.add(1)
    return log_probabilities


def require_bidirectional(masked_lm: MaskedLM | Pretrainer) -> None:
    """Checks that a masked LM is not causal."""
    require_masked_lm(masked_lm)
    if masked_lm.config.causal:
        raise ValueError(
            "The masked LM must not be causal. A causal model predicts a token only from the "
            "tokens before it, so masking one token at a time ignores the tokens after it."
        )


def tokens_of_spans(
    masked_lm: MaskedLM | Pretrainer,
    texts: Sequence[str],
    spans: Sequence[Sequence[tuple[int, int]]],
    names: Sequence[str] | None = None,
) -> tuple[list[list[int]], list[list[list[int]]]]:
    """Returns the texts' token IDs with special tokens, and the positions of the tokens in spans.

    Spans are `(start, end)` in characters. `names` are the texts' names in error messages.
    """
    rows, bounds = tokenize(masked_lm, texts, names)
    positions = [
        [
            [
                position
                for position, (start, end) in enumerate(token_bounds, start=1)
                if start < last and end > first
            ]
            for first, last in words
        ]
        for token_bounds, words in zip(bounds, spans, strict=True)
    ]
    return rows, positions


def tokenize(
    masked_lm: MaskedLM | Pretrainer, texts: Sequence[str], names: Sequence[str] | None = None
) -> tuple[list[list[int]], list[tuple[tuple[int, int], ...]]]:
    """Returns the texts' IDs with special tokens, and the start and end of all other tokens."""
    require_masked_lm(masked_lm)
    if isinstance(texts, str):
        raise ValueError(f"texts must be a list of strings. Received: the string {texts[:80]!r}")
    for number, text in enumerate(texts):
        if not isinstance(text, str):
            name = names[number] if names else f"Text {number}"
            raise ValueError(f"{name} must be a string. Received: {shorten_repr(text)}")
    tokenizer = masked_lm.preprocessor.tokenizer
    ids, starts, ends = tokenizer.tokenize_with_offsets(list(texts))
    max_tokens = masked_lm.preprocessor.sequence_length - 2
    for number, row in enumerate(ids):
        if not 1 <= len(row) <= max_tokens:
            name = names[number] if names else f"Text {number}"
            raise ValueError(f"{name} must have 1 to {max_tokens} tokens. Received: {len(row)}")
    rows = [[tokenizer.cls_token_id, *row, tokenizer.sep_token_id] for row in ids]
    return rows, [tuple(zip(*own, strict=True)) for own in zip(starts, ends, strict=True)]
