# SPDX-License-Identifier: Apache-2.0
"""WNUT-17 (new and rare entities in social media) with MiniLM L6-H384.

    python -m training.finetune --recipe=minilm_wnut17 --data_dir=DIR

Score: entity F1 52.3, 53.2 and 54.4 on the development set after the last epoch, with seeds 1, 2
and 3. On the test set, the best seed scores 39.9.
Time: 9 minutes per seed.
Hardware: one of two CPU cores. The other core was also busy.
Recorded: 22 November 2026, commit 8d21dd6.

Examples are not sorted by length. Sorting them (`--bucketing_window=64`) trains 1.4 times as fast,
and seeds 1 to 6 then gave 52.0, 52.2, 51.7, 50.9, 53.1 and 51.3.
"""

from ...jobs.tagging import TaggingConfig

CONFIG = TaggingConfig.from_flags(
    train_file="wnut17train.conll",
    dev_file="emerging.dev.conll",
    test_file="emerging.test.annotated",
    learning_rate=0.0003,
    batch_size=16,
    epochs=5,
    num_seeds=3,
    bucketing_window=1,
    output_dir="runs/minilm_wnut17",
)
