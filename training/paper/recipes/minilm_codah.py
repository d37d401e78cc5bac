# SPDX-License-Identifier: Apache-2.0
"""CODAH (choose the best of four endings) with MiniLM L6-H384, on the first of five folds.

    python -m training.finetune --recipe=minilm_codah --data_dir=DIR

Score: accuracy 55.2 ± 0.5 on the development set and 55.1 ± 2.8 on the test set, over three seeds
(`transformers`, one seed: 57.2 and 55.7).
Time: 7 minutes per seed.
Hardware: a CPU.
Recorded: 21 November 2026, commit 53f4983.
"""

from ...jobs.multiple_choice import ChoiceConfig

CONFIG = ChoiceConfig.from_flags(
    train_file="train.tsv",
    dev_file="dev.tsv",
    test_file="test.tsv",
    format="codah",
    learning_rate=1e-4,
    epochs=5,
    num_seeds=3,
    sequence_length=64,
    output_dir="runs/minilm_codah",
    bucketing_window=64,
)
