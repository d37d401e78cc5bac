# SPDX-License-Identifier: Apache-2.0
"""MRPC (paraphrase detection) with MiniLM L6-H384.

    python -m training.finetune --recipe=minilm_mrpc --data_dir=DIR

Score: accuracy 79.6 ± 0.9 and F1 85.9 ± 0.5 on the development set after the last epoch, the mean
of seeds 1, 2 and 3 with its 95% interval.
Time: 6 minutes per seed.
Hardware: two CPU cores, shared with other work, with TensorFlow in mixed_bfloat16.
Recorded: 21 November 2026, commit ef97f29.
"""

from ...jobs.classification import FinetuneConfig

CONFIG = FinetuneConfig.from_flags(
    task="mrpc",
    learning_rate=0.00015,
    epochs=3,
    num_seeds=3,
    output_dir="runs/minilm_mrpc",
    bucketing_window=64,
)
