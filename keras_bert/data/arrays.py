# SPDX-License-Identifier: Apache-2.0
"""Rows of different lengths as flat arrays, and the functions of arrays that packing needs.

The code that puts tokens into rows and windows is written once, against the functions of an
`Arrays`: NumPy's for strings, and TensorFlow's in a graph, such as a SavedModel's.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, Self

import numpy as np

from keras_bert.data import philox


class Ragged(NamedTuple):
    """Rows of different lengths.

    Args:
        values: The values of all rows, one row after another, `(values,)`.
        lengths: The number of values of each row, int64 `(rows,)`.
    """

    values: Any
    lengths: Any

    @classmethod
    def from_rows(cls, rows: Sequence[Any], dtype: Any = "int32") -> Self:
        """Creates rows from NumPy arrays, or sequences of numbers."""
        lengths = np.fromiter(map(len, rows), "int64", len(rows))
        arrays = [np.asarray(row, dtype) for row in rows]
        return cls(np.concatenate([np.zeros(0, dtype), *arrays]), lengths)

    def to_list(self) -> list[list[Any]]:
        """Returns the values of each row, of NumPy arrays."""
        values = self.values.tolist()
        return [values[start:end] for start, end in self._bounds()]

    def to_arrays(self) -> list[Any]:
        """Returns the values of each row as a slice of a NumPy array, faster than `np.split`."""
        return [self.values[start:end] for start, end in self._bounds()]

    def _bounds(self) -> Iterator[tuple[int, int]]:
        return itertools.pairwise([0, *np.cumsum(self.lengths).tolist()])


class Arrays:
    """The functions of arrays that packing needs, by NumPy; a subclass has TensorFlow's.

    Indices, counts and lengths are int64. Dtypes are passed by their names.
    """

    def asarray(self, values: Any, dtype: str) -> Any:
        """Converts values to an array."""
        return np.asarray(values, dtype)

    def cast(self, x: Any, dtype: str) -> Any:
        """Converts an array to another dtype."""
        return np.asarray(x).astype(dtype, copy=False)

    def size(self, x: Any, axis: int = 0) -> Any:
        """Returns the number of rows, or the size of another axis."""
        return x.shape[axis]

    def arange(self, stop: Any) -> Any:
        """Returns 0, 1, … and `stop - 1`."""
        return np.arange(stop, dtype="int64")

    def full(self, count: Any, value: Any, dtype: str) -> Any:
        """Returns a value `count` times."""
        return np.full(count, value, dtype)

    def concat(self, arrays: Sequence[Any], axis: int = 0) -> Any:
        """Joins arrays along an axis."""
        return np.concatenate(arrays, axis)

    def take(self, x: Any, index: Any) -> Any:
        """Returns the rows of `x` at some indices."""
        return x[index]

    def select(self, x: Any, condition: Any) -> Any:
        """Returns the rows of `x` at which a condition is true."""
        return x[condition]

    def repeat(self, x: Any, counts: Any) -> Any:
        """Returns each row of `x` as often as `counts` says."""
        return np.repeat(x, counts)

    def ranges(self, starts: Any, lengths: Any) -> Any:
        """Returns the integers from each of `starts` on, `lengths` of them, one after another.

        >>> from keras_bert.data.arrays import NUMPY
        >>> NUMPY.ranges(np.array([5, 0]), np.array([2, 3])).tolist()
        [5, 6, 0, 1, 2]
        """
        offsets = starts - row_starts(self, lengths)
        return self.arange(np.sum(lengths)) + np.repeat(offsets, lengths)

    def cumsum(self, x: Any, axis: int = 0) -> Any:
        """Returns the sum of each number and all before it along an axis, in the same shape."""
        return np.cumsum(x, axis)

    def sum(self, x: Any, axis: int | None = None) -> Any:
        """Returns the sum of all numbers, a scalar, or the sums along an axis."""
        return np.sum(x, axis)

    def any(self, x: Any) -> Any:
        """Returns whether any of the conditions is true, a scalar."""
        return np.any(x)

    def round(self, x: Any) -> Any:
        """Rounds to the nearest integers, and halves to the even ones."""
        return np.round(x)

    def highest(self, x: Any, initial: int) -> Any:
        """Returns the maximum of all numbers and of `initial`, a scalar."""
        return np.max(x, initial=initial)

    def minimum(self, x: Any, y: Any) -> Any:
        """Returns the lower of two numbers at each index."""
        return np.minimum(x, y)

    def maximum(self, x: Any, y: Any) -> Any:
        """Returns the higher of two numbers at each index."""
        return np.maximum(x, y)

    def where(self, condition: Any, x: Any, y: Any) -> Any:
        """Returns `x` where a condition is true, and `y` elsewhere."""
        return np.where(condition, x, y)

    def scatter(self, index: Any, values: Any, size: Any) -> Any:
        """Returns an array of `size` with values at different indices, and 0 elsewhere."""
        result = np.zeros(size, values.dtype)
        result[index] = values
        return result

    def count(self, x: Any, size: Any) -> Any:
        """Returns how often each of 0, 1, … and `size - 1` is in `x`, int32 `(size,)`."""
        return np.bincount(x, minlength=size).astype("int32")

    def segment_max(self, x: Any, segments: Any, count: Any) -> Any:
        """Returns the maximum of each of `count` segments, undefined for an empty one."""
        highest = np.full(count, _lowest(x.dtype), x.dtype)
        np.maximum.at(highest, segments, x)
        return highest

    def segment_min(self, x: Any, segments: Any, count: Any) -> Any:
        """Returns the minimum of each of `count` segments, undefined for an empty one."""
        return -self.segment_max(-x, segments, count)

    def searchsorted(self, ascending: Any, x: Any, side: str) -> Any:
        """Returns where numbers are to be inserted into ascending ones; see NumPy."""
        return np.searchsorted(ascending, x, "left" if side == "left" else "right")

    def top_k(self, x: Any, count: int) -> Any:
        """Returns the indices of each row's highest numbers, at most `count`, int32; of equals the
        first.
        """
        return np.argsort(-x, axis=1, kind="stable")[:, :count].astype("int32")

    def highest_in_rows(self, x: Any, count: Any) -> Any:
        """Returns the `count` highest numbers of each row in descending order."""
        return np.sort(x, axis=1)[:, ::-1][:, :count]

    def take_along(self, x: Any, index: Any) -> Any:
        """Returns the values of each row of `x` at the indices that `index` has for the row."""
        return np.take_along_axis(x, index, axis=1)

    def to_dense(self, rows: Ragged, width: Any, fill_value: Any) -> Any:
        """Pads rows to `(rows, width)`."""
        dense = np.full((len(rows.lengths), width), fill_value, rows.values.dtype)
        dense[self.mask(rows.lengths, width)] = rows.values
        return dense

    def mask(self, lengths: Any, width: Any) -> Any:
        """Returns a bool array `(rows, width)`, true at the first `lengths` of each row."""
        return np.arange(width) < lengths[:, np.newaxis]

    def reshape(self, x: Any, shape: Sequence[Any]) -> Any:
        """Changes the shape of an array."""
        return np.reshape(x, shape)

    def random_bits(self, seed: tuple[Any, Any], size: Any, first: Any = 0) -> Any:
        """Returns numbers of a seed's stream, in `[0, 2^32)`, from the index `first` on, int64
        `(size,)`.
        """
        return philox.random_bits(seed, size, first)

    def while_loop(
        self, condition: Callable[..., Any], step: Callable[..., Any], state: tuple[Any, ...]
    ) -> tuple[Any, ...]:
        """Replaces a state by `step(*state)` while `condition(*state)` is true."""
        while condition(*state):
            state = step(*state)
        return state


def _lowest(dtype: np.dtype[Any]) -> Any:
    return -np.inf if dtype.kind == "f" else np.iinfo(dtype).min + 1


NUMPY = Arrays()


# === Rows of different lengths ===


def row_starts(xp: Arrays, lengths: Any) -> Any:
    """Returns the index of each row's first value among all values."""
    return xp.cumsum(lengths) - lengths


def row_numbers(xp: Arrays, lengths: Any) -> Any:
    """Returns the index of the row of each value."""
    return xp.repeat(xp.arange(xp.size(lengths)), lengths)


def take_rows(xp: Arrays, rows: Ragged, index: Any) -> Ragged:
    """Returns the rows at some indices."""
    lengths = xp.take(rows.lengths, index)
    starts = xp.take(row_starts(xp, rows.lengths), index)
    return Ragged(xp.take(rows.values, xp.ranges(starts, lengths)), lengths)


def truncate_rows(xp: Arrays, rows: Ragged, limits: Any, side: str = "right") -> Ragged:
    """Truncates each row to at most `limits` values, one limit or one for each, at an end."""
    lengths = xp.minimum(rows.lengths, limits)
    starts = row_starts(xp, rows.lengths)
    if side == "left":
        starts = starts + rows.lengths - lengths
    index = xp.ranges(starts, lengths)
    return Ragged(xp.take(rows.values, index), lengths)


def join_rows(xp: Arrays, chunks: Sequence[Ragged]) -> Ragged:
    """Joins the rows of several chunks, the first with the first, the second with the second, …"""
    lengths = sum(chunk.lengths for chunk in chunks)
    starts = row_starts(xp, lengths)
    index = []
    for chunk in chunks:
        index.append(xp.ranges(starts, chunk.lengths))
        starts = starts + chunk.lengths
    values = xp.concat([chunk.values for chunk in chunks])
    return Ragged(xp.scatter(xp.concat(index), values, xp.size(values)), lengths)


def same_in_rows(xp: Arrays, value: int, lengths: Any) -> Ragged:
    """Returns rows that consist of one value, int32."""
    return Ragged(xp.full(xp.sum(lengths), value, "int32"), lengths)
