# SPDX-License-Identifier: Apache-2.0
"""Selection of the tokens to mask: single tokens, whole words, or n-grams of words."""

from __future__ import annotations

from typing import Any, NamedTuple

from keras_bert.data.arrays import Arrays

_HIGHEST = 2**31 - 1
# The mantissa of float32, and so the bits of a random number in [0, 1)
_MANTISSA = 2**23 - 1


class RandomRows(NamedTuple):
    """A stream of random numbers, in which each row of a batch has its own range.

    So the numbers of a row do not depend on the other rows that are here.

    Args:
        seed: The seed of the stream, two integers.
        first: The index in the batch of the first row that is here.
    """

    seed: tuple[Any, Any]
    first: int = 0

    def bits(self, xp: Arrays, rows: Any, columns: Any) -> Any:
        """Returns integers in `[0, 2^32)`, int64 `(rows, columns)`."""
        bits = xp.random_bits(self.seed, rows * columns, self.first * columns)
        return xp.reshape(bits, (rows, columns))


def choose_tokens(xp: Arrays, selectable: Any, budgets: Any, slots: Any, draws: RandomRows) -> Any:
    """Selects tokens uniformly at random, without replacement, bool `(batch, length)`.

    `budgets`, int32 `(batch,)`, of at least 1 and at most `slots`, are the numbers of tokens; a row
    with fewer selectable ones has all of them selected.
    """
    scores = _random_high_bits(xp, selectable, width(xp, selectable), draws)
    # Scores are unique in a row: their low bits are the positions.
    scores = xp.where(selectable, scores + _positions(xp, selectable), -1)
    ranked = xp.highest_in_rows(scores, slots)
    return selectable & (scores >= xp.take_along(ranked, budgets[:, None] - 1))


def choose_words(
    xp: Arrays,
    starts: Any,
    selectable: Any,
    budgets: Any,
    draws: RandomRows,
    run_starts: Any = None,
) -> Any:
    """Visits words in random order, and selects each word that fits into the remaining budget.

    A word extends to the next of `starts`, or to a token that may not be selected. With
    `run_starts`, n-grams are visited in random order, and the words of each from left to right. All
    arrays are `(batch, length)`, bool, but `budgets`, int32 `(batch,)`.

    Reference:
        [BERT](https://arxiv.org/abs/1810.04805), the released code's whole-word masking.
    """
    batch, length = xp.size(starts), width(xp, starts)
    sizes = xp.where(selectable, _sizes_of_words(xp, starts, selectable), 0)
    # Sorted by the random score of the run, then by position: the runs are in random order, and
    # the tokens of each run stay together and in order.
    run = _number_within_rows(xp, starts if run_starts is None else run_starts)
    # (A row has at most as many runs as tokens, and its first tokens may be before the first run.)
    run_scores = _random_high_bits(xp, xp.concat([starts, starts[:, :1]], axis=1), length, draws)
    last = xp.cast(length - 1, "int32")
    keys = xp.take_along(run_scores, run) + (last - _positions(xp, starts))
    keys = xp.highest_in_rows(keys, length)
    order = last - (keys & xp.cast(_low_mask(length), "int32"))
    is_taken = _take_while_they_fit(
        xp, xp.take_along(sizes, order), xp.take_along(starts, order), budgets[:, None]
    )
    # Back from the random order to positions in the flat batch
    flat = xp.cast(order, "int64") + (length * xp.arange(batch))[:, None]
    positions = xp.select(flat, is_taken)
    is_selected = xp.scatter(positions, xp.full(xp.size(positions), True, "bool"), batch * length)
    return xp.reshape(is_selected, (batch, length))


def word_starts(xp: Arrays, continues: Any, selectable: Any, sequence_ids: Any = None) -> Any:
    """Finds the first token of each word, bool `(batch, length)`.

    A word ends at a token that may not be selected: a `##` token after a `[SEP]`, where a text was
    truncated, begins a word. (In BERT's released code it belongs to the word before `[SEP]`.) In
    packed rows it ends at the end of a sequence.
    """
    continues_word = continues & _of_token_before(xp, selectable)
    if sequence_ids is not None:
        before = xp.concat([sequence_ids[:, :1], sequence_ids[:, :-1]], axis=1)
        continues_word = continues_word & (sequence_ids == before)
    return selectable & ~continues_word


def run_starts(
    xp: Arrays, starts: Any, selectable: Any, max_words: int, budgets: Any, draws: RandomRows
) -> Any:
    """Splits rows into n-grams of words, with a probability of length n proportional to 1/n.

    An n-gram ends early at a token that may not be selected, and never has more than `max_words`
    words, nor more than the budget, int32 `(batch,)`, has tokens. Returns where n-grams start, as
    `starts` has it for words: all are bool `(batch, length)`.

    Reference:
        [ALBERT](https://arxiv.org/abs/1909.11942), section 4.1, equation for p(n).
    """
    # The first n-grams are discarded, so that the start of a row is as likely to be inside an
    # n-gram as any other word is.
    skipped = 8 * max_words
    batch, num_words = xp.size(starts), skipped + width(xp, starts)
    fractions = as_fractions(xp, draws.bits(xp, batch, num_words))
    weights = [1 / n for n in range(1, max_words + 1)]
    limits = [sum(weights[:n]) / sum(weights) for n in range(max_words)]
    sizes = sum(xp.cast(fractions >= limit, "int32") for limit in limits)
    # The number of words up to the end of each n-gram
    ends = xp.cumsum(xp.minimum(sizes, budgets[:, None]), axis=1)
    flat = xp.cast(ends, "int64") + (num_words * xp.arange(batch))[:, None]
    flat = xp.select(flat, ends < xp.cast(num_words, "int32"))
    is_end = xp.scatter(flat, xp.full(xp.size(flat), True, "bool"), batch * num_words)
    is_end = xp.reshape(is_end, (batch, num_words))
    words_before = skipped + _number_within_rows(xp, starts) - 1
    return starts & (xp.take_along(is_end, words_before) | ~_of_token_before(xp, selectable))


def as_fractions(xp: Arrays, bits: Any) -> Any:
    """Converts random integers to float32 that are uniform in `[0, 1)`."""
    return xp.cast(bits & _MANTISSA, "float32") * (1 / (_MANTISSA + 1))


def width(xp: Arrays, x: Any) -> Any:
    """Returns the number of columns: an integer, or a scalar where it is unknown in a graph."""
    return xp.size(x, 1) if x.shape[1] is None else int(x.shape[1])


def _take_while_they_fit(xp: Arrays, sizes: Any, starts: Any, budgets: Any) -> Any:
    """Selects words from left to right, and skips words that exceed the remaining budget.

    `sizes` has the number of tokens in the word of each token, 0 for tokens that may not be
    selected; budgets are `(batch, 1)`, the rest `(batch, length)`.
    """

    def fitting(candidates: Any) -> Any:
        sums = xp.cumsum(xp.where(candidates & starts, sizes, 0), axis=1)
        return candidates & (sums <= budgets)

    def retry(candidates: Any, fits: Any) -> tuple[Any, Any]:
        # A word that exceeds the remaining budget always will: once such words are removed, at
        # least one more word fits.
        remaining_budgets = budgets - xp.sum(xp.cast(fits, "int32"), axis=1)[:, None]
        candidates = fits | (candidates & (sizes <= remaining_budgets))
        return candidates, fitting(candidates)

    candidates = (sizes > 0) & (sizes <= budgets)
    _, is_taken = xp.while_loop(
        lambda candidates, fits: xp.any(candidates ^ fits),
        retry,
        (candidates, fitting(candidates)),
    )
    return is_taken


def _of_token_before(xp: Arrays, flags: Any) -> Any:
    """Returns the flag of the token before each token, and false for the first of a row."""
    return xp.concat([flags[:, :1] & False, flags[:, :-1]], axis=1)


def _number_within_rows(xp: Arrays, starts: Any) -> Any:
    """Numbers the words (or n-grams) of each row from 1; int32 `(batch, length)`."""
    return xp.cast(xp.cumsum(xp.cast(starts, "int32"), axis=1), "int32")


def _sizes_of_words(xp: Arrays, starts: Any, selectable: Any) -> Any:
    """Counts the selectable tokens in the word of each token; int32 `(batch, length)`."""
    batch, most = xp.size(starts), width(xp, starts) + 1
    word = xp.cast(_number_within_rows(xp, starts), "int64") + (most * xp.arange(batch))[:, None]
    return xp.take(xp.count(xp.select(word, selectable), batch * most), word)


def _positions(xp: Arrays, x: Any) -> Any:
    return xp.cast(xp.arange(width(xp, x)), "int32")


def _random_high_bits(xp: Arrays, x: Any, length: Any, draws: RandomRows) -> Any:
    """Draws nonnegative int32 in the shape of `x`, to add positions below `length` to."""
    bits = draws.bits(xp, xp.size(x), width(xp, x)) & (_HIGHEST - _low_mask(length))
    return xp.cast(bits, "int32")


def _low_mask(length: Any) -> Any:
    """Returns the smallest 2^n - 1 that is at least `length`."""
    for shift in (1, 2, 4, 8, 16):
        length = length | length // 2**shift
    return length
