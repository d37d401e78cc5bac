# SPDX-License-Identifier: Apache-2.0
"""Fine-tunes a pretrained encoder on token classification: named entities, chunks, parts of speech.

On your own files, with words and labels in columns:

    python -m training.finetune_tagging --train_file=train.conll --dev_file=dev.conll

Labels of spans may be in IOB1, IOB2 or BIOES, in brackets as in CoNLL-2012 (`(PER*`, `*`, `*)`), or
bare types beside `O` as in Few-NERD. `--skip_bad` skips and counts sentences with a malformed line.

With a recipe, any value of which a flag can change:

    python -m training.finetune_tagging --recipe=minilm_wnut17 --data_dir=ner --epochs=1

Files written to `output_dir`: for each seed the best model (`seed_N/model.keras`) and the curves of
loss and scores (`seed_N/curves.png`); `results.json`; the best seed's predictions on the
development and test sets (`dev.conll`, `test.conll`: the last column is the prediction, the one
before it the label) and their scores by entity type (`dev_scores.json`, `test_scores.json`); and a
SavedModel that takes text (`export/1`).
"""

from .engine import config_flags, program
from .jobs.tagging import Tagging


def main(arguments: list[str]) -> None:
    program.fine_tune(arguments, Tagging)


if __name__ == "__main__":
    config_flags.define_program_flags(Tagging.config_class())
    program.run(main)
