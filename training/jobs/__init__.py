# SPDX-License-Identifier: Apache-2.0
"""What differs between fine-tuning tasks: one file a task."""
