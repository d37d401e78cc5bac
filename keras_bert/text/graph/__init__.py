# SPDX-License-Identifier: Apache-2.0
"""Tokenizers as TensorFlow operations, for `tf.data` and SavedModels."""
