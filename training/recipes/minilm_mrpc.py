# SPDX-License-Identifier: Apache-2.0
"""MRPC (whether two sentences mean the same) with MiniLM L6-H384.

    python -m training.finetune --recipe=minilm_mrpc --data_dir=DIR

Hardware, time and score: the README's table of recipes.
"""

from training.jobs.classification import FinetuneConfig

CONFIG = FinetuneConfig(
    task="mrpc",
    learning_rate=0.00015,
    epochs=3,
    num_seeds=3,
    output_dir="runs/minilm_mrpc",
    length_window=64,
)
