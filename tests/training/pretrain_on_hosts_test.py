# SPDX-License-Identifier: Apache-2.0
"""Pre-training on two hosts is that on one: two processes, which exchange messages as hosts do."""

import json
import shutil
from pathlib import Path

import keras
import numpy as np
import pytest
from safetensors.numpy import load_file

from tests.training.host_processes import HostProcesses
from tests.training.kill_runs import make_data
from training.pretraining.config import PretrainConfig
from training.pretraining.run import pretrain

pytestmark = [
    pytest.mark.skipif(keras.backend.backend() != "jax", reason="several hosts"),
    pytest.mark.slow,
]

NUM_STEPS = 100
MIDDLE = 80
OPTIONS = {
    "input_files": ("train.txt",),
    "dev_files": ("dev.txt",),
    "vocabulary_size": 60,
    "model": "bert_tiny_uncased",
    "num_layers": 1,
    "hidden_dim": 16,
    "num_heads": 2,
    "phases": ("32:1",),
    "batch_size": 4,
    "num_steps": NUM_STEPS,
    "learning_rate": 0.003,
    "interval": 10,
    # So that one of the middle is left
    "keep_checkpoints": 10,
    "dev_batches": 2,
    "duplicate_factor": 1,
    "precision": "float32",
    "num_workers": 1,
    "measure_energy": False,
}
ELECTRA = {"objective": "replaced_token", "kind": "full_sentences", "generator_size": 0.5}

# What both processes do, in the order of the tests: they start only once.
PROGRAM = """
import json, sys
from pathlib import Path
from absl import flags
from training.engine import config_flags, hosts
from training.engine.options import HostOptions
from training.pretraining.run import pretrain
from tests.training.pretrain_on_hosts_test import ELECTRA, config, keep_first_half

folder = Path(sys.argv.pop(1))
config_flags.define_flags(HostOptions)
flags.FLAGS(sys.argv)
answers = {}
with hosts.joined(config_flags.read_flags(HostOptions)):
    whole = pretrain(config(folder, "two"))
    pretrain(config(folder, "two_electra", **ELECTRA))
    with hosts.writer_first():
        if hosts.is_writer():
            keep_first_half(folder, "two", "two_twice")
    pretrain(config(folder, "two_twice"))
    pretrain(config(folder, "one_then_two", shard_optimizer=True))
    try:
        hosts.agree("the number", hosts.index())
    except hosts.DisagreementError as error:
        answers["number"] = str(error)
    answers["gathered"] = hosts.gather([hosts.index(), hosts.count(), hosts.is_writer()])
    try:
        pretrain(config(folder, "other", seed=1 + hosts.index()))
    except hosts.DisagreementError as error:
        answers["seed"] = str(error)
    try:
        pretrain(config(folder, "other", batch_size=3))
    except ValueError as error:
        answers["rows"] = str(error)
print(json.dumps(answers))
"""


def config(folder, name, **changes):
    folders = {"data_dir": str(folder / "data"), "output_dir": str(folder / name)}
    return PretrainConfig(**OPTIONS | folders | changes)


def keep_first_half(folder, whole, half):
    """Copies a run as it was in the middle."""
    shutil.copytree(folder / whole, folder / half)
    for path in (folder / half / "checkpoints").iterdir():
        if int(path.name.removeprefix("step_")) > MIDDLE:
            shutil.rmtree(path)
    shutil.rmtree(folder / half / "preset")
    (folder / half / "log.jsonl").unlink()


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A folder with the runs of one process, of two, and of one and then two."""
    folder = tmp_path_factory.mktemp("runs")
    (folder / "data").mkdir()
    make_data(folder / "data")
    pretrain(config(folder, "one"))
    pretrain(config(folder, "one_electra", **ELECTRA))
    keep_first_half(folder, "one", "one_then_two")
    two = HostProcesses(("-c", PROGRAM, str(folder)), 2, folder)
    assert two.wait() == [0, 0], "\n".join(two.printed())
    return folder, [json.loads(text.splitlines()[-1]) for text in two.printed()]


def log(folder):
    return [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]


def weights(folder):
    return (folder / "preset" / "model.safetensors").read_bytes()


MEASURED = ("seconds", "tokens_per_second", "flops_per_second", "share_of_peak")


def assert_same_curve(found, expected):
    assert len(found) == len(expected) == NUM_STEPS // OPTIONS["interval"]
    for record, other in zip(found, expected, strict=True):
        assert set(record) == set(other)
        for name in set(record) - set(MEASURED):
            np.testing.assert_allclose(record[name], other[name], rtol=1e-6, err_msg=name)


@pytest.mark.parametrize("objective", ["", "_electra"])
def test_two_hosts_train_as_one(runs, objective):
    folder, _ = runs
    one = log(folder / f"one{objective}")
    assert one[-1]["loss"] < one[0]["loss"]
    assert_same_curve(log(folder / f"two{objective}"), one)


def test_a_run_that_goes_on_on_as_many_hosts_has_the_same_bits(runs):
    folder, _ = runs
    assert weights(folder / "two_twice") == weights(folder / "two")


def test_a_run_that_goes_on_on_more_hosts_has_the_same_curve(runs):
    folder, _ = runs
    assert_same_curve(log(folder / "one_then_two"), log(folder / "one"))


def test_a_divided_optimizer_state_is_saved_whole(runs):
    folder, _ = runs
    path = Path("checkpoints") / f"step_{NUM_STEPS:09}" / "tensors.safetensors"
    found, expected = (load_file(folder / name / path) for name in ("one_then_two", "one"))
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        np.testing.assert_allclose(found[name], tensor, rtol=1e-4, atol=1e-6, err_msg=name)


def test_processes_know_one_another_and_disagree_in_all_of_them(runs):
    answers = runs[1]
    assert answers[0] == answers[1]
    assert answers[0]["gathered"] == [[0, 2, True], [1, 2, False]]
    assert "the number differs between the processes: 0 in process 0, 1 in" in answers[0]["number"]
    expected = "the command differs between the processes: {'seed': 1} in process 0, {'seed': 2} in"
    assert expected in answers[0]["seed"]
    assert "a batch has 3 rows" in answers[0]["rows"]
