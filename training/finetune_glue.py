# SPDX-License-Identifier: Apache-2.0
"""All of GLUE: every task over a grid of rates and seeds, one table, and the files to submit.

    python -m training.finetune_glue --recipe=bert_glue --data_dir=glue

Each task is fine-tuned with every rate, batch size and seed; the dev set decides which of these
runs answers the test file, as in the paper, whose rates are the defaults. Each run is a program of
its own, and what is finished is not run again: the same command continues where it was stopped.

It writes into `output_dir`: a folder for each run, `submission/*.tsv` in the official form where
there are test files (MNLI answers the diagnostic set too), `glue.json`, `glue.md` and `glue.png`.
"""

from .engine import config_flags, output_folder, program
from .jobs.glue_grid import FinetuneGlueConfig, finetune_glue, format_table


def main(arguments: list[str]) -> None:
    program.refuse_arguments(arguments)
    config = config_flags.configuration(FinetuneGlueConfig)
    program.require(program.TRAINING_LIBRARIES, "training")
    with output_folder.claimed(config.output_dir):
        results = finetune_glue(config)
    print(format_table(results))


if __name__ == "__main__":
    config_flags.define_program_flags(FinetuneGlueConfig())
    program.run(main)
