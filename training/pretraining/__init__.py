# SPDX-License-Identifier: Apache-2.0
"""The implementation of `training.pretrain` and `training.create_pretraining_data`."""
