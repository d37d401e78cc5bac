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
import os
from collections.abc import Mapping
from pathlib import Path

from absl import flags

from keras_bert import atomic

from .engine import child_programs, output_folder, program
from .engine.config_flags import define_flags, read_flags


@dataclasses.dataclass(frozen=True)
class AblationConfig:
    """The data and the size of the ablation.

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
        bilstm_units: Units of each direction of the BiLSTM.
    """

    data_dir: str = "wikitext-2"
    glue_dir: str = "glue"
    squad_dir: str = ""
    output_dir: str = "runs/ablation"
    num_steps: int = 2500
    sst2_rows: int = 8000
    squad_questions: int = 3000
    num_seeds: int = 3
    epochs: int = 3
    learning_rate: float = 5e-4
    bilstm_units: int = 128


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


# The pre-training runs: the flags of each that change the recipe wikitext2_cpu.
PRETRAINING: Mapping[str, tuple[str, ...]] = {
    "bert": ("--kind=next_sentence",),
    "no_nsp": (),
    "ltr": ("--causal",),
}
EMPTY_SCORES: Mapping[str, float] = {}


def tasks(config: AblationConfig) -> dict[str, Task]:
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
        columns["squad"] = Task("training.finetune_squad", (*recipe, questions, *windows), "f1")
    return columns


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
        preset = os.fspath(folder / variants(config)[name].run / "preset")
        results = child_programs.run_once(folder / f"{task_name} {name}", command, preset)
        (dev_scores,) = results["summary"].values()
        table[name][task_name] = dev_scores[tasks(config)[task_name].metric]["seeds"]
    atomic.write_json(folder / "ablation.json", table)
    return table


def pretraining_parts(config: AblationConfig) -> dict[str, list[str]]:
    """Returns the commands of the pre-training runs, by folder."""
    flags = _pretraining_flags(config)
    return {name: ["training.pretrain", *flags, *own] for name, own in PRETRAINING.items()}


def finetuning_parts(config: AblationConfig) -> dict[tuple[str, str], list[str]]:
    """Returns the commands of the fine-tuning runs, by row and column of the table."""
    return {
        (name, task_name): [task.program, *task.flags, *_finetuning_flags(config, variant)]
        for name, variant in variants(config).items()
        for task_name, task in tasks(config).items()
    }


def _pretraining_flags(config: AblationConfig) -> list[str]:
    return [
        "--recipe=wikitext2_cpu",
        f"--data_dir={config.data_dir}",
        f"--num_steps={config.num_steps}",
        f"--warmup_steps={config.num_steps // 10}",
    ]


def _finetuning_flags(config: AblationConfig, variant: Variant) -> list[str]:
    return [
        f"--preset={Path(config.output_dir) / variant.run / 'preset'}",
        f"--num_seeds={config.num_seeds}",
        f"--epochs={config.epochs}",
        f"--learning_rate={config.learning_rate}",
        "--noexport",
        *variant.finetune_flags,
    ]


def format_table(config: AblationConfig, table: Mapping[str, Mapping[str, list[float]]]) -> str:
    """Formats the scores as a Markdown table: mean, 95 % interval, and the paper's scores."""
    from .scores import classifier_scores

    rows = variants(config)
    columns = tasks(config)
    lines = ["| | " + " | ".join(f"{task} | paper's" for task in columns) + " |"]
    lines.append("|---" * (1 + 2 * len(columns)) + "|")
    for name, by_task in table.items():
        cells = [name]
        for task, values in by_task.items():
            mean, half_width = classifier_scores.summarise(values)
            paper = rows[name].paper.get(task)
            cells += [f"{mean:.1f} ± {half_width:.1f}", "" if paper is None else f"{paper}"]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    define_flags(AblationConfig(), flags.FLAGS)
    program.run(main)
