# SPDX-License-Identifier: Apache-2.0
"""SST-2 (sentiment of film reviews) with MiniLM L6-H384.

    python -m training.finetune --recipe=minilm_sst2 --data_dir=DIR

Hardware, time and score: the README's table of recipes.
"""

from training.jobs.classification import FinetuneConfig

CONFIG = FinetuneConfig(
    task="sst2",
    learning_rate=0.0001,
    epochs=1,
    num_seeds=3,
    output_dir="runs/minilm_sst2",
)
