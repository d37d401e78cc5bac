# SPDX-License-Identifier: Apache-2.0
"""What tokenizers are made of, and its files: one reader and one writer for each format.

`text` makes tokenizers of it, `checkpoints` finds it beside weights. Neither TensorFlow nor Keras
is needed.
"""
