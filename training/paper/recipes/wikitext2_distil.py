# SPDX-License-Identifier: Apache-2.0
"""Distills the four-layer encoder of `wikitext2_cpu` into two layers, on a CPU.

    python -m training.pretrain --recipe=wikitext2_cpu --data_dir=DIR
    python -m training.pretrain --recipe=wikitext2_distil --data_dir=DIR

The student is initialized with the teacher's first and last layers.

Score: 38.1% of the masked tokens in the validation text predicted, cross-entropy 3.683, in a
shortened run of 1,000 steps (`--num_steps=1000 --warmup_steps=100`). The same student, trained as a
masked LM for the same number of steps (118 s): 37.3%, 3.773. The teacher, after 5,000 steps: 38.7%,
3.693. All with one seed.
Time: 150 s for the 1,000 steps.
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
