# SPDX-License-Identifier: Apache-2.0
"""SQuAD 2.0's dev set with MiniLM L6-H384, trained on 20 of its articles and tested on the others.

    python -m training.finetune_squad --recipe=minilm_squad_v2 --data_dir=DIR

Hardware, time and score: the README's table of recipes.
"""

from training.jobs.question_answering import SquadConfig

CONFIG = SquadConfig(
    train_file="dev-v2.0-rebuilt.json",
    train_articles=20,
    unanswerable="yes",
    epochs=3,
    learning_rate=1.5e-4,
    sequence_length=256,
    output_dir="runs/minilm_squad_v2",
    length_window=64,
)
