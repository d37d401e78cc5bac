# SPDX-License-Identifier: Apache-2.0
"""Fine-tunes with each seed, selects the best model, exports it, and writes the results.

A `Job` implements the steps that depend on the task.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib.util
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
from absl import logging

from keras_bert import atomic
from keras_bert.export.own_files import check_exports
from keras_bert.ops.lazy_tensorflow import set_random_seed
from keras_bert.optimizers import AdamW

from ..costs import model_flops
from ..costs.energy import Meter
from ..plots.curves import curves_figure
from ..plots.style import save
from ..readers import data_inspection
from ..scores import baselines
from . import devices, grid_search, hosts, output_directory, precision, run_presets
from .dev_evaluation import DevEvaluation
from .finetuning_config import FineTuningConfig, LabeledFilesConfig
from .grid_search import Grid
from .job import Job, Training
from .options import HOST_OPTIONS
from .output_directory import NotFiniteError
from .progress import Progress, TimeLeft, in_percent
from .run_report import timed
from .run_results import Run, encoder_sizes, summary, total_cost
from .seed_runs import FitEpoch, SeedRun, hash_data, run_fingerprint


def make_optimizer(config: FineTuningConfig, num_steps: int) -> AdamW:
    """Returns AdamW with linear warmup and decay over `num_steps` steps."""
    return AdamW(
        config.learning_rate,
        num_train_steps=num_steps,
        num_warmup_steps=round(config.warmup * num_steps),
        weight_decay=config.weight_decay,
        layer_decay=None if config.layer_decay == 1 else config.layer_decay,
        gradient_accumulation_steps=config.accumulation if config.accumulation > 1 else None,
        shard_state=config.compute.shard_optimizer,
    )


def preset_options(config: FineTuningConfig) -> dict[str, Any]:
    """Returns the `from_preset` arguments that all tasks share."""
    return {
        "sequence_length": config.sequence_length,
        "load_weights": config.pretrained,
        "rematerialize": config.compute.rematerialize,
        "dtype": precision.resolve(config.compute.precision, config.output_dir),
    }


def compile_task(model: Any, config: FineTuningConfig, x: Any, loss: Any = None) -> None:
    """Compiles a task with the optimizer for a run on text. Defaults to the task's own loss."""
    steps = model.num_steps(x, config.batch_size, config.epochs)
    model.compile(make_optimizer(config, steps), loss)
    # On multiple TensorFlow devices, the optimizer must be built in the strategy's scope.
    model.optimizer.build(model.trainable_variables)


def epochs_of_text(model: Any, x: Any, y: Any, config: FineTuningConfig) -> FitEpoch:
    """Returns a function that trains a task for (the rest of) an epoch, for `SeedRun.fit`.

    Args:
        model: The task.
        x, y: The training data, in any form that the task's `fit` accepts. `y` is `None` if `x`
            includes the labels.
        config: The settings of the run. If it has no `bucketing_window`, `fit` uses its default.
    """

    def fit_epoch(epoch: int, batch: int, callbacks: list[keras.callbacks.Callback]) -> None:
        model.fit(
            x,
            y,
            batch_size=config.batch_size // config.accumulation,
            epochs=epoch + 1,
            initial_epoch=epoch,
            initial_batch=batch,
            bucketing_window=getattr(config, "bucketing_window", None),
            callbacks=callbacks,
            verbose=0,
        )

    return fit_epoch


def training_of_text(
    model: Any, x: Any, y: Any, config: FineTuningConfig, num_rows: int
) -> Training:
    """Compiles a task with the run's optimizer, and returns it ready to train.

    See `epochs_of_text` for the arguments. `num_rows` is the number of examples per epoch.
    """
    compile_task(model, config, x)
    return Training(model, epochs_of_text(model, x, y, config), num_rows, epoch_flops(model, x))


def bilstm(
    units: int | None, num_layers: int = 2, *, return_sequences: bool = False
) -> list[Any] | None:
    """Returns a task's `top_layers` for the BiLSTM flags.

    Args:
        units: Number of units per direction. 0 means no BiLSTM. `None` keeps the top layers of the
            checkpoint.
        num_layers: Number of BiLSTM layers.
        return_sequences: Whether the last layer returns the states of all tokens.
    """
    from keras_bert.layers import bidirectional_lstm

    if not units:
        return None if units is None else []
    return bidirectional_lstm(units, num_layers, return_sequences=return_sequences)


def _exported_model(directory: Path) -> str | None:
    """Returns the SHA-256 of the model that an earlier run exported, or `None` if unknown."""
    try:
        content = json.loads((directory / "results.json").read_text(encoding="utf-8"))
        return str(content["exported_model"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def can_export() -> bool:
    """Returns whether the libraries for a SavedModel are installed. If not, logs a warning."""
    absent = [
        name for name in ("tensorflow", "tensorflow_text") if importlib.util.find_spec(name) is None
    ]
    if absent:
        logging.warning(
            "skipping the export: %s must be installed. Install it and run the same command again",
            " and ".join(absent),
        )
    return not absent


def epoch_flops(model: Any, x: Any) -> Callable[[], int]:
    """Returns a function that computes the FLOPs per epoch, for `Training.epoch_flops`."""

    def flops() -> int:
        lengths = model.sequence_lengths(x)
        # A pooler only reads the first token.
        return model_flops.fine_tuning_flops(model.config, lengths, not model.uses_pooler)

    return flops


def run(
    job_class: type[Job], config: LabeledFilesConfig, data: Any, meter: Meter | None = None
) -> dict[str, Any]:
    """Trains with every seed, writes all results and returns them.

    Returns:
        The content of `results.json`: the config, the runs, and the mean of the last epoch's scores
        over the seeds with the half-width of its 95% confidence interval, for each validation set
        and metric. Seeds that diverged are only listed in `diverged`, with the reason.

    Raises:
        NotFiniteError: If every seed diverged. `results.json` then contains no runs.
    """
    check_hosts(config)
    job = job_class(config, data, run_presets.resolve(config.preset))
    directory = Path(config.output_dir)
    directory.mkdir(parents=True, exist_ok=True)
    baseline_scores = job.baselines() if hosts.is_main_process() else {}
    baselines.show(baseline_scores)
    try:
        runs, diverging_runs = train_seeds(job, meter)
    except NotFiniteError as error:
        results = {"config": job.config.to_dict(), "backend": keras.backend.backend()}
        results |= {"runs": [], "diverged": [str(error)]}
        _write_results(results, directory)
        raise
    selection_scores = [job.selection_score(next(iter(run.best.values()))) for run in runs]
    best = runs[selection_scores.index(max(selection_scores))]
    results = {
        "config": job.config.to_dict(),
        "backend": keras.backend.backend(),
        "encoder": best.encoder,
        "runs": [dataclasses.asdict(run) for run in runs],
        "selection_scores": selection_scores,
        "summary": summary(runs),
        "baselines": baseline_scores,
        "kept": {
            "seed": best.seed,
            "epoch": best.best_epoch,
            "epochs": len(best.evaluations),
            "by": next(iter(best.best)),
            "scores": best.best,
            "model": best.model_path,
        },
        "seconds": {part: sum(run.seconds[part] for run in runs) for part in best.seconds},
        "diverged": diverging_runs,
        # An input for trying out the model
        "example": data_inspection.example_row([*data.parts().values()][1]),
    }
    # An earlier run of the same command, perhaps with different seeds, may have exported its model.
    if (exported := _exported_model(directory)) is not None:
        results["exported_model"] = exported
    _write_results(results, directory)
    hosts.barrier()  # Wait until the main process has written the models.
    load = functools.cache(functools.partial(job.load, best.model_path))
    with timed(results["seconds"], "answers"), hosts.working_directory(directory) as target:
        reported = job.report(load, Path(best.model_path).parent, target)
    if "test" in reported:
        results["kept"]["scores"] = {**best.best, "test": reported.pop("test")}
    results |= reported
    if config.export and hosts.is_main_process() and can_export():
        target = directory / "export" / "1"
        # Do not replace an up-to-date export, because a server may watch the directory.
        with timed(results["seconds"], "export"):
            content = output_directory.file_sha256(best.model_path)
            if exported != content or not (target / "saved_model.pb").is_file():
                job.export(load(), target)
            results["exported_model"] = content
    results["cost"] = total_cost(runs, results["seconds"], config)
    _write_results(results, directory)
    return results


def search(grid: Grid, data: Any) -> LabeledFilesConfig:
    """Performs the runs of a grid, see `grid_search.keep_best`."""
    inputs = {"data": hash_data(data).hex(), "backend": keras.backend.backend()}
    return grid_search.keep_best(grid, **inputs)


def _write_results(results: dict[str, Any], directory: Path) -> None:
    if hosts.is_main_process():
        atomic.write_json(directory / "results.json", results)


def check_hosts(config: FineTuningConfig) -> None:
    """Checks that all processes run the same command and that batches can be sharded evenly.

    Raises:
        ProcessMismatchError: In all processes, if the commands differ.
        ValueError: If a batch cannot be sharded evenly.
    """
    if hosts.count() == 1:
        return
    settings = config.to_dict()
    # Directories may be mounted at different paths. Their files are compared instead.
    for name in (*HOST_OPTIONS, "output_dir", "data_dir", "preset"):
        settings.pop(name, None)
    hosts.check_all_equal("the command", settings)
    num_devices = len(keras.distribution.list_devices())
    rows = config.batch_size // config.accumulation
    if rows % num_devices:
        raise ValueError(
            f"--batch_size divided by --accumulation must be a multiple of the {num_devices} "
            f"devices of the {hosts.count()} processes. Received: {rows}"
        )
    with hosts.main_process_first():  # It measures the speed and stores its choice.
        precision.resolve(config.compute.precision, config.output_dir)


def train(
    job: Job, seed_run: SeedRun, meter: Meter | None = None, time_left: TimeLeft | None = None
) -> Run:
    """Trains with one seed, saves the best epoch's model, and returns the results.

    Raises:
        FileExistsError: If the export would replace a file that keras_bert has not written.
        NotFiniteError: If the training diverges.
    """
    if job.config.export:
        check_exports([Path(job.config.output_dir, "export", "1")], "tf_saved_model")
    with devices.distribute_over(job.config.compute.devices) as scope:
        set_random_seed(seed_run.seed)
        with scope():
            training = job.build(seed_run.seed)
        model, evaluation = training.model, DevEvaluation(job, seed_run, meter)
        output_directory.check_room(seed_run.directory, _model_bytes(model))
        records = fit(model, training.fit_epoch, job.config, seed_run, evaluation, time_left)
    logging.info(
        "seed %d: %.1f%% of the training time was spent waiting for data",
        seed_run.seed,
        100 * evaluation.waiting_seconds / evaluation.training_seconds,
    )
    num_epochs = len(evaluation.by_epoch)
    trained_rows = training.num_rows * num_epochs
    return Run(
        seed=seed_run.seed,
        final=evaluation.by_epoch[-1],
        best=evaluation.by_epoch[evaluation.best_epoch - 1],
        best_epoch=evaluation.best_epoch,
        history={
            name: [record[name] for record in map(in_percent, records)] for name in records[0]
        },
        evaluations=evaluation.records(),
        examples_per_second=trained_rows / evaluation.training_seconds,
        model_path=os.fspath(seed_run.model_path),
        seconds={"training": evaluation.training_seconds, "scoring": evaluation.scoring_seconds},
        flops=None if training.epoch_flops is None else num_epochs * training.epoch_flops(),
        energy=evaluation.energy_so_far(),
        dtype=model.dtype_policy.name,
        encoder=encoder_sizes(model),
    )


def fit(
    model: keras.Model,
    fit_epoch: FitEpoch,
    config: FineTuningConfig,
    seed_run: SeedRun,
    evaluation: DevEvaluation | None = None,
    time_left: TimeLeft | None = None,
) -> list[dict[str, float]]:
    """Fits a compiled model with progress lines, logs and checkpoints.

    An interrupted training resumes from the checkpoints of `seed_run`. `time_left` estimates the
    remaining time of all seeds, in epochs. By default, only this seed is counted.

    Returns:
        Keras' loss and metrics, one record per epoch.
    """
    callbacks: list[keras.callbacks.Callback] = [] if evaluation is None else [evaluation]
    progress = Progress(
        epochs=config.epochs, time_left=time_left, first_batch=lambda: seed_run.first_batch
    )
    callbacks.append(progress)
    if config.tensorboard and hosts.is_main_process():
        callbacks.append(keras.callbacks.TensorBoard(os.fspath(seed_run.directory / "tensorboard")))
    return seed_run.fit(model, fit_epoch, config.epochs, callbacks, evaluation)


def _model_bytes(model: keras.Model) -> int:
    """Estimates the size of the saved model in bytes, including the optimizer's state."""
    trainable = sum(int(np.prod(variable.shape)) for variable in model.trainable_variables)
    return 4 * (model.count_params() + 2 * trainable)


def divergence_error(
    seed: int, error: NotFiniteError, directory: Path | None = None
) -> NotFiniteError:
    """Returns the error for a seed whose training diverged."""
    path = None if directory is None else directory / "model.keras"
    is_kept = path is not None and path.is_file()
    note = f"{path} is from an earlier epoch" if is_kept else "No model was saved"
    return NotFiniteError(
        f"seed {seed} diverged: {error}. {note}. Try a lower --learning_rate or a longer --warmup"
    )


def train_seeds(job: Job, meter: Meter | None = None) -> tuple[list[Run], list[str]]:
    """Trains with each seed of the config, and plots the training curves.

    Interrupted runs are resumed and finished runs are skipped, provided that the settings, the data
    and the checkpoint files are the same.

    Returns:
        The runs of the seeds, and an error message for each seed that diverged.

    Raises:
        NotFiniteError: If every seed diverged.
    """
    runs: list[Run] = []
    messages: list[str] = []
    config = job.config
    fingerprint = run_fingerprint(config, job.data)
    preset = output_directory.hash_directory(job.preset).hex()
    hosts.check_all_equal("the data", {"fingerprint": fingerprint, "preset": preset})
    scope = f"for all {config.num_seeds} seeds" if config.num_seeds > 1 else ""
    time_left = TimeLeft(config.num_seeds * config.epochs, bool(config.patience), scope)
    for index, seed in enumerate(range(config.seed, config.seed + config.num_seeds)):
        time_left.skip_to(index * config.epochs)
        directory = Path(config.output_dir) / f"seed_{seed}"
        seed_run = SeedRun(directory, seed, fingerprint, config.checkpoint_seconds, preset)
        values = hosts.from_main_process(seed_run.load_result)
        if values is not None:
            runs.append(Run(**{**values, "model_path": os.fspath(seed_run.model_path)}))
            continue
        logging.info("seed %d", seed)
        start = time.perf_counter()
        try:
            run = train(job, seed_run, meter, time_left)
        except NotFiniteError as error:
            messages.append(str(divergence_error(seed, error, directory)))
            if config.num_seeds > 1:  # Otherwise, the command stops with this error.
                logging.error("%s", messages[-1])
            continue
        seconds = time.perf_counter() - start
        building = max(0.0, seconds - sum(run.seconds.values()))
        run = dataclasses.replace(run, seconds={"building": building, **run.seconds})
        runs.append(run)
        if not hosts.is_main_process():
            continue
        path = directory / "curves.png"
        try:
            title = f"{job.title}, seed {seed}"
            figure = curves_figure(
                run.history, run.evaluations, title=title, best_epoch=run.best_epoch
            )
            save(figure, path)
        except (ImportError, OSError, ValueError) as error:
            # The trained model must not be lost because a plot failed.
            logging.warning("the curves were not plotted to %s: %s", path, error)
        seed_run.finish(dataclasses.asdict(run))
    if not runs:
        raise NotFiniteError("; ".join(messages))
    return runs, messages
