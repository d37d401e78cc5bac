# SPDX-License-Identifier: Apache-2.0
"""The second step of BERT's best SQuAD system: SQuAD 1.1, starting from `bert_large_triviaqa`.

    python -m training.finetune --recipe=bert_large_triviaqa_squad --data_dir=DIR

Score and time: not run here.
Published score (development set): exact match 84.2, F1 91.1. Without the first step: 84.1, 90.9.
Hardware: one GPU.
"""

from ...jobs.question_answering import SquadConfig

CONFIG = SquadConfig.from_flags(
    train_file="train-v1.1.json",
    dev_file="dev-v1.1.json",
    preset="runs/bert_large_triviaqa",
    epochs=3,
    batch_size=32,
    learning_rate=5e-5,
    output_dir="runs/bert_large_triviaqa_squad",
)
