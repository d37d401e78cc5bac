# SPDX-License-Identifier: Apache-2.0
"""A server for a model: its signatures, batches of waiting rows, and TensorFlow Serving's REST."""
