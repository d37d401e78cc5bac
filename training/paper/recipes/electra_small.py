# SPDX-License-Identifier: Apache-2.0
"""ELECTRA small, pre-trained as in the paper, in a million steps with 128 sequences of 128 tokens.

    python -m training.pretrain --recipe=electra_small --input_files=DIR --vocabulary=FILE

The generator's hidden size is a quarter of the discriminator's hidden size. (The released small
generator has the same hidden size as the discriminator.) 85% of the selected tokens are masked, and
the rest is kept.

Score, time and hardware: not run here.

Reference: [ELECTRA](https://arxiv.org/abs/2003.10555), section 3.3 and appendix A.
"""

from ...pretraining.config import PretrainConfig

CONFIG = PretrainConfig.from_flags(
    output_dir="runs/electra_small",
    model="electra_small_discriminator",
    objective="replaced_token",
    generator_size=0.25,
    sequence_format="sentence_pairs",
    duplicate_factor=1,
    mask_token_rate=0.85,
    random_token_rate=0.0,
    phases=("128:1",),
    batch_size=128,
    num_steps=1_000_000,
    warmup_steps=10_000,
    optimizer="adam_weight_decay",
    schedule="electra",
    learning_rate=5e-4,
    weight_decay=0.01,
    eval_every=1000,
)
