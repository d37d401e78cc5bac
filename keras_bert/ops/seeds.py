# SPDX-License-Identifier: Apache-2.0
"""Generates seeds that differ between replicas, and samples uniformly."""

from __future__ import annotations

import contextlib

import keras
from keras import ops

from keras_bert.ops import dispatch
from keras_bert.ops.annotations import Tensor
from keras_bert.ops.object_variables import ObjectVariable

_replayed_seed = ObjectVariable("_replayed_seed")


class SeedGenerator(keras.random.SeedGenerator):
    """A `keras.random.SeedGenerator` with a different seed on each `tf.distribute` replica.

    Keras' seed generator has a copy of its state on every replica, so all replicas would drop the
    same positions. The first replica has the same seeds as Keras' generator without a strategy. On
    JAX, a batch on multiple devices is a single array with a single mask, so different seeds are
    not needed.
    """

    def replay_seed(self, seed: Tensor) -> contextlib.AbstractContextManager[None]:
        """Makes `next` return an earlier seed within the block, to repeat a computation."""
        return _replayed_seed.set(self, seed)

    def next(self, ordered: bool = True) -> Tensor:
        """Returns the next seed, `(2,)`."""
        replayed = _replayed_seed.get(self)
        if replayed is not None:
            return replayed
        seed = super().next(ordered=ordered)
        if keras.backend.backend() != "tensorflow":
            return seed
        import tensorflow as tf

        context = tf.distribute.get_replica_context()
        if context is None or not tf.distribute.has_strategy():
            return seed
        replica = tf.cast(context.replica_id_in_sync_group, seed.dtype)
        return seed + tf.stack([replica, tf.zeros_like(replica)])


def uniform_like(x: Tensor, seed: SeedGenerator) -> Tensor:
    """Samples float32 numbers in `[0, 1)` with the shape of `x`."""
    if dispatch.is_torch_graph() and seed._initial_seed is None:
        # `torch.compile` cannot trace Keras' seed generators. As in Keras' dropout, a seed
        # generator without an explicit seed uses PyTorch's generator instead.
        import torch

        return torch.rand(x.shape, dtype=torch.float32, device=x.device)
    return keras.random.uniform(ops.shape(x), dtype="float32", seed=seed)
