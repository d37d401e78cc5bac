# SPDX-License-Identifier: Apache-2.0
"""RTE (textual entailment) with MiniLM L6-H384.

    python -m training.finetune --recipe=minilm_rte --data_dir=DIR

Score: accuracy 57.9 ± 13.0 on the development set after the last epoch, the mean
of seeds 1, 2 and 3 with its 95% interval.
Time: 4 minutes per seed.
Hardware: two CPU cores, shared with other work, with TensorFlow in mixed_bfloat16.
Recorded: 21 November 2026, commit ef97f29.
"""

from ...jobs.classification import FinetuneConfig

CONFIG = FinetuneConfig.from_flags(
    task="rte",
    learning_rate=0.00015,
    epochs=3,
    num_seeds=3,
    output_dir="runs/minilm_rte",
    bucketing_window=64,
)
