# SPDX-License-Identifier: Apache-2.0
"""BERT small, pre-trained on your text on one GPU, with packing and whole word masking.

    python -m training.pretrain --recipe=bert_small_gpu --input_files=DIR

The vocabulary is trained on the same text.

Score and time: not run here.
Hardware: one GPU.
"""

from ...pretraining.config import PretrainConfig

CONFIG = PretrainConfig.from_flags(
    output_dir="runs/bert_small_gpu",
    vocabulary_size=30522,
    format="paragraphs",
    model="bert_small_uncased",
    sequence_format="document_sentences",
    duplicate_factor=1,
    packing=True,
    masking_unit="word",
    phases=("256:1",),
    batch_size=256,
    accumulation=2,
    num_steps=125_000,
    warmup_steps=5_000,
    optimizer="adamw",
    learning_rate=5e-4,
    steps_per_execution=10,
    eval_every=1000,
)
