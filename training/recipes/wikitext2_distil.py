# SPDX-License-Identifier: Apache-2.0
"""Two of four layers of `wikitext2_cpu`'s encoder, which teaches the rest, on a CPU.

    python -m training.pretrain --recipe=wikitext2_cpu --data_dir=DIR
    python -m training.pretrain --recipe=wikitext2_distil --data_dir=DIR

The student begins with the first and the last of its teacher's layers.
"""

import dataclasses

from training.recipes import wikitext2_cpu

CONFIG = dataclasses.replace(
    wikitext2_cpu.CONFIG,
    output_dir="runs/wikitext2_distil",
    objective="distillation",
    teacher="runs/wikitext2_cpu/preset",
    num_layers=2,
)
