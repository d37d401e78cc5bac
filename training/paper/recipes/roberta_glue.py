# SPDX-License-Identifier: Apache-2.0
"""GLUE with RoBERTa-base, over the grid of the paper's appendix on fine-tuning.

    python -m training.paper.finetune_glue --recipe=roberta_glue --data_dir=DIR

Score and time: not run here.
Hardware: one GPU.
"""

from ..glue_grid import FinetuneGlueConfig

CONFIG = FinetuneGlueConfig.from_flags(
    preset="hf://FacebookAI/roberta-base",
    learning_rate=(1e-5, 2e-5, 3e-5),
    batch_size=(16, 32),
    epochs=(10,),
    warmup=0.06,
    weight_decay=0.1,
    output_dir="runs/roberta_glue",
)
