# SPDX-License-Identifier: Apache-2.0
"""Selection of the tokens to mask: single tokens, whole words, or n-grams of words."""

from __future__ import annotations

import tensorflow as tf

_HIGHEST = 2**31 - 1


def choose_tokens(
    selectable: tf.Tensor, budgets: tf.Tensor, slots: int | tf.Tensor, seed: tf.Tensor
) -> tf.Tensor:
    """Selects tokens uniformly at random, without replacement.

    Args:
        selectable: Bool `(batch, length)`, which tokens may be selected.
        budgets: int32 `(batch,)`, the number of tokens to select; if a row has fewer, all of them
            are selected.
        slots: The maximum budget.
        seed: Seed of the random numbers, int64 `(2,)`.

    Returns:
        A bool tensor `(batch, length)`, True at selected tokens.
    """
    shape = tf.shape(selectable)
    # Scores are unique in a row: their low bits are the positions.
    scores = _random_high_bits(shape, shape[1], seed) + tf.range(shape[1])
    scores = tf.where(selectable, scores, -1)
    # A row's threshold is its score of rank `budget`. NthElement takes one rank for all rows, so
    # rows with a smaller budget get additional highest scores.
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
    """Visits words in random order, and selects each word that fits into the remaining budget.

    Args:
        starts: Bool `(batch, length)`, the first token of each word. A word extends to the next
            start, or to a token that may not be selected.
        selectable: Bool `(batch, length)`, which tokens may be selected.
        budgets: int32 `(batch,)`, the maximum number of tokens to select.
        seed: Seed of the random numbers, int64 `(2,)`.
        run_starts: Bool `(batch, length)`, the first token of each n-gram. If given, n-grams are
            visited in random order, and the words of each from left to right.

    Returns:
        A bool tensor `(batch, length)`, True at all tokens of selected words.

    Reference:
        [BERT](https://arxiv.org/abs/1810.04805), the released code's whole-word masking.
    """
    batch, length = tf.unstack(tf.shape(starts))
    sizes = tf.where(selectable, _sizes_of_words(starts, selectable), 0)
    # Sorted by the random score of the run, then by position: the runs are in random order, and
    # the tokens of each run stay together and in order.
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
    # Back from the random order to positions in the flat batch, (taken tokens,)
    positions = tf.boolean_mask(order + length * tf.range(batch)[:, tf.newaxis], taken)
    chosen = tf.scatter_nd(
        positions[:, tf.newaxis], tf.ones_like(positions, tf.bool), [batch * length]
    )
    return tf.reshape(chosen, [batch, length])


def word_starts(
    continues: tf.Tensor, selectable: tf.Tensor, sequence_ids: tf.Tensor | None = None
) -> tf.Tensor:
    """Finds the first token of each word.

    A word ends at a token that may not be selected: a `##` token after a `[SEP]`, where a text was
    truncated, begins a word. (In BERT's released code it belongs to the word before `[SEP]`.)

    Args:
        continues: Bool `(batch, length)`, whether a token continues the word before it.
        selectable: Bool `(batch, length)`, which tokens may be selected.
        sequence_ids: int `(batch, length)`, for packed rows: words end at the end of a sequence.

    Returns:
        A bool tensor `(batch, length)`.
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
    """Splits rows into n-grams of words, with a probability of length n proportional to 1/n.

    An n-gram ends early at a token that may not be selected, and never has more words than the
    budget has tokens.

    Args:
        starts: Bool `(batch, length)`, the first token of each word.
        selectable: Bool `(batch, length)`, which tokens may be selected.
        max_words: Maximum length of an n-gram in words.
        budgets: int32 `(batch,)`, the maximum number of tokens that will be selected in a row.
        seed: Seed of the random numbers, int64 `(2,)`.

    Returns:
        A bool tensor `(batch, length)`, True at the first token of each n-gram.

    Reference:
        [ALBERT](https://arxiv.org/abs/1909.11942), section 4.1, equation for p(n).
    """
    batch, length = tf.unstack(tf.shape(starts))
    # The first n-grams are discarded, so that the start of a row is as likely to be inside an
    # n-gram as any other word is.
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
    """Selects words from left to right, skipping those that exceed the remaining budget.

    Args:
        sizes: int32 `(batch, length)`, the number of tokens in the word of each token; 0 for tokens
            that may not be selected.
        starts: Bool `(batch, length)`, the first token of each word; its other tokens follow.
        budgets: int32 `(batch, 1)`.

    Returns:
        A bool tensor `(batch, length)`, True at all tokens of selected words.
    """

    def fitting(candidates: tf.Tensor) -> tf.Tensor:
        sums = tf.cumsum(tf.where(candidates & starts, sizes, 0), axis=1)
        return candidates & (sums <= budgets)

    def retry(candidates: tf.Tensor, fits: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        # A word that exceeds the remaining budget always will: once such words are removed, at
        # least one more word fits.
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
    """Numbers the words (or n-grams) of each row from 1; int32 `(batch, length)`."""
    return tf.cumsum(_as_int(starts), axis=1)


def _as_int(x: tf.Tensor) -> tf.Tensor:
    return tf.cast(x, tf.int32)


def _sizes_of_words(starts: tf.Tensor, selectable: tf.Tensor) -> tf.Tensor:
    """Counts the selectable tokens in the word of each token; int32 `(batch, length)`."""
    batch, length = tf.unstack(tf.shape(starts))
    word = _number_within_rows(starts) + tf.range(batch)[:, tf.newaxis] * (length + 1)
    sizes = tf.math.unsorted_segment_sum(_as_int(selectable), word, batch * (length + 1))
    return tf.gather(sizes, word)


def _random_high_bits(shape: tf.Tensor, length: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
    """Draws nonnegative int32 whose low bits are 0, to be added to positions below `length`."""
    bits = tf.random.stateless_uniform(shape, seed, None, None, tf.int32, alg="philox")
    return tf.bitwise.bitwise_and(bits, _HIGHEST - _low_mask(length))


def _low_mask(length: tf.Tensor) -> tf.Tensor:
    """Returns the smallest 2^n - 1 that is at least `length`."""
    mask = tf.convert_to_tensor(length)
    for shift in (1, 2, 4, 8, 16):
        mask = tf.bitwise.bitwise_or(mask, tf.bitwise.right_shift(mask, shift))
    return mask
