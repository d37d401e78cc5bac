# SPDX-License-Identifier: Apache-2.0
"""The updates of a pre-training run: its phases, batches, learning rates and optimizer."""

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

# Keras is imported only where it is needed, so that `--help` does not wait for it.
if TYPE_CHECKING:
    import keras

# The classes of `keras_bert.optimizers`, by the values of flags
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
# As `keras_bert.optimizers.schedules` has them
DECAYS = ("one_minus_sqrt", "linear")
# Minimum number of batches that are trained on for each that is scored, unless the user chooses the
# interval. Without a backward pass, scoring a batch takes a third of the time: a twelfth in total.
_TRAINED_PER_SCORED = 4


@dataclasses.dataclass(frozen=True)
class Phase:
    """A phase of the training, with one sequence length and one batch size.

    Args:
        sequence_length: Tokens in a row.
        first_step: Number of updates before this phase.
        num_steps: Number of updates in this phase.
        batch_size: Rows in an update.
        learning_rate: Peak learning rate.
    """

    sequence_length: int
    first_step: int
    num_steps: int
    batch_size: int
    learning_rate: float

    @property
    def end(self) -> int:
        """Number of updates at the end of this phase."""
        return self.first_step + self.num_steps


@dataclasses.dataclass(frozen=True)
class Optimization(CommandConfig):
    """The updates of a run.

    Args:
        phases: The phases of the training, each length:share of the updates, as in
            128:0.9,512:0.1; where they differ, with its batch_size and learning_rate, as in
            1024:0.85,8192:0.15:batch_size=576:learning_rate=3e-4. A phase that has the length of
            one before goes on where that has stopped in the text.
        batch_size: Rows in an update.
        initial_batch_size: For a warm-up of the batch size, the rows in the first updates, of which
            batch_size is a multiple; the batch grows by as many rows at a time.
        batch_warmup_steps: Number of updates before the batch has batch_size rows, all in the first
            phase; each smaller size has as many of them.
        accumulation: Number of micro-batches whose gradients are accumulated for an update.
        num_steps: Number of updates.
        eval_every: Number of updates after which metrics are logged, the validation text is scored
            and a checkpoint is written; by default a hundredth of num_steps, and the text is
            scored less often if that would take more than a tenth of the time of training.
        optimizer: Adam_weight_decay (BERT's own, without bias correction), adamw, stable_adamw
            (AdamW that divides the learning rate of a tensor whose gradient suddenly grows; usually
            with clip_norm=0) or lamb.
        learning_rate: Peak learning rate.
        schedule: Learning rate schedule: linear, bert (which jumps after the warm-up), electra
            (which does not) or trapezoidal (constant between warm-up and decay); empty takes the
            optimizer's own.
        decay_steps: For trapezoidal, number of updates in which the learning rate falls to 0; a
            tenth of num_steps by default, and 0 for none.
        decay: For trapezoidal, how it falls: one_minus_sqrt or linear.
        warmup_steps: Number of updates in which the learning rate rises; a hundredth of num_steps
            by default, as in the paper.
        weight_decay: Weight decay, applied to all weights except biases and LayerNorms.
        beta_2: Decay rate of the second moments.
        epsilon: Small constant added to the denominator of the update.
        clip_norm: Global norm that gradients are clipped to; 0 for no clipping.
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
            yield ["decay", "decay_steps"], "there is no --schedule=trapezoidal"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_one_of(self, optimizer=tuple(OPTIMIZERS), schedule=("", *SCHEDULES), decay=DECAYS)
        if self.num_warmup_steps > self.num_steps:
            raise ValueError(
                f"--warmup_steps must be 0 to --num_steps, {self.num_steps}. Received: "
                f"{self.warmup_steps}"
            )
        if self.schedule == "trapezoidal" and (
            self.num_warmup_steps + self.num_decay_steps > self.num_steps
        ):
            raise ValueError(
                f"--warmup_steps is {self.num_warmup_steps} and --decay_steps "
                f"{self.num_decay_steps}, expected at most --num_steps together, {self.num_steps}"
            )
        if (self.initial_batch_size is None) != (not self.batch_warmup_steps):
            raise ValueError(
                f"--initial_batch_size is {self.initial_batch_size} and --batch_warmup_steps "
                f"{self.batch_warmup_steps}, expected both or neither"
            )
        for phase in self.plan():
            if phase.batch_size % self.accumulation:
                raise ValueError(
                    f"an update has {phase.batch_size} rows after {phase.first_step} updates, "
                    f"expected a multiple of --accumulation, which is {self.accumulation}"
                )

    def check_divisible(self, count: int, what: str) -> None:
        """Raises a ValueError if the rows of a micro-batch cannot be divided by a number."""
        for phase in self.plan():
            rows = self.micro_batch_size(phase)
            if rows % count:
                raise ValueError(
                    f"a batch has {rows} rows after {phase.first_step} updates (--batch_size by "
                    f"--accumulation), expected a multiple of {what}"
                )

    def micro_batch_size(self, phase: Phase) -> int:
        """Returns the rows in a micro-batch of a phase."""
        return phase.batch_size // self.accumulation

    @property
    def longest(self) -> int:
        """Tokens in the longest row."""
        return max(phase.sequence_length for phase in self.plan())

    def dev_batch_size(self, sequence_length: int) -> int:
        """Returns the rows in a batch of validation text: those of the largest micro-batch.

        They are the same for all phases with this length, whose scores can be compared.
        """
        phases = [phase for phase in self.plan() if phase.sequence_length == sequence_length]
        return max(map(self.micro_batch_size, phases))

    @property
    def num_decay_steps(self) -> int:
        """Updates in which the learning rate falls, with a trapezoidal schedule."""
        if self.decay_steps is not None:
            return self.decay_steps
        return min(self.num_steps // 10, self.num_steps - self.num_warmup_steps)

    @property
    def num_warmup_steps(self) -> int:
        """Updates in which the learning rate rises."""
        return self.num_steps // 100 if self.warmup_steps is None else self.warmup_steps

    @property
    def steps_per_interval(self) -> int:
        """Updates between two checkpoints."""
        return self.eval_every or max(1, self.num_steps // 100)

    def steps_between_scores(self, num_batches: int) -> int:
        """Returns the updates between two scorings of the validation text."""
        if self.eval_every is not None:
            return self.eval_every
        num_trained = _TRAINED_PER_SCORED * num_batches
        return max(self.steps_per_interval, -(-num_trained // self.accumulation))

    @property
    def num_intervals(self) -> int:
        """Number of checkpoints of the whole run; each phase ends with one."""
        return sum(-(-phase.num_steps // self.steps_per_interval) for phase in self.plan())

    def plan(self) -> list[Phase]:
        """Returns the phases with their steps; each size of a batch warm-up is a phase of its own.

        Raises:
            ValueError: If a phase is malformed, the shares do not sum to 1, or the batch warm-up
                does not fit into the first phase.
        """
        phases = [_parse_phase(text) for text in self.phases]
        if not phases or abs(sum(share for _, share, _ in phases) - 1) > 1e-6:
            raise ValueError(
                f"--phases must be shares that sum to 1. Received: {','.join(self.phases)}"
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
        """Returns the parts of the first phase with smaller batches, and what is left of it."""
        smaller = range(initial, phase.batch_size, initial)
        if phase.batch_size % initial or not smaller:
            raise ValueError(
                "--initial_batch_size must be a divisor of the batch size of the first phase, "
                f"{phase.batch_size}, below it. Received: {initial}"
            )
        if not len(smaller) <= self.batch_warmup_steps < phase.num_steps:
            raise ValueError(
                f"--batch_warmup_steps must be at least {len(smaller)}, one for each smaller "
                f"batch size, and fewer than the first phase has, {phase.num_steps}. Received: "
                f"{self.batch_warmup_steps}"
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
        """Returns the optimizer; `shard_state` is an argument of its class."""
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
        """Returns the learning rate schedule: the optimizer's own without `--schedule`."""
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
        # (A phase with a small share may have no updates.)
        plan = [phase for phase in self.plan() if phase.num_steps]
        if all(phase.learning_rate == self.learning_rate for phase in plan):
            return schedule(self.learning_rate)
        return optimizers.PhasedSchedule(
            schedule(1.0),
            [phase.first_step for phase in plan],
            [phase.learning_rate for phase in plan],
        )


# What a phase may have of its own, and how it is read
_OF_PHASE: dict[str, tuple[type, checks.NumberRange]] = {
    "batch_size": (int, checks.POSITIVE_INT),
    "learning_rate": (float, checks.NON_NEGATIVE),
}


def _parse_phase(text: str) -> tuple[int, float, dict[str, Any]]:
    """Returns the length, the share and the options of a phase, `length:share[:name=value…]`."""
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
            f"--phases has {text!r}, expected length:share, as in 128:0.9, and what it has of its "
            f"own of {' and '.join(_OF_PHASE)}, as in 128:0.9:batch_size=64"
        ) from None
    checks.POSITIVE_INT.check(**{f"The length of --phases={text}": phase[0]})
    checks.POSITIVE_FRACTION.check(**{f"The share of --phases={text}": phase[1]})
    for name, value in values.items():
        _OF_PHASE[name][1].check(**{f"The {name} of --phases={text}": value})
    return *phase, values
