# SPDX-License-Identifier: Apache-2.0
"""Learning rates that rise linearly, then fall linearly to zero: three codes' three rules.

They differ at the end of the warm-up and in the very first steps, and no more:

| schedule | s < W | s ≥ W |
|---|---|---|
| `LinearWarmupDecay` | (s + 1) / W, or s / W | (T - s) / (T - W) |
| `BertWarmupDecay` | s / W | 1 - s / T: a jump down from 1 |
| `ElectraWarmupDecay` | (s / W) (1 - s / T) | 1 - s / T |

each times the peak, with T training steps, W warm-up steps, and s updates made before. From
step T on the rate is 0. All count updates of the weights: the optimizers of this package divide
by `gradient_accumulation_steps` before they ask.
"""

from __future__ import annotations

from typing import Any

import keras
from keras import ops

from keras_bert.ops.annotations import Tensor


class _WarmupDecay(keras.optimizers.schedules.LearningRateSchedule):
    """A peak, a number of steps, a share of them for the warm-up; subclasses give the rule."""

    def __init__(
        self,
        peak_learning_rate: float,
        num_train_steps: int,
        num_warmup_steps: int = 0,
    ) -> None:
        super().__init__()
        if num_train_steps < 1:
            raise ValueError(f"num_train_steps must be 1 or more. Received: {num_train_steps}")
        if not 0 <= num_warmup_steps <= num_train_steps:
            raise ValueError(
                "num_warmup_steps must be from 0 to num_train_steps. Received: "
                f"num_warmup_steps={num_warmup_steps}, num_train_steps={num_train_steps}"
            )
        self.peak_learning_rate = peak_learning_rate
        self.num_train_steps = num_train_steps
        self.num_warmup_steps = num_warmup_steps

    def __call__(self, step: Tensor) -> Any:
        share = self._share_of_peak(ops.cast(step, "float32"))
        return self.peak_learning_rate * ops.maximum(share, 0.0)

    def _share_of_peak(self, step: Tensor) -> Any:
        raise NotImplementedError

    def _fall_from_start(self, step: Tensor) -> Any:
        return 1.0 - step / self.num_train_steps

    def get_config(self) -> dict[str, Any]:
        return {
            "peak_learning_rate": self.peak_learning_rate,
            "num_train_steps": self.num_train_steps,
            "num_warmup_steps": self.num_warmup_steps,
        }


@keras.saving.register_keras_serializable(package="keras_bert")
class LinearWarmupDecay(_WarmupDecay):
    """The rule that is common today: `peak · min((s + 1) / W, (T - s) / (T - W))`.

    Args:
        peak_learning_rate: The rate at the end of the warm-up.
        num_train_steps: T, the updates of the whole training.
        num_warmup_steps: W, the updates of the warm-up; 0 for none.
        warmup_from_zero: Whether the warm-up is `s / W`, so that the first update has rate 0 and
            changes no weight: what Hugging Face's `get_linear_schedule_with_warmup` does.

    Example:

    >>> schedule = keras_bert.optimizers.LinearWarmupDecay(1.0, 10, num_warmup_steps=2)
    >>> [round(float(schedule(step)), 3) for step in (0, 1, 2, 6, 10)]
    [0.5, 1.0, 1.0, 0.5, 0.0]
    """

    def __init__(
        self,
        peak_learning_rate: float,
        num_train_steps: int,
        num_warmup_steps: int = 0,
        warmup_from_zero: bool = False,
    ) -> None:
        super().__init__(peak_learning_rate, num_train_steps, num_warmup_steps)
        self.warmup_from_zero = warmup_from_zero

    def _share_of_peak(self, step: Tensor) -> Any:
        falling_steps = max(1, self.num_train_steps - self.num_warmup_steps)
        falling = (self.num_train_steps - step) / falling_steps
        if not self.num_warmup_steps:
            return falling
        first = 0.0 if self.warmup_from_zero else 1.0
        return ops.minimum((step + first) / self.num_warmup_steps, falling)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "warmup_from_zero": self.warmup_from_zero}


@keras.saving.register_keras_serializable(package="keras_bert")
class BertWarmupDecay(_WarmupDecay):
    """The rule of the original BERT code: `peak · s / W` for s < W, then `peak · (1 - s / T)`.

    The fall is counted from step 0, so the rate jumps down by W / T when the warm-up ends. The
    first update has rate 0.

    Args:
        peak_learning_rate: The rate that the warm-up heads for.
        num_train_steps: T, the updates of the whole training.
        num_warmup_steps: W, the updates of the warm-up; 0 for none.

    Example:

    >>> schedule = keras_bert.optimizers.BertWarmupDecay(1.0, 10, num_warmup_steps=2)
    >>> [round(float(schedule(step)), 3) for step in (0, 1, 2, 6, 10)]
    [0.0, 0.5, 0.8, 0.4, 0.0]

    Reference:
        [BERT](https://arxiv.org/abs/1810.04805), appendix A.2, as its released code does it.
    """

    def _share_of_peak(self, step: Tensor) -> Any:
        falling = self._fall_from_start(step)
        if not self.num_warmup_steps:
            return falling
        rising = step / self.num_warmup_steps
        return ops.where(step < self.num_warmup_steps, rising, falling)


@keras.saving.register_keras_serializable(package="keras_bert")
class ElectraWarmupDecay(_WarmupDecay):
    """The rule of ELECTRA's code: `peak · (1 - s / T) · min(1, s / W)`, which does not jump.

    Args:
        peak_learning_rate: The rate that the warm-up heads for.
        num_train_steps: T, the updates of the whole training.
        num_warmup_steps: W, the updates of the warm-up; 0 for none.

    Example:

    >>> schedule = keras_bert.optimizers.ElectraWarmupDecay(1.0, 10, num_warmup_steps=2)
    >>> [round(float(schedule(step)), 3) for step in (0, 1, 2, 6, 10)]
    [0.0, 0.45, 0.8, 0.4, 0.0]

    Reference:
        [ELECTRA](https://arxiv.org/abs/2003.10555), appendices A and B, as its released code
        does it.
    """

    def _share_of_peak(self, step: Tensor) -> Any:
        falling = self._fall_from_start(step)
        if not self.num_warmup_steps:
            return falling
        return falling * ops.minimum(1.0, step / self.num_warmup_steps)
