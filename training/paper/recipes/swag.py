# SPDX-License-Identifier: Apache-2.0
"""SWAG (choose which of four sentences comes next) with BERT-base, as in the BERT paper.

    python -m training.finetune --recipe=swag --data_dir=DIR

Score and time: not run here.
Published score (development set): accuracy 81.6.
Hardware: one GPU.
"""

from ...jobs.multiple_choice import ChoiceConfig

CONFIG = ChoiceConfig.from_flags(
    train_file="train.csv",
    dev_file="val.csv",
    format="swag",
    preset="hf://google-bert/bert-base-uncased",
    epochs=3,
    batch_size=16,
    learning_rate=2e-5,
    output_dir="runs/swag",
)
