# SPDX-License-Identifier: Apache-2.0
"""A small ModernBERT, pre-trained on WikiText-2 as ModernBERT is, beside `wikitext2_cpu`.

    python -m training.pretrain --recipe=wikitext2_cpu --data_dir=DIR
    python -m training.pretrain --recipe=modernbert_cpu --data_dir=DIR

It has the vocabulary, the rows, the held-out masks (of 15 % of the tokens) and, in total, the
floating-point operations of `wikitext2_cpu`, so that the scores of both can be compared. The first
update has 8 rows, and those after the first 810 have 32.

Score and time: not run here in full. After a shortened run of 200 updates (`--num_steps=200
--warmup_steps=20 --decay_steps=40 --batch_warmup_steps=33`) the perplexity of the held-out text is
566, and that of `wikitext2_cpu` after as many 553: both have learned the frequencies of tokens
(unigrams: 566) and little more.
Hardware: two CPU cores.
"""

import dataclasses

from . import wikitext2_cpu

CONFIG = dataclasses.replace(
    wikitext2_cpu.CONFIG,
    output_dir="runs/modernbert_cpu",
    vocabulary="runs/wikitext2_cpu/vocab.txt",
    model="modernbert_base",
    num_layers=5,
    hidden_dim=128,
    num_heads=2,
    masked_lm_probability=0.3,
    dev_masked_lm_probability=0.15,
    initial_batch_size=8,
    batch_warmup_steps=810,
    optimizer="stable_adamw",
    beta_2=0.98,
    clip_norm=0.0,
    schedule="trapezoidal",
    decay_steps=1000,
)
