# SPDX-License-Identifier: Apache-2.0
"""Fine-tuning tasks: one module for each."""
