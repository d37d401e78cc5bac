# SPDX-License-Identifier: Apache-2.0
"""Fine-tunes on all GLUE tasks over a grid of hyperparameters, and writes submission files.

    python -m training.paper.finetune_glue --recipe=bert_glue --data_dir=glue

Each task is fine-tuned with every learning rate, batch size and seed. As in the BERT paper, the run
with the best development score predicts the test set. The default learning rates are also from the
paper. Each run is a child process. If the command is interrupted, run it again to resume without
repeating finished runs.

The `output_dir` contains a directory for each run, with its output in `output.log`, `glue.json`,
`glue.md` and `glue.png`. For existing test files, it also contains `submission/*.tsv` in the
official format. MNLI's model also predicts the diagnostic set.
"""

from ..engine import output_directory, program
from .glue_grid import FinetuneGlueConfig, finetune_glue, format_table


def main(config: FinetuneGlueConfig) -> None:
    program.require(program.TRAINING_LIBRARIES, "training")
    with output_directory.lock_output_dir(config.output_dir, command="finetune_glue"):
        results = finetune_glue(config)
    print(format_table(results))


if __name__ == "__main__":
    program.run(main, FinetuneGlueConfig, with_recipes=True)
