# SPDX-License-Identifier: Apache-2.0
"""SQuAD 2.0 (with unanswerable questions) with BERT-large, as in the BERT paper.

    python -m training.finetune --recipe=squad_v2 --data_dir=DIR

Score and time: not run here.
Published score (development set): exact match 78.7, F1 81.9.
Hardware: one GPU.
"""

from ...jobs.question_answering import SquadConfig

CONFIG = SquadConfig.from_flags(
    train_file="train-v2.0.json",
    dev_file="dev-v2.0.json",
    preset="hf://google-bert/bert-large-uncased",
    unanswerable="yes",
    epochs=2,
    batch_size=48,
    learning_rate=5e-5,
    output_dir="runs/squad_v2",
)
