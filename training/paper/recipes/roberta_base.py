# SPDX-License-Identifier: Apache-2.0
"""RoBERTa base, pre-trained as in the paper, with dynamic masks, full sentences and byte-level BPE.

    python -m training.pretrain --recipe=roberta_base --input_files=DIR

Score and time: not run here.
Hardware: each training step accumulates 8,192 sequences of 512 tokens from 256 batches of 32, for
one large accelerator.

Reference: [RoBERTa](https://arxiv.org/abs/1907.11692), section 5 and table 9.
"""

from ...pretraining.config import PretrainConfig

CONFIG = PretrainConfig.from_flags(
    output_dir="runs/roberta_base",
    model="roberta_base",
    vocabulary_size=50_265,
    sequence_format="full_sentences",
    duplicate_factor=1,
    random_special_tokens=False,
    phases=("512:1",),
    batch_size=8192,
    accumulation=256,
    num_steps=500_000,
    warmup_steps=24_000,
    optimizer="adamw",
    learning_rate=6e-4,
    weight_decay=0.01,
    beta_2=0.98,
    epsilon=1e-6,
    clip_norm=0.0,
    eval_every=500,
)
