# SPDX-License-Identifier: Apache-2.0
"""LAMB, an optimizer for large batches that scales each variable's step to its norm."""

from __future__ import annotations

from typing import Any

import keras

from keras_bert.ops import optimizer_rules
from keras_bert.optimizers.base import DecoupledDecayOptimizer
from keras_bert.optimizers.schedules import BertWarmupDecay, LearningRate


@keras.saving.register_keras_serializable(package="keras_bert")
class LAMB(DecoupledDecayOptimizer):
    """LAMB as implemented by its authors and in the original ALBERT code.

        m ← β₁ m + (1 - β₁) g          v ← β₂ v + (1 - β₂) g²
        u = m / (√v + ε) + weight_decay · w
        w ← w - rate · (‖w‖ / ‖u‖) · u

    The trust ratio ‖w‖ / ‖u‖ is 1 if either norm is 0. Variables excluded from weight decay do not
    use a trust ratio: `w ← w - rate · m / (√v + ε)`. In contrast, `keras.optimizers.Lamb` corrects
    the bias of the moments, applies weight decay outside the trust ratio, and uses a trust ratio
    for every variable.

    Norms are computed per variable. In the encoders of this package, the kernel `query_key_value`
    holds the projections to queries, keys and values. It has three trust ratios, because these
    projections are three variables in the original code.

    Args:
        learning_rate: Float or learning rate schedule. With `num_train_steps`, the peak learning
            rate of a `BertWarmupDecay`. Defaults to `1.76e-3`.
        num_train_steps: Total number of optimizer steps. `None` disables warmup and decay.
        num_warmup_steps: Number of warmup steps. Defaults to 0.
        epsilon: Added to √v. Defaults to `1e-6`.
        name: Name of the optimizer.
        **kwargs: Other keyword arguments of `AdamW`, with the same defaults.

    Raises:
        ValueError: See `AdamW`.

    Example:

    >>> keras_bert.optimizers.LAMB(1.76e-3, num_train_steps=125_000, num_warmup_steps=3125).epsilon
    1e-06

    Reference:
        [LAMB](https://arxiv.org/abs/1904.00962), algorithm 2;
        [ALBERT](https://arxiv.org/abs/1909.11942), section 4.1.
    """

    corrects_bias = False
    schedule_class = BertWarmupDecay

    def __init__(
        self,
        learning_rate: LearningRate = 1.76e-3,
        num_train_steps: int | None = None,
        num_warmup_steps: int = 0,
        *,
        epsilon: float = 1e-6,
        name: str = "lamb",
        **kwargs: Any,
    ) -> None:
        super().__init__(
            learning_rate, num_train_steps, num_warmup_steps, epsilon=epsilon, name=name, **kwargs
        )

    def rule_for(self, path: str, is_decayed: bool) -> optimizer_rules.Rule:
        if not is_decayed:
            return super().rule_for(path, is_decayed)
        is_fused = path.split("/")[-2:] == ["query_key_value", "kernel"]
        return optimizer_rules.lamb_update_in_thirds if is_fused else optimizer_rules.lamb_update
