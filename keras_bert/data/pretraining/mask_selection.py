# SPDX-License-Identifier: Apache-2.0
"""Selects single tokens, whole words or n-grams of words to mask.

The functions process a whole batch at once, with NumPy or in a TensorFlow graph. Words and n-grams
are marked by flags at their first tokens. For example:

    tokens        [CLS]  red  un  ##aff  ##able  cat  [SEP]
    selectable      0     1   1     1      1      1     0
    starts          0     1   1     0      0      1     0    3 words
    ngram_starts    0     1   1     0      0      0     0    "red" and "unaffable cat"

Arrays are bool `(batch, length)` unless noted otherwise.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from keras_bert.data.arrays import Arrays

_HIGHEST = 2**31 - 1
# The mantissa bits of float32, for random numbers in [0, 1)
_MANTISSA = 2**23 - 1


class RandomRows(NamedTuple):
    """A random number stream with a separate range for each row in a batch.

    A row's numbers therefore do not depend on the other processed rows.

    Args:
        seed: The seed of the stream, two integers.
        first: The batch index of the first processed row.
    """

    seed: tuple[Any, Any]
    first: int = 0

    def bits(self, xp: Arrays, rows: Any, columns: Any) -> Any:
        """Returns integers in `[0, 2^32)`, int64 `(rows, columns)`."""
        bits = xp.random_bits(self.seed, rows * columns, self.first * columns)
        return xp.reshape(bits, (rows, columns))


def choose_tokens(xp: Arrays, selectable: Any, budgets: Any, slots: Any, draws: RandomRows) -> Any:
    """Selects tokens uniformly at random, without replacement.

    `budgets`, int32 `(batch,)`, contains the number of tokens to select in each row, from 1 to
    `slots`. If a row has fewer selectable tokens, all of them are selected.
    """
    length = width(xp, selectable)
    keys = _random_keys(xp, draws, xp.size(selectable), length, length)
    keys = xp.where(selectable, keys + _positions(xp, selectable), -1)
    lowest_selected = xp.take_along(xp.highest_in_rows(keys, slots), budgets[:, None] - 1)
    return selectable & (keys >= lowest_selected)


def word_starts(xp: Arrays, continues: Any, selectable: Any, sequence_ids: Any = None) -> Any:
    """Finds the first token of each word.

    A word ends at a token that must not be selected. For example, a `##` token after `[SEP]`, where
    a text was truncated, starts a new word. In the original BERT code, it belongs to the word
    before `[SEP]`. In packed rows, a word also ends at the end of its sequence.
    """
    continues_word = continues & _shift_right(xp, selectable)
    if sequence_ids is not None:
        before = xp.concat([sequence_ids[:, :1], sequence_ids[:, :-1]], axis=1)
        continues_word = continues_word & (sequence_ids == before)
    return selectable & ~continues_word


def choose_words(
    xp: Arrays,
    starts: Any,
    selectable: Any,
    budgets: Any,
    draws: RandomRows,
    ngram_starts: Any = None,
) -> Any:
    """Visits words in random order, and selects each word that fits into the remaining budget.

    With `ngram_starts`, n-grams are visited in random order, and their words from left to right.
    `budgets`, int32 `(batch,)`, contains the number of tokens per row.

    Reference:
        [BERT](https://arxiv.org/abs/1810.04805), whole-word masking in the original BERT code.
    """
    order = _random_order(xp, starts if ngram_starts is None else ngram_starts, draws)
    sizes = xp.take_along(_sizes_of_words(xp, starts, selectable), order)
    is_selected = _take_while_they_fit(xp, sizes, xp.take_along(starts, order), budgets[:, None])
    # Convert the random order back to the row's order.
    return _flags_at(xp, order, is_selected, width(xp, starts))


def _random_order(xp: Arrays, starts: Any, draws: RandomRows) -> Any:
    """Returns each row's token positions, int32, with shuffled words (or n-grams)."""
    length = width(xp, starts)
    # The tokens before the first word count as a word, so there may be length + 1 words.
    keys_of_words = _random_keys(xp, draws, xp.size(starts), length + 1, length)
    last = xp.cast(length - 1, "int32")
    keys = xp.take_along(keys_of_words, _number_within_rows(xp, starts))
    keys = xp.highest_in_rows(keys + (last - _positions(xp, starts)), length)
    return last - (keys & xp.cast(_low_bits(length), "int32"))


def _sizes_of_words(xp: Arrays, starts: Any, selectable: Any) -> Any:
    """Returns the size of each token's word, int32, 0 for tokens that must not be selected.

    >>> from keras_bert.data.arrays import NUMPY
    >>> starts = np.array([[0, 1, 1, 0, 0, 1, 0]]) > 0
    >>> selectable = np.array([[0, 1, 1, 1, 1, 1, 0]]) > 0
    >>> _sizes_of_words(NUMPY, starts, selectable).tolist()
    [[0, 1, 3, 3, 3, 1, 0]]
    """
    most = width(xp, starts) + 1
    word = _flat_index(xp, _number_within_rows(xp, starts), most)
    sizes = xp.count(xp.select(word, selectable), xp.size(starts) * most)
    return xp.where(selectable, xp.take(sizes, word), 0)


def _take_while_they_fit(xp: Arrays, sizes: Any, starts: Any, budgets: Any) -> Any:
    """Selects words from left to right, and skips words that exceed the remaining budget.

    `budgets` are `(batch, 1)`. For example, words of 3, 2 and 1 tokens have the sums 3, 5 and 6, so
    with a budget of 4 only the first word fits. The second word exceeds the remaining budget of 1.
    Without it, the sums are 3 and 4, so the last word also fits:

    >>> from keras_bert.data.arrays import NUMPY
    >>> sizes, starts = np.array([[3, 3, 3, 2, 2, 1]]), np.array([[1, 0, 0, 1, 0, 1]]) > 0
    >>> _take_while_they_fit(NUMPY, sizes, starts, np.array([[4]])).astype(int).tolist()
    [[1, 1, 1, 0, 0, 1]]
    """

    def fitting(candidates: Any) -> Any:
        sums = xp.cumsum(xp.where(candidates & starts, sizes, 0), axis=1)
        return candidates & (sums <= budgets)

    def retry(candidates: Any, fits: Any) -> tuple[Any, Any]:
        # A word that exceeds the remaining budget can never fit later. After such words are
        # removed, at least one more word fits.
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


def ngram_starts(
    xp: Arrays, starts: Any, selectable: Any, max_words: int, budgets: Any, draws: RandomRows
) -> Any:
    """Splits rows into n-grams of words. The probability of length n is proportional to 1/n.

    An n-gram ends early at a token that must not be selected. Its maximum number of words is
    `max_words` or, if lower, the row's budget, int32 `(batch,)`.

    Reference:
        [ALBERT](https://arxiv.org/abs/1909.11942), section 4.1, equation for p(n).
    """
    # The first n-grams are discarded, so that a row's first word is inside an n-gram with the same
    # probability as any other word.
    skipped = 8 * max_words
    num_words = skipped + width(xp, starts)
    fractions = as_fractions(xp, draws.bits(xp, xp.size(starts), num_words))
    sizes = sum(xp.cast(fractions >= limit, "int32") for limit in _limits_of_sizes(max_words))
    # N-grams of 2, 1 and 3 words end after 2, 3 and 6 words.
    ends = xp.cumsum(xp.minimum(sizes, budgets[:, None]), axis=1)
    is_end = _flags_at(xp, ends, ends < xp.cast(num_words, "int32"), num_words)
    words_before = skipped + _number_within_rows(xp, starts) - 1
    return starts & (xp.take_along(is_end, words_before) | ~_shift_right(xp, selectable))


def _limits_of_sizes(max_words: int) -> list[float]:
    """Divides `[0, 1)` into intervals for 1 to `max_words` words. Returns their lower limits.

    Probabilities proportional to 1, 1/2 and 1/3 are 6/11, 3/11 and 2/11:

    >>> [round(11 * limit, 6) for limit in _limits_of_sizes(3)]
    [0.0, 6.0, 9.0]
    """
    weights = [1 / n for n in range(1, max_words + 1)]
    return [sum(weights[:n]) / sum(weights) for n in range(max_words)]


# === Random numbers, and positions in rows ===


def as_fractions(xp: Arrays, bits: Any) -> Any:
    """Converts random integers to float32 values, uniform in `[0, 1)`."""
    return xp.cast(bits & _MANTISSA, "float32") * (1 / (_MANTISSA + 1))


def width(xp: Arrays, x: Any) -> Any:
    """Returns the number of columns, a scalar tensor if unknown in a graph."""
    return xp.size(x, 1) if x.shape[1] is None else int(x.shape[1])


def _random_keys(xp: Arrays, draws: RandomRows, rows: Any, columns: Any, length: Any) -> Any:
    """Samples nonnegative int32 `(rows, columns)` as sort keys for a random order.

    Their low bits are 0. Adding positions below `length` makes the keys unique.
    """
    return xp.cast(draws.bits(xp, rows, columns) & (_HIGHEST - _low_bits(length)), "int32")


def _low_bits(length: Any) -> Any:
    """Returns the smallest 2^n - 1 greater than or equal to `length`.

    >>> _low_bits(100)
    127
    """
    for shift in (1, 2, 4, 8, 16):
        length = length | length // 2**shift
    return length


def _positions(xp: Arrays, x: Any) -> Any:
    return xp.cast(xp.arange(width(xp, x)), "int32")


def _shift_right(xp: Arrays, flags: Any) -> Any:
    """Returns the previous token's flag, and false for the first token in each row."""
    return xp.concat([flags[:, :1] & False, flags[:, :-1]], axis=1)


def _number_within_rows(xp: Arrays, starts: Any) -> Any:
    """Numbers the words (or n-grams) in each row from 1, int32."""
    return xp.cast(xp.cumsum(xp.cast(starts, "int32"), axis=1), "int32")


def _flat_index(xp: Arrays, columns: Any, num_columns: Any) -> Any:
    """Converts column indices in each row to indices in the flattened rows, int64."""
    return xp.cast(columns, "int64") + (num_columns * xp.arange(xp.size(columns)))[:, None]


def _flags_at(xp: Arrays, columns: Any, condition: Any, num_columns: Any) -> Any:
    """Returns bool `(batch, num_columns)`, true at the columns that meet a condition."""
    index = xp.select(_flat_index(xp, columns, num_columns), condition)
    batch = xp.size(columns)
    flags = xp.scatter(index, xp.full(xp.size(index), True, "bool"), batch * num_columns)
    return xp.reshape(flags, (batch, num_columns))
