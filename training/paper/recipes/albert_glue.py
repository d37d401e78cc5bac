# SPDX-License-Identifier: Apache-2.0
"""GLUE with ALBERT-base v2, over the paper's grid of learning rates and batch sizes.

    python -m training.paper.finetune_glue --recipe=albert_glue --data_dir=DIR

Score and time: not run here.
Hardware: one GPU.

The paper specifies training steps instead of epochs. For the medium-sized tasks, they are close to
three epochs.
"""

from ..glue_grid import FinetuneGlueConfig

CONFIG = FinetuneGlueConfig.from_flags(
    preset="hf://albert/albert-base-v2",
    learning_rate=(1e-5, 2e-5, 3e-5, 5e-5),
    batch_size=(16, 32, 128),
    sequence_length=512,
    output_dir="runs/albert_glue",
)
