# SPDX-License-Identifier: Apache-2.0
"""Fine-tunes a pretrained encoder on extractive question answering, as in SQuAD.

    python -m training.finetune_squad --train_file=train-v1.1.json --dev_file=dev-v1.1.json

With a recipe, any value of which a flag can change:

    python -m training.finetune_squad --recipe=squad_v2 --data_dir=squad --epochs=3

Files written to `output_dir`: for each seed the best model (`seed_N/model.keras`), the curves of
loss and scores (`seed_N/curves.png`) and the predictions on the development set
(`predictions.json`, `nbest_predictions.json` and, where questions may be unanswerable,
`null_odds.json`); `results.json`; copies of the best seed's predictions; its predictions for the
test file (`test/predictions.json`, …); and a SavedModel that takes questions and passages
(`export/1`).
"""

from .engine import config_flags, program
from .jobs.question_answering import QuestionJob


def main(arguments: list[str]) -> None:
    program.fine_tune(arguments, QuestionJob)


if __name__ == "__main__":
    config_flags.define_program_flags(QuestionJob.config_class())
    program.run(main)
