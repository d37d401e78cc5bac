# SPDX-License-Identifier: Apache-2.0
"""Adam with decoupled weight decay: today's, and the original BERT's."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import keras

from keras_bert.optimizers.base import NOT_DECAYED, DecoupledDecayOptimizer
from keras_bert.optimizers.schedules import BertWarmupDecay, LinearWarmupDecay


@keras.saving.register_keras_serializable(package="keras_bert")
class AdamW(DecoupledDecayOptimizer):
    """AdamW as `torch.optim.AdamW` computes it, with what BERT's fine-tuning adds to it.

        m ← β₁ m + (1 - β₁) g          v ← β₂ v + (1 - β₂) g²
        w ← w - rate · (m / (1 - β₁ᵗ) / (√(v / (1 - β₂ᵗ)) + ε) + weight_decay · w)

    where `g` is the gradient, scaled so that the norm of all gradients together is at most
    `global_clipnorm`, and t counts updates from 1. Keras' own `AdamW` adds ε inside the bias
    correction, forgets on saving what it does not decay, and hands schedules the micro-batches.

    Args:
        learning_rate: The rate: a number, or a schedule. With `num_train_steps`, the peak of a
            `LinearWarmupDecay`.
        num_train_steps: Updates of the whole training; `None` for no warm-up and no decay.
        num_warmup_steps: Updates of the warm-up; 0 for none.
        weight_decay: Rate of decay of the weights, before the learning rate.
        beta_1: Decay of the first moment.
        beta_2: Decay of the second moment.
        epsilon: Added to √v̂; 1e-8, as in PyTorch.
        global_clipnorm: Greatest norm of all gradients together; `None` for no clipping.
        exclude_from_weight_decay: Names of variables without decay. A name stands for itself and
            for those that end with `_` and it: `bias` also for `output_bias`.
        layer_decay: Factor of the learning rate from each layer to the one below it; see
            `layer_depth`. `None` for one rate.
        num_layers: Encoder layers of the model, for `layer_decay`; `None` counts them in the
            trainable variables, which is wrong where the last layers are frozen.
        gradient_accumulation_steps: Micro-batches that are averaged to one update; `None` for 1.
        name: Name of the optimizer.
        **kwargs: `use_ema`, `ema_momentum`, `ema_overwrite_frequency`, `loss_scale_factor` of
            `keras.optimizers.Optimizer`.

    Raises:
        ValueError: `num_warmup_steps` without `num_train_steps`, or `num_train_steps` with a
            learning rate that is no number.

    Example:

    >>> optimizer = keras_bert.optimizers.AdamW(2e-5, num_train_steps=100, num_warmup_steps=10)
    >>> round(float(optimizer.learning_rate), 8)
    2e-06

    Reference:
        [Decoupled weight decay](https://arxiv.org/abs/1711.05101), algorithm 2.
    """

    corrects_bias = True
    schedule_class = LinearWarmupDecay

    def __init__(
        self,
        learning_rate: Any = 2e-5,
        num_train_steps: int | None = None,
        num_warmup_steps: int = 0,
        weight_decay: float = 0.01,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-8,
        global_clipnorm: float | None = 1.0,
        exclude_from_weight_decay: Iterable[str] = NOT_DECAYED,
        layer_decay: float | None = None,
        num_layers: int | None = None,
        gradient_accumulation_steps: int | None = None,
        name: str = "adamw",
        **kwargs: Any,
    ) -> None:
        super().__init__(
            learning_rate,
            num_train_steps,
            num_warmup_steps,
            weight_decay=weight_decay,
            beta_1=beta_1,
            beta_2=beta_2,
            epsilon=epsilon,
            global_clipnorm=global_clipnorm,
            exclude_from_weight_decay=exclude_from_weight_decay,
            layer_decay=layer_decay,
            num_layers=num_layers,
            gradient_accumulation_steps=gradient_accumulation_steps,
            name=name,
            **kwargs,
        )


@keras.saving.register_keras_serializable(package="keras_bert")
class AdamWeightDecay(DecoupledDecayOptimizer):
    """The optimizer of the original BERT code: AdamW whose moments start biased to zero.

        m ← β₁ m + (1 - β₁) g          v ← β₂ v + (1 - β₂) g²
        u = m / (√v + ε) + weight_decay · w
        w ← w - rate · u

    with LayerNorm and biases left undecayed, and gradients clipped by their global norm. With
    `num_train_steps`, the rate is that code's too (`BertWarmupDecay`): 0 at the first update, and
    with a jump where the warm-up ends.

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

    >>> optimizer = keras_bert.optimizers.AdamWeightDecay(
    ...     1e-4, num_train_steps=1_000_000, num_warmup_steps=10_000)
    >>> float(optimizer.learning_rate)
    0.0

    Reference:
        [BERT](https://arxiv.org/abs/1810.04805), appendix A.2, as its released code does it.
    """

    corrects_bias = False
    schedule_class = BertWarmupDecay

    def __init__(
        self,
        learning_rate: Any = 1e-4,
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
