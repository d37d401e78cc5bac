# SPDX-License-Identifier: Apache-2.0
"""The dtype policy that this machine computes fastest."""

from __future__ import annotations

import functools

import keras
from absl import logging

from ..costs import model_flops

AUTO = "auto"
# Below it, conversions between the dtypes take what the products gain.
_LEAST_SPEEDUP = 1.1


def resolve(name: str) -> str:
    """Returns Keras' dtype policy.

    Args:
        name: The policy, or `auto`: `mixed_bfloat16` on an accelerator and on CPUs whose bfloat16
            products are faster, which is measured; else `float32`.
    """
    return _fastest() if name == AUTO else name


@functools.cache
def _fastest() -> str:
    if model_flops.has_accelerator():
        return "mixed_bfloat16"
    # Measured: on a CPU, JAX computes models in bfloat16 more slowly, even if products are fast.
    if keras.backend.backend() == "jax":
        return "float32"
    speedup = model_flops.bfloat16_speedup()
    precision = "mixed_bfloat16" if speedup > _LEAST_SPEEDUP else "float32"
    logging.info("precision: %s (bfloat16 products are %.1f times as fast)", precision, speedup)
    return precision
