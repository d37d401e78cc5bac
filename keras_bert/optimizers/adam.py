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

    where `g` is the gradient, scaled so that the global norm of all gradients is at most
    `global_clipnorm`, and t counts updates from 1. Keras' own `AdamW` adds ε inside the bias
    correction, does not save which variables are excluded from weight decay, and passes the number
    of micro-batches to schedules.

    Args:
        learning_rate: Float or a learning rate schedule. With `num_train_steps`, the peak of a
            `LinearWarmupDecay`. Defaults to `2e-5`.
        num_train_steps: Number of updates of the whole training, which `num_steps` of a task
            counts; `None` for no warmup and no decay.
        num_warmup_steps: Number of warmup updates. Defaults to 0.
        weight_decay: Weight decay, multiplied by the learning rate. Defaults to `0.01`.
        beta_1: Decay rate of the first moment. Defaults to `0.9`.
        beta_2: Decay rate of the second moment. Defaults to `0.999`.
        epsilon: Added to √v̂. Defaults to `1e-8`, as in PyTorch.
        global_clipnorm: Maximum global norm of all gradients; `None` for no clipping. Defaults to
            `1.0`.
        exclude_from_weight_decay: Names of variables without weight decay. `"bias"` also excludes
            variables with a name that ends with `_bias`. Defaults to `("bias", "gamma", "beta")`.
        layer_decay: Factor of the learning rate from each layer to the one below it (layer-wise
            learning rate decay); see `layer_depth`. `None` for the same rate in all layers.
        num_layers: Number of encoder layers of the model, for `layer_decay`. By default they are
            counted in the trainable variables, which is wrong if the last layers are frozen.
        gradient_accumulation_steps: Number of micro-batches to average the gradients of for an
            update; `None` for 1. `fit` of a task takes means over the rows or tokens of all of
            them, as in one batch, and also makes an update of the micro-batches that remain at the
            end of an epoch. Unlike in one batch, `InBatchNegatives` takes negatives from the
            micro-batch alone; losses that layers add, and losses in `train_on_batch`, are means of
            the micro-batches' means; and a micro-batch that the loss scaling of float16 skips is
            replaced by the next one.
        name: Name of the optimizer.
        shard_state: Whether the moments and the accumulated gradients are sharded over the devices
            of a `keras.distribution` that share a batch; otherwise each device has a copy (ZeRO,
            stage 1). On JAX. Defaults to `False`.
        **kwargs: `use_ema`, `ema_momentum`, `ema_overwrite_frequency` and `loss_scale_factor` of
            `keras.optimizers.Optimizer`.

    Raises:
        ValueError: If a number is not finite or out of its range, `num_warmup_steps` is given
            without `num_train_steps`, or `num_train_steps` with a learning rate that is not a
            number, or `exclude_from_weight_decay` is a string.

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

    There is no weight decay of LayerNorm weights and biases, and gradients are clipped by their
    global norm. With `num_train_steps`, the learning rate schedule is the original code's too
    (`BertWarmupDecay`): 0 at the first update, and discontinuous at the end of the warmup.

    Args:
        learning_rate: Float or a learning rate schedule. With `num_train_steps`, the peak of a
            `BertWarmupDecay`. Defaults to `1e-4`.
        num_train_steps: Number of updates of the whole training, which `num_steps` of a task
            counts; `None` for no warmup and no decay.
        num_warmup_steps: Number of warmup updates. Defaults to 0.
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
        [BERT](https://arxiv.org/abs/1810.04805), appendix A.2, and its released code.
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

    The mean is over the elements of a variable, and each variable has its own η. It is Adafactor's
    clipping of updates: the second moment, an average over many updates, is too small for a
    gradient that is much larger than those before, and the step of AdamW would be too long. Since
    it replaces the clipping of gradients, `global_clipnorm` is `None` by default; with a number,
    `g` is the clipped gradient. In a model where this happens rarely, it is AdamW.

    The kernel `query_key_value` of this package's encoders, which holds the projections to queries,
    keys and values, is one variable, as it is in ModernBERT.

    Args:
        learning_rate: Float or a learning rate schedule. With `num_train_steps`, the peak of a
            `LinearWarmupDecay`. Defaults to `8e-4`.
        num_train_steps: Number of updates of the whole training, which `num_steps` of a task
            counts; `None` for no warmup and no decay.
        num_warmup_steps: Number of warmup updates. Defaults to 0.
        beta_2: Decay rate of the second moment. Defaults to `0.98`.
        epsilon: Added to √v̂, and the lower bound of √v̂ in η. Defaults to `1e-6`.
        global_clipnorm: Maximum global norm of all gradients; `None`, the default, for no clipping.
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
