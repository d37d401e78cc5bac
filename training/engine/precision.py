# SPDX-License-Identifier: Apache-2.0
"""The dtype policy that this machine computes fastest."""

from __future__ import annotations

import functools
import json
import os
from pathlib import Path

import keras
from absl import logging

from keras_bert import atomic
from keras_bert.ops.dispatch import has_accelerator

from ..costs import model_flops

AUTO = "auto"
# Of the choice, in the folder of a run
FILE = "precision.json"
# Below it, conversions between the dtypes take most of what the products gain, and other programs
# could decide it: two runs of one command should compute alike.
_LEAST_SPEEDUP = 1.5


def resolve(name: str, folder: str | os.PathLike[str] | None = None) -> str:
    """Returns Keras' dtype policy.

    Args:
        name: The policy, or `auto`: `mixed_bfloat16` on an accelerator and on CPUs whose bfloat16
            products are faster, which is measured; else `float32`.
        folder: The folder of a run. The choice is kept there, so that a run that is resumed
            computes as it began, whatever a second measurement, or another machine, would say.
    """
    if name != AUTO:
        return name
    if folder is None:
        return _fastest()
    path = Path(folder) / FILE
    if path.is_file():
        policy: str = json.loads(path.read_text(encoding="utf-8"))[AUTO]
        return policy
    policy = _fastest()
    Path(folder).mkdir(parents=True, exist_ok=True)
    atomic.write_json(path, {AUTO: policy})
    return policy


@functools.cache
def _fastest() -> str:
    if has_accelerator():
        return "mixed_bfloat16"
    # Measured: on a CPU, JAX computes models in bfloat16 more slowly, even if products are fast.
    if keras.backend.backend() == "jax":
        return "float32"
    speedup = model_flops.bfloat16_speedup()
    precision = "mixed_bfloat16" if speedup > _LEAST_SPEEDUP else "float32"
    logging.info("precision: %s (bfloat16 products are %.1f times as fast)", precision, speedup)
    return precision
