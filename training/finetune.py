# SPDX-License-Identifier: Apache-2.0
"""Fine-tunes a pretrained encoder on labeled text, reports its scores, and exports it.

On your own file:

    python -m training.finetune --train_file=reviews.tsv --text=review --label=stars

With a recipe, any value of which a flag can change:

    python -m training.finetune --recipe=minilm_sst2 --data_dir=glue --epochs=1

If it is interrupted, the same command resumes from the last checkpoint and ends with the same
weights and scores. Seeds that are finished are not trained again.

Files written to `output_dir`: for each seed the best model (`seed_N/model.keras`) and the curves of
loss and metrics (`seed_N/curves.png`); `results.json`; the predictions for the test file
(`answers.tsv`); and a SavedModel that takes text (`export/1`).
"""

from .engine import config_flags, program
from .jobs.classification import ClassificationJob


def main(arguments: list[str]) -> None:
    program.fine_tune(arguments, ClassificationJob)


if __name__ == "__main__":
    config_flags.define_program_flags(ClassificationJob.config_class())
    program.run(main)
