# SPDX-License-Identifier: Apache-2.0
"""Measures with intervals, by group. Contains the base classes of the results in this package."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from keras_bert.insight.drawing import Tabular, axes_or_new
from keras_bert.intervals import (
    CONFIDENCE,
    SAMPLES,
    bootstrap_interval,
    first_column,
    proportion_interval,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# The group that contains all units
ALL = "all"
# These colors are distinguishable for color-blind readers and in grayscale.
_COLORS = ("#0b5394", "#d1570c", "#2a7d4f", "#8e4a9e", "#7a5c00", "#444444")


@dataclasses.dataclass(frozen=True)
class Measure:
    """One value for one group, with its interval.

    Attributes:
        group: Name of the group.
        metric: Name of the metric. Percentages end in `%`.
        count: Number of units.
        value: The value.
        low, high: Bounds of the interval. `None` for a single unit, unless it is a Wilson interval.
    """

    group: str
    metric: str
    count: int
    value: float
    low: float | None
    high: float | None


def _percent(means: np.ndarray) -> np.ndarray:
    return np.asarray(100 * means[..., 0])


@dataclasses.dataclass(frozen=True)
class UnitValues:
    """A measure's values for each unit. The measure combines their means.

    Attributes:
        group, metric: See `Measure`.
        values: Float64 `(units, columns)`.
        statistic: Function from the column means, `(..., columns)`, to the measure `(...)`.
            Defaults to the mean of the first column.
        is_proportion: Whether the measure is the mean, in percent, of values between 0 and 1.
        wilson: Whether a proportion has a Wilson interval. Otherwise, it has a bootstrap interval.
    """

    group: str
    metric: str
    values: np.ndarray
    statistic: Callable[[np.ndarray], np.ndarray] = first_column
    is_proportion: bool = False
    wilson: bool = False

    def measure(self, confidence: float, samples: int, seed: int) -> Measure:
        """Computes the measure and its interval.

        A proportion of 0% or 100% has a Wilson interval, because all bootstrap samples would be
        equal. Otherwise, a single unit has no interval.
        """
        low: float | None
        high: float | None
        units, value = len(self.values), float(self.statistic(self.values.mean(axis=0)))
        if self.is_proportion and (self.wilson or value in (0.0, 100.0)):
            low, high = proportion_interval(round(float(self.values.sum())), units, confidence)
            low, high = 100 * low, 100 * high
        elif units == 1:
            low = high = None
        else:
            low, high = bootstrap_interval(self.values, self.statistic, confidence, samples, seed)
        return Measure(self.group, self.metric, units, value, low, high)


def share(group: str, metric: str, flags: np.ndarray, wilson: bool = False) -> UnitValues:
    """Returns the proportion of flags `(units,)`, or the mean of proportions, in percent."""
    values = np.asarray(flags, "float64")[:, np.newaxis]
    return UnitValues(group, metric, values, _percent, is_proportion=True, wilson=wilson)


def mean(group: str, metric: str, values: np.ndarray) -> UnitValues:
    """Returns the mean of values `(units,)`."""
    return UnitValues(group, metric, np.asarray(values, "float64")[:, np.newaxis])


def members_of_groups(groups: Sequence[str]) -> dict[str, np.ndarray]:
    """Returns each group's membership, bool `(units,)`, by name. The first group has all units."""
    names = np.array(groups)
    members = {ALL: np.ones(len(names), bool)}
    return members | {name: names == name for name in sorted(set(groups))}


@dataclasses.dataclass(frozen=True)
class Result(Tabular):
    """Base class of results: measures by group, as a table, a plot and JSON.

    A subclass is a frozen dataclass with the observations for each unit.
    """

    # Names of groups and units, and notes on the values
    group_name: ClassVar[str]
    unit_name: ClassVar[str]
    caveat: ClassVar[str] = ""
    # Value of each metric that favors neither side
    neutral: ClassVar[Mapping[str, float]] = {}
    # Number of decimals, except for percentages
    digits: ClassVar[int] = 3
    # Whether plots sort the groups by value
    by_value: ClassVar[bool] = False

    @property
    def notes(self) -> str:
        return self.caveat

    def neutral_value(self, metric: str) -> float | None:
        """Returns the metric value that favors neither side, or `None`."""
        return self.neutral.get(metric)

    @abc.abstractmethod
    def unit_values(self) -> list[UnitValues]:
        """Returns the data of the measures, ordered by metric."""

    @property
    @abc.abstractmethod
    def units(self) -> tuple[Any, ...]:
        """The units. Two results with the same units can be compared."""

    def measures(
        self, confidence: float = CONFIDENCE, samples: int = SAMPLES, seed: int = 0
    ) -> list[Measure]:
        """Computes the measures of every group.

        Args:
            confidence: Confidence level of the intervals.
            samples: Number of bootstrap samples.
            seed: Seed of the bootstrap.
        """
        return [values.measure(confidence, samples, seed) for values in self.unit_values()]

    @classmethod
    def interval(cls, metric: str, value: float, low: float | None, high: float | None) -> str:
        """Formats a metric's value with its interval."""
        digits = 1 if metric.endswith("%") else cls.digits
        if low is None or high is None:
            return f"{value:.{digits}f} (no interval)"
        return f"{value:.{digits}f} ({low:.{digits}f} to {high:.{digits}f})"

    def table(self) -> tuple[list[str], list[list[str]]]:
        """Returns the column names, and a row of cells for each group."""
        measures = self.measures()
        metrics = list(dict.fromkeys(measure.metric for measure in measures))
        groups: dict[str, list[str]] = {}
        for measure in measures:
            row = groups.setdefault(
                measure.group, [measure.group, f"{measure.count:,}", *[""] * len(metrics)]
            )
            cell = self.interval(measure.metric, measure.value, measure.low, measure.high)
            row[2 + metrics.index(measure.metric)] = cell
        return [self.group_name, self.unit_name, *metrics], list(groups.values())

    def to_dict(self) -> dict[str, Any]:
        """Converts measures and observations to values that JSON can represent."""
        return {
            "result": type(self).__name__,
            "title": self.title,
            "notes": self.notes,
            "measures": [dataclasses.asdict(measure) for measure in self.measures()],
            "observed": {
                field.name: _as_json(getattr(self, field.name))
                for field in dataclasses.fields(self)
            },
        }

    def plot(self, axes: Axes | None = None, metric: str | None = None) -> Axes:
        """Draws one metric of every group with its interval.

        Args:
            axes: Axes to draw on. `None` creates a figure.
            metric: Metric to draw. Defaults to the first metric.

        Raises:
            ImportError: If matplotlib is not installed.
            ValueError: If the metric does not exist.
        """
        measures = _filter_by_metric(self.measures(), metric)
        if self.by_value:
            measures.sort(key=lambda measure: (measure.group != ALL, -measure.value))
        return _draw(axes, {"": measures}, self.neutral_value(measures[0].metric))


def _filter_by_metric(measures: Sequence[Measure], metric: str | None) -> list[Measure]:
    names = list(dict.fromkeys(measure.metric for measure in measures))
    metric = names[0] if metric is None else metric
    if metric not in names:
        raise ValueError(f"metric must be one of {', '.join(names)}. Received: {metric!r}")
    return [measure for measure in measures if measure.metric == metric]


def _draw(
    axes: Axes | None, by_name: Mapping[str, Sequence[Measure]], neutral: float | None
) -> Axes:
    """Draws the measures of one metric, with one color for each name."""
    first = next(iter(by_name.values()))
    rows = len(first) * (1 if len(by_name) == 1 else 0.4 + 0.3 * len(by_name))
    axes = axes_or_new(axes, 7, 0.3 * rows + 1.2)
    if neutral is not None:
        axes.axvline(neutral, color="#777777", linestyle="--", linewidth=1)
    for number, (name, measures) in enumerate(by_name.items()):
        # The first group is at the top. Within a group, the first name is at the top.
        shift = 0.6 * (number + 0.5) / len(by_name) - 0.3
        heights = np.arange(len(measures))[::-1] - shift
        values = np.array([measure.value for measure in measures])
        lows, highs = np.array([_bounds(measure) for measure in measures]).transpose()
        errors = np.maximum(0.0, [values - lows, highs - values])
        color = _COLORS[number % len(_COLORS)]
        axes.errorbar(values, heights, xerr=errors, fmt="o", color=color, capsize=3, label=name)
    axes.set_yticks(
        range(len(first)),
        [f"{measure.group} ({measure.count})" for measure in first[::-1]],
        parse_math=False,
    )
    axes.set_ylim(-0.7, len(first) - 0.3)
    if first[0].metric.endswith("%"):
        lows = [_bounds(measure)[0] for measures in by_name.values() for measure in measures]
        if neutral and min(lows) >= 0:
            axes.set_xlim(0, 100)
        elif min(lows) >= 0:
            axes.set_xlim(left=0)
    axes.set_xlabel(first[0].metric)
    if len(by_name) > 1:
        axes.legend(fontsize=8)
    return axes


def _bounds(measure: Measure) -> tuple[float, float]:
    """Returns a measure's interval bounds, or its value twice if it has no interval."""
    if measure.low is None or measure.high is None:
        return measure.value, measure.value
    return measure.low, measure.high


@dataclasses.dataclass(frozen=True)
class Comparison(Tabular):
    """The same measures for multiple models.

    Attributes:
        results: Results by name, with the same type and the same units.
    """

    results: Mapping[str, Result]
    _numbers_from = 2

    @property
    def _first(self) -> Result:
        return next(iter(self.results.values()))

    @property
    def title(self) -> str:
        return self._first.title

    @property
    def notes(self) -> str:
        return self._first.notes

    def rows(
        self, confidence: float = CONFIDENCE, samples: int = SAMPLES, seed: int = 0
    ) -> list[dict[str, Any]]:
        """Returns the measures, and their differences from the first result.

        Differences have intervals from a paired bootstrap, with the same sampled units for both.

        Returns:
            For each metric and group, a dict with `group`, `metric`, `count`, `measures` (dicts by
            name) and `differences` (dicts with `value`, `low` and `high` by the other names). A
            difference's bounds are `None` for a single unit.
        """
        names = list(self.results)
        by_name = {name: self.results[name].unit_values() for name in names}
        rows = []
        for first, *others in zip(*by_name.values(), strict=True):
            measures = [values.measure(confidence, samples, seed) for values in (first, *others)]
            differences = {}
            for name, values in zip(names[1:], others, strict=True):
                measure = _difference(first, values).measure(confidence, samples, seed)
                differences[name] = {key: getattr(measure, key) for key in ("value", "low", "high")}
            rows.append(
                {
                    "group": first.group,
                    "metric": first.metric,
                    "count": len(first.values),
                    "measures": dict(zip(names, map(dataclasses.asdict, measures), strict=True)),
                    "differences": differences,
                }
            )
        return rows

    def table(self) -> tuple[list[str], list[list[str]]]:
        """Returns the column names, and a row of cells for each metric and group."""
        first, *others = self.results
        kind = self._first
        columns = ["metric", kind.group_name, kind.unit_name, first, *others]
        columns += [f"{name} - {first}" for name in others]
        rows = []
        for row in self.rows():
            bounds = [*row["measures"].values(), *row["differences"].values()]
            cells = [
                kind.interval(row["metric"], each["value"], each["low"], each["high"])
                for each in bounds
            ]
            rows.append([row["metric"], row["group"], f"{row['count']:,}", *cells])
        return columns, rows

    def to_dict(self) -> dict[str, Any]:
        """Converts the rows, and the results by name, to values that JSON can represent."""
        return {
            "rows": self.rows(),
            "results": {name: result.to_dict() for name, result in self.results.items()},
        }

    def plot(self, axes: Axes | None = None, metric: str | None = None) -> Axes:
        """Draws one metric of every group, with one color for each result.

        Args:
            axes: Axes to draw on. `None` creates a figure.
            metric: Metric to draw. Defaults to the first metric.

        Raises:
            ImportError: If matplotlib is not installed.
            ValueError: If the metric does not exist.
        """
        measures_by_name = {
            name: _filter_by_metric(result.measures(), metric)
            for name, result in self.results.items()
        }
        metric = next(iter(measures_by_name.values()))[0].metric
        return _draw(axes, measures_by_name, self._first.neutral_value(metric))


def compare(results: Mapping[str, Result]) -> Comparison:
    """Combines the results of multiple models in one table, with differences from the first model.

    Args:
        results: Results of one function on the same data, by model name. For example, results
            before and after fine-tuning, or for two checkpoints.

    Returns:
        A `Comparison`. It prints as a table, is displayed in notebooks and has a `plot` method.

    Raises:
        ValueError: If `results` has fewer than two results, or they differ in type or units.

    Example:

    ```python
    print(compare({"before": crows_pairs(one, path), "after": crows_pairs(other, path)}))
    ```
    """
    if len(results) < 2:
        raise ValueError(f"results must have at least two results. Received: {len(results)}")
    (first, reference), *others = results.items()
    for name, result in others:
        if type(result) is not type(reference):
            raise ValueError(
                f"results must have the same type. Received: a {type(result).__name__} ({name}) "
                f"and a {type(reference).__name__} ({first})"
            )
        if result.units != reference.units:
            raise ValueError(
                f"results must have the same {reference.unit_name}. Received: different "
                f"{reference.unit_name} ({name} and {first})"
            )
    return Comparison(dict(results))


def _difference(first: UnitValues, other: UnitValues) -> UnitValues:
    """Returns the other measure minus the first measure, from the values of both."""
    width = first.values.shape[1]

    def statistic(means: np.ndarray) -> np.ndarray:
        return np.asarray(other.statistic(means[..., width:]) - first.statistic(means[..., :width]))

    both = np.concatenate([first.values, other.values], axis=1)
    return UnitValues(first.group, first.metric, both, statistic)


def _as_json(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Mapping):
        return {str(key): _as_json(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_as_json(item) for item in value]
    return value
