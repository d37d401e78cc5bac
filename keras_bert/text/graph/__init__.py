# SPDX-License-Identifier: Apache-2.0
"""The tokenizers as TensorFlow operations, for `tf.data` and SavedModels."""
