# SPDX-License-Identifier: Apache-2.0
"""Learning rate schedules with linear warmup and linear decay to 0.

There are three variants, which differ at the end of the warmup and in the first steps. The learning
rate is the peak times

| schedule | s < W | s ≥ W |
|---|---|---|
| `LinearWarmupDecay` | (s + 1) / W, or s / W | (T - s) / (T - W) |
| `BertWarmupDecay` | s / W | 1 - s / T, below 1 at s = W |
| `ElectraWarmupDecay` | (s / W) (1 - s / T) | 1 - s / T |

with T training steps, W warmup steps, and s updates made before. From step T on it is 0. A step is
an update of the weights: with `gradient_accumulation_steps`, the optimizers of this package pass
the number of updates to schedules, and not the number of micro-batches.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import keras
from keras import ops

from keras_bert import checks
from keras_bert.ops.annotations import Tensor

# A number, a schedule, or a function of no arguments
LearningRate: TypeAlias = (
    float | keras.optimizers.schedules.LearningRateSchedule | Callable[[], Tensor]
)


class _WarmupDecay(keras.optimizers.schedules.LearningRateSchedule):
    """Base class: the peak and the numbers of steps; subclasses define the fraction of the peak."""

    def __init__(
        self,
        peak_learning_rate: float,
        num_train_steps: int,
        num_warmup_steps: int = 0,
    ) -> None:
        super().__init__()
        checks.NON_NEGATIVE.check(peak_learning_rate=peak_learning_rate)
        # Not integers alone: a share of the steps, such as 0.1 * 600, is a float
        checks.Numbers(at_least=1).check(num_train_steps=num_train_steps)
        checks.NON_NEGATIVE.check(num_warmup_steps=num_warmup_steps)
        if num_warmup_steps > num_train_steps:
            raise ValueError(
                f"num_warmup_steps is {num_warmup_steps}; it must be at most num_train_steps, "
                f"which is {num_train_steps}."
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
    """Linear warmup and decay without a jump: `peak · min((s + 1) / W, (T - s) / (T - W))`.

    Args:
        peak_learning_rate: The learning rate at the end of the warmup.
        num_train_steps: T, the number of updates of the whole training.
        num_warmup_steps: W, the number of warmup updates. Defaults to 0.
        warmup_from_zero: Whether the warmup is `s / W`, so that the first update has rate 0 and
            changes no weight, as in Hugging Face's `get_linear_schedule_with_warmup`.

    Raises:
        ValueError: If the peak is negative or not finite, `num_train_steps` is below 1, or
            `num_warmup_steps` not in `[0, num_train_steps]`.

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
    """The schedule of the original BERT code: `peak · s / W` for s < W, then `peak · (1 - s / T)`.

    The decay is counted from step 0, so that the learning rate drops by `peak · W / T` at the end
    of the warmup. The first update has rate 0.

    Args:
        peak_learning_rate: The learning rate that the warmup approaches.
        num_train_steps: T, the number of updates of the whole training.
        num_warmup_steps: W, the number of warmup updates. Defaults to 0.

    Raises:
        ValueError: See `LinearWarmupDecay`.

    Example:

    >>> schedule = keras_bert.optimizers.BertWarmupDecay(1.0, 10, num_warmup_steps=2)
    >>> [round(float(schedule(step)), 3) for step in (0, 1, 2, 6, 10)]
    [0.0, 0.5, 0.8, 0.4, 0.0]

    Reference:
        [BERT](https://arxiv.org/abs/1810.04805), appendix A.2, and its released code.
    """

    def _share_of_peak(self, step: Tensor) -> Any:
        falling = self._fall_from_start(step)
        if not self.num_warmup_steps:
            return falling
        rising = step / self.num_warmup_steps
        return ops.where(step < self.num_warmup_steps, rising, falling)


@keras.saving.register_keras_serializable(package="keras_bert")
class ElectraWarmupDecay(_WarmupDecay):
    """The schedule of ELECTRA's code: `peak · (1 - s / T) · min(1, s / W)`, without a jump.

    Args:
        peak_learning_rate: The learning rate that warmup and decay are multiplied by.
        num_train_steps: T, the number of updates of the whole training.
        num_warmup_steps: W, the number of warmup updates. Defaults to 0.

    Raises:
        ValueError: See `LinearWarmupDecay`.

    Example:

    >>> schedule = keras_bert.optimizers.ElectraWarmupDecay(1.0, 10, num_warmup_steps=2)
    >>> [round(float(schedule(step)), 3) for step in (0, 1, 2, 6, 10)]
    [0.0, 0.45, 0.8, 0.4, 0.0]

    Reference:
        [ELECTRA](https://arxiv.org/abs/2003.10555), appendices A and B, and its released code.
    """

    def _share_of_peak(self, step: Tensor) -> Any:
        falling = self._fall_from_start(step)
        if not self.num_warmup_steps:
            return falling
        return falling * ops.minimum(1.0, step / self.num_warmup_steps)
