# SPDX-License-Identifier: Apache-2.0
"""The vocabularies of tokenizers and their files: one reader and one writer for each format.

They are used by `text`, to create tokenizers, and by `checkpoints`, and need neither TensorFlow nor
Keras.
"""
