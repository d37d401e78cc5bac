# SPDX-License-Identifier: Apache-2.0
"""ALBERT base, pre-trained as in the paper, with sentence order prediction and n-gram masking.

    python -m training.pretrain --recipe=albert_base --input_files=DIR

Score and time: not run here.
Hardware: each training step accumulates 4,096 sequences of 512 tokens from 128 batches of 32.

Reference: [ALBERT](https://arxiv.org/abs/1909.11942), section 4.1 and the original code.
"""

from ...pretraining.config import PretrainConfig

CONFIG = PretrainConfig.from_flags(
    output_dir="runs/albert_base",
    model="albert_base_v1",
    vocabulary_size=30_000,
    sequence_format="sentence_order",
    masking_unit="ngram",
    phases=("512:1",),
    batch_size=4096,
    accumulation=128,
    num_steps=125_000,
    warmup_steps=3125,
    optimizer="lamb",
    learning_rate=0.00176,
    weight_decay=0.01,
    eval_every=500,
)
