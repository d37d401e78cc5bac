# SPDX-License-Identifier: Apache-2.0
"""Training computations for TensorFlow on a CPU: fused forward and backward passes."""
