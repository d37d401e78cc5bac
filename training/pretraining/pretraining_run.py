# SPDX-License-Identifier: Apache-2.0
"""The model of a pre-training run, and the callbacks of its training."""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import keras
from absl import logging

from keras_bert import (
    Backbone,
    BertConfig,
    Distiller,
    MaskedLM,
    Pretrainer,
    ReplacedTokenDetector,
    atomic,
    checkpoints,
    optimizers,
)
from keras_bert.tasks.student_initialization import copy_layers, spread_layers
from keras_bert.text.tokenizer import Tokenizer

from ..costs import model_flops
from ..costs.energy import Energy, Meter
from ..engine import hosts
from ..engine.progress import TimeLeft
from ..engine.run_checkpoints import NotFiniteError, RunCheckpoints, RunState, seed_dropout
from ..plots.curves import curves_figure
from ..plots.style import save
from .config import PretrainConfig
from .pretraining_report import interval_line

LOG_FILE = "log.jsonl"
CURVES_FILE = "curves.png"
RESULTS_FILE = "results.json"
# Minimum time between two plots of the curves, for runs with short intervals
_SECONDS_BETWEEN_PICTURES = 30.0
# A run has collapsed if its accuracy is within these bounds of the unigram baseline for this many
# consecutive intervals.
_STILL_INTERVALS = 3
_STILL_RATIO = 1.05
_STILL_MARGIN = 0.002
_NAMES = {
    "masked_lm_logits_accuracy": "masked_accuracy",
    "masked_lm_logits_perplexity": "perplexity",
    "masked_lm_logits_loss": "masked_loss",
    "next_sentence_logits_accuracy": "pair_accuracy",
    "next_sentence_logits_loss": "pair_loss",
    # Keras omits the output's name if there is only one.
    "accuracy": "masked_accuracy",
    "masked_lm_loss": "masked_loss",
    "label_loss": "masked_loss",
    "generator_accuracy": "masked_accuracy",
}
_DRAWN = ("loss", "masked_accuracy", "unigram_accuracy", "pair_accuracy", "discriminator_accuracy")

Log = dict[str, float]
PretrainingModel: TypeAlias = Pretrainer | ReplacedTokenDetector | Distiller


def check_init_preset(config: PretrainConfig) -> None:
    """Checks that the checkpoint to start from has the architecture that the config asks for.

    Raises:
        ValueError: If it differs; the message names the flag.
    """
    if not config.init_preset:
        return
    found = checkpoints.open_checkpoint(config.init_preset, weights=False).config
    for name in ("num_layers", "hidden_dim", "num_heads", "causal"):
        asked, its = getattr(config, name), getattr(found, name)
        if asked is not None and asked != its:
            raise ValueError(
                f"--{name} is {asked}, but the model of --init_preset={config.init_preset} has "
                f"{its}; expected the same, since its weights are those of another architecture"
            )
    longest = max(phase.sequence_length for phase in config.plan())
    if longest > found.max_sequence_length:
        raise ValueError(
            f"--phases has the length {longest}, but the model of "
            f"--init_preset={config.init_preset} has positions for {found.max_sequence_length} "
            "tokens at most"
        )


def build_model(config: PretrainConfig, tokenizer: Tokenizer) -> PretrainingModel:
    """Returns the compiled model, with random weights or those of a checkpoint."""
    makers = {
        "masked_lm": _pretrainer,
        "replaced_token": _detector,
        "distillation": _distiller,
    }
    model = makers[config.objective](config, tokenizer)
    model.compile(
        _optimizer(config),
        jit_compile=_jit(config.jit),
        steps_per_execution=_steps_per_execution(config.steps_per_execution),
    )
    model.optimizer.build(model.trainable_variables)
    return model


def _pretrainer(config: PretrainConfig, tokenizer: Tokenizer) -> Pretrainer:
    model: Pretrainer = _task(Pretrainer, config, tokenizer, next_sentence=config.next_sentence)
    return model


def _detector(config: PretrainConfig, tokenizer: Tokenizer) -> ReplacedTokenDetector:
    model: ReplacedTokenDetector = _task(
        ReplacedTokenDetector,
        config,
        tokenizer,
        discriminator_weight=config.discriminator_weight,
        generator_size=config.generator_size,
    )
    return model


def _distiller(config: PretrainConfig, tokenizer: Tokenizer) -> Distiller:
    teacher = MaskedLM.from_preset(config.teacher, dtype=config.precision, packed=config.packing)
    student = _task(MaskedLM, config, tokenizer)
    if config.copy_layers and not config.init_preset:
        layers = tuple(map(int, config.teacher_layers)) or spread_layers(
            teacher.config.num_layers, student.config.num_layers
        )
        copy_layers(teacher, student, layers)
    return Distiller(student, teacher, temperature=config.temperature)


def _task(task: Any, config: PretrainConfig, tokenizer: Tokenizer, **options: Any) -> Any:
    """Returns a task with random weights or those of a checkpoint."""
    policy = config.precision
    if config.init_preset:
        return task.from_preset(
            config.init_preset,
            encoder_dropout=config.dropout,
            packed=config.packing,
            rematerialize=config.rematerialize,
            dtype=policy,
            **options,
        )
    architecture = config.architecture(tokenizer)
    return task(
        Backbone(
            architecture,
            packed=config.packing,
            rematerialize=config.rematerialize,
            dtype=policy,
        ),
        {"tokenizer": tokenizer.get_config(), "sequence_length": architecture.max_sequence_length},
        **options,
    )


def update_flops(model: PretrainingModel, rows: int, sequence_length: int, slots: int) -> int:
    """Returns the FLOPs of the matrix products of an update, for any objective.

    Args:
        model: The model.
        rows: Rows in an update.
        sequence_length: Tokens in a row.
        slots: Masked tokens in a row.
    """

    def flops(
        config: BertConfig, slots: int, next_sentence: bool = False, reads_all: bool = False
    ) -> int:
        return model_flops.training_flops(
            config, rows, sequence_length, slots, next_sentence, reads_all=reads_all
        )

    if isinstance(model, ReplacedTokenDetector):
        # The discriminator has no masked LM head, but a dense layer and a logit for every token.
        hidden = model.config.hidden_dim
        head: int = 3 * rows * sequence_length * 2 * hidden * (hidden + 1)
        return flops(model.generator.config, slots) + flops(model.config, 0, reads_all=True) + head
    if isinstance(model, Distiller):
        # The teacher has no backward pass, which is two thirds of the FLOPs.
        everywhere = bool(model.cosine_weight) or model.divergence_tokens == "all"
        student = flops(model.config, slots, reads_all=everywhere)
        return student + flops(model.teacher_task.config, slots, reads_all=everywhere) // 3
    return flops(model.config, slots, model.next_sentence)


def _optimizer(config: PretrainConfig) -> keras.optimizers.Optimizer:
    classes = {
        "adam_weight_decay": optimizers.AdamWeightDecay,
        "adamw": optimizers.AdamW,
        "stable_adamw": optimizers.StableAdamW,
        "lamb": optimizers.LAMB,
    }
    optimizer = classes[config.optimizer]
    return optimizer(
        _rate(config, optimizer),
        weight_decay=config.weight_decay,
        beta_2=config.beta_2,
        epsilon=config.epsilon,
        global_clipnorm=config.clip_norm or None,
        gradient_accumulation_steps=config.accumulation if config.accumulation > 1 else None,
        shard_state=config.shard_optimizer,
    )


def _rate(config: PretrainConfig, optimizer: Any) -> Any:
    """Returns the learning rate schedule: the optimizer's own without `--schedule`."""
    schedules: dict[str, Any] = {
        "": optimizer.schedule_class,
        "linear": optimizers.LinearWarmupDecay,
        "bert": optimizers.BertWarmupDecay,
        "electra": optimizers.ElectraWarmupDecay,
        "trapezoidal": functools.partial(
            optimizers.TrapezoidalWarmupDecay,
            num_decay_steps=config.num_decay_steps,
            decay=config.decay,
        ),
    }
    schedule = functools.partial(
        schedules[config.schedule],
        num_train_steps=config.num_steps,
        num_warmup_steps=config.num_warmup_steps,
    )
    # (A phase with a small share may have no updates.)
    plan = [phase for phase in config.plan() if phase.num_steps]
    if all(phase.learning_rate == config.learning_rate for phase in plan):
        return schedule(config.learning_rate)
    return optimizers.PhasedSchedule(
        schedule(1.0),
        [phase.first_step for phase in plan],
        [phase.learning_rate for phase in plan],
    )


def _steps_per_execution(steps: int) -> int:
    # Keras supports only 1 on PyTorch.
    return 1 if keras.backend.backend() == "torch" else steps


def execute_whole_groups(model: PretrainingModel, config: PretrainConfig, steps: int) -> None:
    """Adapts the batches in a call of the compiled function to the updates of an interval.

    Keras executes as many batches in each call, even if fewer of them are left in the epoch: a
    short interval would train longer than it says.

    Args:
        model: The compiled model.
        config: The settings of the run.
        steps: Updates of the interval.
    """
    whole = _steps_per_execution(config.steps_per_execution)
    fitting = math.gcd(whole, steps * config.accumulation)
    if model.steps_per_execution != fitting:
        model.steps_per_execution = fitting
        model.make_train_function(force=True)
        model.make_test_function(force=True)


def _jit(choice: str) -> bool | str:
    if choice != "auto":
        return choice == "on"
    backend = keras.backend.backend()
    return backend == "jax" or (backend == "tensorflow" and model_flops.has_accelerator())


@dataclasses.dataclass(frozen=True)
class Workload:
    """The cost of an update in a phase, and the baseline of its masked tokens.

    Args:
        tokens: Number of tokens, padding excluded.
        flops: FLOPs of the matrix products.
        unigram: `unigram_accuracy` and `unigram_perplexity`, the scores of a `UnigramModel`.
    """

    tokens: float
    flops: int
    unigram: Log


def has_collapsed(log: list[Log], warmup_steps: int) -> bool:
    """Returns whether a run predicts masked tokens no better than the unigram baseline.

    Every run starts like this, so that only the last few intervals after the warm-up count. The
    accuracy on validation text is used if there is one.

    Args:
        log: The records of all intervals.
        warmup_steps: Number of updates in which the learning rate rises.
    """
    last = [record for record in log if record["step"] > warmup_steps][-_STILL_INTERVALS:]

    def is_still(record: Log) -> bool:
        accuracy = record.get("val_masked_accuracy", record.get("masked_accuracy", 1.0))
        return accuracy <= record.get("unigram_accuracy", -1.0) * _STILL_RATIO + _STILL_MARGIN

    return len(last) == _STILL_INTERVALS and all(map(is_still, last))


def collapse_warning(record: Log) -> str:
    """Returns the warning for a run that `has_collapsed`, from its last record."""
    name = "val_masked_accuracy" if "val_masked_accuracy" in record else "masked_accuracy"
    return (
        f"the model has not learned from the context: after step {record['step']:.0f} its accuracy "
        f"on masked tokens is {record[name]:.1%}, and always predicting the most frequent token "
        f"gives {record['unigram_accuracy']:.1%} (perplexity "
        f"{record.get(name.replace('masked_accuracy', 'perplexity'), math.nan):.1f}, unigram "
        f"baseline {record['unigram_perplexity']:.1f}). Try a lower --learning_rate, more "
        "--warmup_steps or a longer run"
    )


class IntervalReport(keras.callbacks.Callback):
    """Logs, scores the validation text, and writes a checkpoint and a plot after each interval.

    Args:
        config: The config of the run.
        state: The initial value of the attribute `state`.
        first_step: Number of updates before this call of `fit`.
        interval: Updates in one of Keras' epochs.
        workload: The cost of an update.
        peak: FLOP/s of matrix products; if an interval has more, its speed is the peak.
        dev: Validation batches, or `None`.
        last_step: Updates at the end of the phase, when the validation text is scored too.
        time_left: The estimate for the run.
        meter: Returns the energy since its last call; `None` if energy is not metered.
        checkpoints: The checkpoints to write to.
    """

    # Returns whether Ctrl-C was pressed: the run then ends after a checkpoint.
    is_interrupted: Callable[[], bool]

    def __init__(
        self,
        config: PretrainConfig,
        state: RunState,
        *,
        first_step: int,
        interval: int,
        workload: Workload,
        peak: float,
        dev: Any,
        last_step: int,
        time_left: TimeLeft,
        meter: Meter | None,
        checkpoints: RunCheckpoints,
    ) -> None:
        super().__init__()
        self.config = config
        self.state = state
        self.first_step = first_step
        self.interval = interval
        self.workload = workload
        self.peak = peak
        self.dev = dev
        self.last_step = last_step
        self.time_left = time_left
        self._steps_between_scores = 0 if dev is None else config.steps_between_scores(len(dev))
        self.meter = meter
        self.checkpoints = checkpoints
        self.is_interrupted = bool
        self._folder = Path(config.output_dir)
        # The first interval of a run is drawn at once
        self._next_picture = time.monotonic() + _SECONDS_BETWEEN_PICTURES if state.log else 0.0
        self._start = 0.0

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        self._start = time.perf_counter()

    def on_train_batch_begin(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        seed_dropout(self.config.seed, self.state.step * self.config.accumulation + batch)

    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        steps, rest = divmod(batch + 1, self.config.accumulation)
        # After the last step of an interval, `on_epoch_end` saves.
        if self.is_interrupted() and not rest and steps < self.interval:
            if keras.backend.backend() == "jax":
                # On JAX, Keras updates the variables only at the end of an epoch.
                self.model.jax_state_sync()
            seconds = self.state.seconds + time.perf_counter() - self._start
            step = self.state.step + steps
            state = dataclasses.replace(self.state, step=step, seconds=seconds)
            self.checkpoints.save(self.model, state)
            self.checkpoints.end_if(self.is_interrupted())

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        seconds = time.perf_counter() - self._start
        step = self.first_step + (epoch + 1) * self.interval
        total = self.state.seconds + seconds
        record: Log = {"step": step, "seconds": round(total, 3), **named(logs or {})}
        record["learning_rate"] = float(
            keras.ops.convert_to_numpy(self.model.optimizer.learning_rate)
        )
        rate = self.interval / seconds
        record["tokens_per_second"] = round(rate * self.workload.tokens, 1)
        record["flops_per_second"] = rate * self.workload.flops
        self.peak = max(self.peak, record["flops_per_second"])
        record["share_of_peak"] = round(record["flops_per_second"] / self.peak, 6)
        record |= self.energy_record()
        if self.dev is not None and self._is_scored(step):
            scores = self.model.evaluate(self.dev, verbose=0, return_dict=True)
            if not math.isfinite(scores["loss"]):
                raise NotFiniteError(
                    f"the loss on the validation text is {scores['loss']} after step {step}"
                )
            record |= {f"val_{name}": value for name, value in named(scores).items()}
        record |= self.workload.unigram
        if has_collapsed([*self.state.log, record], self.config.num_warmup_steps):
            logging.warning("%s", collapse_warning(record))
        self.state = dataclasses.replace(
            self.state, step=step, seconds=total, log=[*self.state.log, record]
        )
        self.checkpoints.save(self.model, self.state)
        if hosts.is_main_process():
            self._write(record)
        self.checkpoints.end_if(self.is_interrupted())

    def _write(self, record: Log) -> None:
        """Writes the log and the plot of an interval."""
        step = self.state.step
        write_log(self.state.log, self._folder)
        if self.config.tensorboard:
            write_tensorboard(record, self._folder / "tensorboard")
        # The run's end has a plot of its own
        if step < self.config.num_steps and time.monotonic() >= self._next_picture:
            draw(self.state.log, self._folder)
            self._next_picture = time.monotonic() + _SECONDS_BETWEEN_PICTURES

    def _is_scored(self, step: int) -> bool:
        """Returns whether the validation text is scored after the interval that ends at a step."""
        between = self._steps_between_scores
        return step == self.last_step or step // between > (step - self.interval) // between

    def line(self) -> str:
        """Returns the line that is printed after an interval."""
        return interval_line(self.state.log[-1], self.config.num_steps, self.time_left.text())

    def energy_record(self) -> Log:
        """Returns the energy of the run until now; empty if not all of it was metered."""
        if self.meter is None:
            return {}
        before = self.state.log[-1] if self.state.log else {"energy_kwh": 0.0, "co2_kg": 0.0}
        if "energy_kwh" not in before:
            return {}  # What was not metered from the beginning is not known
        found = Energy(
            before["energy_kwh"], before["co2_kg"], bool(before.get("energy_is_measured", False))
        ).plus(self.meter())
        return {
            "energy_kwh": found.kwh,
            "co2_kg": found.co2_kg,
            "energy_is_measured": found.is_measured,
        }


def named(logs: dict[str, Any]) -> Log:
    """Returns Keras' losses and metrics under shorter names."""
    return {_NAMES.get(name, name): float(value) for name, value in logs.items()}


def write_log(log: list[Log], folder: Path) -> None:
    """Writes the whole log as JSON Lines, so that a repeated interval occurs only once."""
    atomic.write_text(folder / LOG_FILE, "".join(json.dumps(record) + "\n" for record in log))


def write_tensorboard(record: Log, folder: Path) -> None:
    """Writes the values of a record as scalars for TensorBoard."""
    import tensorflow as tf

    writer = tf.summary.create_file_writer(os.fspath(folder))
    with writer.as_default(step=int(record["step"])):
        for name, value in record.items():
            tf.summary.scalar(name, value)
    writer.close()


def draw(log: list[Log], folder: Path) -> None:
    """Plots the curves of loss and accuracies."""
    names = [f"{prefix}{name}" for name in _DRAWN for prefix in ("", "val_")]
    history = {
        name: [record.get(name, math.nan) for record in log]
        for name in names
        if any(name in record for record in log)
    }
    steps = [int(record["step"]) for record in log]
    save(curves_figure(history, steps=steps, title=folder.name), folder / CURVES_FILE)
