# SPDX-License-Identifier: Apache-2.0
"""Runnable programs and recipes; `keras_bert` knows nothing of them."""

import os

# What TensorFlow's native code says of itself at start drowns what a program says, and its error
# about a GPU that is not there (cuInit) frightens. What goes wrong later raises.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
