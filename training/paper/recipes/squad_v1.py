# SPDX-License-Identifier: Apache-2.0
"""SQuAD 1.1 (extractive question answering) with BERT-base, as in the BERT paper.

    python -m training.finetune --recipe=squad_v1 --data_dir=DIR

Score and time: not run here.
Published score (development set): exact match 80.8, F1 88.5.
Hardware: one GPU.
"""

from ...jobs.question_answering import SquadConfig

CONFIG = SquadConfig.from_flags(
    train_file="train-v1.1.json",
    dev_file="dev-v1.1.json",
    preset="hf://google-bert/bert-base-uncased",
    epochs=3,
    batch_size=32,
    learning_rate=5e-5,
    output_dir="runs/squad_v1",
)
