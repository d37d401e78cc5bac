# SPDX-License-Identifier: Apache-2.0
"""LAMB, for batches of thousands of rows: the step of each variable is scaled to its norm."""

from __future__ import annotations

from typing import Any

import keras

from keras_bert.ops import optimizer_rules
from keras_bert.optimizers.base import DecoupledDecayOptimizer
from keras_bert.optimizers.schedules import BertWarmupDecay, LearningRate


@keras.saving.register_keras_serializable(package="keras_bert")
class LAMB(DecoupledDecayOptimizer):
    """LAMB as in the code of its authors and of ALBERT.

        m ← β₁ m + (1 - β₁) g          v ← β₂ v + (1 - β₂) g²
        u = m / (√v + ε) + weight_decay · w
        w ← w - rate · (‖w‖ / ‖u‖) · u

    The trust ratio ‖w‖ / ‖u‖ is 1 if either norm is 0. Variables excluded from weight decay have no
    trust ratio either: `w ← w - rate · m / (√v + ε)`. Keras' own `Lamb` corrects the bias of the
    moments, applies weight decay outside the trust ratio, and applies the ratio to every variable.

    Norms are computed per variable. The kernel `query_key_value` of this package's encoders, which
    holds the projections to queries, keys and values, has three trust ratios, as in the reference
    code, where it is three variables.

    Args:
        learning_rate: Float or a learning rate schedule. With `num_train_steps`, the peak of a
            `BertWarmupDecay`. Defaults to `1.76e-3`.
        num_train_steps: Number of updates of the whole training, which `num_steps` of a task
            counts; `None` for no warmup and no decay.
        num_warmup_steps: Number of warmup updates. Defaults to 0.
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
