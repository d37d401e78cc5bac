# SPDX-License-Identifier: Apache-2.0
"""The same training in both libraries: AdamW, linear warm-up and decay, clipped gradients."""

from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np

from keras_bert.optimizers import AdamW

WEIGHT_DECAY = 0.01


def losses_here(
    task: keras.Model, batches: Sequence[tuple[Any, ...]], peak: float, warmup: int
) -> np.ndarray:
    """The loss of each step of a task, of batches as `train_on_batch` takes them."""
    task.compile(AdamW(peak, len(batches), warmup, weight_decay=WEIGHT_DECAY, global_clipnorm=1.0))
    losses = []
    for batch in batches:
        # Keras reports running means; each step here is the first of an epoch.
        task.reset_metrics()
        losses.append(float(task.train_on_batch(*batch, return_dict=True)["loss"]))
    return np.array(losses)


def losses_in_transformers(
    model: Any,
    batches: Sequence[tuple[Any, ...]],
    loss_of: Callable[..., Any],
    peak: float,
    warmup: int,
) -> np.ndarray:
    """The loss of each step of a model without dropout; `loss_of` computes that of a batch."""
    import torch

    torch.set_num_threads(2)
    decayed, others = [], []
    for name, parameter in model.named_parameters():
        excluded = name.endswith("bias") or "LayerNorm" in name
        (others if excluded else decayed).append(parameter)
    groups = [{"params": decayed}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=peak, weight_decay=WEIGHT_DECAY)
    steps = len(batches)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda s: min((s + 1) / warmup, (steps - s) / (steps - warmup))
    )
    losses = []
    for batch in batches:
        loss = loss_of(*batch)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        losses.append(float(loss.detach()))
    return np.array(losses)
