# SPDX-License-Identifier: Apache-2.0
"""DistilBERT, pre-trained as in the paper, with BERT base as the teacher.

    python -m training.pretrain --recipe=distilbert_base --input_files=DIR \\
        --teacher=hf://google-bert/bert-base-uncased

The student has six layers. It is initialized with the teacher's layers 0, 2, 4, 7, 9 and 11, and
trained with the triple loss (weights 5, 2, 1) at temperature 2. The authors compared the
distributions at every token, but this recipe compares them only at the masked tokens. 6,500 steps
are about three passes over Wikipedia and BooksCorpus.

Score and time: not run here.
Hardware: each training step accumulates 4,000 sequences of up to 512 tokens from 125 batches of 32.

Reference: [DistilBERT](https://arxiv.org/abs/1910.01108), sections 2 and 3, and the original code.
"""

from ...pretraining.config import PretrainConfig

CONFIG = PretrainConfig.from_flags(
    output_dir="runs/distilbert_base",
    model="distilbert_base_uncased",
    objective="distillation",
    teacher="hf://google-bert/bert-base-uncased",
    sequence_format="full_sentences",
    duplicate_factor=1,
    phases=("512:1",),
    batch_size=4000,
    accumulation=125,
    num_steps=6500,
    warmup_steps=325,
    optimizer="adamw",
    learning_rate=5e-4,
    weight_decay=0.0,
    epsilon=1e-6,
    beta_2=0.98,
    clip_norm=5.0,
    eval_every=100,
)
