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
from pathlib import Path

from absl import flags

from keras_bert import atomic
from keras_bert.tables import markdown_table

from .engine import output_folder, program
from .engine.config_flags import define_flags, read_flags
from .engine.grid import Cell
from .engine.options import PositiveInt
from .pretraining.ablations import (
    AblationOptions,
    Scores,
    Variant,
    pretraining_cell,
    run_ablation,
    score_text,
    tasks,
)


@dataclasses.dataclass(frozen=True)
class AblationConfig(AblationOptions):
    """The data and the size of the ablation.

    Args:
        bilstm_units: Units of each direction of the BiLSTM.
    """

    bilstm_units: PositiveInt = 128


# The pre-training runs: the flags of each that change the recipe wikitext2_cpu.
PRETRAINING = {"bert": ("--kind=next_sentence",), "no_nsp": (), "ltr": ("--causal",)}


def variants(config: AblationConfig) -> dict[str, Variant]:
    """Returns the rows of the table, in the paper's order, with random weights last."""
    bilstm = (f"--bilstm_units={config.bilstm_units}",)
    return {
        "BERT": Variant("bert", paper={"mrpc": 86.7, "sst2": 92.7, "squad": 88.5}),
        "No NSP": Variant("no_nsp", paper={"mrpc": 86.5, "sst2": 92.6, "squad": 87.9}),
        "LTR & No NSP": Variant("ltr", paper={"mrpc": 77.5, "sst2": 92.1, "squad": 77.8}),
        "LTR + BiLSTM": Variant("ltr", bilstm, {"mrpc": 75.7, "sst2": 91.6, "squad": 84.9}),
        "random weights": Variant("bert", ("--nopretrained",)),
    }


def main(arguments: list[str]) -> None:
    program.refuse_arguments(arguments)
    config = read_flags(AblationConfig)
    config.check_folders()
    program.require(program.TRAINING_LIBRARIES, "training")
    with output_folder.claimed(config.output_dir):
        scores = ablation(config)
    print(format_table(config, scores))


def pretraining_cells(config: AblationConfig) -> dict[str, Cell]:
    """Returns the pre-training runs by name."""
    return {
        name: pretraining_cell(config, name, config.num_steps, *own)
        for name, own in PRETRAINING.items()
    }


def ablation(config: AblationConfig) -> Scores:
    """Performs the runs that are missing, and writes the scores.

    Raises:
        subprocess.CalledProcessError: If a run fails.
    """
    _, scores = run_ablation(config, pretraining_cells(config), variants(config))
    atomic.write_json(Path(config.output_dir, "ablation.json"), scores)
    return scores


def format_table(config: AblationConfig, scores: Scores) -> str:
    """Formats the scores as a Markdown table: mean, 95 % interval, and the paper's scores."""
    columns = tasks(config)
    rows = []
    for name, variant in variants(config).items():
        cells = [name]
        for task in columns:
            cells += [score_text(scores[name], task), str(variant.paper.get(task, ""))]
        rows.append(cells)
    return markdown_table(["", *(head for task in columns for head in (task, "paper's"))], rows)


if __name__ == "__main__":
    define_flags(AblationConfig(), flags.FLAGS)
    program.run(main)
