# SPDX-License-Identifier: Apache-2.0
"""Repeats the BERT paper's ablations of pre-training tasks and model size, at a scale for CPUs.

    python -m training.paper.ablation --study=tasks --data_dir=wikitext-2 --glue_dir=glue \\
        --squad_dir=squad
    python -m training.paper.ablation --study=size --data_dir=wikitext-2 --glue_dir=glue

Small encoders are pre-trained on the same text. Each is fine-tuned on SST-2, MRPC and SQuAD with
multiple seeds. The command prints a table of the scores, with the paper's scores next to them.

`--study=tasks` (table 5) pre-trains with three objectives, fine-tunes the left-to-right encoder
with and without a BiLSTM, and adds an encoder with random weights. `--study=size` (section 5.2,
table 6) pre-trains encoders of different sizes for the same number of tokens. With --match_flops,
it also pre-trains them for the same number of FLOPs as the first size. As in the paper, all sizes
use the same learning rate. The learning rate in the recipe wikitext2_cpu is too high for the larger
sizes. The paper's six sizes are

    --sizes=3x768x12,6x768x3,6x768x12,12x768x12,12x1024x16,24x1024x16

Each run is a child process. If the command is interrupted, run it again to resume without repeating
finished runs.

The `output_dir` contains all runs and `ablation.json`. With --study=size, it also contains
`ablation.png`.
"""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from keras_bert import atomic, tables
from keras_bert.config import BertConfig
from keras_bert.intervals import mean_text

from ..costs.run_cost import format_flops
from ..engine import output_directory, program
from ..engine.grid import Cell, run_cells
from ..engine.options import (
    CommandConfig,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    UnusedFlags,
    check_one_of,
)
from ..plots.style import new_figure, save, style
from .recipes import wikitext2_cpu

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_RECIPE = wikitext2_cpu.CONFIG
_TASKS, _SIZE = "tasks", "size"
_SAME_TOKENS, _SAME_FLOPS = "same tokens", "same FLOPs"


@dataclasses.dataclass(frozen=True)
class AblationConfig(CommandConfig):
    """The data and settings for an ablation.

    Args:
        study: What differs between the encoders: tasks (the pre-training tasks) or size.
        data_dir: Directory of WikiText-2's token files.
        glue_dir: Directory of the GLUE download.
        squad_dir: Directory of the files for the recipe minilm_squad_v1. Empty skips SQuAD.
        output_dir: Directory for all runs and the table. Defaults to runs/ablation, or to
            runs/size_ablation with --study=size.
        num_steps: Training steps per pre-training run.
        sizes: The encoders, as layers x hidden size x attention heads. Only for --study=size.
        match_flops: Whether to also train each size with the same number of FLOPs as the first
            size.
        pretraining_learning_rate: Peak learning rate of pre-training. Defaults to the learning rate
            in the recipe wikitext2_cpu, or to 1e-3 with --study=size.
        bilstm_units: Units per direction of the BiLSTM. Only for --study=tasks.
        sst2_rows: Number of SST-2 examples to fine-tune on. 0 uses all.
        squad_questions: Number of SQuAD questions to fine-tune on. 0 uses all.
        num_seeds: Number of fine-tuning runs per table cell.
        epochs: Number of epochs per fine-tuning run.
        learning_rate: Peak learning rate of fine-tuning.
    """

    study: str = _TASKS
    data_dir: str = "wikitext-2"
    glue_dir: str = "glue"
    squad_dir: str = ""
    output_dir: str = ""
    num_steps: PositiveInt = 2500
    sizes: tuple[str, ...] = ("2x64x1", "2x128x2", "4x128x2", "4x256x4")
    match_flops: bool = False
    pretraining_learning_rate: PositiveFloat | None = None
    bilstm_units: PositiveInt = 128
    sst2_rows: NonNegativeInt = 8000
    squad_questions: NonNegativeInt = 3000
    num_seeds: PositiveInt = 3
    epochs: PositiveInt = 3
    learning_rate: NonNegativeFloat = 5e-4

    def unused_flags(self) -> UnusedFlags:
        others = ["sizes", "match_flops"] if self.study == _TASKS else ["bilstm_units"]
        yield others, f"it does not apply to --study={self.study}"
        if not self.squad_dir:
            yield ["squad_questions"], "--squad_dir is not given"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_one_of(self, study=(_TASKS, _SIZE))
        if not self.sizes or len(set(self.parsed_sizes())) < len(self.sizes):
            raise ValueError(f"--sizes must be distinct sizes. Received: {','.join(self.sizes)}")

    @property
    def directory(self) -> Path:
        """The directory for all runs and the table."""
        default = "runs/ablation" if self.study == _TASKS else "runs/size_ablation"
        return Path(self.output_dir or default)

    @property
    def pretraining_rate(self) -> float:
        """The peak learning rate of pre-training."""
        default = _RECIPE.optimization.learning_rate if self.study == _TASKS else 1e-3
        return self.pretraining_learning_rate or default

    def parsed_sizes(self) -> list[Size]:
        """Returns the sizes.

        Raises:
            ValueError: If a size is invalid.
        """
        return list(map(Size.parsed, self.sizes))


class Size(NamedTuple):
    """An encoder size. Feed-forward layers have four times the hidden size."""

    num_layers: int
    hidden_dim: int
    num_heads: int

    @classmethod
    def parsed(cls, text: str) -> Size:
        """Parses a size such as 4x128x2."""
        match = re.fullmatch(r"([1-9]\d*)x([1-9]\d*)x([1-9]\d*)", text)
        if match is None:
            raise ValueError(
                f"--sizes must be layers x hidden size x heads, such as 4x128x2. Received: {text!r}"
            )
        size = cls(*map(int, match.groups()))
        if size.hidden_dim % size.num_heads:
            raise ValueError(
                "--sizes must have hidden sizes divisible by the number of heads. Received: "
                f"{text!r}"
            )
        return size

    def __str__(self) -> str:
        return "x".join(map(str, self))

    def config(self) -> BertConfig:
        """Returns the encoder's config, with the vocabulary size of the recipe wikitext2_cpu."""
        sizes = {**self._asdict(), "intermediate_dim": 4 * self.hidden_dim}
        return BertConfig(vocabulary_size=_RECIPE.text.vocabulary_size, **sizes)

    def step_flops(self) -> int:
        """Returns the FLOPs per example in a training step of the recipe wikitext2_cpu."""
        from ..costs import model_flops

        (phase,) = _RECIPE.optimization.plan()
        slots = round(0.15 * phase.sequence_length)
        return model_flops.training_flops(self.config(), 1, phase.sequence_length, slots, False)


class Row(NamedTuple):
    """A pre-trained and fine-tuned encoder, a row in the table.

    Args:
        name: Name of the encoder. The names of the fine-tuning directories also contain it.
        run: Directory of the pre-training run.
        num_steps: Number of pre-training steps.
        pretraining: The pre-training flags that differ from the recipe wikitext2_cpu.
        finetuning: Additional flags for fine-tuning.
        paper: The paper's perplexity and scores, by column name.
        size: The encoder size. `None` uses the size in the recipe.
        column: With --study=size, whether all sizes have the same tokens or the same FLOPs.
    """

    name: str
    run: str
    num_steps: int
    pretraining: tuple[str, ...] = ()
    finetuning: tuple[str, ...] = ()
    paper: Mapping[str, float] = MappingProxyType({})
    size: Size | None = None
    column: str = ""


class Task(NamedTuple):
    """A column in the table, with the flags for `training.finetune` and the metric to report."""

    flags: tuple[str, ...]
    metric: str


# Devlin et al., 2019, table 6: perplexity on masked tokens, and accuracies on development sets
PAPER: Mapping[Size, Mapping[str, float]] = {
    Size(3, 768, 12): {"perplexity": 5.84, "mrpc": 79.8, "sst2": 88.4},
    Size(6, 768, 3): {"perplexity": 5.24, "mrpc": 82.2, "sst2": 90.7},
    Size(6, 768, 12): {"perplexity": 4.68, "mrpc": 84.8, "sst2": 91.3},
    Size(12, 768, 12): {"perplexity": 3.99, "mrpc": 86.7, "sst2": 92.9},
    Size(12, 1024, 16): {"perplexity": 3.54, "mrpc": 86.9, "sst2": 93.3},
    Size(24, 1024, 16): {"perplexity": 3.23, "mrpc": 87.8, "sst2": 93.7},
}


def rows(config: AblationConfig) -> list[Row]:
    """Returns the table's rows. Rows with the same `run` share a pre-trained encoder."""
    if config.study == _TASKS:
        nsp, causal = ("--sequence_format=next_sentence",), ("--causal",)
        bilstm = (f"--bilstm_units={config.bilstm_units}",)
        bert = {"mrpc": 86.7, "sst2": 92.7, "squad": 88.5}
        no_nsp = {"mrpc": 86.5, "sst2": 92.6, "squad": 87.9}
        ltr = {"mrpc": 77.5, "sst2": 92.1, "squad": 77.8}
        ltr_bilstm = {"mrpc": 75.7, "sst2": 91.6, "squad": 84.9}
        steps = config.num_steps
        return [
            Row("BERT", "bert", steps, nsp, paper=bert),
            Row("No NSP", "no_nsp", steps, paper=no_nsp),
            Row("LTR & No NSP", "ltr", steps, causal, paper=ltr),
            Row("LTR + BiLSTM", "ltr", steps, causal, bilstm, ltr_bilstm),
            Row("random weights", "bert", steps, nsp, ("--nopretrained",)),
        ]
    sizes = config.parsed_sizes()
    steps_of = {_SAME_TOKENS: dict.fromkeys(sizes, config.num_steps)}
    if config.match_flops:
        budget = config.num_steps * sizes[0].step_flops()
        steps_of[_SAME_FLOPS] = {size: max(1, round(budget / size.step_flops())) for size in sizes}
    return [
        _row_of_size(size, steps, column)
        for column, by_size in steps_of.items()
        for size, steps in by_size.items()
    ]


def _row_of_size(size: Size, num_steps: int, column: str) -> Row:
    name = f"{size}, {num_steps} steps"
    own = tuple(f"--{field}={value}" for field, value in size._asdict().items())
    return Row(name, name, num_steps, own, (), PAPER.get(size, {}), size, column)


def tasks(config: AblationConfig) -> dict[str, Task]:
    """Returns the table's columns."""
    # The recipe pre-trains without dropout, on sequences of at most 64 tokens.
    glue = (f"--data_dir={config.glue_dir}", "--dropout=0.1", "--sequence_length=64")
    sample = f"--train_rows={config.sst2_rows}"
    columns = {
        "sst2": Task(("--task=sst2", sample, *glue), "accuracy"),
        "mrpc": Task(("--task=mrpc", *glue), "accuracy"),
    }
    if config.squad_dir:
        windows = ("--sequence_length=64", "--doc_stride=24", "--max_query_length=24")
        questions = f"--max_questions={config.squad_questions}"
        recipe = ("--recipe=minilm_squad_v1", f"--data_dir={config.squad_dir}")
        columns["squad"] = Task(("--task=question_answering", *recipe, questions, *windows), "f1")
    return columns


def pretraining_cells(config: AblationConfig) -> dict[str, Cell]:
    """Returns the pre-training runs by name."""
    return {
        row.run: Cell(
            config.directory / row.run,
            [
                "training.pretrain",
                "--recipe=wikitext2_cpu",
                f"--data_dir={config.data_dir}",
                f"--num_steps={row.num_steps}",
                f"--warmup_steps={row.num_steps // 10}",
                f"--learning_rate={config.pretraining_rate}",
                *row.pretraining,
            ],
        )
        for row in rows(config)
    }


def finetuning_cells(config: AblationConfig) -> dict[tuple[str, str], Cell]:
    """Returns the fine-tuning runs by row name and column name."""
    cells = {}
    for row in rows(config):
        preset = os.fspath(config.directory / row.run / "preset")
        for name, task in tasks(config).items():
            command = [
                "training.finetune",
                *task.flags,
                f"--preset={preset}",
                f"--num_seeds={config.num_seeds}",
                f"--epochs={config.epochs}",
                f"--learning_rate={config.learning_rate}",
                "--noexport",
                *row.finetuning,
            ]
            cells[row.name, name] = Cell(config.directory / f"{name} {row.name}", command, preset)
    return cells


def main(config: AblationConfig) -> None:
    for name in ("data_dir", "glue_dir", "squad_dir"):
        directory = getattr(config, name)
        if directory and not os.path.isdir(directory):
            raise FileNotFoundError(
                f"--{name} must be an existing directory. Received: {directory}"
            )
    program.require(program.TRAINING_LIBRARIES, "training")
    program.import_quietly()
    with output_directory.lock_output_dir(config.directory, command="ablation"):
        records = ablation(config)
    print(format_table(config, records))


def ablation(config: AblationConfig) -> list[dict[str, Any]]:
    """Performs the missing runs and writes their scores.

    Returns:
        A record per table row, with `name`, `column` and `scores`. For each task, `scores` lists
        the scores of all seeds in percent, without diverged runs. With --study=size, unless
        pre-training diverged, the record also has `parameters`, `flops`, and the `perplexity` on
        the validation text.

    Raises:
        subprocess.CalledProcessError: If a run fails.
    """
    columns = tasks(config)
    run_results = run_cells(pretraining_cells(config))
    run_of = {row.name: row.run for row in rows(config)}
    cells = finetuning_cells(config).items()
    task_results = run_cells({key: cell for key, cell in cells if run_of[key[0]] in run_results})
    records = []
    for row in rows(config):
        scores = {
            task: results["summary"]["dev"][columns[task].metric]["seeds"]
            for (name, task), results in task_results.items()
            if name == row.name
        }
        record: dict[str, Any] = {"name": row.name, "column": row.column, "scores": scores}
        if row.size is not None and row.run in run_results:
            batch_size = _RECIPE.optimization.batch_size
            record["parameters"] = run_results[row.run]["parameters"]
            record["flops"] = row.num_steps * batch_size * row.size.step_flops()
            record["perplexity"] = run_results[row.run]["last"]["val_perplexity"]
        records.append(record)
    atomic.write_json(config.directory / "ablation.json", records)
    if config.study == _SIZE:
        save(size_figure(records, list(columns)), config.directory / "ablation.png")
    return records


def format_table(config: AblationConfig, records: Sequence[Mapping[str, Any]]) -> str:
    """Formats a Markdown table with means, 95% confidence intervals and the paper's numbers."""
    columns = list(tasks(config))
    lines = []
    for row, record in zip(rows(config), records, strict=True):
        cells = dict.fromkeys(columns, "diverged")
        cells |= {name: mean_text(values) for name, values in record["scores"].items()}
        own: list[tables.Cell] = [row.name]
        if row.size is not None:
            own = [str(row.size), row.column, None, None]
            cells = {"perplexity": "diverged", **cells}
        if row.size is not None and "parameters" in record:
            own[2:] = [record["parameters"] / 1e6, format_flops(record["flops"])]
            cells["perplexity"] = f"{record['perplexity']:.1f}"
        paper = {name: f" (paper: {value})" for name, value in row.paper.items()}
        lines.append([*own, *(text + paper.get(name, "") for name, text in cells.items())])
    heads = [""]
    if config.study == _SIZE:
        heads = ["layers x hidden x heads", "", "million parameters", "FLOPs", "perplexity"]
    return tables.markdown_table([*heads, *columns], lines)


def _value(record: Mapping[str, Any], name: str) -> float | None:
    """Returns an encoder's perplexity or mean score, or `None` if the run diverged."""
    if name == "perplexity":
        return record.get("perplexity")
    return mean(record["scores"][name]) if name in record["scores"] else None


@style()
def size_figure(records: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> Figure:
    """Plots perplexity and mean scores over the number of parameters."""
    figure, panels = new_figure(3.2 * (1 + len(columns)), 3.0, 1 + len(columns))
    for axes, name in zip(panels, ["perplexity", *columns], strict=True):
        for column, line in ((_SAME_TOKENS, "o-"), (_SAME_FLOPS, "s--")):
            points = sorted(
                (record["parameters"], value)
                for record in records
                if record["column"] == column and (value := _value(record, name)) is not None
            )
            if points:
                axes.plot(*zip(*points, strict=True), line, label=column)
        axes.set(xscale="log", xlabel="parameters", title=name)
    panels[0].legend()
    return figure


if __name__ == "__main__":
    program.run(main, AblationConfig)
