# SPDX-License-Identifier: Apache-2.0
"""ELECTRA base, pre-trained as in the paper, in 766,000 steps with 256 sequences of 512 tokens.

    python -m training.pretrain --recipe=electra_base --input_files=DIR --vocabulary=FILE

The generator's hidden size is a third of the discriminator's hidden size, 256 of 768.

Score, time and hardware: not run here.

Reference: [ELECTRA](https://arxiv.org/abs/2003.10555), section 3 and appendix A.
"""

from ...pretraining.config import PretrainConfig

CONFIG = PretrainConfig.from_flags(
    output_dir="runs/electra_base",
    model="electra_base_discriminator",
    objective="replaced_token",
    generator_size=1 / 3,
    sequence_format="sentence_pairs",
    duplicate_factor=1,
    mask_token_rate=0.85,
    random_token_rate=0.0,
    phases=("512:1",),
    batch_size=256,
    num_steps=766_000,
    warmup_steps=10_000,
    optimizer="adam_weight_decay",
    schedule="electra",
    learning_rate=2e-4,
    weight_decay=0.01,
    eval_every=1000,
)
