# SPDX-License-Identifier: Apache-2.0
"""A small ELECTRA from WikiText-2's raw text, on a CPU: as large as `wikitext2_cpu`'s BERT.

    python -m training.pretrain --recipe=wikitext2_electra --data_dir=DIR

Text, vocabulary, batches and rate are those of `wikitext2_cpu`, so that the two can be compared.

A cut run of 1,600 updates (`--num_steps=1600 --warmup_steps=160`; 398 s on two busy CPU cores) ends
with a generator that predicts 22.2 % of the held-out masked tokens, and a discriminator that has
learned nothing yet: its loss is 0.380, which is what the share of replaced tokens, 12.7 %, gives
without a look at the text. 2,000 updates of the masked LM (306 s) predict 26.0 %. So little
training favours the masked LM.
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
