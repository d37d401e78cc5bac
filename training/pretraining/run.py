# SPDX-License-Identifier: Apache-2.0
"""A pre-training run: batches, checkpoints, phases and results."""

from __future__ import annotations

import dataclasses
import functools
from pathlib import Path
from typing import Any

import keras
import numpy as np
from absl import logging

from keras_bert import atomic
from keras_bert.data import (
    MaskedLMMasker,
    NextTokenTargets,
    PretrainingStream,
    has_masks,
    pretraining_examples,
)
from keras_bert.data.pretraining.stream import groups_of_share
from keras_bert.ops.lazy_tensorflow import set_random_seed
from keras_bert.text.tokenizer import Tokenizer

from ..costs import energy, model_flops, run_cost
from ..engine import devices, hosts, interrupts, output_folder, precision
from ..engine.options import NO_INFLUENCE
from ..engine.progress import Progress, TimeLeft
from ..engine.run_checkpoints import RunCheckpoints, RunState, StopWhereNotFinite
from . import pretraining_run
from .config import Phase, PretrainConfig
from .pretraining_report import metrics_line
from .pretraining_run import PretrainingModel
from .pretraining_text import (
    check_text,
    dev_records,
    given_files,
    training_records,
    vocabulary_path,
)
from .tokenizer_source import is_lowercased, open_tokenizer, tokenizer_content
from .unigrams import unigram_model

_BATCHES_LOOKED_AT = 20


def pretrain(config: PretrainConfig) -> dict[str, Any]:
    """Creates a vocabulary and records if they are missing, trains, and writes the results.

    Args:
        config: The settings.

    Returns:
        The content of `results.json`: the config, the number of parameters, the log, its last
        record, and totals.

    Raises:
        NotFiniteError: If a loss is not finite.
        DiskFullError: If the disk is too full for a checkpoint.
        ValueError: If text or records are malformed, or the folder contains a run of other
            settings.
    """
    hosts.agree("the command", _settings(config))
    _check_shares(config)
    check_text(config)
    with hosts.writer_first():
        policy = precision.resolve(config.precision, config.output_dir)
    config = dataclasses.replace(config, precision=policy, warmup_steps=config.num_warmup_steps)
    pretraining_run.check_init_preset(config)
    with devices.shared_by(config.devices) as scope:
        return _pretrain(config, scope)


def _pretrain(config: PretrainConfig, scope: devices.Scope) -> dict[str, Any]:
    folder = Path(config.output_dir)
    folder.mkdir(parents=True, exist_ok=True)
    if config.deterministic:
        _be_deterministic()
    with hosts.writer_first():
        vocabulary = vocabulary_path(config)
        records = _records(config, vocabulary)
    tokenizer = open_tokenizer(vocabulary, config.lowercase)
    phases = _streams(config, records, tokenizer)
    # Seeded after the records: whether they are created or exist must not change the random state.
    set_random_seed(config.seed)
    with scope():
        model = pretraining_run.build_model(config, tokenizer)
    checkpoints = RunCheckpoints(folder / "checkpoints", config.keep_checkpoints)
    state = _begin(config, model, checkpoints, vocabulary)
    seconds_before = state.seconds
    time_left = TimeLeft(_work(config, model, config.num_steps))
    time_left.skip_to(_work(config, model, state.step))
    peak = model_flops.peak_flops(keras.dtype_policies.get(config.precision).compute_dtype)
    peak *= hosts.count()
    with checkpoints, hosts.energy_meter(config.measure_energy, config.country) as meter:
        baselines: dict[int, pretraining_run.Log] = {}
        for phase, (train, dev) in phases.items():
            if state.step < phase.end:
                length = phase.sequence_length
                if length not in baselines:
                    baselines[length] = hosts.from_main_process(
                        functools.partial(
                            _unigram_baseline, config, records[length][0], tokenizer, train, dev
                        )
                    )
                workload = _workload(config, model, phase, train, baselines[length])
                run = _Run(config, model, checkpoints, peak, meter, workload, time_left)
                held_out = None
                if dev is not None:
                    held_out = dev.first_batches(
                        config.dev_batches, hosts.shard(), as_shares=hosts.count() > 1
                    )
                state = run.train(phase, train, held_out, state)
    if state.seconds > seconds_before:
        waited = model.seconds_waited / (state.seconds - seconds_before)
        logging.info("%.1f %% of the training waited for data", 100 * waited)
    if hosts.is_main_process():
        model.save_to_preset(folder / "preset")
    return _report(config, model, state, folder)


def _check_shares(config: PretrainConfig) -> None:
    """Checks that the devices of all processes can have equal shares of each batch."""
    if hosts.count() == 1:
        return
    devices = len(keras.distribution.list_devices())
    for phase in config.plan():
        rows = config.micro_batch_size(phase)
        if rows % devices:
            raise ValueError(
                f"a batch has {rows} rows (--batch_size, divided by --accumulation), expected a "
                f"multiple of the {devices} devices of the {hosts.count()} processes"
            )


def _records(config: PretrainConfig, vocabulary: Path) -> dict[int, tuple[str, str | None]]:
    """Returns the patterns of the training and the validation records of each length.

    They are created if there are none.
    """
    return {
        length: (
            training_records(config, length, vocabulary),
            dev_records(config, length, vocabulary),
        )
        for length in dict.fromkeys(phase.sequence_length for phase in config.plan())
    }


def _streams(
    config: PretrainConfig, records: dict[int, tuple[str, str | None]], tokenizer: Tokenizer
) -> dict[Phase, tuple[PretrainingStream, PretrainingStream | None]]:
    """Returns the training and the validation batches of each phase.

    The batches of a phase that has the length of one before are those that follow.

    Args:
        config: The settings.
        records: The patterns of the training and the validation records of each length.
        tokenizer: The tokenizer of the records.
    """
    streams: dict[Phase, tuple[PretrainingStream, PretrainingStream | None]] = {}
    latest: dict[int, Phase] = {}
    for phase in config.plan():
        length = phase.sequence_length
        if length in latest:
            before = latest[length]
            train, dev = streams[before]
            num_batches = before.num_steps * config.accumulation
            streams[phase] = train.continued(num_batches, config.micro_batch_size(phase)), dev
        else:
            own, of_dev = records[length]
            rows = config.micro_batch_size(phase)
            streams[phase] = (
                _stream(
                    config, own, length, rows, tokenizer, config.seed, groups=config.file_groups
                ),
                None if of_dev is None else dev_stream(config, length, of_dev, tokenizer),
            )
        latest[length] = phase
    return streams


def dev_stream(
    config: PretrainConfig, sequence_length: int, records: str, tokenizer: Tokenizer
) -> PretrainingStream:
    """Returns the validation batches of one length, with the same masks for every training seed."""
    rows = config.dev_batch_size(sequence_length)
    return _stream(config.of_validation_text(), records, sequence_length, rows, tokenizer, seed=0)


def _stream(
    config: PretrainConfig,
    records: str,
    sequence_length: int,
    batch_size: int,
    tokenizer: Tokenizer,
    seed: int,
    groups: int = 1,
) -> PretrainingStream:
    return PretrainingStream(
        records,
        batch_size=batch_size,
        sequence_length=sequence_length,
        masker=None if has_masks(records) else _masker(config, tokenizer, seed),
        packed=config.packing,
        seed=seed,
        vocabulary_size=tokenizer.vocabulary_size,
        file_groups=groups,
        count=hosts.sharded_map,
    )


def _masker(config: PretrainConfig, tokenizer: Tokenizer, seed: int) -> Any:
    if config.causal:
        return NextTokenTargets(pad_token_id=tokenizer.pad_token_id)
    return MaskedLMMasker.from_tokenizer(
        tokenizer,
        unit=config.masking_unit,
        mask_selection_rate=config.masked_lm_probability,
        mask_token_rate=config.mask_token_rate,
        random_token_rate=config.random_token_rate,
        random_special_tokens=config.random_special_tokens,
        max_predictions=config.max_predictions or None,
        seed=seed,
    )


def _begin(
    config: PretrainConfig, model: PretrainingModel, checkpoints: RunCheckpoints, vocabulary: Path
) -> RunState:
    """Loads the last checkpoint and returns its state, or a new state if there is none."""
    preset = config.init_preset or config.teacher
    start = output_folder.content_of_folder(preset).hex() if preset else ""
    fingerprint = _fingerprint(config, vocabulary)
    files = {flag: _content(flag, groups) for flag, groups in given_files(config).items()}
    details = {"start": start, "files": files}
    fresh = RunState(0, keras.backend.backend(), fingerprint, [], 0.0, details)

    def check(found: RunState) -> None:
        fresh.check_same_run(found, checkpoints.folder)
        flag = "init_preset" if config.init_preset else "teacher"
        before = found.details.get("start", "")
        output_folder.check_same_start(checkpoints.folder, flag, before, start)
        for flag, content in files.items():
            before = found.details.get("files", {}).get(flag, "")
            output_folder.check_same_start(checkpoints.folder, flag, before, content)

    found = checkpoints.restore(model, check) or fresh
    hosts.agree("the run", {"fingerprint": fingerprint, **details, "step": found.step})
    if found.step:
        logging.info("resuming after step %d", found.step)
    return found


def _content(flag: str, groups: list[list[Path]]) -> str:
    """Returns a hash of files in groups, of which each process reads those that it trains on."""
    own = groups_of_share(hosts.shard(), len(groups))
    contents = {str(group): output_folder.content_of_files(groups[group]).hex() for group in own}
    contents = hosts.merged(f"the content of --{flag}", contents)
    return contents["0"] if len(groups) == 1 else output_folder.fingerprint(contents)


def _settings(config: PretrainConfig) -> dict[str, Any]:
    """Returns the settings that determine the result."""
    settings = dataclasses.asdict(config)
    return {name: value for name, value in settings.items() if name not in NO_INFLUENCE}


def _fingerprint(config: PretrainConfig, vocabulary: Path) -> str:
    settings = {**_settings(config), "lowercase": is_lowercased(vocabulary, config.lowercase)}
    return output_folder.fingerprint(settings, tokenizer_content(vocabulary))


@dataclasses.dataclass(frozen=True)
class _Run:
    """The parts of a run that its phases share."""

    config: PretrainConfig
    model: PretrainingModel
    checkpoints: RunCheckpoints
    peak: float
    meter: energy.Meter | None
    workload: pretraining_run.Workload
    time_left: TimeLeft

    def train(
        self,
        phase: Phase,
        train: PretrainingStream,
        held_out: Any,
        state: RunState,
    ) -> RunState:
        """Trains to the end of a phase, from the run's current step."""
        dev = None if held_out is None else self._examples(held_out)
        end = phase.end
        logging.info(
            "%d tokens a row, %d rows an update: steps %d to %d, %d rows, %d batches an epoch",
            phase.sequence_length,
            phase.batch_size,
            phase.first_step + 1,
            end,
            train.num_rows,
            train.batches_per_epoch,
        )
        # Each length is traced separately. A function that TensorFlow has traced before for another
        # length would be traced for any length, and its results would differ in the last bits from
        # those of a run that resumes in this phase.
        self.model.make_train_function(force=True)
        self.model.make_test_function(force=True)
        interval = self.config.steps_per_interval
        while state.step < end:
            done = state.step - phase.first_step
            left = end - state.step
            # Whole intervals in one call of `fit`, and the remaining steps in another: those at the
            # end, and those of an interval in which the run was interrupted
            rest = min(left, interval - done % interval)
            count, steps = (left // interval, interval) if rest == interval else (1, rest)
            state = self._fit(train, dev, state, done, count, steps, end)
        return state

    def _fit(
        self,
        train: PretrainingStream,
        dev: Any,
        state: RunState,
        done: int,
        count: int,
        steps: int,
        last_step: int,
    ) -> RunState:
        config = self.config
        pretraining_run.execute_whole_groups(self.model, config, steps)
        report = pretraining_run.IntervalReport(
            config,
            state,
            first_step=state.step,
            interval=steps,
            workload=self.workload,
            peak=self.peak,
            dev=dev,
            last_step=last_step,
            time_left=self.time_left,
            meter=self.meter,
            checkpoints=self.checkpoints,
        )

        def place(epoch: int, batch: int) -> str:
            return f"step {state.step + epoch * steps + batch // config.accumulation + 1}"

        work_before = _work(config, self.model, state.step)
        progress = Progress(
            time_left=self.time_left,
            epoch_work=_work(config, self.model, state.step + steps) - work_before,
            epochs=config.num_intervals,
            unit="interval",
            first_epoch=len(state.log),
            metrics=lambda logs: metrics_line(pretraining_run.named(logs)),
            summary=report.line,
        )
        batches = train.from_batch(
            done * config.accumulation, hosts.shard(), as_shares=hosts.count() > 1
        )
        with interrupts.deferred(hosts.count() == 1) as report.is_interrupted:
            self.model.fit(
                self._examples(batches, state.step * config.accumulation),
                steps_per_epoch=steps * config.accumulation,
                epochs=count,
                verbose=0,
                callbacks=[
                    StopWhereNotFinite(place),
                    report,
                    *([progress] if hosts.is_main_process() else []),
                ],
            )
        return report.state

    def _examples(self, batches: Any, first: int = 0) -> Any:
        if hosts.count() > 1:
            batches = hosts.AgreedBatches(batches, first)
        return pretraining_examples(batches, self.config.next_sentence)


def _work(config: PretrainConfig, model: PretrainingModel, step: int) -> float:
    """Returns the work of a run up to an update, in FLOPs, by which its phases differ."""
    work = 0.0
    for phase in config.plan():
        length = phase.sequence_length
        slots = length if config.causal else round(length * config.masked_lm_probability)
        done = min(max(0, step - phase.first_step), phase.num_steps)
        work += done * pretraining_run.update_flops(model, phase.batch_size, length, slots)
    return work


def _workload(
    config: PretrainConfig,
    model: PretrainingModel,
    phase: Phase,
    train: PretrainingStream,
    baseline: pretraining_run.Log,
) -> pretraining_run.Workload:
    """Estimates the cost of an update from the first batches."""

    def tokens_and_slots() -> tuple[float, int]:
        name = "sequence_ids" if train.packed else "padding_mask"
        batches = list(train.first_batches(_BATCHES_LOOKED_AT))
        tokens = np.mean([np.count_nonzero(batch[name]) for batch in batches])
        return float(tokens), batches[0]["mask_positions"].shape[1]

    tokens, slots = hosts.from_main_process(tokens_and_slots)
    flops = pretraining_run.update_flops(model, phase.batch_size, phase.sequence_length, slots)
    return pretraining_run.Workload(tokens * config.accumulation, flops, baseline)


def _unigram_baseline(
    config: PretrainConfig,
    records: str,
    tokenizer: Tokenizer,
    train: PretrainingStream,
    dev: PretrainingStream | None,
) -> pretraining_run.Log:
    """Scores a unigram model of the training tokens on what the run itself is scored on.

    Those are the masked tokens of the validation text; without it, of the first training batches.
    """
    model = unigram_model(records, train.sequence_length, tokenizer, config.causal)
    if dev is None:
        scores = model.score(train.first_batches(_BATCHES_LOOKED_AT))
    else:
        scores = model.score(dev.first_batches(config.dev_batches))
    return {
        "unigram_accuracy": round(scores["masked_accuracy"], 6),
        "unigram_perplexity": round(scores["perplexity"], 3),
    }


def _report(
    config: PretrainConfig, model: PretrainingModel, state: RunState, folder: Path
) -> dict[str, Any]:
    """Returns the content of `results.json`, and writes it with the final curves."""
    last = state.log[-1]
    results = {
        "config": dataclasses.asdict(config),
        "backend": state.backend,
        "parameters": model.count_params(),
        "last": last,
        "collapsed": pretraining_run.has_collapsed(state.log, config.num_warmup_steps),
        "total": {
            "steps": state.step,
            "seconds": round(state.seconds, 1),
            "tokens_per_second": round(_mean(state.log, "tokens_per_second"), 1),
            "share_of_peak": round(_mean(state.log, "share_of_peak"), 4),
            **{name: last[name] for name in ("energy_kwh", "co2_kg") if name in last},
        },
        "cost": run_cost.cost_record(
            state.seconds,
            _sum(state.log, "flops_per_second"),
            energy.Energy(last["energy_kwh"], last["co2_kg"], bool(last["energy_is_measured"]))
            if "energy_kwh" in last
            else None,
            config.country,
            config.price_per_hour,
        ),
        "log": state.log,
    }
    if hosts.is_main_process():
        pretraining_run.write_log(state.log, folder)
        pretraining_run.draw(state.log, folder)
        atomic.write_json(folder / pretraining_run.RESULTS_FILE, results)
    return results


def _mean(log: list[pretraining_run.Log], name: str) -> float:
    """Returns the mean over the run, with intervals weighted by their duration."""
    return _sum(log, name) / float(log[-1]["seconds"])


def _sum(log: list[pretraining_run.Log], rate: str) -> float:
    """Returns the integral over the run of a rate per second."""
    ends = np.array([0.0, *(record["seconds"] for record in log)])
    return float(np.dot(np.diff(ends), [record[rate] for record in log]))


def _be_deterministic() -> None:
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        tf.config.experimental.enable_op_determinism()
    elif keras.backend.backend() == "torch":
        import torch

        torch.use_deterministic_algorithms(True)
