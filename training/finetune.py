# SPDX-License-Identifier: Apache-2.0
"""Fine-tunes a pretrained encoder on labelled text, reports its score, and exports it.

On a file of your own:

    python -m training.finetune --train_file=reviews.tsv --text=review --label=stars

By a recipe, with any of its values changed by a flag:

    python -m training.finetune --recipe=minilm_sst2 --data_dir=glue --epochs=1

Killed at any moment and started again with the same command, it continues from its last checkpoint,
and ends with the same weights and scores; seeds that are finished are not trained again.

It writes into `output_dir`: for each seed the best model (`seed_N/model.keras`) and the curves of
loss and metric (`seed_N/curves.png`), `results.json`, the answers to the test file
(`answers.tsv`), and a SavedModel that takes text (`export/1`).
"""

from .engine import config_flags, program
from .jobs.classification import TextClassification


def main(arguments: list[str]) -> None:
    program.fine_tune(arguments, TextClassification)


if __name__ == "__main__":
    config_flags.define_program_flags(TextClassification.config_class())
    program.run(main)
