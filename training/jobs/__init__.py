# SPDX-License-Identifier: Apache-2.0
"""The fine-tuning tasks, with one module per task."""
