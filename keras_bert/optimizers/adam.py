# SPDX-License-Identifier: Apache-2.0
"""Adam with decoupled weight decay: AdamW, StableAdamW, and the original BERT code's optimizer."""

from __future__ import annotations

from typing import Any

import keras

from keras_bert.ops import optimizer_rules
from keras_bert.optimizers.base import DecoupledDecayOptimizer
from keras_bert.optimizers.schedules import BertWarmupDecay, LearningRate, LinearWarmupDecay


@keras.saving.register_keras_serializable(package="keras_bert")
class AdamW(DecoupledDecayOptimizer):
    """AdamW as in `torch.optim.AdamW`, with the warmup, clipping and exclusions of BERT.

        m ← β₁ m + (1 - β₁) g          v ← β₂ v + (1 - β₂) g²
        w ← w - rate · (m / (1 - β₁ᵗ) / (√(v / (1 - β₂ᵗ)) + ε) + weight_decay · w)

    Here `g` is the gradient after clipping by `global_clipnorm`, and `t` counts optimizer steps
    from 1. `keras.optimizers.AdamW` differs in three ways: it adds ε inside the bias correction, it
    does not save which variables are excluded from weight decay, and it calls schedules with the
    number of micro-batches instead of the number of optimizer steps.

    Args:
        learning_rate: Float or learning rate schedule. With `num_train_steps`, the peak learning
            rate of a `LinearWarmupDecay`. Defaults to `2e-5`.
        num_train_steps: Total number of optimizer steps, for example from a task's `num_steps`.
            `None` disables warmup and decay.
        num_warmup_steps: Number of warmup steps. Defaults to 0.
        weight_decay: Weight decay, multiplied by the learning rate. Defaults to `0.01`.
        beta_1: Decay rate of the first moment. Defaults to `0.9`.
        beta_2: Decay rate of the second moment. Defaults to `0.999`.
        epsilon: Added to √v̂. Defaults to `1e-8`, as in PyTorch.
        global_clipnorm: Maximum global norm of all gradients. `None` disables clipping. Defaults
            to `1.0`.
        exclude_from_weight_decay: Variable names without weight decay. For example, `"bias"`
            excludes variables called `bias` and those whose name ends in `_bias`. Defaults to
            `("bias", "gamma", "beta")`.
        layer_decay: Factor by which the learning rate falls from each encoder layer to the layer
            below (layer-wise learning rate decay, see `layer_depth`). `None` uses the same learning
            rate in all layers.
        num_layers: Number of encoder layers, for `layer_decay`. By default, the layers are counted
            in the trainable variables. Pass the number if the top layers are frozen, because then
            the count is too low.
        gradient_accumulation_steps: Number of micro-batches per optimizer step. `None` means 1. In
            a task's `fit`, losses are averaged over all examples or tokens in the step, as in one
            large batch, and the remaining micro-batches at the end of each epoch also make a step.
            There are three differences from one large batch. `InBatchNegatives` only takes
            negatives from the same micro-batch. Losses added by layers, and all losses in
            `train_on_batch`, are averaged per micro-batch first. If float16 loss scaling skips a
            micro-batch, the next micro-batch takes its place.
        name: Name of the optimizer.
        shard_state: Whether to shard the moments and accumulated gradients over the data-parallel
            devices of a `keras.distribution` (ZeRO, stage 1) instead of replicating them. Only
            supported on JAX. Defaults to `False`.
        **kwargs: `use_ema`, `ema_momentum`, `ema_overwrite_frequency` and `loss_scale_factor` of
            `keras.optimizers.Optimizer`.

    Raises:
        ValueError: If a number is not finite or out of range, if `num_warmup_steps` is given
            without `num_train_steps`, if `learning_rate` is not a number but `num_train_steps` is
            given, or if `exclude_from_weight_decay` is a string.

    Example:

    >>> optimizer = keras_bert.optimizers.AdamW(2e-5, num_train_steps=100, num_warmup_steps=10)
    >>> round(float(optimizer.learning_rate), 8)
    2e-06

    Reference:
        [Decoupled weight decay](https://arxiv.org/abs/1711.05101), algorithm 2.
    """

    corrects_bias = True
    schedule_class = LinearWarmupDecay


@keras.saving.register_keras_serializable(package="keras_bert")
class AdamWeightDecay(DecoupledDecayOptimizer):
    """The optimizer of the original BERT code: AdamW without bias correction of the moments.

        m ← β₁ m + (1 - β₁) g          v ← β₂ v + (1 - β₂) g²
        u = m / (√v + ε) + weight_decay · w
        w ← w - rate · u

    LayerNorm weights and biases are not decayed, and gradients are clipped by their global norm.
    With `num_train_steps`, the learning rate also follows the original BERT code
    (`BertWarmupDecay`): it is 0 in the first step and drops at the end of the warmup.

    Args:
        learning_rate: Float or learning rate schedule. With `num_train_steps`, the peak learning
            rate of a `BertWarmupDecay`. Defaults to `1e-4`.
        num_train_steps: Total number of optimizer steps. `None` disables warmup and decay.
        num_warmup_steps: Number of warmup steps. Defaults to 0.
        epsilon: Added to √v. Defaults to `1e-6`.
        name: Name of the optimizer.
        **kwargs: Other keyword arguments of `AdamW`, with the same defaults.

    Raises:
        ValueError: See `AdamW`.

    Example:

    >>> optimizer = keras_bert.optimizers.AdamWeightDecay(
    ...     1e-4, num_train_steps=1_000_000, num_warmup_steps=10_000)
    >>> float(optimizer.learning_rate)
    0.0

    Reference:
        [BERT](https://arxiv.org/abs/1810.04805), appendix A.2, and the original BERT code.
    """

    corrects_bias = False
    schedule_class = BertWarmupDecay

    def __init__(
        self,
        learning_rate: LearningRate = 1e-4,
        num_train_steps: int | None = None,
        num_warmup_steps: int = 0,
        *,
        epsilon: float = 1e-6,
        name: str = "adam_weight_decay",
        **kwargs: Any,
    ) -> None:
        super().__init__(
            learning_rate, num_train_steps, num_warmup_steps, epsilon=epsilon, name=name, **kwargs
        )


@keras.saving.register_keras_serializable(package="keras_bert")
class StableAdamW(DecoupledDecayOptimizer):
    """StableAdamW: AdamW that makes smaller steps where gradients suddenly grow.

        m ← β₁ m + (1 - β₁) g          v ← β₂ v + (1 - β₂) g²
        m̂ = m / (1 - β₁ᵗ)              v̂ = v / (1 - β₂ᵗ)
        η = rate / max(1, √ mean(g² / max(v̂, ε²)))
        w ← w - η · (m̂ / (√v̂ + ε) + weight_decay · w)

    The mean is taken over each variable's elements, so each variable has its own η. This is the
    update clipping of Adafactor. The second moment averages over many steps, so it is too small
    when a gradient is suddenly much larger than before, and AdamW would take too large a step. If
    gradients never jump, StableAdamW is equal to AdamW.

    Update clipping replaces gradient clipping, so `global_clipnorm` defaults to `None`. If you pass
    a number, `g` is the clipped gradient.

    The encoders of this package store the projections to queries, keys and values in one kernel,
    `query_key_value`, so they share one η, as in ModernBERT.

    Args:
        learning_rate: Float or learning rate schedule. With `num_train_steps`, the peak learning
            rate of a `LinearWarmupDecay`. Defaults to `8e-4`.
        num_train_steps: Total number of optimizer steps. `None` disables warmup and decay.
        num_warmup_steps: Number of warmup steps. Defaults to 0.
        beta_2: Decay rate of the second moment. Defaults to `0.98`.
        epsilon: Added to √v̂, and the lower bound of √v̂ in η. Defaults to `1e-6`.
        global_clipnorm: Maximum global norm of all gradients. `None` disables clipping. Defaults to
            `None`.
        name: Name of the optimizer.
        **kwargs: Other keyword arguments of `AdamW`, with the same defaults.

    Raises:
        ValueError: See `AdamW`.

    Example:

    >>> schedule = keras_bert.optimizers.TrapezoidalWarmupDecay(
    ...     8e-4, 10_000, num_warmup_steps=300, num_decay_steps=1000)
    >>> optimizer = keras_bert.optimizers.StableAdamW(schedule, weight_decay=0.01)
    >>> optimizer.global_clipnorm is None
    True

    Reference:
        [Stable and low-precision training](https://arxiv.org/abs/2304.13013), algorithm 2;
        [ModernBERT](https://arxiv.org/abs/2412.13663), section 2.2.2;
        [Adafactor](https://arxiv.org/abs/1804.04235), section 6.
    """

    corrects_bias = True
    schedule_class = LinearWarmupDecay

    def __init__(
        self,
        learning_rate: LearningRate = 8e-4,
        num_train_steps: int | None = None,
        num_warmup_steps: int = 0,
        *,
        beta_2: float = 0.98,
        epsilon: float = 1e-6,
        global_clipnorm: float | None = None,
        name: str = "stable_adamw",
        **kwargs: Any,
    ) -> None:
        super().__init__(
            learning_rate,
            num_train_steps,
            num_warmup_steps,
            beta_2=beta_2,
            epsilon=epsilon,
            global_clipnorm=global_clipnorm,
            name=name,
            **kwargs,
        )

    def rule_for(self, path: str, is_decayed: bool) -> optimizer_rules.Rule:
        return optimizer_rules.stable_adam_update
