# SPDX-License-Identifier: Apache-2.0
"""Pipelines that end when they are done."""

from __future__ import annotations

import tensorflow as tf


def without_tuning(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """A dataset that keeps the parallelism it starts with: one call for each core.

    TensorFlow's tuner of pipelines is a thread that looks at one after 10 ms, 20 ms and so on up to
    a minute, and sleeps in between. The end of an iterator mostly fails to wake it, and waits for
    it (TensorFlow 2.21): `fit` and `evaluate` would return that much late, in every epoch.

    Args:
        dataset: Any; what is made of it by further transformations keeps the option.

    Returns:
        The same elements in the same order.
    """
    options = tf.data.Options()
    options.autotune.enabled = False
    return dataset.with_options(options)
