# SPDX-License-Identifier: Apache-2.0
"""Stores ragged rows in flat arrays, and defines the array functions for packing.

The code that arranges tokens in rows and windows is written once, with the methods of an `Arrays`
object. They use NumPy for Python strings, and TensorFlow in a graph, for example in a SavedModel.
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
        values: The values of all rows, concatenated, `(values,)`.
        lengths: The length of each row, int64 `(rows,)`.
    """

    values: Any
    lengths: Any

    @classmethod
    def from_rows(cls, rows: Sequence[Any], dtype: Any = "int32") -> Self:
        """Creates rows from NumPy arrays or sequences of numbers."""
        lengths = np.fromiter(map(len, rows), "int64", len(rows))
        arrays = [np.asarray(row, dtype) for row in rows]
        return cls(np.concatenate([np.zeros(0, dtype), *arrays]), lengths)

    def to_list(self) -> list[list[Any]]:
        """Converts rows in NumPy arrays to nested lists."""
        values = self.values.tolist()
        return [values[start:end] for start, end in self._bounds()]

    def to_arrays(self) -> list[Any]:
        """Returns each row as a NumPy slice. This is faster than `np.split`."""
        return [self.values[start:end] for start, end in self._bounds()]

    def _bounds(self) -> Iterator[tuple[int, int]]:
        return itertools.pairwise([0, *np.cumsum(self.lengths).tolist()])


class Arrays:
    """The array functions for packing, computed with NumPy. A subclass uses TensorFlow.

    Indices, counts and lengths are int64. Dtypes are passed by name.
    """

    def asarray(self, values: Any, dtype: str) -> Any:
        """Converts values to an array."""
        return np.asarray(values, dtype)

    def cast(self, x: Any, dtype: str) -> Any:
        """Converts an array to a different dtype."""
        return np.asarray(x).astype(dtype, copy=False)

    def size(self, x: Any, axis: int = 0) -> Any:
        """Returns an axis size, by default the number of rows."""
        return x.shape[axis]

    def arange(self, stop: Any) -> Any:
        """Returns the integers from 0 to `stop - 1`."""
        return np.arange(stop, dtype="int64")

    def full(self, count: Any, value: Any, dtype: str) -> Any:
        """Repeats a value `count` times."""
        return np.full(count, value, dtype)

    def concat(self, arrays: Sequence[Any], axis: int = 0) -> Any:
        """Joins arrays along an axis."""
        return np.concatenate(arrays, axis)

    def take(self, x: Any, index: Any) -> Any:
        """Selects rows of `x` by index."""
        return x[index]

    def select(self, x: Any, condition: Any) -> Any:
        """Selects rows of `x` by a condition."""
        return x[condition]

    def repeat(self, x: Any, counts: Any) -> Any:
        """Repeats each row of `x` according to its count."""
        return np.repeat(x, counts)

    def ranges(self, starts: Any, lengths: Any) -> Any:
        """Concatenates ranges of integers, given by their starts and lengths.

        >>> from keras_bert.data.arrays import NUMPY
        >>> NUMPY.ranges(np.array([5, 0]), np.array([2, 3])).tolist()
        [5, 6, 0, 1, 2]
        """
        offsets = starts - row_starts(self, lengths)
        return self.arange(self.sum(lengths)) + self.repeat(offsets, lengths)

    def cumsum(self, x: Any, axis: int = 0) -> Any:
        """Returns the cumulative sum along an axis, in the same shape."""
        return np.cumsum(x, axis)

    def sum(self, x: Any, axis: int | None = None) -> Any:
        """Returns the sum over an axis, or a scalar sum of all numbers."""
        return np.sum(x, axis)

    def any(self, x: Any) -> Any:
        """Returns whether any condition is true, a scalar."""
        return np.any(x)

    def round(self, x: Any) -> Any:
        """Rounds to the nearest integer, and halves to the nearest even integer."""
        return np.round(x)

    def highest(self, x: Any, initial: int) -> Any:
        """Returns the maximum of all numbers and `initial`, a scalar."""
        return np.max(x, initial=initial)

    def minimum(self, x: Any, y: Any) -> Any:
        """Returns the elementwise minimum."""
        return np.minimum(x, y)

    def maximum(self, x: Any, y: Any) -> Any:
        """Returns the elementwise maximum."""
        return np.maximum(x, y)

    def at_least(self, x: Any, y: Any) -> Any:
        """Compares each element. NumPy and TensorFlow have `>=`, and other libraries do not."""
        return x >= y

    def divide(self, x: Any, y: Any) -> Any:
        """Divides integers, and rounds down."""
        return x // y

    def where(self, condition: Any, x: Any, y: Any) -> Any:
        """Returns `x` if a condition is true, and `y` otherwise, for each element."""
        return np.where(condition, x, y)

    def scatter(self, index: Any, values: Any, size: Any) -> Any:
        """Returns an array of `size` with values at distinct indices, and 0 elsewhere."""
        result = np.zeros(size, values.dtype)
        result[index] = values
        return result

    def count(self, x: Any, size: Any) -> Any:
        """Counts the occurrences of 0 to `size - 1` in `x`, int32 `(size,)`."""
        return np.bincount(x, minlength=size).astype("int32")

    def segment_max(self, x: Any, segments: Any, count: Any) -> Any:
        """Returns the maximum in each of `count` segments. It is undefined for empty segments.

        `segments` has the index of each value's segment.
        """
        highest = np.full((count, *x.shape[1:]), _lowest(x.dtype), x.dtype)
        np.maximum.at(highest, segments, x)
        return highest

    def segment_mean(self, x: Any, segments: Any, count: Any) -> Any:
        """Returns the mean in each segment, see `segment_max`. It is 0 for empty segments."""
        sums = np.zeros((count, *x.shape[1:]), x.dtype)
        np.add.at(sums, segments, x)
        numbers = np.maximum(np.bincount(segments, minlength=count), 1).astype(x.dtype)
        return sums / numbers.reshape(-1, *[1] * (x.ndim - 1))

    def segment_min(self, x: Any, segments: Any, count: Any) -> Any:
        """Returns the minimum in each segment, see `segment_max`."""
        return -self.segment_max(-x, segments, count)

    def searchsorted(self, ascending: Any, x: Any, side: str) -> Any:
        """Returns the insertion indices of numbers into an ascending array, as in NumPy."""
        return np.searchsorted(ascending, x, "left" if side == "left" else "right")

    def top_k(self, x: Any, count: int) -> Any:
        """Returns the indices of the `count` highest numbers in each row, int32.

        Shorter rows return all indices. Equal numbers keep their order.
        """
        return np.argsort(-x, axis=1, kind="stable")[:, :count].astype("int32")

    def highest_in_rows(self, x: Any, count: Any) -> Any:
        """Returns the `count` highest numbers in each row, in descending order."""
        return np.sort(x, axis=1)[:, ::-1][:, :count]

    def take_along(self, x: Any, index: Any) -> Any:
        """Selects values in each row by the indices in the same row of `index`."""
        return np.take_along_axis(x, index, axis=1)

    def to_dense(self, rows: Ragged, width: Any, fill_value: Any) -> Any:
        """Pads rows to `(rows, width)`."""
        dense = np.full((len(rows.lengths), width), fill_value, rows.values.dtype)
        dense[self.mask(rows.lengths, width)] = rows.values
        return dense

    def mask(self, lengths: Any, width: Any) -> Any:
        """Returns a bool array `(rows, width)`, true in the first `lengths` columns."""
        return np.arange(width) < lengths[:, np.newaxis]

    def reshape(self, x: Any, shape: Sequence[Any]) -> Any:
        """Changes an array's shape."""
        return np.reshape(x, shape)

    def random_bits(self, seed: tuple[Any, Any], size: Any, first: Any = 0) -> Any:
        """Returns `size` numbers from a seed's random stream, starting at index `first`.

        They are int64 in `[0, 2^32)`.
        """
        return philox.random_bits(seed, size, first)

    def while_loop(
        self, condition: Callable[..., Any], step: Callable[..., Any], state: tuple[Any, ...]
    ) -> tuple[Any, ...]:
        """Replaces the state with `step(*state)` while `condition(*state)` is true."""
        while condition(*state):
            state = step(*state)
        return state


def _lowest(dtype: np.dtype[Any]) -> Any:
    return -np.inf if dtype.kind == "f" else np.iinfo(dtype).min + 1


NUMPY = Arrays()


# === Rows of different lengths ===


def row_starts(xp: Arrays, lengths: Any) -> Any:
    """Returns the index of each row's first value in the flat array."""
    return xp.cumsum(lengths) - lengths


def row_numbers(xp: Arrays, lengths: Any) -> Any:
    """Returns the row index of each value."""
    return xp.repeat(xp.arange(xp.size(lengths)), lengths)


def take_rows(xp: Arrays, rows: Ragged, index: Any) -> Ragged:
    """Selects rows by index."""
    lengths = xp.take(rows.lengths, index)
    starts = xp.take(row_starts(xp, rows.lengths), index)
    return Ragged(xp.take(rows.values, xp.ranges(starts, lengths)), lengths)


def truncate_rows(xp: Arrays, rows: Ragged, limits: Any, side: str = "right") -> Ragged:
    """Truncates rows to at most `limits` values, a number or an array with one number per row."""
    lengths = xp.minimum(rows.lengths, limits)
    starts = row_starts(xp, rows.lengths)
    if side == "left":
        starts = starts + rows.lengths - lengths
    index = xp.ranges(starts, lengths)
    return Ragged(xp.take(rows.values, index), lengths)


def join_rows(xp: Arrays, chunks: Sequence[Ragged]) -> Ragged:
    """Concatenates the rows with the same index in all chunks."""
    lengths = sum(chunk.lengths for chunk in chunks)
    starts = row_starts(xp, lengths)
    index = []
    for chunk in chunks:
        index.append(xp.ranges(starts, chunk.lengths))
        starts = starts + chunk.lengths
    values = xp.concat([chunk.values for chunk in chunks])
    return Ragged(xp.scatter(xp.concat(index), values, xp.size(values)), lengths)


def same_in_rows(xp: Arrays, value: int, lengths: Any) -> Ragged:
    """Returns rows that repeat one value, int32."""
    return Ragged(xp.full(xp.sum(lengths), value, "int32"), lengths)


def unit_rows(vectors: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Scales vectors `(rows, dim)` to unit L2 norm, in float32. Zero vectors stay zero."""
    vectors = np.asarray(vectors, "float32")
    norms = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return np.asarray(vectors / np.maximum(norms, 1e-12))
