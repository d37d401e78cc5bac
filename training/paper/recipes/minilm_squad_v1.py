# SPDX-License-Identifier: Apache-2.0
"""SQuAD 1.1's development set with MiniLM L6-H384, trained on the 7,938 Wikipedia questions of
SQuADShifts.

    python -m training.finetune --recipe=minilm_squad_v1 --data_dir=DIR

Score: exact match 55.9, F1 69.1 on every fifth question of the development set (`transformers`:
56.7 and 68.9, in 125 minutes).
Time: 43 minutes.
Hardware: one CPU core.
Recorded: 21 November 2026, commit 1a8ee57.
"""

from ...jobs.question_answering import SquadConfig

CONFIG = SquadConfig.from_flags(
    train_file="squadshifts-new_wiki-v1.0.json",
    dev_file="dev-v1.1.json",
    epochs=3,
    learning_rate=1.5e-4,
    sequence_length=256,
    output_dir="runs/minilm_squad_v1",
    bucketing_window=64,
)
