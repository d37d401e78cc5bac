# SPDX-License-Identifier: Apache-2.0
"""RTE (whether a text entails a sentence) with MiniLM L6-H384.

    python -m training.finetune --recipe=minilm_rte --data_dir=DIR

Measured accuracy 57.9 ± 13.0 on the development set after the last
epoch, the mean of seeds 1, 2 and 3 with its 95 % interval. Hardware and time: two CPU
cores that were also busy with other work, TensorFlow, mixed_bfloat16; 4 minutes a seed.
"""

from ..jobs.classification import FinetuneConfig

CONFIG = FinetuneConfig(
    task="rte",
    learning_rate=0.00015,
    epochs=3,
    num_seeds=3,
    output_dir="runs/minilm_rte",
    length_window=64,
)
