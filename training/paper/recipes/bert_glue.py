# SPDX-License-Identifier: Apache-2.0
"""GLUE with BERT-base, over the BERT paper's grid of hyperparameters.

    python -m training.paper.finetune_glue --recipe=bert_glue --data_dir=DIR

Score and time: not run here.
Published score (test set): MNLI 84.6 / 83.4, QQP F1 71.2, QNLI 90.5, SST-2 93.5, CoLA 52.1, STS-B
85.8, MRPC F1 88.9, RTE 66.4. Average 79.6.
Hardware: one GPU.
"""

from ..glue_grid import FinetuneGlueConfig

CONFIG = FinetuneGlueConfig.from_flags(
    preset="hf://google-bert/bert-base-uncased",
    output_dir="runs/bert_glue",
)
