# SPDX-License-Identifier: Apache-2.0
"""Task input with TensorFlow: `tf.data` datasets, and packing in graphs."""
