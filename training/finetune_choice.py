# SPDX-License-Identifier: Apache-2.0
"""Fine-tunes a pretrained encoder on multiple choice: SWAG, CODAH, or your own files.

On your own files:

    python -m training.finetune_choice --train_file=train.jsonl --dev_file=dev.jsonl

With a recipe, any value of which a flag can change:

    python -m training.finetune_choice --recipe=minilm_codah --data_dir=codah --epochs=1

Files written to `output_dir`: for each seed the best model (`seed_N/model.keras`) and the curves of
loss and accuracy (`seed_N/curves.png`); `results.json`; the best seed's predictions for the test
file (`answers.tsv`); and a SavedModel that takes text (`export/1`).
"""

from .engine import config_flags, program
from .jobs.multiple_choice import ChoiceJob


def main(arguments: list[str]) -> None:
    program.fine_tune(arguments, ChoiceJob)


if __name__ == "__main__":
    config_flags.define_program_flags(ChoiceJob.config_class())
    program.run(main)
