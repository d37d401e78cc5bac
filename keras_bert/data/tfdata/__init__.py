# SPDX-License-Identifier: Apache-2.0
"""Reads `tf.data` datasets and packs text in TensorFlow graphs."""
