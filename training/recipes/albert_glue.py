# SPDX-License-Identifier: Apache-2.0
"""GLUE with ALBERT-base v2: the rates, batches and length from which the paper chooses by task.

    python -m training.finetune_glue --recipe=albert_glue --data_dir=DIR

Hardware: one GPU; not run here. The paper counts updates and not epochs; three epochs are near to
what it gives the tasks of middle size.
"""

from ..jobs.glue_grid import FinetuneGlueConfig

CONFIG = FinetuneGlueConfig(
    preset="hf://albert/albert-base-v2",
    learning_rates=("1e-5", "2e-5", "3e-5", "5e-5"),
    batch_sizes=("16", "32", "128"),
    sequence_length=512,
    output_dir="runs/albert_glue",
)
