# SPDX-License-Identifier: Apache-2.0
"""STS-B (similarity of two sentences, 0 to 5) with MiniLM L6-H384.

    python -m training.finetune --recipe=minilm_stsb --data_dir=DIR

Hardware, time and score: the README's table of recipes.
"""

from training.jobs.classification import FinetuneConfig

CONFIG = FinetuneConfig(
    task="stsb",
    learning_rate=0.00015,
    epochs=3,
    num_seeds=3,
    output_dir="runs/minilm_stsb",
    length_window=64,
)
