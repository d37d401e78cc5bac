# SPDX-License-Identifier: Apache-2.0

import random
import re

import keras
import numpy as np
import pytest

from keras_bert.optimizers import AdamW
from keras_bert.optimizers.fit_updates import with_fit_updates
from training.engine.run_checkpoints import NotFiniteError, model_tensors
from training.engine.seed_runs import SeedRun, run_fingerprint

BATCH_SIZE, BATCHES, EPOCHS = 4, 5, 3


class Killed(Exception):
    """Stops a run immediately, like SIGKILL."""


class Score(keras.callbacks.Callback):
    """An evaluation that stops the run after the second epoch if `stops` is set."""

    def __init__(self, stops):
        super().__init__()
        self.stops = stops
        self.seen = []

    def on_epoch_end(self, epoch, logs=None):
        self.seen.append(logs["loss"])
        self.model.stop_training = self.stops and epoch == 1

    def state(self):
        return {"seen": self.seen}

    def restore(self, state):
        self.seen = state["seen"]


def build(seed, optimizer=None):
    keras.utils.set_random_seed(seed)
    model = keras.Sequential(
        [keras.Input((4,)), keras.layers.Dropout(0.5), keras.layers.Dense(2, name="head")]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    if optimizer is None:
        # Each epoch has two steps. The first accumulates three batches, the second two.
        optimizer = AdamW(0.1, num_train_steps=2 * EPOCHS, gradient_accumulation_steps=3)
    model.compile(optimizer, loss, weighted_metrics=["accuracy"])
    return model


def kill():
    raise Killed


def train(
    directory,
    seconds=0.0,
    killed_at=None,
    stops=False,
    fingerprint="abc",
    preset="",
    optimizer=None,
    end=kill,
):
    """Starts or resumes the run in a directory. Calls `end` after `killed_at` batches, if given."""
    run = SeedRun(directory, 3, fingerprint, seconds, preset)
    model, score = build(3, optimizer), Score(stops)
    generator = np.random.default_rng(0)
    x = generator.normal(size=(BATCH_SIZE * BATCHES, 4)).astype("float32")
    y = (x[:, 0] > 0).astype("int32")
    done = 0

    def fit_epoch(epoch, batch, callbacks):
        order = random.sample(range(len(x)), len(x))[batch * BATCH_SIZE :]
        model.fit(
            x[order],
            y[order],
            batch_size=BATCH_SIZE,
            shuffle=False,
            initial_epoch=epoch,
            epochs=epoch + 1,
            callbacks=with_fit_updates(
                [*callbacks, keras.callbacks.LambdaCallback(on_train_batch_end=count)], model
            ),
            verbose=0,
        )

    def count(batch, logs):
        nonlocal done
        done += 1
        if done == killed_at:
            end()

    records = run.fit(model, fit_epoch, EPOCHS, [score], score)
    return model_tensors(model), records, score.seen


def assert_same(actual, expected):
    assert actual[1:] == expected[1:]
    for name, tensor in expected[0].items():
        np.testing.assert_array_equal(actual[0][name], tensor, err_msg=name)


def test_killed_run_resumes_to_the_same_result(tmp_path, capsys):
    expected = train(tmp_path / "whole", seconds=1e9)
    assert len(expected[1]) == EPOCHS
    for killed_at in (3, 5, 4, 5):  # in the middle and at the end of an epoch
        with pytest.raises(Killed):
            train(tmp_path / "killed", killed_at=killed_at)
    assert_same(train(tmp_path / "killed"), expected)
    # After an epoch's last batch, the run evaluates instead of writing a checkpoint.
    assert capsys.readouterr().out.splitlines() == [
        "Resuming seed 3 from epoch 1, batch 4",
        "Resuming seed 3 from epoch 2, batch 3",
        "Resuming seed 3 from epoch 2, batch 5",
        "Resuming seed 3 from epoch 3, batch 4",
    ]


@pytest.mark.parametrize("batch", [2, pytest.param(4, marks=pytest.mark.on_torch)])
def test_run_resumes_after_ctrl_c(tmp_path, capsys, press_ctrl_c, batch):
    expected = train(tmp_path / "whole", seconds=1e9)
    with pytest.raises(KeyboardInterrupt):
        train(tmp_path / "ended", seconds=1e9, killed_at=batch, end=press_ctrl_c)
    assert_same(train(tmp_path / "ended", seconds=1e9), expected)
    # The checkpoint follows the interrupted batch or the next batch.
    places = re.findall(r"from epoch (\d), batch (\d)", capsys.readouterr().out)
    assert places == [{2: ("1", "4"), 4: ("2", "1")}[batch]]


@pytest.mark.on_torch
def test_early_stopped_run_does_not_continue(tmp_path):
    expected = train(tmp_path, stops=True)
    assert len(expected[1]) == 2
    assert_same(train(tmp_path, stops=True), expected)


@pytest.mark.on_torch
def test_divergence_leaves_no_checkpoint(tmp_path):
    # Divergence is found at the next loss, or before the checkpoint that follows the first step.
    for seconds, message in (
        (1e9, "loss is nan in epoch 1, batch 2$"),
        (0.0, "after step 1, .* not"),
    ):
        with pytest.raises(NotFiniteError, match=message):
            train(tmp_path, optimizer=keras.optimizers.Adam(np.nan), seconds=seconds)
        assert not list(tmp_path.glob("checkpoints/*"))


@pytest.mark.on_torch
def test_resume_rejects_different_settings(tmp_path):
    with pytest.raises(Killed):
        train(tmp_path, killed_at=2)
    with pytest.raises(
        ValueError, match=r"contains a run with different settings\. Choose another --output_dir"
    ):
        train(tmp_path, fingerprint="other")


@pytest.mark.on_torch
def test_finished_seed_is_not_trained_again(tmp_path):
    run = SeedRun(tmp_path, 1, "abc", 0.0)
    assert run.load_result() is None
    run.checkpoints.directory.mkdir()
    run.model_path.write_bytes(b"a model")
    run.finish({"seed": 1, "score": 0.1})
    assert not run.checkpoints.directory.exists()
    assert SeedRun(tmp_path, 1, "abc", 0.0).load_result() == {"seed": 1, "score": 0.1}
    # A run with different settings would replace the model.
    with pytest.raises(
        ValueError, match=r"finished run with different settings.*another --output_dir"
    ):
        SeedRun(tmp_path, 1, "other", 0.0).load_result()
    assert run.load_result() == {"seed": 1, "score": 0.1}
    record = tmp_path / "run.json"
    record.write_text(record.read_text().replace("0.1", "0.9"))
    with pytest.raises(ValueError, match=r"run\.json is corrupted .*checksum.* Remove "):
        run.load_result()


@pytest.mark.backend_independent
def test_fingerprint_depends_on_settings_and_data():
    from training.jobs.classification import FinetuneConfig

    config = FinetuneConfig(train_file="a.tsv")
    data = {"train": (["a", "b"], np.array([0, 1]))}
    fingerprint = run_fingerprint(config, data)
    assert run_fingerprint(FinetuneConfig(train_file="a.tsv", num_seeds=3), data) == fingerprint
    assert run_fingerprint(FinetuneConfig(train_file="a.tsv", epochs=9), data) != fingerprint
    assert run_fingerprint(config, {"train": (["a", "b"], np.array([0, 2]))}) != fingerprint
    assert run_fingerprint(config, {"train": (["a b"], np.array([0, 1]))}) != fingerprint


@pytest.mark.on_torch
def test_resume_rejects_a_different_preset(tmp_path):
    with pytest.raises(Killed):
        train(tmp_path, killed_at=3, preset="one")
    with pytest.raises(ValueError, match="started from a --preset with different files"):
        train(tmp_path, preset="two")
    train(tmp_path, preset="one")
    run = SeedRun(tmp_path, 3, "abc", 0.0, "one")
    run.model_path.touch()
    run.finish({"score": 0.1})
    for preset in ("one", ""):
        assert SeedRun(tmp_path, 3, "abc", 0.0, preset).load_result() == {"score": 0.1}
    with pytest.raises(ValueError, match="started from a --preset with different files"):
        SeedRun(tmp_path, 3, "abc", 0.0, "two").load_result()
