# SPDX-License-Identifier: Apache-2.0
"""GLUE with DistilBERT, over BERT's grid.

    python -m training.finetune_glue --recipe=distilbert_glue --data_dir=DIR

Hardware: one GPU; not run here.
"""

from ..jobs.glue_grid import FinetuneGlueConfig

CONFIG = FinetuneGlueConfig(
    preset="hf://distilbert/distilbert-base-uncased",
    output_dir="runs/distilbert_glue",
)
