# SPDX-License-Identifier: Apache-2.0
"""Plain operations are written so that TensorFlow's graph optimizer fuses them to fast kernels."""

import keras
import numpy as np
import pytest

from keras_bert.ops import attention

pytestmark = [
    pytest.mark.needs_tensorflow,
    pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="TensorFlow's own"),
]


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("batch", [4, None])
def test_a_mask_for_all_rows_is_repeated_for_each(training, batch):
    """The fused kernel broadcasts masks over the batch hundreds of times more slowly."""
    import tensorflow as tf

    from keras_bert.ops.tensorflow_plain import mask_of_each_row

    packed = tf.random.normal((4, 6, 3, 2, 8))
    causal = tf.constant(np.tri(6, dtype=bool)[None, None])
    each = tf.tile(causal, (4, 1, 1, 1))

    @tf.function(input_signature=[tf.TensorSpec((batch, 6, 3, 2, 8))], autograph=False)
    def compute(packed):
        repeated = mask_of_each_row(causal, packed)
        return attention(packed, causal, training=training), repeated

    context, repeated = compute(packed)
    np.testing.assert_array_equal(repeated, each)
    np.testing.assert_allclose(context, attention(packed, each, training=training), atol=1e-6)
