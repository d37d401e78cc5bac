# SPDX-License-Identifier: Apache-2.0
"""The input of tasks with TensorFlow: `tf.data` datasets, and packing in graphs."""
