# SPDX-License-Identifier: Apache-2.0
"""A small ELECTRA from WikiText-2's raw text, on a CPU: as large as `wikitext2_cpu`'s BERT.

    python -m training.pretrain --recipe=wikitext2_electra --data_dir=DIR

Text, vocabulary, batches and rate are those of `wikitext2_cpu`, so that the two can be compared.
"""

import dataclasses

from training.recipes import wikitext2_cpu

CONFIG = dataclasses.replace(
    wikitext2_cpu.CONFIG,
    output_dir="runs/wikitext2_electra",
    objective="replaced_token",
    generator_size=0.5,
    mask_token_rate=0.85,
    random_token_rate=0.0,
    optimizer="adam_weight_decay",
    schedule="electra",
)
