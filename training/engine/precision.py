# SPDX-License-Identifier: Apache-2.0
"""Chooses the fastest dtype policy for this machine."""

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
# The file in a run's directory that contains the choice
FILE = "precision.json"
# Below this speedup, dtype conversions take most of the time that bfloat16 matmuls save, and other
# load on the machine could change the choice. Two runs of one command should use the same policy.
_LEAST_SPEEDUP = 1.5


def resolve(name: str, directory: str | os.PathLike[str] | None = None) -> str:
    """Returns a Keras dtype policy's name.

    Args:
        name: The policy, or `auto`. `auto` chooses `mixed_bfloat16` on an accelerator and, except
            with JAX, on CPUs where bfloat16 matmuls are measured to be 1.5 times as fast. Otherwise
            it chooses `float32`.
        directory: The run's directory. The choice is stored there, so that a resumed run keeps its
            policy even if a second measurement, or another machine, would give a different result.
    """
    if name != AUTO:
        return name
    if directory is None:
        return _fastest()
    path = Path(directory) / FILE
    if path.is_file():
        policy: str = json.loads(path.read_text(encoding="utf-8"))[AUTO]
        return policy
    policy = _fastest()
    Path(directory).mkdir(parents=True, exist_ok=True)
    atomic.write_json(path, {AUTO: policy})
    return policy


@functools.cache
def _fastest() -> str:
    if has_accelerator():
        return "mixed_bfloat16"
    # We measured that on a CPU, JAX runs models more slowly in bfloat16, even if matmuls are fast.
    if keras.backend.backend() == "jax":
        return "float32"
    speedup = model_flops.bfloat16_speedup()
    precision = "mixed_bfloat16" if speedup > _LEAST_SPEEDUP else "float32"
    logging.info("precision: %s (bfloat16 matmuls are %.1f times as fast)", precision, speedup)
    return precision
