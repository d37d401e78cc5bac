# SPDX-License-Identifier: Apache-2.0
"""Learning rate schedules with linear warmup and decay to 0.

The learning rate is the peak learning rate times the fraction in this table:

| schedule | s < W | s ≥ W |
|---|---|---|
| `LinearWarmupDecay` | (s + 1) / W, or s / W | (T - s) / (T - W) |
| `BertWarmupDecay` | s / W | 1 - s / T, below 1 at s = W |
| `ElectraWarmupDecay` | (s / W) (1 - s / T) | 1 - s / T |
| `TrapezoidalWarmupDecay` | (s + 1) / W | 1 until s = T - D, then 1 - √x or 1 - x |

Here T is the number of training steps, W the number of warmup steps and D the number of decay
steps. s is the number of completed steps, and x = (s - T + D) / D. After step T, the learning rate
is 0.

A step is one update of the weights. With `gradient_accumulation_steps`, the optimizers of this
package call schedules with the number of steps, not with the number of micro-batches.
`PhasedSchedule` multiplies another schedule by a factor in each training phase.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Self, TypeAlias

import keras
from keras import ops

from keras_bert import checks
from keras_bert.ops.annotations import Tensor

# A number, a schedule, or a function without arguments that returns the learning rate
LearningRate: TypeAlias = (
    float | keras.optimizers.schedules.LearningRateSchedule | Callable[[], Tensor]
)

DECAYS = ("one_minus_sqrt", "linear")


class _WarmupDecay(keras.optimizers.schedules.LearningRateSchedule):
    """Base class with the peak and numbers of steps. Subclasses define the fraction of the peak."""

    def __init__(
        self,
        peak_learning_rate: float,
        num_train_steps: int,
        num_warmup_steps: int = 0,
    ) -> None:
        super().__init__()
        checks.NON_NEGATIVE.check(peak_learning_rate=peak_learning_rate)
        # Floats are accepted because a fraction of the steps, such as 0.1 * 600, is a float.
        checks.NumberRange(at_least=1).check(num_train_steps=num_train_steps)
        checks.NON_NEGATIVE.check(num_warmup_steps=num_warmup_steps)
        if num_warmup_steps > num_train_steps:
            raise ValueError(
                f"num_warmup_steps must be at most num_train_steps ({num_train_steps}). "
                f"Received: {num_warmup_steps}"
            )
        self.peak_learning_rate = peak_learning_rate
        self.num_train_steps = num_train_steps
        self.num_warmup_steps = num_warmup_steps

    def __call__(self, step: Tensor) -> Any:
        fraction = self._peak_fraction(ops.cast(step, "float32"))
        return self.peak_learning_rate * ops.maximum(fraction, 0.0)

    def _peak_fraction(self, step: Tensor) -> Any:
        raise NotImplementedError

    def get_config(self) -> dict[str, Any]:
        return {
            "peak_learning_rate": self.peak_learning_rate,
            "num_train_steps": self.num_train_steps,
            "num_warmup_steps": self.num_warmup_steps,
        }


@keras.saving.register_keras_serializable(package="keras_bert")
class LinearWarmupDecay(_WarmupDecay):
    """Linear warmup, then linear decay: `peak · min((s + 1) / W, (T - s) / (T - W))`.

    Args:
        peak_learning_rate: The learning rate at the end of the warmup.
        num_train_steps: T, the total number of optimizer steps.
        num_warmup_steps: W, the number of warmup steps. Defaults to 0.
        warmup_from_zero: Whether the warmup is `s / W`, as in Hugging Face's
            `get_linear_schedule_with_warmup`. The learning rate is then 0 in the first step, so the
            step does not change any weight. Defaults to `False`.

    Raises:
        ValueError: If the peak is negative or not finite, if `num_train_steps` is below 1, or if
            `num_warmup_steps` is not in `[0, num_train_steps]`.

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

    def _peak_fraction(self, step: Tensor) -> Any:
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

    The decay is computed from step 0, so the learning rate drops by `peak · W / T` at the end of
    the warmup. In the first step it is 0.

    Args:
        peak_learning_rate: The learning rate that the warmup approaches.
        num_train_steps: T, the total number of optimizer steps.
        num_warmup_steps: W, the number of warmup steps. Defaults to 0.

    Raises:
        ValueError: See `LinearWarmupDecay`.

    Example:

    >>> schedule = keras_bert.optimizers.BertWarmupDecay(1.0, 10, num_warmup_steps=2)
    >>> [round(float(schedule(step)), 3) for step in (0, 1, 2, 6, 10)]
    [0.0, 0.5, 0.8, 0.4, 0.0]

    Reference:
        [BERT](https://arxiv.org/abs/1810.04805), appendix A.2, and the original BERT code.
    """

    def _peak_fraction(self, step: Tensor) -> Any:
        falling = 1.0 - step / self.num_train_steps
        if not self.num_warmup_steps:
            return falling
        rising = step / self.num_warmup_steps
        return ops.where(step < self.num_warmup_steps, rising, falling)


@keras.saving.register_keras_serializable(package="keras_bert")
class ElectraWarmupDecay(_WarmupDecay):
    """The schedule of the original ELECTRA code: `peak · (1 - s / T) · min(1, s / W)`.

    Unlike `BertWarmupDecay`, it has no jump at the end of the warmup.

    Args:
        peak_learning_rate: The learning rate that the warmup and decay factors multiply.
        num_train_steps: T, the total number of optimizer steps.
        num_warmup_steps: W, the number of warmup steps. Defaults to 0.

    Raises:
        ValueError: See `LinearWarmupDecay`.

    Example:

    >>> schedule = keras_bert.optimizers.ElectraWarmupDecay(1.0, 10, num_warmup_steps=2)
    >>> [round(float(schedule(step)), 3) for step in (0, 1, 2, 6, 10)]
    [0.0, 0.45, 0.8, 0.4, 0.0]

    Reference:
        [ELECTRA](https://arxiv.org/abs/2003.10555), appendices A and B, and the original code.
    """

    def _peak_fraction(self, step: Tensor) -> Any:
        falling = 1.0 - step / self.num_train_steps
        if not self.num_warmup_steps:
            return falling
        return falling * ops.minimum(1.0, step / self.num_warmup_steps)


@keras.saving.register_keras_serializable(package="keras_bert")
class TrapezoidalWarmupDecay(_WarmupDecay):
    """The trapezoidal or warmup-stable-decay (WSD) schedule, with a constant rate before the decay.

    With T training steps, W warmup steps and D decay steps, the learning rate after s steps is the
    peak times

        (s + 1) / W    for s < W,
        1              for W ≤ s ≤ T - D,
        1 - √x         for s > T - D, or 1 - x with `decay="linear"`, where x = (s - (T - D)) / D.

    The constant part does not depend on T, so you can extend a run, or start the decay from any
    checkpoint.

    Args:
        peak_learning_rate: The learning rate between warmup and decay.
        num_train_steps: T, the total number of optimizer steps.
        num_warmup_steps: W, the number of warmup steps. Defaults to 0.
        num_decay_steps: D, the number of decay steps at the end. With 0, the learning rate stays
            constant. By default, it is a tenth of `num_train_steps`, but at most the number of
            steps after the warmup.
        decay: `"one_minus_sqrt"` for a faster decay at first, or `"linear"`. Defaults to
            `"one_minus_sqrt"`.

    Raises:
        ValueError: As for `LinearWarmupDecay`, and if warmup and decay together exceed
            `num_train_steps`, or if `decay` is unknown.

    Example:

    >>> schedule = keras_bert.optimizers.TrapezoidalWarmupDecay(
    ...     1.0, 10, num_warmup_steps=2, num_decay_steps=4)
    >>> [round(float(schedule(step)), 3) for step in (0, 1, 2, 6, 7, 10)]
    [0.5, 1.0, 1.0, 1.0, 0.5, 0.0]

    Reference:
        [Scaling laws beyond fixed training durations](https://arxiv.org/abs/2405.18392), sections 2
        and 4; [ModernBERT](https://arxiv.org/abs/2412.13663), section 2.2.2.
    """

    def __init__(
        self,
        peak_learning_rate: float,
        num_train_steps: int,
        num_warmup_steps: int = 0,
        num_decay_steps: int | None = None,
        decay: str = "one_minus_sqrt",
    ) -> None:
        super().__init__(peak_learning_rate, num_train_steps, num_warmup_steps)
        checks.NON_NEGATIVE.check_optional(num_decay_steps=num_decay_steps)
        if num_decay_steps is None:
            num_decay_steps = min(num_train_steps // 10, num_train_steps - num_warmup_steps)
        if num_warmup_steps + num_decay_steps > num_train_steps:
            raise ValueError(
                f"num_warmup_steps + num_decay_steps must be at most num_train_steps "
                f"({num_train_steps}). Received: {num_warmup_steps} + {num_decay_steps}"
            )
        if decay not in DECAYS:
            raise ValueError(f"decay must be one of {', '.join(DECAYS)}. Received: {decay!r}")
        self.num_decay_steps = num_decay_steps
        self.decay = decay

    def _peak_fraction(self, step: Tensor) -> Any:
        # Without decay steps, this is 1 until the last step.
        remaining = (self.num_train_steps - step) / max(1, self.num_decay_steps)
        remaining = ops.clip(remaining, 0.0, 1.0)
        falling = remaining if self.decay == "linear" else 1.0 - ops.sqrt(1.0 - remaining)
        if not self.num_warmup_steps:
            return falling
        return ops.minimum((step + 1.0) / self.num_warmup_steps, falling)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "num_decay_steps": self.num_decay_steps,
            "decay": self.decay,
        }


@keras.saving.register_keras_serializable(package="keras_bert")
class PhasedSchedule(keras.optimizers.schedules.LearningRateSchedule):
    """Multiplies a schedule by a different factor in each training phase.

    Args:
        schedule: The schedule for the whole training.
        first_steps: The first step of each phase, in ascending order from 0.
        factors: The factor of each phase.

    Raises:
        ValueError: If the steps do not ascend from 0, or the number of factors differs.

    Example:

    >>> schedule = keras_bert.optimizers.PhasedSchedule(
    ...     keras_bert.optimizers.TrapezoidalWarmupDecay(1.0, 10), [0, 8], factors=[1.0, 0.25])
    >>> [float(schedule(step)) for step in (0, 7, 8, 9, 10)]
    [1.0, 1.0, 0.25, 0.25, 0.0]
    """

    def __init__(
        self,
        schedule: keras.optimizers.schedules.LearningRateSchedule,
        first_steps: Sequence[int],
        factors: Sequence[float],
    ) -> None:
        super().__init__()
        steps = list(first_steps)
        if steps[:1] != [0] or steps != sorted(set(steps)):
            raise ValueError(f"first_steps must ascend from 0. Received: {steps}")
        if len(factors) != len(steps):
            raise ValueError(
                f"factors must have one value for each of the {len(steps)} phases. Received: "
                f"{list(factors)}"
            )
        for factor in factors:
            checks.NON_NEGATIVE.check(factors=factor)
        self.schedule = schedule
        self.first_steps = steps
        self.factors = list(factors)

    @property
    def num_train_steps(self) -> int | None:
        """The total number of optimizer steps, or `None` if the schedule does not define it."""
        return getattr(self.schedule, "num_train_steps", None)

    def __call__(self, step: Tensor) -> Any:
        has_begun = ops.cast(self.first_steps, "float32") <= ops.cast(step, "float32")
        phase = ops.sum(ops.cast(has_begun, "int32")) - 1
        factors = ops.convert_to_tensor(self.factors, "float32")
        return self.schedule(step) * ops.take(factors, phase)

    def get_config(self) -> dict[str, Any]:
        return {
            "schedule": keras.saving.serialize_keras_object(self.schedule),
            "first_steps": self.first_steps,
            "factors": self.factors,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        schedule = keras.saving.deserialize_keras_object(config["schedule"])
        return cls(**{**config, "schedule": schedule})
