# SPDX-License-Identifier: Apache-2.0
"""RTE (whether a text entails a sentence) with MiniLM L6-H384.

    python -m training.finetune --recipe=minilm_rte --data_dir=DIR

Hardware, time and score: the README's table of recipes.
"""

from training.jobs.classification import FinetuneConfig

CONFIG = FinetuneConfig(
    task="rte",
    learning_rate=0.00015,
    epochs=3,
    num_seeds=3,
    output_dir="runs/minilm_rte",
    length_window=64,
)
