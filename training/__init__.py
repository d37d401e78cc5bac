# SPDX-License-Identifier: Apache-2.0
"""Command-line programs and recipes. `keras_bert` does not depend on this package."""

import os

# Hides the startup messages of TensorFlow's native code, among them an alarming but harmless error
# on machines without a GPU (cuInit). Errors that matter are raised as exceptions.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
