# SPDX-License-Identifier: Apache-2.0
"""What every program shares: flags, folders, checkpoints, progress, reports and fine-tuning."""
