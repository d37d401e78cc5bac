# SPDX-License-Identifier: Apache-2.0
"""Which tokens of a batch are masked: single ones, whole words, runs of words."""

from __future__ import annotations

import tensorflow as tf

_HIGHEST = 2**31 - 1


def choose_tokens(
    selectable: tf.Tensor, budgets: tf.Tensor, slots: int | tf.Tensor, seed: tf.Tensor
) -> tf.Tensor:
    """Chooses tokens, any subset of a row's budget as likely as any other.

    Args:
        selectable: Bool `(batch, length)`, where a token may be chosen.
        budgets: int32 `(batch,)`, how many to choose; all, where a row has no more.
        slots: The largest budget there can be.
        seed: int64 `(2,)`.

    Returns:
        Bool `(batch, length)`.
    """
    shape = tf.shape(selectable)
    # No two of a row are the same: their low bits are their positions.
    scores = _random_high_bits(shape, shape[1], seed) + tf.range(shape[1])
    scores = tf.where(selectable, scores, -1)
    # A row's threshold is its budget-th score. The kernel that finds it wants one rank for all
    # rows, so rows with a smaller budget are given scores that win.
    winners = tf.range(slots) < (slots - budgets)[:, tf.newaxis]
    raced = tf.concat([scores, tf.where(winners, _HIGHEST, -1)], axis=1)
    threshold = tf.raw_ops.NthElement(input=raced, n=slots - 1, reverse=True)
    return selectable & (scores >= threshold[:, tf.newaxis])


def choose_words(
    starts: tf.Tensor,
    selectable: tf.Tensor,
    budgets: tf.Tensor,
    seed: tf.Tensor,
    run_starts: tf.Tensor | None = None,
) -> tf.Tensor:
    """Visits words in a random order and takes each that fits into the rest of the budget.

    Args:
        starts: Bool `(batch, length)`, the first token of each word, which goes on to the next
            start or to a token that may not be chosen.
        selectable: Bool `(batch, length)`, where a token may be chosen.
        budgets: int32 `(batch,)`, the most tokens to choose.
        seed: int64 `(2,)`.
        run_starts: Bool `(batch, length)`, the first token of each run of words. The order is one
            of runs then, and within each that of its words.

    Returns:
        Bool `(batch, length)`, all tokens of a word or none.

    Reference:
        [BERT](https://arxiv.org/abs/1810.04805), the released code's whole-word masking.
    """
    batch, length = tf.unstack(tf.shape(starts))
    sizes = tf.where(selectable, _sizes_of_words(starts, selectable), 0)
    # Sorted by the score of its run, and where that is the same by its position: runs in a random
    # order, the tokens of each together and in theirs.
    run = _number_within_rows(starts if run_starts is None else run_starts)
    run_scores = _random_high_bits([batch, length + 1], length, seed)
    keys = tf.gather(run_scores, run, batch_dims=1) + tf.reverse(tf.range(length), [0])
    keys = tf.sort(keys, axis=1, direction="DESCENDING")
    order = length - 1 - tf.bitwise.bitwise_and(keys, _low_mask(length))
    taken = _take_while_they_fit(
        tf.gather(sizes, order, batch_dims=1),
        tf.gather(starts, order, batch_dims=1),
        budgets[:, tf.newaxis],
    )
    # Back from the random order: positions in the batch, (taken tokens,)
    positions = tf.boolean_mask(order + length * tf.range(batch)[:, tf.newaxis], taken)
    chosen = tf.scatter_nd(
        positions[:, tf.newaxis], tf.ones_like(positions, tf.bool), [batch * length]
    )
    return tf.reshape(chosen, [batch, length])


def word_starts(
    continues: tf.Tensor, selectable: tf.Tensor, sequence_ids: tf.Tensor | None = None
) -> tf.Tensor:
    """The first token of each word.

    A word never reaches over a token that may not be chosen: a `##` piece behind a `[SEP]`, where
    a text was cut, is a word of its own. (In BERT's released code it belongs to the word before.)

    Args:
        continues: Bool `(batch, length)`, whether a token continues the word before it.
        selectable: Bool `(batch, length)`, where a token may be chosen.
        sequence_ids: int `(batch, length)` of packed rows; no word reaches into another sequence.

    Returns:
        Bool `(batch, length)`.
    """
    joined = continues[:, 1:] & selectable[:, :-1]
    if sequence_ids is not None:
        joined &= sequence_ids[:, 1:] == sequence_ids[:, :-1]
    return selectable & ~tf.pad(joined, [[0, 0], [1, 0]])


def run_starts(
    starts: tf.Tensor,
    selectable: tf.Tensor,
    max_words: int,
    budgets: tf.Tensor,
    seed: tf.Tensor,
) -> tf.Tensor:
    """Cuts rows into runs of words whose lengths are drawn: n words with a probability like 1/n.

    A run ends early at a token that may not be chosen, and has never more words than the budget
    has tokens.

    Args:
        starts: Bool `(batch, length)`, the first token of each word.
        selectable: Bool `(batch, length)`, where a token may be chosen.
        max_words: The longest run.
        budgets: int32 `(batch,)`, the most tokens that will be chosen in a row.
        seed: int64 `(2,)`.

    Returns:
        Bool `(batch, length)`, the first token of each run.

    Reference:
        [ALBERT](https://arxiv.org/abs/1909.11942), section 4.1, equation for p(n).
    """
    batch, length = tf.unstack(tf.shape(starts))
    # The first runs are thrown away, so that a row is as likely to begin inside one as to go on
    # inside one anywhere else.
    skipped = 8 * max_words
    draws = tf.random.stateless_uniform([batch, length + skipped], seed, alg="philox")
    weights = [1 / n for n in range(1, max_words + 1)]
    limits = [sum(weights[:n]) / sum(weights) for n in range(1, max_words)]
    num_words = 1 + sum(_as_int(draws >= limit) for limit in limits)
    num_words = tf.minimum(num_words, budgets[:, tf.newaxis])
    run = tf.searchsorted(
        tf.cumsum(num_words, axis=1), skipped + _number_within_rows(starts), side="left"
    )
    goes_on = (run[:, 1:] == run[:, :-1]) & selectable[:, :-1]
    return starts & ~tf.pad(goes_on, [[0, 0], [1, 0]])


def _take_while_they_fit(sizes: tf.Tensor, starts: tf.Tensor, budgets: tf.Tensor) -> tf.Tensor:
    """The tokens of the words that fit, one word after the other.

    Args:
        sizes: int32 `(batch, length)`, how many tokens the word of each token has, 0 for none.
        starts: Bool `(batch, length)`, the first token of each word; the others follow it.
        budgets: int32 `(batch, 1)`.

    Returns:
        Bool `(batch, length)`.
    """

    def fitting(candidates: tf.Tensor) -> tf.Tensor:
        sums = tf.cumsum(tf.where(candidates & starts, sizes, 0), axis=1)
        return candidates & (sums <= budgets)

    def retry(candidates: tf.Tensor, fits: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        # A word that is too large for the rest of the budget stays so: without it, at least one
        # word more fits.
        left = budgets - tf.reduce_sum(_as_int(fits), axis=1, keepdims=True)
        candidates = fits | (candidates & (sizes <= left))
        return candidates, fitting(candidates)

    candidates = (sizes > 0) & (sizes <= budgets)
    _, taken = tf.while_loop(
        lambda candidates, fits: tf.reduce_any(candidates != fits),
        retry,
        (candidates, fitting(candidates)),
    )
    return taken


def _number_within_rows(starts: tf.Tensor) -> tf.Tensor:
    """Which word or run of its row a token is in, from 1; int32 `(batch, length)`."""
    return tf.cumsum(_as_int(starts), axis=1)


def _as_int(x: tf.Tensor) -> tf.Tensor:
    return tf.cast(x, tf.int32)


def _sizes_of_words(starts: tf.Tensor, selectable: tf.Tensor) -> tf.Tensor:
    """How many tokens that may be chosen the word of each token has; int32 `(batch, length)`."""
    batch, length = tf.unstack(tf.shape(starts))
    word = _number_within_rows(starts) + tf.range(batch)[:, tf.newaxis] * (length + 1)
    sizes = tf.math.unsorted_segment_sum(_as_int(selectable), word, batch * (length + 1))
    return tf.gather(sizes, word)


def _random_high_bits(shape: tf.Tensor, length: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
    """Random int32, not negative, whose low bits are 0: room for a position below `length`."""
    bits = tf.random.stateless_uniform(shape, seed, None, None, tf.int32, alg="philox")
    return tf.bitwise.bitwise_and(bits, _HIGHEST - _low_mask(length))


def _low_mask(length: tf.Tensor) -> tf.Tensor:
    """The smallest 2^n - 1 that is not below `length`."""
    mask = tf.convert_to_tensor(length)
    for shift in (1, 2, 4, 8, 16):
        mask = tf.bitwise.bitwise_or(mask, tf.bitwise.right_shift(mask, shift))
    return mask
