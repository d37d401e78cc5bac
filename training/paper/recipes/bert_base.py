# SPDX-License-Identifier: Apache-2.0
"""BERT base, pre-trained as in the paper, with 900,000 steps at length 128 and 100,000 at 512.

    python -m training.pretrain --recipe=bert_base --input_files=DIR --vocabulary=FILE

The paper's corpus is Wikipedia and BooksCorpus. The files have one sentence per line.

Score and time: not run here.
Hardware: a training step of 256 sequences of 512 tokens requires multiple accelerators, or
`--accumulation=8` on a single accelerator.

Reference: [BERT](https://arxiv.org/abs/1810.04805), appendix A.2.
"""

from ...pretraining.config import PretrainConfig

CONFIG = PretrainConfig.from_flags(
    output_dir="runs/bert_base",
    model="bert_base_uncased",
    sequence_format="next_sentence",
    phases=("128:0.9", "512:0.1"),
    batch_size=256,
    num_steps=1_000_000,
    warmup_steps=10_000,
    optimizer="adam_weight_decay",
    learning_rate=1e-4,
    weight_decay=0.01,
    eval_every=1000,
)
