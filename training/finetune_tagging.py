# SPDX-License-Identifier: Apache-2.0
"""Fine-tunes a pretrained encoder on tagged words: named entities, chunks, parts of speech.

On files of your own, words and labels in columns:

    python -m training.finetune_tagging --train_file=train.conll --dev_file=dev.conll

By a recipe, with any of its values changed by a flag:

    python -m training.finetune_tagging --recipe=minilm_wnut17 --data_dir=ner --epochs=1

It writes into `output_dir`: for each seed the best model (`seed_N/model.keras`) and the curves of
loss and score (`seed_N/curves.png`); `results.json`; of the best seed the tagged development and
test sentences (`dev.conll`, `test.conll`: the last column is the prediction, the one before it the
label), their scores by type (`dev_scores.json`, `test_scores.json`); and a SavedModel that takes
text (`export/1`).
"""

from .engine import config_flags, program
from .jobs.tagging import Tagging


def main(arguments: list[str]) -> None:
    program.fine_tune(arguments, Tagging)


if __name__ == "__main__":
    config_flags.define_program_flags(Tagging.config_class())
    program.run(main)
