# SPDX-License-Identifier: Apache-2.0
"""The private parts of PyTorch that this library uses. See `keras_private`."""

import torch

foreach_add_ = torch._foreach_add_
foreach_mul = torch._foreach_mul
foreach_norm = torch._foreach_norm
fused_adamw_ = torch._fused_adamw_
