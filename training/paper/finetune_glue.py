# SPDX-License-Identifier: Apache-2.0
"""Fine-tunes on all GLUE tasks over a grid of hyperparameters, and writes submission files.

    python -m training.paper.finetune_glue --recipe=bert_glue --data_dir=glue

Each task is fine-tuned with every learning rate, batch size, number of epochs and seed, as with
lists in the flags of training.finetune. The setting with the best mean score on the development set
is selected, and its best seed predicts the test set. The default learning rates are from the BERT
paper. If the command is interrupted, run it again to resume without repeating finished runs.

The `output_dir` contains `glue.json`, `glue.md` and `glue.png`. For existing test files, it also
contains `submission/*.tsv` in the official format. MNLI's model also predicts the diagnostic set.
Each task has a directory with its runs (`grid/*`, with their output in `output.log`) and their
scores (`grid.json`, `grid.md`, `grid.png`).
"""

from ..engine import output_directory, program
from .glue_grid import FinetuneGlueConfig, finetune_glue, format_table


def main(config: FinetuneGlueConfig) -> None:
    program.require(program.TRAINING_LIBRARIES, "training")
    program.import_quietly()
    with output_directory.lock_output_dir(config.output_dir, command="finetune_glue"):
        results = finetune_glue(config)
    print(format_table(results))


if __name__ == "__main__":
    program.run(main, FinetuneGlueConfig, with_recipes=True)
