# SPDX-License-Identifier: Apache-2.0
"""LAMB, for batches of thousands: each variable's step is as long as the variable."""

from __future__ import annotations

from typing import Any

import keras

from keras_bert.ops import optimizer_rules
from keras_bert.optimizers.base import DecoupledDecayOptimizer
from keras_bert.optimizers.schedules import BertWarmupDecay


@keras.saving.register_keras_serializable(package="keras_bert")
class LAMB(DecoupledDecayOptimizer):
    """LAMB as its authors' and ALBERT's code computes it.

        m ← β₁ m + (1 - β₁) g          v ← β₂ v + (1 - β₂) g²
        u = m / (√v + ε) + weight_decay · w
        w ← w - rate · (‖w‖ / ‖u‖) · u

    The ratio is 1 where either norm is 0. A variable excluded from decay has neither decay nor
    ratio: `w ← w - rate · m / (√v + ε)`. Keras' own `Lamb` corrects the moments' bias, decays
    outside the ratio, and applies the ratio to every variable.

    A norm is taken per variable, and of the kernel in which this package's encoders keep the
    projections to queries, keys and values (a layer `query_key_value`) for each of the three, as in
    the reference, where they are three variables.

    Args:
        learning_rate: The rate: a number, or a schedule. With `num_train_steps`, the peak of a
            `BertWarmupDecay`.
        num_train_steps: Updates of the whole training; `None` for no warm-up and no decay.
        num_warmup_steps: Updates of the warm-up; 0 for none.
        epsilon: Added to √v.
        name: Name of the optimizer.
        **kwargs: Any other argument of `AdamW`, by name, with the same default.

    Raises:
        ValueError: As for `AdamW`.

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
        learning_rate: Any = 1.76e-3,
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

    def rule_for(self, path: str, decayed: bool) -> optimizer_rules.Rule:
        if not decayed:
            return super().rule_for(path, decayed)
        is_fused = path.endswith("query_key_value/kernel")
        return optimizer_rules.lamb_update_in_thirds if is_fused else optimizer_rules.lamb_update
