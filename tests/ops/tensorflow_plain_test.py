# SPDX-License-Identifier: Apache-2.0
"""TensorFlow's graph optimizer fuses plain operations to kernels that are fast."""

import time

import keras
import numpy as np
import pytest

from keras_bert.ops import attention

pytestmark = [
    pytest.mark.needs_tensorflow,
    pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="TensorFlow's own"),
]


@pytest.mark.parametrize("training", [False, True])
def test_a_mask_for_all_rows_is_as_fast_as_one_for_each(training):
    import tensorflow as tf

    batch, length = 4, 128
    packed = tf.random.normal((batch, length, 3, 4, 32))
    causal = tf.constant(np.tri(length, dtype=bool)[None, None])

    @tf.function(autograph=False)
    def compute(mask):
        return attention(packed, mask, training=training)

    def seconds(mask):
        compute(mask)
        starts = [time.perf_counter() for _ in range(6) if compute(mask) is not None]
        return np.diff(starts).min()

    one, each = causal, tf.tile(causal, (batch, 1, 1, 1))
    np.testing.assert_allclose(compute(one), compute(each), atol=1e-6)
    assert seconds(one) < 5 * seconds(each)
