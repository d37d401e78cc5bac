# SPDX-License-Identifier: Apache-2.0
"""Accelerators by name, with the figures that their makers publish."""

from __future__ import annotations

from typing import NamedTuple

# Share of the peak that well-tuned training of encoders reaches, an assumption for hardware on
# which nothing was measured
ASSUMED_SHARE = 0.4


class Accelerator(NamedTuple):
    """Published figures of an accelerator.

    Args:
        flops: Peak FLOP/s of dense matrix products in 16 bits, without sparsity.
        watts: Nominal power in W.
        gigabytes: Memory in GB.
    """

    flops: float
    watts: float
    gigabytes: float


# By the makers' data sheets; TPUs by Jouppi et al., 2023, https://arxiv.org/abs/2304.01433, table 4
ACCELERATORS = {
    "t4": Accelerator(65e12, 70, 16),
    "l4": Accelerator(121e12, 72, 24),
    "a10": Accelerator(125e12, 150, 24),
    "v100": Accelerator(125e12, 300, 32),
    "rtx4090": Accelerator(165e12, 450, 24),
    "a100": Accelerator(312e12, 400, 80),
    "h100": Accelerator(989e12, 700, 80),
    "h200": Accelerator(989e12, 700, 141),
    "tpu_v3": Accelerator(123e12, 262, 32),
    "tpu_v4": Accelerator(275e12, 192, 32),
}
