# SPDX-License-Identifier: Apache-2.0
"""Fine-tunes a pretrained encoder to answer questions on passages, as in SQuAD.

    python -m training.finetune_squad --train_file=train-v1.1.json --dev_file=dev-v1.1.json

By a recipe, with any of its values changed by a flag:

    python -m training.finetune_squad --recipe=squad_v2 --data_dir=squad --epochs=3

It writes into `output_dir`: for each seed the best model (`seed_N/model.keras`), the curves of
loss and scores (`seed_N/curves.png`) and the answers to the dev questions (`predictions.json`,
`nbest_predictions.json` and, where questions may have no answer, `null_odds.json`);
`results.json`; the best seed's answers, those to the test file (`test/predictions.json`, …), and a
SavedModel that takes questions and passages (`export/1`).
"""

from .engine import config_flags, program
from .jobs.question_answering import QuestionAnswering


def main(arguments: list[str]) -> None:
    program.fine_tune(arguments, QuestionAnswering)


if __name__ == "__main__":
    config_flags.define_program_flags(QuestionAnswering.config_class())
    program.run(main)
