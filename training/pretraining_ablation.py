# SPDX-License-Identifier: Apache-2.0
"""The paper's ablation of the pre-training tasks (table 5), at a scale for CPUs.

    python -m training.pretraining_ablation --data_dir=wikitext-2 --glue_dir=glue --squad_dir=squad

It pre-trains a small encoder in three ways, fine-tunes each on SST-2, MRPC and SQuAD with several
seeds (the left-to-right one also with a BiLSTM on top, and one from random weights), and prints a
table with the paper's scores beside its own. Each run is a child process. If the program is
interrupted, the same command resumes it: finished runs are not repeated.

Files written to `output_dir`: each pre-training run, each fine-tuning run, and `ablation.json`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path

from absl import flags

from keras_bert import atomic
from keras_bert.intervals import mean_text
from keras_bert.tables import markdown_table

from .engine import child_programs, output_folder, program
from .engine.config_flags import define_flags, read_flags
from .engine.options import PositiveInt
from .pretraining.ablations import (
    AblationOptions,
    finetuned_scores,
    finetuning_command,
    pretraining_command,
    tasks,
)


@dataclasses.dataclass(frozen=True)
class AblationConfig(AblationOptions):
    """The data and the size of the ablation.

    Args:
        bilstm_units: Units of each direction of the BiLSTM.
    """

    bilstm_units: PositiveInt = 128


@dataclasses.dataclass(frozen=True)
class Variant:
    """A row of the table.

    Args:
        run: The pre-training run to start from.
        finetune_flags: Additional flags of its fine-tuning.
        paper: The paper's scores, by task.
    """

    run: str
    finetune_flags: tuple[str, ...]
    paper: Mapping[str, float]


# The pre-training runs: the flags of each that change the recipe wikitext2_cpu.
PRETRAINING: Mapping[str, tuple[str, ...]] = {
    "bert": ("--kind=next_sentence",),
    "no_nsp": (),
    "ltr": ("--causal",),
}
EMPTY_SCORES: Mapping[str, float] = {}


def variants(config: AblationConfig) -> dict[str, Variant]:
    """Returns the rows of the table, in the paper's order, with random weights last."""
    bilstm = (f"--bilstm_units={config.bilstm_units}",)
    return {
        "BERT": Variant("bert", (), {"mrpc": 86.7, "sst2": 92.7, "squad": 88.5}),
        "No NSP": Variant("no_nsp", (), {"mrpc": 86.5, "sst2": 92.6, "squad": 87.9}),
        "LTR & No NSP": Variant("ltr", (), {"mrpc": 77.5, "sst2": 92.1, "squad": 77.8}),
        "LTR + BiLSTM": Variant("ltr", bilstm, {"mrpc": 75.7, "sst2": 91.6, "squad": 84.9}),
        "random weights": Variant("bert", ("--nopretrained",), EMPTY_SCORES),
    }


def main(arguments: list[str]) -> None:
    program.refuse_arguments(arguments)
    config = read_flags(AblationConfig)
    config.check_folders()
    program.require(program.TRAINING_LIBRARIES, "training")
    with output_folder.claimed(config.output_dir):
        table = ablation(config)
    print(format_table(config, table))


def ablation(config: AblationConfig) -> dict[str, dict[str, list[float]]]:
    """Performs the runs that are missing.

    Returns:
        For each row and task, the score of each seed, in percent.

    Raises:
        subprocess.CalledProcessError: If a run fails.
    """
    folder = Path(config.output_dir)
    table: dict[str, dict[str, list[float]]] = {name: {} for name in variants(config)}
    for name, command in pretraining_parts(config).items():
        child_programs.run_once(folder / name, command)
    for (name, task_name), command in finetuning_parts(config).items():
        task, run = tasks(config)[task_name], variants(config)[name].run
        table[name][task_name] = finetuned_scores(
            config, folder / f"{task_name} {name}", task, run, command
        )
    atomic.write_json(folder / "ablation.json", table)
    return table


def pretraining_parts(config: AblationConfig) -> dict[str, list[str]]:
    """Returns the commands of the pre-training runs, by folder."""
    return {
        name: pretraining_command(config, config.num_steps, *own)
        for name, own in PRETRAINING.items()
    }


def finetuning_parts(config: AblationConfig) -> dict[tuple[str, str], list[str]]:
    """Returns the commands of the fine-tuning runs, by row and column of the table."""
    return {
        (name, task_name): finetuning_command(config, task, variant.run, variant.finetune_flags)
        for name, variant in variants(config).items()
        for task_name, task in tasks(config).items()
    }


def format_table(config: AblationConfig, table: Mapping[str, Mapping[str, list[float]]]) -> str:
    """Formats the scores as a Markdown table: mean, 95 % interval, and the paper's scores."""
    rows = variants(config)
    columns = tasks(config)
    heads = ["", *(head for task in columns for head in (task, "paper's"))]
    lines = []
    for name, by_task in table.items():
        cells = [name]
        for task, values in by_task.items():
            paper = rows[name].paper.get(task)
            cells += [mean_text(values), "" if paper is None else f"{paper}"]
        lines.append(cells)
    return markdown_table(heads, lines)


if __name__ == "__main__":
    define_flags(AblationConfig(), flags.FLAGS)
    program.run(main)
