# SPDX-License-Identifier: Apache-2.0
"""Code that all commands share, such as flags, checkpoints, reports and the fine-tuning loop."""
