# SPDX-License-Identifier: Apache-2.0
"""Fine-tunes with each combination of hyperparameters, and keeps the best one.

Each combination is a run of `finetune` without a test file, in its own directory and process. The
validation score selects the best combination. The files of its seeds are then linked to the grid's
`output_dir`, so that a plain run there finds all seeds finished and only scores the test file,
reports and exports.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from absl import logging

from keras_bert import atomic, tables
from keras_bert.intervals import mean_and_interval, mean_text

from ..plots.style import GRAY, ORANGE, new_figure, save, style
from . import config_flags, output_directory
from .finetuning_config import LabeledFilesConfig
from .grid import Cell, run_cells
from .run_report import duration

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# The flags of `finetune` that accept a list of values to try
HYPERPARAMETERS = (
    "learning_rate",
    "batch_size",
    "epochs",
    "warmup",
    "weight_decay",
    "layer_decay",
    "dropout",
    "encoder_dropout",
    "sequence_length",
)
# The directory of the runs in the grid's output directory
_RUNS = "grid"
# Distance between the lines of a plot, in ticks
_SHIFT = 0.08
# The mark of the best combination in the plot
_RING: dict[str, Any] = {"markersize": 10, "markerfacecolor": "none", "markeredgecolor": ORANGE}

# A value of each hyperparameter in the grid
Setting = tuple[float, ...]


@dataclasses.dataclass(frozen=True)
class Grid:
    """A grid of hyperparameters, for a fine-tuning task.

    Args:
        task: The value of `--task`.
        config: The config of the run with the first value of each hyperparameter.
        values: The values of each hyperparameter that is searched, by name.

    Raises:
        ValueError: If a list contains a value twice, if a combination of values is invalid, or in
            multi-host training.
    """

    task: str
    config: LabeledFilesConfig
    values: Mapping[str, Setting]

    def __post_init__(self) -> None:
        for name, values in self.values.items():
            if len(set(values)) < len(values):
                raise ValueError(
                    f"--{name} must be a list of distinct values. Received: "
                    f"{','.join(map(str, values))}"
                )
        if self.config.hosts.coordinator:
            names = ", ".join(f"--{name}" for name in self.values)
            raise ValueError(
                f"{names} must be a single number with --coordinator. Received: a list, for which "
                "multiple runs are started on this host"
            )
        self.configs()

    @property
    def directory(self) -> Path:
        """The directory for all runs, the table and the best run's files."""
        return Path(self.config.output_dir)

    @property
    def runs_directory(self) -> Path:
        """The directory that contains the directories of the runs."""
        return self.directory / _RUNS

    def configs(self) -> dict[Setting, LabeledFilesConfig]:
        """Returns the config for each combination of values, in the order of the lists."""
        settings = itertools.product(*self.values.values())
        return {
            setting: self.config.replace(**dict(zip(self.values, setting, strict=True)))
            for setting in settings
        }

    def cells(self, **inputs: str) -> dict[Setting, Cell]:
        """Returns the run for each combination of values.

        Args:
            **inputs: See `Cell`.
        """
        cells = {}
        for setting, config in self.configs().items():
            # Only the best model reads the test file.
            own = config.replace(test_file="", export=False)
            flags = config_flags.command_flags(own, skip=("task", "output_dir"))
            pairs = zip(self.values, setting, strict=True)
            name = "_".join(f"{name}={value}" for name, value in pairs)
            # A recipe may set a GLUE task.
            task = getattr(config, "task", "") or self.task
            command = ["training.finetune", f"--task={task}", *flags]
            cells[setting] = Cell(self.runs_directory / name, command, config.preset, inputs)
        return cells

    def description(self) -> str:
        """Describes the runs, for example `6 runs (3 values of --epochs, 2 values of --warmup)`."""
        counts = [f"{len(values)} values of --{name}" for name, values in self.values.items()]
        counts += [f"{self.config.num_seeds} seeds each"] if self.config.num_seeds > 1 else []
        return f"{len(self.configs())} runs ({', '.join(counts)})"


@dataclasses.dataclass(frozen=True)
class Row:
    """A combination of values in the table.

    Args:
        setting: The value of each hyperparameter.
        directory: The run's directory.
        scores: The score of each seed that selects epochs, seeds and combinations.
        metrics: The scores of each seed on the first validation set, by metric. All scores belong
            to the seeds' best epochs.
        seconds: The run's duration. 0 if it diverged.
        num_diverged: Number of seeds that diverged.
    """

    setting: dict[str, float]
    directory: str
    scores: list[float]
    metrics: dict[str, list[float]]
    seconds: float
    num_diverged: int

    @property
    def rank(self) -> tuple[int, float]:
        """Sorts rows. A combination with fewer diverged seeds is better, then its mean score."""
        mean = float(np.mean(self.scores)) if self.scores else -np.inf
        return self.num_diverged, -round(mean, 9)


def run_grid(grid: Grid, **inputs: str) -> tuple[Setting, dict[str, Any]]:
    """Performs the missing runs, writes and prints the table, and selects the best combination.

    Files written to the grid's `output_dir`: the runs (`grid/*`), the table (`grid.json` and
    `grid.md`) and the plot (`grid.png`).

    Args:
        grid: The grid.
        **inputs: See `Cell`.

    Returns:
        The best combination, and the `results.json` of its run.

    Raises:
        NotFiniteError: If every run diverged.
        subprocess.CalledProcessError: If a run fails.
    """
    cells = grid.cells(**inputs)
    finished = sum((cell.directory / "results.json").exists() for cell in cells.values())
    print(
        f"grid: {grid.description()}" + (f", {finished} finished" if finished else ""), flush=True
    )
    results = run_cells(
        {
            setting: functools.partial(_run_cell, cell, grid.directory)
            for setting, cell in cells.items()
        }
    )
    rows = [_row(grid, setting, cell, results.get(setting)) for setting, cell in cells.items()]
    rows.sort(key=lambda row: row.rank)
    if not results:
        raise output_directory.NotFiniteError(
            f"every run in {grid.runs_directory} diverged. Try a lower --learning_rate or a longer "
            "--warmup"
        )
    directory = grid.directory
    atomic.write_json(directory / "grid.json", [dataclasses.asdict(row) for row in rows])
    columns, lines = table(rows)
    atomic.write_text(directory / "grid.md", tables.markdown_table(columns, lines) + "\n")
    try:
        save(figure(rows, grid.values), directory / "grid.png")
    except (ImportError, OSError, ValueError) as error:
        logging.warning("the scores were not plotted to %s: %s", directory / "grid.png", error)
    shown = tables.text_table(columns, lines, numbers_from=0)
    print(f"\n{shown}\n\n{_conclusion(rows)}\nPlot: {directory / 'grid.png'}\n", flush=True)
    best = tuple(rows[0].setting.values())
    return best, results[best]


def keep_best(grid: Grid, **inputs: str) -> LabeledFilesConfig:
    """Performs the missing runs, and links the best run's seeds to the grid's `output_dir`.

    Returns:
        The best run's config, with the grid's `output_dir` and test file.

    Raises:
        SettingsMismatchError: If `output_dir` contains a run that does not belong to the grid.
    """
    _check_seeds(grid)
    setting, _ = run_grid(grid, **inputs)
    source, target = grid.cells()[setting].directory, grid.directory
    own = {path.parent.name for path in source.glob("seed_[0-9]*/run.json")}
    for path in target.glob("seed_[0-9]*"):
        if path.name not in own or not _is_same_seed(path, source):
            shutil.rmtree(path)
    for name in sorted(own):
        if not (target / name).exists():
            with atomic.atomic_path(target / name) as temporary:
                shutil.copytree(source / name, temporary, copy_function=_link)
    settings = output_directory.SETTINGS_FILE
    atomic.write_bytes(target / settings, (source / settings).read_bytes())
    return grid.configs()[setting]


def _check_seeds(grid: Grid) -> None:
    """Checks that each trained seed in the output directory belongs to one of the grid's runs."""
    for path in grid.directory.glob("seed_[0-9]*"):
        is_trained = output_directory.has_results(path)
        if is_trained and not any(
            _is_same_seed(path, run) for run in grid.runs_directory.glob("*")
        ):
            raise output_directory.SettingsMismatchError(
                f"{grid.directory} contains a run with different settings, in {path}. Choose "
                "another --output_dir, or remove that directory"
            )


def _is_same_seed(seed: Path, run: Path) -> bool:
    """Returns whether a seed's directory is complete and has the same record as in a run."""
    files = (seed / "run.json", run / seed.name / "run.json")
    has_model = (seed / "model.keras").is_file()
    if not (has_model and all(file.is_file() for file in files)):
        return False
    first, second = (file.read_bytes() for file in files)
    return first == second


def _link(source: str, target: str) -> None:
    """Creates a hard link, or copies the file if the file system has no links."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def _run_cell(cell: Cell, directory: Path) -> dict[str, Any]:
    """Runs a cell with the same precision as the others.

    The first run measures which precision is faster. A second measurement could differ.
    """
    from . import precision

    shared, own = directory / precision.FILE, cell.directory / precision.FILE
    if shared.is_file() and not own.is_file():
        with output_directory.lock_output_dir(cell.directory, command="finetune"):
            atomic.write_bytes(own, shared.read_bytes())
    results = cell()
    if own.is_file() and not shared.is_file():
        atomic.write_bytes(shared, own.read_bytes())
    return results


def _row(grid: Grid, setting: Setting, cell: Cell, results: Mapping[str, Any] | None) -> Row:
    best = [next(iter(run["best"].values())) for run in results["runs"]] if results else []
    metrics = {name: [scores[name] for scores in best] for name in best[0]} if best else {}
    return Row(
        dict(zip(grid.values, setting, strict=True)),
        os.fspath(cell.directory),
        results["selection_scores"] if results else [],
        metrics,
        sum(results["seconds"].values()) if results else 0.0,
        len(results["diverged"]) if results else grid.config.num_seeds,
    )


def table(rows: Sequence[Row]) -> tuple[list[str], list[list[tables.Cell]]]:
    """Returns the columns and lines of the table. Combinations whose seeds all diverged are last.

    The column `score` is omitted if it is the same as a metric.
    """
    metrics = list(rows[0].metrics)
    scored = [row for row in rows if row.scores]
    is_metric = any(all(row.scores == row.metrics[name] for row in scored) for name in metrics)
    shown = [name for name in ("score", *metrics) if name != "score" or not is_metric]
    has_diverged = any(row.num_diverged for row in rows)
    columns = [*rows[0].setting, *shown, "time", *(["diverged seeds"] if has_diverged else [])]
    lines: list[list[tables.Cell]] = []
    for row in rows:
        values = {"score": row.scores, **row.metrics}
        cells = [mean_text(values[name], digits=2) if row.scores else "diverged" for name in shown]
        time = duration(row.seconds) if row.scores else ""
        counts = [row.num_diverged or ""] if has_diverged else []
        lines.append([*map(str, row.setting.values()), *cells, time, *counts])
    return columns, lines


def _conclusion(rows: Sequence[Row]) -> str:
    """Describes the best combination, and how certain it is that it is better than the others."""
    best = rows[0]
    flags = " ".join(f"--{name}={value}" for name, value in best.setting.items())
    lines = [f"Best of {len(rows)} settings: {flags}"]
    ties = sum(row.rank == best.rank for row in rows) - 1
    if ties:
        others = "1 other setting has" if ties == 1 else f"{ties} other settings have"
        lines.append(f"{others} the same score. The first one in the order of the lists is kept.")
    if len(best.scores) > 1:
        mean, half_width = mean_and_interval(best.scores)
        means = [float(np.mean(row.scores)) for row in rows[1:] if row.scores]
        count = sum(mean - other <= half_width for other in means)
        lines.append(f"Its 95% interval contains the means of {count} of the other settings.")
    lines.append(f"Time of all runs: {duration(sum(row.seconds for row in rows))}")
    return "\n".join(lines)


@style()
def figure(rows: Sequence[Row], values: Mapping[str, Setting]) -> Figure:
    """Plots the score over the values of the first hyperparameter.

    The second hyperparameter has a line per value, and all others have a panel per combination. The
    best combination has a ring, and diverged combinations have a cross at the bottom.
    """
    names = list(values)
    first, second, others = names[0], names[1:2], names[2:]
    ticks = sorted(values[first])
    panels = list(itertools.product(*(values[name] for name in others)))
    figure, all_axes = new_figure(max(4.0, 3.0 * len(panels)), 3.2, len(panels))
    for axes, panel in zip(all_axes, panels, strict=True):
        lines = list(itertools.product(*(values[name] for name in second)))
        for index, line in enumerate(lines):
            key = (*line, *panel)
            points = [row for row in rows if tuple(map(row.setting.get, names[1:])) == key]
            points.sort(key=lambda row: row.setting[first])
            # Shift the lines a little, so that their intervals do not overlap.
            shift = _SHIFT * (index - (len(lines) - 1) / 2)
            positions = [ticks.index(row.setting[first]) + shift for row in points]
            _draw(axes, points, positions, _text(second, line))
            if rows[0] in points:
                position = positions[points.index(rows[0])]
                axes.plot(position, np.mean(rows[0].scores), "o", **_RING)
        axes.set_xticks(range(len(ticks)), [f"{value:g}" for value in ticks])
        axes.set(title=_text(others, panel), xlabel=first.replace("_", " "))
        axes.margins(x=0.1, y=0.12)
    limits = [axes.get_ylim() for axes in all_axes]
    for axes in all_axes:
        axes.set_ylim(min(low for low, _ in limits), max(high for _, high in limits))
        axes.grid(axis="y", color="#e3e3e3")
    all_axes[0].set_ylabel("validation score")
    if second:
        all_axes[0].legend()
    return figure


def _draw(axes: Axes, rows: Sequence[Row], positions: Sequence[float], label: str) -> None:
    """Draws a line through the mean scores, with 95% confidence intervals over the seeds."""
    points = list(zip(rows, positions, strict=True))
    scored = [(row.scores, position) for row, position in points if row.scores]
    scores = [mean_and_interval(values) for values, _ in scored]
    means, half_widths = np.reshape(scores, (-1, 2)).T
    at = [position for _, position in scored]
    axes.errorbar(at, means, np.nan_to_num(half_widths), fmt="o-", capsize=2, label=label)
    for row, position in points:
        if not row.scores:
            axes.plot(position, 0.02, "x", color=GRAY, transform=axes.get_xaxis_transform())
            place = (position, 0.05)
            axes.annotate("diverged", place, xycoords=("data", "axes fraction"), ha="center")


def _text(names: Sequence[str], values: Setting) -> str:
    pairs = zip(names, values, strict=True)
    return ", ".join(f"{name.replace('_', ' ')} {value:g}" for name, value in pairs)
