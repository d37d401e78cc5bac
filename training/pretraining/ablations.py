# SPDX-License-Identifier: Apache-2.0
"""The parts that the ablations share: small encoders, pre-trained and then fine-tuned."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from pathlib import Path

from ..engine import child_programs
from ..engine.options import NonNegativeFloat, NonNegativeInt, PositiveInt, ProgramConfig


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


@dataclasses.dataclass(frozen=True)
class Task:
    """A column of the table.

    Args:
        program: The fine-tuning program.
        flags: Its flags.
        metric: The metric to report.
    """

    program: str
    flags: tuple[str, ...]
    metric: str


def tasks(config: AblationOptions) -> dict[str, Task]:
    """Returns the columns of the table."""
    # The recipe pre-trains without dropout, and on rows of at most 64 tokens.
    glue = (f"--data_dir={config.glue_dir}", "--dropout=0.1", "--sequence_length=64")
    rows = f"--train_rows={config.sst2_rows}"
    columns = {
        "sst2": Task("training.finetune", ("--task=sst2", rows, *glue), "accuracy"),
        "mrpc": Task("training.finetune", ("--task=mrpc", *glue), "accuracy"),
    }
    if config.squad_dir:
        windows = ("--sequence_length=64", "--doc_stride=24", "--max_query_length=24")
        questions = f"--max_questions={config.squad_questions}"
        recipe = ("--recipe=minilm_squad_v1", f"--data_dir={config.squad_dir}")
        flags = ("--task=questions", *recipe, questions, *windows)
        columns["squad"] = Task("training.finetune", flags, "f1")
    return columns


def pretraining_command(config: AblationOptions, num_steps: int, *own: str) -> list[str]:
    """Returns the command of a pre-training run.

    Args:
        config: The options of the ablation.
        num_steps: The number of training steps.
        *own: The flags in which the run differs from the recipe wikitext2_cpu.
    """
    return [
        "training.pretrain",
        "--recipe=wikitext2_cpu",
        f"--data_dir={config.data_dir}",
        f"--num_steps={num_steps}",
        f"--warmup_steps={num_steps // 10}",
        *own,
    ]


def finetuning_command(
    config: AblationOptions, task: Task, run: str, own: Sequence[str] = ()
) -> list[str]:
    """Returns the command that fine-tunes the encoder of a pre-training run on a task.

    Args:
        config: The options of the ablation.
        task: The task.
        run: The folder of the pre-training run, in `output_dir`.
        own: Further flags.
    """
    return [
        task.program,
        *task.flags,
        f"--preset={preset_of(config, run)}",
        f"--num_seeds={config.num_seeds}",
        f"--epochs={config.epochs}",
        f"--learning_rate={config.learning_rate}",
        "--noexport",
        *own,
    ]


def finetuned_scores(
    config: AblationOptions, folder: Path, task: Task, run: str, command: Sequence[str]
) -> list[float]:
    """Fine-tunes unless that is done, and returns the score of each seed, in percent.

    Args:
        config: The options of the ablation.
        folder: The folder of the fine-tuning run.
        task: The task.
        run: The folder of the pre-training run, in `output_dir`.
        command: The result of `finetuning_command`.
    """
    results = child_programs.run_once(folder, command, os.fspath(preset_of(config, run)))
    (dev_scores,) = results["summary"].values()
    seeds: list[float] = dev_scores[task.metric]["seeds"]
    return seeds


def preset_of(config: AblationOptions, run: str) -> Path:
    """Returns the preset that a pre-training run writes."""
    return Path(config.output_dir) / run / "preset"
