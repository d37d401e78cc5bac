# SPDX-License-Identifier: Apache-2.0
"""The grid that the ablations share: small encoders, pre-trained and then fine-tuned."""

from __future__ import annotations

import dataclasses
import os
import types
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from keras_bert.intervals import mean_text

from ..engine.grid import Cell, run_cells, seed_scores
from ..engine.options import NonNegativeFloat, NonNegativeInt, PositiveInt, ProgramConfig

# Row of the table -> task -> the score of each seed in percent; without runs that diverged
Scores = dict[str, dict[str, list[float]]]


@dataclasses.dataclass(frozen=True)
class AblationOptions(ProgramConfig):
    """The data and the size of an ablation.

    Args:
        data_dir: Folder of WikiText-2's token files.
        glue_dir: Folder of the GLUE download.
        squad_dir: Folder of the files of the recipe minilm_squad_v1; empty leaves SQuAD out.
        output_dir: Folder for all runs and the table.
        num_steps: Training steps of each pre-training run.
        sst2_rows: Number of rows of SST-2 to fine-tune on; 0 for all.
        squad_questions: Number of SQuAD questions to fine-tune on; 0 for all.
        num_seeds: Number of fine-tuning runs for each cell of the table.
        epochs: Epochs of each fine-tuning run.
        learning_rate: Peak learning rate of fine-tuning.
    """

    data_dir: str = "wikitext-2"
    glue_dir: str = "glue"
    squad_dir: str = ""
    output_dir: str = "runs/ablation"
    num_steps: PositiveInt = 2500
    sst2_rows: NonNegativeInt = 8000
    squad_questions: NonNegativeInt = 3000
    num_seeds: PositiveInt = 3
    epochs: PositiveInt = 3
    learning_rate: NonNegativeFloat = 5e-4

    def check_folders(self) -> None:
        """Raises a FileNotFoundError if a folder of data does not exist."""
        for name in ("data_dir", "glue_dir", "squad_dir"):
            folder = getattr(self, name)
            if folder and not os.path.isdir(folder):
                raise FileNotFoundError(f"--{name} is {folder}, expected an existing folder")


class Task(NamedTuple):
    """A column of the table.

    Args:
        flags: The flags of `training.finetune`.
        metric: The metric to report.
    """

    flags: tuple[str, ...]
    metric: str


class Variant(NamedTuple):
    """A row of the table.

    Args:
        run: The pre-training run to start from.
        flags: Additional flags of its fine-tuning.
        paper: The paper's scores, by task.
    """

    run: str
    flags: tuple[str, ...] = ()
    paper: Mapping[str, float] = types.MappingProxyType({})


def tasks(config: AblationOptions) -> dict[str, Task]:
    """Returns the columns of the table."""
    # The recipe pre-trains without dropout, and on rows of at most 64 tokens.
    glue = (f"--data_dir={config.glue_dir}", "--dropout=0.1", "--sequence_length=64")
    rows = f"--train_rows={config.sst2_rows}"
    columns = {
        "sst2": Task(("--task=sst2", rows, *glue), "accuracy"),
        "mrpc": Task(("--task=mrpc", *glue), "accuracy"),
    }
    if config.squad_dir:
        windows = ("--sequence_length=64", "--doc_stride=24", "--max_query_length=24")
        questions = f"--max_questions={config.squad_questions}"
        recipe = ("--recipe=minilm_squad_v1", f"--data_dir={config.squad_dir}")
        flags = ("--task=questions", *recipe, questions, *windows)
        columns["squad"] = Task(flags, "f1")
    return columns


def pretraining_cell(config: AblationOptions, run: str, num_steps: int, *flags: str) -> Cell:
    """Returns a pre-training run.

    Args:
        config: The options of the ablation.
        run: The name of its folder.
        num_steps: The number of training steps.
        *flags: The flags in which the run differs from the recipe wikitext2_cpu.
    """
    command = [
        "training.pretrain",
        "--recipe=wikitext2_cpu",
        f"--data_dir={config.data_dir}",
        f"--num_steps={num_steps}",
        f"--warmup_steps={num_steps // 10}",
        *flags,
    ]
    return Cell(Path(config.output_dir, run), command)


def finetuning_cells(
    config: AblationOptions, rows: Mapping[str, Variant]
) -> dict[tuple[str, str], Cell]:
    """Returns the fine-tuning runs by row and column of the table."""
    cells = {}
    for row, variant in rows.items():
        preset = os.fspath(Path(config.output_dir, variant.run, "preset"))
        for name, task in tasks(config).items():
            command = [
                "training.finetune",
                *task.flags,
                f"--preset={preset}",
                f"--num_seeds={config.num_seeds}",
                f"--epochs={config.epochs}",
                f"--learning_rate={config.learning_rate}",
                "--noexport",
                *variant.flags,
            ]
            cells[row, name] = Cell(Path(config.output_dir, f"{name} {row}"), command, preset)
    return cells


def run_ablation(
    config: AblationOptions, pretraining: Mapping[str, Cell], rows: Mapping[str, Variant]
) -> tuple[dict[str, dict[str, Any]], Scores]:
    """Performs the runs that are missing.

    Args:
        config: The options of the ablation.
        pretraining: The pre-training runs by name.
        rows: The rows of the table.

    Returns:
        The results of the pre-training runs by name, and the scores.

    Raises:
        subprocess.CalledProcessError: If a run fails.
    """
    pretrained = run_cells(pretraining)
    started = {name: row for name, row in rows.items() if row.run in pretrained}
    columns = tasks(config)
    scores: Scores = {name: {} for name in rows}
    for (row, task), results in run_cells(finetuning_cells(config, started)).items():
        scores[row][task] = seed_scores(results, columns[task].metric)
    return pretrained, scores


def score_text(scores: Mapping[str, Sequence[float]], task: str) -> str:
    """Formats the mean and the interval of a task's scores."""
    return mean_text(scores[task]) if task in scores else "diverged"
