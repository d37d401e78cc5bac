# SPDX-License-Identifier: Apache-2.0
"""WNUT-17 (new and rare entities in social media) with MiniLM L6-H384.

    python -m training.finetune_tagging --recipe=minilm_wnut17 --data_dir=DIR

Hardware, time and score: the README's table of recipes.
"""

from training.tagging_config import TaggingConfig

CONFIG = TaggingConfig(
    train_file="wnut17train.conll",
    dev_file="emerging.dev.conll",
    test_file="emerging.test.annotated",
    learning_rate=0.0003,
    batch_size=16,
    epochs=5,
    num_seeds=3,
    output_dir="runs/minilm_wnut17",
)
