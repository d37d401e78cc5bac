# SPDX-License-Identifier: Apache-2.0
"""Plans pre-training steps, with phases, batch sizes, learning rates and the optimizer."""

from __future__ import annotations

import dataclasses
import functools
from typing import TYPE_CHECKING, Any

from keras_bert import checks

from ..engine.options import (
    CommandConfig,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveInt,
    ProperFraction,
    UnusedFlags,
    check_one_of,
)

# Keras is imported only where necessary, so that `--help` is fast.
if TYPE_CHECKING:
    import keras

# Maps flag values to classes of `keras_bert.optimizers`.
OPTIMIZERS = {
    "adam_weight_decay": "AdamWeightDecay",
    "adamw": "AdamW",
    "stable_adamw": "StableAdamW",
    "lamb": "LAMB",
}
SCHEDULES = {
    "linear": "LinearWarmupDecay",
    "bert": "BertWarmupDecay",
    "electra": "ElectraWarmupDecay",
    "trapezoidal": "TrapezoidalWarmupDecay",
}
# The same as in `keras_bert.optimizers.schedules`
DECAYS = ("one_minus_sqrt", "linear")
# Unless the user sets the interval, at least this many batches are trained for each scored batch.
# Scoring a batch takes a third of the time, because there is no backward pass. So it adds at most a
# twelfth to the training time.
_TRAINED_PER_SCORED = 4


@dataclasses.dataclass(frozen=True)
class Phase:
    """A training phase with a fixed sequence length and batch size.

    Args:
        sequence_length: Sequence length in tokens.
        first_step: Number of training steps before this phase.
        num_steps: Number of training steps in this phase.
        batch_size: Number of examples per training step.
        learning_rate: Peak learning rate.
    """

    sequence_length: int
    first_step: int
    num_steps: int
    batch_size: int
    learning_rate: float

    @property
    def end(self) -> int:
        """Number of training steps at the end of this phase."""
        return self.first_step + self.num_steps


@dataclasses.dataclass(frozen=True)
class Optimization(CommandConfig):
    """Options for the training steps and the optimizer.

    Args:
        phases: The training phases, each length:fraction of the training steps, as in
            128:0.9,512:0.1. A phase can also set batch_size and learning_rate, as in
            1024:0.85,8192:0.15:batch_size=576:learning_rate=3e-4. A phase with the same length as
            an earlier phase continues in the text where that phase stopped.
        batch_size: Number of examples per training step.
        initial_batch_size: Initial batch size for a batch size warmup. The batch size then grows by
            this number until it reaches batch_size, a multiple of it.
        batch_warmup_steps: Number of training steps before the batch size reaches batch_size,
            divided equally between the smaller sizes. They must all be in the first phase.
        accumulation: Number of micro-batches over which gradients are accumulated in a training
            step.
        num_steps: Number of training steps.
        eval_every: Number of training steps between two checkpoints. Metrics are logged and the
            validation text is scored at the same time. Defaults to num_steps / 100. By default, the
            validation text is scored less often if it would take more than a twelfth of the
            training time.
        optimizer: One of adam_weight_decay (the original BERT optimizer, without bias correction),
            adamw, stable_adamw (AdamW that lowers a tensor's learning rate when its gradient
            suddenly grows, usually with clip_norm=0) and lamb.
        learning_rate: Peak learning rate.
        schedule: Learning rate schedule, one of linear, bert (jumps after the warmup), electra (no
            jump) and trapezoidal (constant between warmup and decay). Empty uses the optimizer's
            default.
        decay_steps: For trapezoidal, number of final training steps. The learning rate falls to 0
            in these steps. Defaults to num_steps / 10. 0 disables the decay.
        decay: For trapezoidal, the shape of the decay: one_minus_sqrt or linear.
        warmup_steps: Number of initial training steps. The learning rate rises in these steps.
            Defaults to num_steps / 100, as in the BERT paper.
        weight_decay: Weight decay for all weights except biases and LayerNorm weights.
        beta_2: Decay rate of the second moments.
        epsilon: Small constant added to the denominator of the update.
        clip_norm: Maximum global norm of the gradients. 0 disables clipping.
    """

    phases: tuple[str, ...] = ("128:0.9", "512:0.1")
    batch_size: PositiveInt = 256
    initial_batch_size: PositiveInt | None = None
    batch_warmup_steps: NonNegativeInt = 0
    accumulation: PositiveInt = 1
    num_steps: PositiveInt = 1_000_000
    eval_every: PositiveInt | None = None
    optimizer: str = "adam_weight_decay"
    learning_rate: NonNegativeFloat = 1e-4
    schedule: str = ""
    decay_steps: NonNegativeInt | None = None
    decay: str = "one_minus_sqrt"
    warmup_steps: NonNegativeInt | None = None
    weight_decay: NonNegativeFloat = 0.01
    beta_2: ProperFraction = 0.999
    epsilon: NonNegativeFloat = 1e-6
    clip_norm: NonNegativeFloat = 1.0

    def unused_flags(self) -> UnusedFlags:
        if self.schedule != "trapezoidal":
            yield ["decay", "decay_steps"], "--schedule is not trapezoidal"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_one_of(self, optimizer=tuple(OPTIMIZERS), schedule=("", *SCHEDULES), decay=DECAYS)
        if self.num_warmup_steps > self.num_steps:
            raise ValueError(
                f"--warmup_steps must be between 0 and --num_steps, which is {self.num_steps}. "
                f"Received: {self.warmup_steps}"
            )
        if self.schedule == "trapezoidal" and (
            self.num_warmup_steps + self.num_decay_steps > self.num_steps
        ):
            raise ValueError(
                "--warmup_steps + --decay_steps must be at most --num_steps, which is "
                f"{self.num_steps}. Received: {self.num_warmup_steps} + {self.num_decay_steps}"
            )
        if (self.initial_batch_size is None) != (not self.batch_warmup_steps):
            raise ValueError(
                "--initial_batch_size and --batch_warmup_steps must be given together. Received: "
                f"{self.initial_batch_size} and {self.batch_warmup_steps}"
            )
        for phase in self.plan():
            if phase.batch_size % self.accumulation:
                raise ValueError(
                    "batch sizes must be multiples of --accumulation, which is "
                    f"{self.accumulation}. Received: {phase.batch_size} (after step "
                    f"{phase.first_step})"
                )

    def check_divisible(self, count: int, what: str) -> None:
        """Raises a ValueError if a phase's micro-batch size is not divisible by `count`."""
        for phase in self.plan():
            rows = self.micro_batch_size(phase)
            if rows % count:
                raise ValueError(
                    f"--batch_size / --accumulation must be a multiple of {what}. Received: {rows} "
                    f"(after step {phase.first_step})"
                )

    def micro_batch_size(self, phase: Phase) -> int:
        """Returns the number of examples per micro-batch in a phase."""
        return phase.batch_size // self.accumulation

    @property
    def longest(self) -> int:
        """The maximum sequence length in tokens."""
        return max(phase.sequence_length for phase in self.plan())

    def dev_batch_size(self, sequence_length: int) -> int:
        """Returns the validation batch size, the largest micro-batch size for this length.

        It is the same in all phases with this length, so their scores are comparable.
        """
        phases = [phase for phase in self.plan() if phase.sequence_length == sequence_length]
        return max(map(self.micro_batch_size, phases))

    @property
    def num_decay_steps(self) -> int:
        """Number of decay steps in a trapezoidal schedule."""
        if self.decay_steps is not None:
            return self.decay_steps
        return min(self.num_steps // 10, self.num_steps - self.num_warmup_steps)

    @property
    def num_warmup_steps(self) -> int:
        """Number of warmup steps."""
        return self.num_steps // 100 if self.warmup_steps is None else self.warmup_steps

    @property
    def steps_per_interval(self) -> int:
        """Number of training steps between two checkpoints."""
        return self.eval_every or max(1, self.num_steps // 100)

    def steps_between_scores(self, num_batches: int) -> int:
        """Returns the number of training steps between two evaluations on the validation text."""
        if self.eval_every is not None:
            return self.eval_every
        num_trained = _TRAINED_PER_SCORED * num_batches
        return max(self.steps_per_interval, -(-num_trained // self.accumulation))

    @property
    def num_intervals(self) -> int:
        """Number of checkpoints in the whole run. Each phase ends with a checkpoint."""
        return sum(-(-phase.num_steps // self.steps_per_interval) for phase in self.plan())

    def plan(self) -> list[Phase]:
        """Returns the phases with their steps. Each step of the batch size warmup is a phase.

        Raises:
            ValueError: If a phase is invalid, if the fractions do not sum to 1, or if the batch
                size warmup does not fit into the first phase.
        """
        phases = [_parse_phase(text) for text in self.phases]
        if not phases or abs(sum(share for _, share, _ in phases) - 1) > 1e-6:
            raise ValueError(
                f"--phases must have fractions that sum to 1. Received: {','.join(self.phases)}"
            )
        plan, first, total = [], 0, 0.0
        for length, share, options in phases:
            total += share
            end = round(total * self.num_steps)
            values = {"batch_size": self.batch_size, "learning_rate": self.learning_rate, **options}
            plan.append(Phase(length, first, end - first, **values))
            first = end
        if self.initial_batch_size is None:
            return plan
        return [*self._batch_warmup(self.initial_batch_size, plan[0]), *plan[1:]]

    def _batch_warmup(self, initial: int, phase: Phase) -> list[Phase]:
        """Splits the first phase into its warmup with smaller batches and the remaining steps."""
        smaller = range(initial, phase.batch_size, initial)
        if phase.batch_size % initial or not smaller:
            raise ValueError(
                "--initial_batch_size must be a divisor of the first phase's batch size and less "
                f"than it, {phase.batch_size}. Received: {initial}"
            )
        if not len(smaller) <= self.batch_warmup_steps < phase.num_steps:
            raise ValueError(
                f"--batch_warmup_steps must be at least {len(smaller)}, one step for each smaller "
                "batch size, and less than the number of steps in the first phase, "
                f"{phase.num_steps}. Received: {self.batch_warmup_steps}"
            )
        steps = [
            round(number * self.batch_warmup_steps / len(smaller))
            for number in range(len(smaller) + 1)
        ]
        parts = [
            dataclasses.replace(phase, first_step=first, num_steps=end - first, batch_size=size)
            for size, first, end in zip(smaller, steps, steps[1:], strict=False)
        ]
        rest = phase.num_steps - steps[-1]
        return [*parts, dataclasses.replace(phase, first_step=steps[-1], num_steps=rest)]

    def make_optimizer(self, shard_state: bool) -> keras.optimizers.Optimizer:
        """Returns the optimizer. `shard_state` is passed to its class."""
        from keras_bert import optimizers

        optimizer: Any = getattr(optimizers, OPTIMIZERS[self.optimizer])
        return optimizer(
            self._rate(optimizer),
            weight_decay=self.weight_decay,
            beta_2=self.beta_2,
            epsilon=self.epsilon,
            global_clipnorm=self.clip_norm or None,
            gradient_accumulation_steps=self.accumulation if self.accumulation > 1 else None,
            shard_state=shard_state,
        )

    def _rate(self, optimizer: Any) -> Any:
        """Returns the learning rate schedule, by default the optimizer's own schedule."""
        from keras_bert import optimizers

        schedule_class = optimizer.schedule_class
        if self.schedule:
            schedule_class = getattr(optimizers, SCHEDULES[self.schedule])
        options: dict[str, Any] = {}
        if self.schedule == "trapezoidal":
            options = {"num_decay_steps": self.num_decay_steps, "decay": self.decay}
        schedule = functools.partial(
            schedule_class,
            num_train_steps=self.num_steps,
            num_warmup_steps=self.num_warmup_steps,
            **options,
        )
        # A phase with a small fraction may have no training steps.
        plan = [phase for phase in self.plan() if phase.num_steps]
        if all(phase.learning_rate == self.learning_rate for phase in plan):
            return schedule(self.learning_rate)
        return optimizers.PhasedSchedule(
            schedule(1.0),
            [phase.first_step for phase in plan],
            [phase.learning_rate for phase in plan],
        )


# Phase options with their types and ranges
_OF_PHASE: dict[str, tuple[type, checks.NumberRange]] = {
    "batch_size": (int, checks.POSITIVE_INT),
    "learning_rate": (float, checks.NON_NEGATIVE),
}


def _parse_phase(text: str) -> tuple[int, float, dict[str, Any]]:
    """Parses a phase, `length:fraction[:name=value…]`, into its length, fraction and options."""
    length, _, rest = text.partition(":")
    share, *options = rest.split(":")
    try:
        phase = int(length), float(share)
        values = {}
        for option in options:
            name, _, value = option.partition("=")
            values[name] = _OF_PHASE[name][0](value)
    except (ValueError, KeyError):
        raise ValueError(
            "--phases must be length:fraction, as in 128:0.9, optionally with "
            f"{' and '.join(_OF_PHASE)}, as in 128:0.9:batch_size=64. Received: {text!r}"
        ) from None
    checks.POSITIVE_INT.check(**{f"the length in --phases={text}": phase[0]})
    checks.POSITIVE_FRACTION.check(**{f"the fraction in --phases={text}": phase[1]})
    for name, value in values.items():
        _OF_PHASE[name][1].check(**{f"the {name} in --phases={text}": value})
    return *phase, values
