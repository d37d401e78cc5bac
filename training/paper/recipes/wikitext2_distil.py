# SPDX-License-Identifier: Apache-2.0
"""Distills `wikitext2_cpu`'s encoder of four layers into one of two layers, on a CPU.

    python -m training.pretrain --recipe=wikitext2_cpu --data_dir=DIR
    python -m training.pretrain --recipe=wikitext2_distil --data_dir=DIR

The student is initialized with the teacher's first and last layers.

Score, of a shortened run of 1,000 updates (`--num_steps=1000 --warmup_steps=100`): 38.1 % of the
validation masked tokens predicted, cross-entropy 3.683. The same student trained as a masked LM for
as many updates: 37.3 %, 3.773 (118 s). The teacher, after 5,000 updates: 38.7 %, 3.693. One seed of
each.
Time: 150 s on the hardware below for the 1,000 updates.
Hardware: two CPU cores, shared with other work.
Recorded: 21 November 2026, commit 791e56b.
"""

from . import wikitext2_cpu

CONFIG = wikitext2_cpu.CONFIG.replace(
    output_dir="runs/wikitext2_distil",
    objective="distillation",
    teacher="runs/wikitext2_cpu/preset",
    num_layers=2,
)
