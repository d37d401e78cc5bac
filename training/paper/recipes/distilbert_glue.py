# SPDX-License-Identifier: Apache-2.0
"""GLUE with DistilBERT, over BERT's grid of hyperparameters.

    python -m training.paper.finetune_glue --recipe=distilbert_glue --data_dir=DIR

Score and time: not run here.
Hardware: one GPU.
"""

from ..glue_grid import FinetuneGlueConfig

CONFIG = FinetuneGlueConfig.from_flags(
    preset="hf://distilbert/distilbert-base-uncased",
    output_dir="runs/distilbert_glue",
)
