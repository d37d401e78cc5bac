# SPDX-License-Identifier: Apache-2.0
"""Runs pre-training in phases and intervals, with checkpoints to resume from."""

from __future__ import annotations

import dataclasses
import functools
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
from absl import logging

from keras_bert import atomic
from keras_bert.data import PretrainingStream
from keras_bert.data.pretraining.stream import groups_of_shard, pretraining_examples
from keras_bert.ops.lazy_tensorflow import set_random_seed

from ..costs import model_flops
from ..costs.energy import Energy, Meter
from ..engine import devices, hosts, interrupts, output_directory, precision
from ..engine.progress import Progress, TimeLeft
from ..engine.run_checkpoints import (
    RunCheckpoints,
    RunState,
    TerminateOnNonFinite,
    seed_dropout,
)
from . import report
from .config import PretrainConfig
from .model import (
    PretrainingModel,
    build_model,
    check_init_preset,
    set_steps_per_execution,
    update_flops,
)
from .optimization import Phase
from .text_source import Batches, TextSource
from .tokenizer_source import open_tokenizer
from .unigrams import unigram_scores

_NUM_SAMPLE_BATCHES = 20
# Minimum time between two plots of the curves, for runs with short intervals
_SECONDS_BETWEEN_PLOTS = 30.0


def pretrain(config: PretrainConfig) -> dict[str, Any]:
    """Creates a missing vocabulary and missing records, trains, and writes the results.

    Returns:
        The content of `results.json`: the config, the number of parameters, the log, its last
        record, and totals.

    Raises:
        NotFiniteError: If a loss or a weight is not finite.
        DiskFullError: If the disk is too full for a checkpoint.
        ValueError: If text or records are invalid, or if the directory contains a run with
            different settings.
    """
    hosts.check_all_equal("the command", config.settings())
    if hosts.count() > 1:
        count = len(keras.distribution.list_devices())
        processes = f"the {count} devices of the {hosts.count()} processes"
        config.optimization.check_divisible(count, processes)
    source = TextSource.from_config(config)
    source.check()
    with hosts.main_process_first():
        policy = precision.resolve(config.compute.precision, config.output_dir)
    warmup_steps = config.optimization.num_warmup_steps
    config = config.replace(precision=policy, warmup_steps=warmup_steps)
    check_init_preset(config.encoder, config.optimization.longest)
    with devices.distribute_over(config.compute.devices) as scope:
        return _pretrain(config, source, scope)


def _pretrain(config: PretrainConfig, source: TextSource, scope: devices.Scope) -> dict[str, Any]:
    directory, text, costs = Path(config.output_dir), config.text, config.costs
    directory.mkdir(parents=True, exist_ok=True)
    if config.compute.deterministic:
        _be_deterministic()
    with hosts.main_process_first():
        vocabulary = source.vocabulary()
        records = source.all_records(vocabulary)
    tokenizer = open_tokenizer(vocabulary, text.corpus.lowercase)
    batches = Batches(text, config.task, config.encoder, tokenizer)
    phases = batches.phase_batches(config.optimization, records)
    # Set the seed after the records, so that creating them does not change the random state.
    set_random_seed(text.rows.seed)
    with scope():
        model = build_model(config, tokenizer)
    checkpoints = RunCheckpoints(directory / "checkpoints", config.keep_checkpoints)
    # The tokenizer's config already specifies `lowercase`.
    settings = config.settings() | {"lowercase": None, "tokenizer": tokenizer.get_config()}
    state = restore(model, checkpoints, source, output_directory.fingerprint(settings))
    seconds_before = state.seconds
    peak = model_flops.peak_flops(keras.dtype_policies.get(config.compute.precision).compute_dtype)
    with checkpoints, hosts.energy_meter(costs.measure_energy, costs.country) as meter:
        run = Run(config, model, checkpoints, peak * hosts.count(), meter)
        run.time_left.skip_to(run.work(state.step))
        baselines: dict[int, report.Log] = {}
        for phase, (train, dev) in phases.items():
            if state.step < phase.end:
                length = phase.sequence_length
                if length not in baselines:
                    data = (train, _NUM_SAMPLE_BATCHES) if dev is None else (dev, text.dev_batches)
                    score = functools.partial(
                        unigram_scores, records[length][0], length, tokenizer, config.encoder, *data
                    )
                    baselines[length] = hosts.from_main_process(score)
                state = run.train(phase, train, dev, state, baselines[length])
    if state.seconds > seconds_before:
        share_waited = model.seconds_waited / (state.seconds - seconds_before)
        logging.info("%.1f%% of the training time was spent waiting for data", 100 * share_waited)
    results = report.build_results(config, model.count_params(), state)
    if hosts.is_main_process():
        model.save_to_preset(directory / "preset")
        report.write_log(state.log, directory)
        report.draw(state.log, directory)
        atomic.write_json(directory / report.RESULTS_FILE, results)
    return results


def restore(
    model: PretrainingModel, checkpoints: RunCheckpoints, source: TextSource, fingerprint: str
) -> RunState:
    """Loads the last checkpoint and returns its state, or a new state without a checkpoint.

    Raises:
        SettingsMismatchError: If the checkpoint is from a run with different settings or files.
    """
    start = output_directory.hash_directory(source.preset).hex() if source.preset else ""
    files = {flag: _content(flag, groups) for flag, groups in source.given_files().items()}
    details = {"start": start, "files": files}
    fresh = RunState(0, keras.backend.backend(), fingerprint, [], 0.0, details)

    def check(state: RunState) -> None:
        fresh.check_same_run(state, checkpoints.directory)
        before = {source.preset_flag: state.details.get("start", "")}
        before |= state.details.get("files", {})
        for flag, content in {source.preset_flag: start, **files}.items():
            output_directory.check_same_start(
                checkpoints.directory, flag, before.get(flag, ""), content
            )

    state = checkpoints.restore(model, check) or fresh
    hosts.check_all_equal("the run", {"fingerprint": fingerprint, **details, "step": state.step})
    if state.step:
        logging.info("resuming after step %d", state.step)
    return state


def _content(flag: str, groups: list[list[Path]]) -> str:
    """Hashes groups of files. Each process reads the groups that it trains on."""
    own = groups_of_shard(hosts.shard(), len(groups))
    contents = {str(group): output_directory.hash_files(groups[group]).hex() for group in own}
    contents = hosts.merge_across_processes(f"the content of --{flag}", contents)
    return contents["0"] if len(groups) == 1 else output_directory.fingerprint(contents)


@dataclasses.dataclass(frozen=True)
class Workload:
    """The cost per training step in a phase, and the unigram baseline.

    Args:
        tokens: Number of tokens, excluding padding.
        flops: Matmul FLOPs.
        unigram: The baseline's `unigram_accuracy` and `unigram_perplexity`.
    """

    tokens: float
    flops: int
    unigram: report.Log


class Run:
    """Trains a run's phases.

    Args:
        config: The configuration.
        model: The compiled model.
        checkpoints: Writes and restores checkpoints.
        peak: Peak FLOP/s of matmuls. It is raised if an interval is faster.
        meter: Returns the energy since its last call. `None` if energy is not measured.
    """

    def __init__(
        self,
        config: PretrainConfig,
        model: PretrainingModel,
        checkpoints: RunCheckpoints,
        peak: float,
        meter: Meter | None,
    ) -> None:
        self.config, self.optimization = config, config.optimization
        self.model, self.checkpoints = model, checkpoints
        self.peak, self.meter = peak, meter
        self.time_left = TimeLeft(self.work(self.optimization.num_steps))

    def work(self, step: int) -> float:
        """Returns the FLOPs of the run up to a training step."""
        work = 0.0
        for phase in self.optimization.plan():
            length = phase.sequence_length
            share = self.config.text.rows.masked_lm_probability
            slots = length if self.config.encoder.causal else round(length * share)
            done = min(max(0, step - phase.first_step), phase.num_steps)
            work += done * update_flops(self.model, phase.batch_size, length, slots)
        return work

    def train(
        self,
        phase: Phase,
        train: PretrainingStream,
        dev: PretrainingStream | None,
        state: RunState,
        baseline: report.Log,
    ) -> RunState:
        """Trains from the run's current step until the phase ends, and returns the new state."""
        own = {"shard": hosts.shard(), "return_shards": hosts.count() > 1}
        dev_examples = None
        if dev is not None:
            dev_examples = self._examples(dev.first_batches(self.config.text.dev_batches, **own))
        workload = self._workload(phase, train, baseline)
        logging.info(
            "%d tokens per example, %d examples per step: steps %d to %d, %d examples, %d "
            "batches per epoch",
            phase.sequence_length,
            phase.batch_size,
            phase.first_step + 1,
            phase.end,
            train.num_rows,
            train.batches_per_epoch,
        )
        # Trace again for each length. Otherwise TensorFlow would retrace the function for arbitrary
        # lengths, and its results would differ in the last bits from a run that resumes here.
        self.model.make_train_function(force=True)
        self.model.make_test_function(force=True)
        interval = self.optimization.steps_per_interval
        while state.step < phase.end:
            done = state.step - phase.first_step
            num_left = phase.end - state.step
            # One call of `fit` trains whole intervals. A separate call trains the remaining steps
            # in the phase or in an interrupted interval.
            rest = min(num_left, interval - done % interval)
            count, steps = (num_left // interval, interval) if rest == interval else (1, rest)
            intervals = IntervalReport(self, state, steps, phase.end, workload, dev_examples)
            batches = train.from_batch(done * self.optimization.accumulation, **own)
            state = self._fit(batches, intervals, count)
        return state

    def _fit(self, batches: Any, intervals: IntervalReport, count: int) -> RunState:
        """Trains for multiple intervals with the same number of training steps."""
        accumulation = self.optimization.accumulation
        first, steps = intervals.first_step, intervals.interval
        steps_per_execution = self.config.compute.steps_per_execution
        set_steps_per_execution(self.model, steps_per_execution, steps * accumulation)

        def place(epoch: int, batch: int) -> str:
            return f"step {first + epoch * steps + batch // accumulation + 1}"

        progress = Progress(
            time_left=self.time_left,
            epoch_work=self.work(first + steps) - self.work(first),
            epochs=self.optimization.num_intervals,
            unit="interval",
            first_epoch=len(intervals.state.log),
            metrics=lambda logs: report.metrics_line(report.named(logs)),
            summary=intervals.line,
        )
        with interrupts.defer_interrupt(hosts.count() == 1) as intervals.is_interrupted:
            self.model.fit(
                self._examples(batches, first * accumulation),
                steps_per_epoch=steps * accumulation,
                epochs=count,
                verbose=0,
                callbacks=[
                    TerminateOnNonFinite(place),
                    intervals,
                    *([progress] if hosts.is_main_process() else []),
                ],
            )
        return intervals.state

    def _examples(self, batches: Any, first: int = 0) -> Any:
        if hosts.count() > 1:
            batches = hosts.AgreedBatches(batches, first)
        return pretraining_examples(batches, self.config.text.rows.next_sentence)

    def _workload(self, phase: Phase, train: PretrainingStream, baseline: report.Log) -> Workload:
        """Estimates the cost per training step from the first batches."""

        def tokens_and_slots() -> tuple[float, int]:
            name = "sequence_ids" if train.packed else "padding_mask"
            batches = list(train.first_batches(_NUM_SAMPLE_BATCHES))
            tokens = np.mean([np.count_nonzero(batch[name]) for batch in batches])
            return float(tokens), batches[0]["mask_positions"].shape[1]

        tokens, slots = hosts.from_main_process(tokens_and_slots)
        flops = update_flops(self.model, phase.batch_size, phase.sequence_length, slots)
        return Workload(tokens * self.optimization.accumulation, flops, baseline)


class IntervalReport(keras.callbacks.Callback):
    """Logs, evaluates, and writes a checkpoint and a plot after each interval.

    Args:
        run: The run.
        state: The initial value of the attribute `state`.
        interval: Number of training steps per Keras epoch.
        last_step: The phase's last step. The validation text is always scored after it.
        workload: The cost per training step.
        dev: Validation batches, or `None`.
    """

    # Returns whether Ctrl-C was pressed. The run then stops after a checkpoint.
    is_interrupted: Callable[[], bool]

    def __init__(
        self,
        run: Run,
        state: RunState,
        interval: int,
        last_step: int,
        workload: Workload,
        dev: Any,
    ) -> None:
        super().__init__()
        self.run, self.optimization = run, run.config.optimization
        self.state, self.first_step = state, state.step
        self.interval, self.last_step = interval, last_step
        self.workload, self.dev = workload, dev
        self.is_interrupted = bool
        self._directory = Path(run.config.output_dir)
        # A new run's first interval is plotted immediately.
        self._next_plot = time.monotonic() + _SECONDS_BETWEEN_PLOTS if state.log else 0.0
        self._start = 0.0

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        self._start = time.perf_counter()

    def on_train_batch_begin(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        seed = self.run.config.text.rows.seed
        seed_dropout(seed, self.state.step * self.optimization.accumulation + batch)

    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        steps, rest = divmod(batch + 1, self.optimization.accumulation)
        # After an interval's last step, `on_epoch_end` saves.
        if self.is_interrupted() and not rest and steps < self.interval:
            if keras.backend.backend() == "jax":
                # On JAX, Keras only updates the variables when an epoch ends.
                self.model.jax_state_sync()
            seconds = self.state.seconds + time.perf_counter() - self._start
            step = self.state.step + steps
            state = dataclasses.replace(self.state, step=step, seconds=seconds)
            self.run.checkpoints.save(self.model, state)
            self.run.checkpoints.raise_if_interrupted(self.is_interrupted())

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        seconds = time.perf_counter() - self._start
        step = self.first_step + (epoch + 1) * self.interval
        total = self.state.seconds + seconds
        record: report.Log = {"step": step, "seconds": round(total, 3), **report.named(logs or {})}
        record["learning_rate"] = float(
            keras.ops.convert_to_numpy(self.model.optimizer.learning_rate)
        )
        rate = self.interval / seconds
        record["tokens_per_second"] = round(rate * self.workload.tokens, 1)
        record["flops_per_second"] = rate * self.workload.flops
        self.run.peak = max(self.run.peak, record["flops_per_second"])
        record["mfu"] = round(record["flops_per_second"] / self.run.peak, 6)
        record |= self.energy_record()
        if self.dev is not None and self._is_scored(step):
            scores = self.model.evaluate(self.dev, verbose=0, return_dict=True)
            if not math.isfinite(scores["loss"]):
                raise output_directory.NotFiniteError(
                    f"the loss on the validation text must be finite. Received: {scores['loss']} "
                    f"(after step {step})"
                )
            record |= {f"val_{name}": value for name, value in report.named(scores).items()}
        record |= self.workload.unigram
        if report.has_collapsed([*self.state.log, record], self.optimization.num_warmup_steps):
            logging.warning("%s", report.collapse_warning(record))
        self.state = dataclasses.replace(
            self.state, step=step, seconds=total, log=[*self.state.log, record]
        )
        every = self.run.config.preset_every
        # Before the checkpoint, because a run that resumes from it would not write the preset.
        if every and step % every == 0 and hosts.is_main_process():
            self.model.save_to_preset(self._directory / "presets" / f"step_{step:09}")
        self.run.checkpoints.save(self.model, self.state)
        if hosts.is_main_process():
            self._write(record)
        self.run.checkpoints.raise_if_interrupted(self.is_interrupted())

    def _write(self, record: report.Log) -> None:
        """Writes the log and the plot after an interval."""
        step = self.state.step
        report.write_log(self.state.log, self._directory)
        if self.run.config.tensorboard:
            report.write_tensorboard(record, self._directory / "tensorboard")
        # The end of the run plots separately.
        if step < self.optimization.num_steps and time.monotonic() >= self._next_plot:
            report.draw(self.state.log, self._directory)
            self._next_plot = time.monotonic() + _SECONDS_BETWEEN_PLOTS

    def _is_scored(self, step: int) -> bool:
        """Returns whether the validation text is scored after the interval that ends at `step`."""
        between = self.optimization.steps_between_scores(len(self.dev))
        return step == self.last_step or step // between > (step - self.interval) // between

    def line(self) -> str:
        """Returns the line printed after an interval."""
        return report.interval_line(
            self.state.log[-1], self.optimization.num_steps, self.run.time_left.text()
        )

    def energy_record(self) -> report.Log:
        """Returns the run's energy so far, or an empty dict if some of it was not measured."""
        if self.run.meter is None:
            return {}
        before = self.state.log[-1] if self.state.log else {"energy_kwh": 0.0, "co2_kg": 0.0}
        if "energy_kwh" not in before:
            return {}  # Some of the energy was not measured.
        energy = (
            Energy(
                before["energy_kwh"],
                before["co2_kg"],
                bool(before.get("energy_is_measured", False)),
            )
            + self.run.meter()
        )
        return {
            "energy_kwh": energy.kwh,
            "co2_kg": energy.co2_kg,
            "energy_is_measured": energy.is_measured,
        }


def _be_deterministic() -> None:
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        tf.config.experimental.enable_op_determinism()
    elif keras.backend.backend() == "torch":
        import torch

        torch.use_deterministic_algorithms(True)
