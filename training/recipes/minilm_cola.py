# SPDX-License-Identifier: Apache-2.0
"""CoLA (acceptability of sentences) with MiniLM L6-H384.

    python -m training.finetune --recipe=minilm_cola --data_dir=DIR

Hardware, time and score: the README's table of recipes.
"""

from training.jobs.classification import FinetuneConfig

CONFIG = FinetuneConfig(
    task="cola",
    learning_rate=0.00015,
    epochs=3,
    num_seeds=3,
    output_dir="runs/minilm_cola",
    length_window=64,
)
