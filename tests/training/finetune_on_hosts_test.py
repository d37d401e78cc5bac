# SPDX-License-Identifier: Apache-2.0
"""Compares fine-tuning on two hosts with one host. Two processes on one machine act as hosts."""

import csv
import json

import keras
import numpy as np
import pytest

from tests.training.host_processes import HostProcesses
from tests.training.kill_runs import make_data, make_preset
from training.engine import finetuning, output_directory
from training.jobs.classification import ClassificationJob, FinetuneConfig, read_data
from training.jobs.question_answering import QuestionJob, SquadConfig

# The preset is a classifier, but question answering needs a different head.
pytestmark = [
    pytest.mark.filterwarnings("ignore::keras_bert.checkpoints.CheckpointWarning"),
    pytest.mark.slow,
    pytest.mark.skipif(keras.backend.backend() != "jax", reason="multi-host"),
]

OPTIONS = {
    "epochs": 2,
    # It is divisible by two hosts, but the size of the last batch is not.
    "batch_size": 6,
    "learning_rate": 1e-3,
    "sequence_length": 32,
    "precision": "float32",
    "checkpoint_seconds": 0.0,
    "export": False,
    "measure_energy": False,
}

# Both processes run this program. It has all cases, so that each process starts only once.
PROGRAM = """
import json, sys
from pathlib import Path
from absl import flags
from training.engine import config_flags, connection, finetuning, hosts, program
from training.engine.options import HostOptions
from tests.training.finetune_on_hosts_test import classification, questions

directory = Path(sys.argv.pop(1))
config_flags.define_flags(HostOptions)
flags.FLAGS(sys.argv)
place = config_flags.configuration(HostOptions)
outputs = {}
with connection.join_processes(place):
    for name, is_sharded in (("two", True), ("one_then_two", False)):
        config, job = classification(directory, name, shard_optimizer=is_sharded, **vars(place))
        program.fine_tune(config, job)
    config, job = questions(directory, "two_questions", **vars(place))
    program.fine_tune(config, job)
    try:
        config, job = classification(directory, "other", batch_size=5, **vars(place))
        finetuning.run(job, config, job.read(config))
    except ValueError as error:
        outputs["rows"] = str(error)
    try:
        config, job = classification(directory, "other", epochs=1 + hosts.index(), **vars(place))
        finetuning.run(job, config, job.read(config))
    except hosts.ProcessMismatchError as error:
        outputs["epochs"] = str(error)
    with hosts.energy_meter(True, "USA") as meter:
        outputs["kwh"] = meter and meter().kwh
print(json.dumps(outputs))
"""


def classification(directory, name, **changes):
    files = {"train_file": str(directory / "train.tsv"), "test_file": str(directory / "train.tsv")}
    options = _options(directory, name) | files | changes
    return FinetuneConfig.from_flags(**options), ClassificationJob


def questions(directory, name, **changes):
    files = {"train_file": str(directory / "squad.json"), "dev_file": str(directory / "squad.json")}
    sizes = {"doc_stride": 8, "max_query_length": 8}
    options = _options(directory, name) | files | sizes | changes
    return SquadConfig.from_flags(**options), QuestionJob


def _options(directory, name):
    return OPTIONS | {"preset": str(directory / "preset"), "output_dir": str(directory / name)}


class Interrupted(ClassificationJob):
    """A run with an interrupt before the first evaluation."""

    def score(self, model):
        raise KeyboardInterrupt


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A directory with the runs of one process, two processes, and one process and then two."""
    directory = tmp_path_factory.mktemp("runs")
    make_data(directory)
    make_preset(directory / "preset")
    config, _ = classification(directory, "one_then_two")
    with (
        pytest.raises(KeyboardInterrupt),
        output_directory.lock_output_dir(config.output_dir, config.settings(), command="finetune"),
    ):
        finetuning.run(Interrupted, config, read_data(config))
    two = HostProcesses(("-c", PROGRAM, str(directory)), 2, directory)
    for config, job in (classification(directory, "one"), questions(directory, "one_questions")):
        finetuning.run(job, config, job.read(config))
    assert two.wait() == [0, 0], "\n".join(two.read_outputs())
    return directory, two.read_outputs()


def results(directory):
    return json.loads((directory / "results.json").read_text())


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("two", "one"),
        ("one_then_two", "one"),
        ("two_questions", "one_questions"),
    ],
)
def test_two_hosts_train_and_score_like_one(runs, name, expected):
    directory, _ = runs
    two, one = results(directory / name), results(directory / expected)
    (run,), (other,) = two["runs"], one["runs"]
    assert len(run["history"]["loss"]) == OPTIONS["epochs"]
    for metric, values in other["history"].items():
        np.testing.assert_allclose(run["history"][metric], values, rtol=1e-6, err_msg=metric)
    for scores in ("final", "best"):
        for dev, by_metric in other[scores].items():
            for metric, value in by_metric.items():
                assert run[scores][dev][metric] == pytest.approx(value, rel=1e-6)
    assert not (directory / name / "seed_1" / "checkpoints").exists()


def test_sharded_optimizer_state_is_saved_completely(runs):
    directory, _ = runs
    two, one = (
        keras.models.load_model(results(directory / name)["kept"]["model"])
        for name in ("two", "one")
    )
    assert two.optimizer.shard_state
    assert len(two.optimizer.variables) == len(one.optimizer.variables) > 10
    assert any(np.any(variable.numpy()) for variable in one.optimizer.variables[2:])
    for weight, other in zip(
        (*two.weights, *two.optimizer.variables),
        (*one.weights, *one.optimizer.variables),
        strict=True,
    ):
        np.testing.assert_allclose(
            weight.numpy(), other.numpy(), rtol=1e-4, atol=1e-6, err_msg=other.path
        )


def test_two_hosts_predict_like_one(runs):
    directory, _ = runs
    outputs = {}
    for name in ("one", "two"):
        with open(directory / name / "predictions.tsv", newline="") as file:
            outputs[name] = list(csv.DictReader(file, delimiter="\t"))
    assert len(outputs["two"]) == len(outputs["one"]) == 36
    for row, other in zip(outputs["two"], outputs["one"], strict=True):
        assert row["label"] == other["label"]
        assert float(row["score"]) == pytest.approx(float(other["score"]), rel=1e-5)
    predictions = [
        json.loads((directory / f"{name}_questions" / "predictions.json").read_text())
        for name in ("one", "two")
    ]
    assert predictions[0] == predictions[1]


def test_main_process_logs_and_mismatch_raises(runs):
    first, second = runs[1]
    assert "Resuming seed 1 from epoch 1" in first
    assert "epoch 2/2" in first
    assert "epoch" not in second.splitlines()[0]
    outputs = [json.loads(read_outputs.splitlines()[-1]) for read_outputs in runs[1]]
    assert outputs[0] == outputs[1]
    assert "must be a multiple of the" in outputs[0]["rows"]
    expected = "the command differs between the processes: {'epochs': 1} in process 0, {'epochs': 2"
    assert expected in outputs[0]["epochs"]
    assert outputs[0]["kwh"] is None or outputs[0]["kwh"] > 0
