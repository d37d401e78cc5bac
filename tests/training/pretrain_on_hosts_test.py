# SPDX-License-Identifier: Apache-2.0
"""Compares pre-training on two hosts with one host. Two processes on one machine act as hosts."""

import json
import re
import shutil
from pathlib import Path

import keras
import numpy as np
import orbax.checkpoint as ocp
import pytest
import tensorstore as ts
from safetensors.numpy import load_file

from tests.training.host_processes import HostProcesses
from tests.training.kill_runs import make_data
from training.pretraining.config import PretrainConfig
from training.pretraining.run import pretrain

pytestmark = [
    pytest.mark.skipif(keras.backend.backend() != "jax", reason="multi-host"),
    pytest.mark.slow,
]

NUM_STEPS = 16
MIDDLE = 8
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
    "learning_rate": 0.01,
    "eval_every": 4,
    # Each host reads separate files.
    "num_shards": 3,
    "file_groups": 2,
    # The runs also need a checkpoint from the middle.
    "keep_checkpoints": 10,
    "dev_batches": 2,
    "duplicate_factor": 1,
    "precision": "float32",
    "num_workers": 1,
    "measure_energy": False,
}
BEFORE_LAST = NUM_STEPS - OPTIONS["eval_every"]

# Both processes run this program. It has all cases, in the order of the tests, so that each process
# starts only once.
PROGRAM = """
import contextlib, json, resource, sys
from pathlib import Path
from absl import flags
from training.engine import config_flags, connection, hosts
from training.engine.options import HostOptions
from training.engine.run_checkpoints import DiskFullError, RunCheckpoints
from training.pretraining.run import pretrain
from tests.training.engine.sharded_tensors_test import build, state
from tests.training.pretrain_on_hosts_test import (
    config, keep_first_half, leave_broken_checkpoints, names
)

directory = Path(sys.argv.pop(1))
config_flags.define_flags(HostOptions)
flags.FLAGS(sys.argv)
outputs = {}
place = config_flags.configuration(HostOptions)
with connection.join_processes(place):
    pretrain(config(directory, "two"))
    with hosts.main_process_first():
        if hosts.is_main_process():
            keep_first_half(directory, "two", "two_twice")
            leave_broken_checkpoints(directory, "two", "two_twice")
    pretrain(config(directory, "two_twice"))
    pretrain(config(directory, "one_then_two", shard_optimizer=True, **place.to_dict()))
    model, checkpoints = build(), RunCheckpoints(directory / "full")
    checkpoints.save(model, state(1))
    checkpoints.wait()
    unlimited = resource.getrlimit(resource.RLIMIT_FSIZE)
    if hosts.index() == 1:
        resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, unlimited[1]))
    checkpoints.save(model, state(2))
    try:
        checkpoints.wait()
    except DiskFullError as error:
        outputs["full"] = str(error)
    resource.setrlimit(resource.RLIMIT_FSIZE, unlimited)
    outputs["read after errors"] = checkpoints.restore(model).step
    hosts.barrier()
    outputs["names"] = names(directory / "full")
    hosts.barrier()
    # One process fails while the other waits for it.
    with contextlib.suppress(RuntimeError), checkpoints:
        checkpoints.save(model, state(3))
        if hosts.index() == 1:
            raise RuntimeError
        hosts.barrier()
    outputs["names after another error"] = names(directory / "full")
    if hosts.index() == 1:
        hosts.barrier()
    try:
        hosts.check_all_equal("the number", hosts.index())
    except hosts.ProcessMismatchError as error:
        outputs["number"] = str(error)
    outputs["sharded"] = hosts.sharded_map(lambda item: [item, hosts.index()], "abc")
    own_size = {f"of {hosts.index()}": 1}
    outputs["merged"] = hosts.merge_across_processes("the sizes", {"of all": 3} | own_size)
    try:
        hosts.merge_across_processes("the sizes", {"of all": hosts.index()} | own_size)
    except hosts.ProcessMismatchError as error:
        outputs["sizes"] = str(error)
    outputs["gathered"] = hosts.gather([hosts.index(), hosts.count(), hosts.is_main_process()])
    try:
        pretrain(config(directory, "other", seed=1 + hosts.index()))
    except hosts.ProcessMismatchError as error:
        outputs["seed"] = str(error)
    try:
        pretrain(config(directory, "other", batch_size=3))
    except ValueError as error:
        outputs["rows"] = str(error)
    # The result is a file, because Orbax's threads may still print errors about the full disk.
    (directory / f"outputs_{hosts.index()}.json").write_text(json.dumps(outputs))
"""


def config(directory, name, **changes):
    directories = {"data_dir": str(directory / "data"), "output_dir": str(directory / name)}
    return PretrainConfig.from_flags(**OPTIONS | directories | changes)


def keep_first_half(directory, source, target):
    """Copies a run with only the checkpoints up to the middle."""
    shutil.copytree(directory / source, directory / target)
    for path in (directory / target / "checkpoints").iterdir():
        if int(path.name.removeprefix("step_")) > MIDDLE:
            shutil.rmtree(path)
    shutil.rmtree(directory / target / "preset")
    (directory / target / "log.jsonl").unlink()


def leave_broken_checkpoints(directory, source, target):
    """Copies a run's last two checkpoints, and truncates them like an interrupted write."""
    names = [f"step_{step:09}" for step in (BEFORE_LAST, NUM_STEPS)]
    stateless, truncated = (directory / target / "checkpoints" / name for name in names)
    for path in (stateless, truncated):
        shutil.copytree(directory / source / "checkpoints" / path.name, path)
    (stateless / "state.json").unlink()
    written_file = list_written_files(1, truncated)[0]
    written_file.write_bytes(written_file.read_bytes()[:-1])


def names(directory):
    return sorted(path.name for path in directory.iterdir())


def list_written_files(process, checkpoint):
    """Returns the tensor files that a process has written."""
    return sorted((checkpoint / "tensors" / f"ocdbt.process_{process}").glob("d/*"))


def written_size(process, checkpoint):
    """Returns the size of the tensors that a process has written, in bytes.

    The size of the files is not used, because it also depends on the number of Orbax's writes.
    """
    directory = checkpoint / "tensors" / f"ocdbt.process_{process}"
    store = ts.KvStore.open({"driver": "ocdbt", "base": f"file://{directory}/"}).result()
    keys = [key for key in store.list().result() if not key.endswith(b".zarray")]
    return sum(len(store.read(key).result().value) for key in keys)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """The directory of the runs, and the outputs of both processes."""
    directory = tmp_path_factory.mktemp("runs")
    (directory / "data").mkdir()
    make_data(directory / "data")
    pretrain(config(directory, "one"))
    keep_first_half(directory, "one", "one_then_two")
    two = HostProcesses(("-c", PROGRAM, str(directory)), 2, directory)
    assert two.wait() == [0, 0], "\n".join(two.read_outputs())
    keep_first_half(directory, "two", "two_then_one")
    pretrain(config(directory, "two_then_one"))
    paths = [directory / f"outputs_{process}.json" for process in (0, 1)]
    return directory, [json.loads(path.read_text()) for path in paths]


def read_log(directory):
    return [json.loads(line) for line in (directory / "log.jsonl").read_text().splitlines()]


def read_weights(directory):
    return (directory / "preset" / "model.safetensors").read_bytes()


MEASURED = ("seconds", "tokens_per_second", "flops_per_second", "mfu")


def assert_same_curve(curve, expected):
    assert len(curve) == len(expected) == NUM_STEPS // OPTIONS["eval_every"]
    for record, other in zip(curve, expected, strict=True):
        assert set(record) == set(other)
        for name in set(record) - set(MEASURED):
            # A perplexity's relative error is the absolute error of its loss.
            np.testing.assert_allclose(record[name], other[name], rtol=2e-5, err_msg=name)


def test_two_hosts_train_like_one(runs):
    directory, _ = runs
    one = read_log(directory / "one")
    assert one[-1]["loss"] < one[0]["loss"]
    assert_same_curve(read_log(directory / "two"), one)


def test_resume_on_two_hosts_is_bitwise_identical(runs):
    directory, _ = runs
    assert read_weights(directory / "two_twice") == read_weights(directory / "two")


def test_incomplete_checkpoints_are_skipped(runs):
    directory, _ = runs
    output = (directory / "process_0.txt").read_text()
    checkpoints = directory / "two_twice" / "checkpoints"
    assert f"{checkpoints / f'step_{BEFORE_LAST:09}'} is corrupted" in output
    truncated = checkpoints / f"step_{NUM_STEPS:09}"
    assert f"{truncated} is corrupted (the checksum of tensors/ocdbt.process_1/d/" in output
    # The resumed run wrote the checkpoint again.
    assert (checkpoints / f"step_{BEFORE_LAST:09}" / "state.json").is_file()


@pytest.mark.parametrize("name", ["one_then_two", "two_then_one"])
def test_resume_on_a_different_number_of_hosts(runs, name):
    directory, _ = runs
    assert_same_curve(read_log(directory / name), read_log(directory / "one"))


def test_each_process_writes_its_shard(runs):
    directory, _ = runs
    checkpoint = directory / "two" / "checkpoints" / f"step_{NUM_STEPS:09}"
    sizes = [written_size(process, checkpoint) for process in (0, 1)]
    assert min(sizes) > 0.8 * max(sizes)
    # A single process writes one file, even if it resumed from shards.
    one = directory / "two_then_one" / "checkpoints" / f"step_{NUM_STEPS:09}"
    assert names(one) == ["state.json", "tensors.safetensors"]


def test_orbax_reads_a_sharded_checkpoint(runs):
    directory, _ = runs
    step = Path("checkpoints") / f"step_{NUM_STEPS:09}"
    expected = load_file(directory / "one" / step / "tensors.safetensors")
    checkpointer = ocp.Checkpointer(ocp.PyTreeCheckpointHandler())
    path = directory / "one_then_two" / step / "tensors"
    arrays = ocp.RestoreArgs(restore_type=np.ndarray)
    names = checkpointer.metadata(path).item_metadata.tree
    tensors = checkpointer.restore(
        path, args=ocp.args.PyTreeRestore(restore_args=dict.fromkeys(names, arrays))
    )
    assert tensors.keys() == expected.keys()
    for name, tensor in expected.items():
        np.testing.assert_allclose(tensors[name], tensor, rtol=1e-4, atol=1e-6, err_msg=name)


def test_all_processes_report_a_full_disk(runs):
    for outputs in runs[1]:
        assert "not enough disk space for the checkpoint of step 2" in outputs["full"]
        assert "step_000000001 is kept" in outputs["full"]
        assert outputs["read after errors"] == 1
        assert outputs["names"] == ["step_000000001"]


def test_checkpoint_survives_failed_process(runs):
    for outputs in runs[1]:
        expected = ["step_000000001", "step_000000003"]
        assert outputs["names after another error"] == expected


def test_processes_exchange_values(runs):
    # Each process reads the free disk space, and it may change in between.
    outputs = [
        {**answer, "full": re.sub(r"only [\d,]+ are free", "", answer["full"])}
        for answer in runs[1]
    ]
    assert outputs[0] == outputs[1]
    assert outputs[0]["gathered"] == [[0, 2, True], [1, 2, False]]
    assert outputs[0]["sharded"] == [["a", 0], ["b", 1], ["c", 1]]
    assert outputs[0]["merged"] == {"of all": 3, "of 0": 1, "of 1": 1}
    expected = "the sizes differs between the processes: {'of all': 0} in process 0, {'of all': 1}"
    assert expected in outputs[0]["sizes"]
    assert "the number differs between the processes: 0 in process 0, 1 in" in outputs[0]["number"]
    expected = "the command differs between the processes: {'seed': 1} in process 0, {'seed': 2} in"
    assert expected in outputs[0]["seed"]
    expected = "must be a multiple of --file_groups, which is 2. Received: 3 (after step 0)"
    assert expected in outputs[0]["rows"]
