# SPDX-License-Identifier: Apache-2.0
"""Tokenizer vocabularies and their files, with one reader and one writer for each format.

The package `text` uses them to create tokenizers, and `checkpoints` to read and write tokenizer
files. They do not need TensorFlow or Keras.
"""
