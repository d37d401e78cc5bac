# SPDX-License-Identifier: Apache-2.0
"""Runnable programs and recipes; `keras_bert` knows nothing of them."""

import os

# What TensorFlow's native code says of itself at start drowns what a program says.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
