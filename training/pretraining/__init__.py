# SPDX-License-Identifier: Apache-2.0
"""What `training.pretrain` and `training.create_pretraining_data` consist of."""
