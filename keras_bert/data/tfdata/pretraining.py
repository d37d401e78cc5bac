# SPDX-License-Identifier: Apache-2.0
"""Masks pre-training batches in a `tf.data.Dataset`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf


@tf.autograph.experimental.do_not_convert
def masked_dataset(
    masker: Callable[[Any, Any], dict[str, Any]], dataset: tf.data.Dataset, first_step: int = 0
) -> tf.data.Dataset:
    """Masks a dataset's batches in its graph. See `MaskedLMMaskGenerator.mask_dataset`."""

    def mask(step: tf.Tensor, element: Any) -> Any:
        if not isinstance(element, tuple):
            return masker(element, step)
        return (masker(element[0], step), *element[1:])

    steps = tf.data.Dataset.counter(first_step)
    batches = tf.data.Dataset.zip(steps, dataset).map(
        mask, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True
    )
    options = tf.data.Options()
    options.autotune.enabled = False
    return batches.with_options(options)
