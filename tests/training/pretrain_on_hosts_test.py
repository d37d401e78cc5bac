# SPDX-License-Identifier: Apache-2.0
"""Pre-training on two hosts is that on one: two processes, which exchange messages as hosts do."""

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
    pytest.mark.skipif(keras.backend.backend() != "jax", reason="several hosts"),
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
    # Each host reads files of its own.
    "num_shards": 3,
    "file_groups": 2,
    # So that one of the middle is left
    "keep_checkpoints": 10,
    "dev_batches": 2,
    "duplicate_factor": 1,
    "precision": "float32",
    "num_workers": 1,
    "measure_energy": False,
}
BEFORE_LAST = NUM_STEPS - OPTIONS["eval_every"]

# What both processes do, in the order of the tests: they start only once.
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

folder = Path(sys.argv.pop(1))
config_flags.define_flags(HostOptions)
flags.FLAGS(sys.argv)
answers = {}
place = config_flags.configuration(HostOptions)
with connection.join_processes(place):
    pretrain(config(folder, "two"))
    with hosts.main_process_first():
        if hosts.is_main_process():
            keep_first_half(folder, "two", "two_twice")
            leave_broken_checkpoints(folder, "two", "two_twice")
    pretrain(config(folder, "two_twice"))
    pretrain(config(folder, "one_then_two", shard_optimizer=True, **place.to_dict()))
    model, checkpoints = build(), RunCheckpoints(folder / "full")
    checkpoints.save(model, state(1))
    checkpoints.wait()
    unlimited = resource.getrlimit(resource.RLIMIT_FSIZE)
    if hosts.index() == 1:
        resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, unlimited[1]))
    checkpoints.save(model, state(2))
    try:
        checkpoints.wait()
    except DiskFullError as error:
        answers["full"] = str(error)
    resource.setrlimit(resource.RLIMIT_FSIZE, unlimited)
    answers["read after errors"] = checkpoints.restore(model).step
    hosts.barrier()
    answers["names"] = names(checkpoints.folder)
    hosts.barrier()
    # An error of one of them, while the other waits for it
    with contextlib.suppress(RuntimeError), checkpoints:
        checkpoints.save(model, state(3))
        if hosts.index() == 1:
            raise RuntimeError
        hosts.barrier()
    answers["names after another error"] = names(checkpoints.folder)
    if hosts.index() == 1:
        hosts.barrier()
    try:
        hosts.check_all_equal("the number", hosts.index())
    except hosts.ProcessMismatchError as error:
        answers["number"] = str(error)
    answers["divided"] = hosts.sharded_map(lambda item: [item, hosts.index()], "abc")
    answers["merged"] = hosts.merge_across_processes("the sizes", {"of all": 3, f"of
    {hosts.index()}": 1}) try:
        hosts.merge_across_processes("the sizes", {"of all": hosts.index(), f"of {hosts.index()}":
        1})
    except hosts.ProcessMismatchError as error:
        answers["sizes"] = str(error)
    answers["gathered"] = hosts.gather([hosts.index(), hosts.count(), hosts.is_main_process()])
    try:
        pretrain(config(folder, "other", seed=1 + hosts.index()))
    except hosts.ProcessMismatchError as error:
        answers["seed"] = str(error)
    try:
        pretrain(config(folder, "other", batch_size=3))
    except ValueError as error:
        answers["rows"] = str(error)
    # What Orbax's threads print of the full disk may come after all else.
    (folder / f"answers_{hosts.index()}.json").write_text(json.dumps(answers))
"""


def config(folder, name, **changes):
    folders = {"data_dir": str(folder / "data"), "output_dir": str(folder / name)}
    return PretrainConfig.from_flags(**OPTIONS | folders | changes)


def keep_first_half(folder, whole, half):
    """Copies a run as it was in the middle."""
    shutil.copytree(folder / whole, folder / half)
    for path in (folder / half / "checkpoints").iterdir():
        if int(path.name.removeprefix("step_")) > MIDDLE:
            shutil.rmtree(path)
    shutil.rmtree(folder / half / "preset")
    (folder / half / "log.jsonl").unlink()


def leave_broken_checkpoints(folder, whole, half):
    """Copies the last two checkpoints of a run, as if they had not been written to the end."""
    names = [f"step_{step:09}" for step in (BEFORE_LAST, NUM_STEPS)]
    without_state, cut = (folder / half / "checkpoints" / name for name in names)
    for path in (without_state, cut):
        shutil.copytree(folder / whole / "checkpoints" / path.name, path)
    (without_state / "state.json").unlink()
    part = files_of(1, cut)[0]
    part.write_bytes(part.read_bytes()[:-1])


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def files_of(process, checkpoint):
    """Returns the files that a process has written."""
    return sorted((checkpoint / "tensors" / f"ocdbt.process_{process}").glob("d/*"))


def part_size(process, checkpoint):
    """Returns the number of bytes of the tensors that a process has written.

    Its files also have Orbax's indices, as many as its writes happened to be.
    """
    folder = checkpoint / "tensors" / f"ocdbt.process_{process}"
    store = ts.KvStore.open({"driver": "ocdbt", "base": f"file://{folder}/"}).result()
    keys = [key for key in store.list().result() if not key.endswith(b".zarray")]
    return sum(len(store.read(key).result().value) for key in keys)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A folder with the runs of one process, of two, and of one and then two."""
    folder = tmp_path_factory.mktemp("runs")
    (folder / "data").mkdir()
    make_data(folder / "data")
    pretrain(config(folder, "one"))
    keep_first_half(folder, "one", "one_then_two")
    two = HostProcesses(("-c", PROGRAM, str(folder)), 2, folder)
    assert two.wait() == [0, 0], "\n".join(two.printed())
    keep_first_half(folder, "two", "two_then_one")
    pretrain(config(folder, "two_then_one"))
    paths = [folder / f"answers_{process}.json" for process in (0, 1)]
    return folder, [json.loads(path.read_text()) for path in paths]


def log(folder):
    return [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]


def weights(folder):
    return (folder / "preset" / "model.safetensors").read_bytes()


MEASURED = ("seconds", "tokens_per_second", "flops_per_second", "mfu")


def assert_same_curve(curve, expected):
    assert len(curve) == len(expected) == NUM_STEPS // OPTIONS["eval_every"]
    for record, other in zip(curve, expected, strict=True):
        assert set(record) == set(other)
        for name in set(record) - set(MEASURED):
            # A perplexity's relative error is the absolute error of its loss.
            np.testing.assert_allclose(record[name], other[name], rtol=2e-5, err_msg=name)


def test_two_hosts_train_as_one(runs):
    folder, _ = runs
    one = log(folder / "one")
    assert one[-1]["loss"] < one[0]["loss"]
    assert_same_curve(log(folder / "two"), one)


def test_a_run_that_goes_on_on_as_many_hosts_has_the_same_bits(runs):
    folder, _ = runs
    assert weights(folder / "two_twice") == weights(folder / "two")


def test_a_checkpoint_that_was_not_written_to_its_end_is_skipped(runs):
    folder, _ = runs
    printed = (folder / "process_0.txt").read_text()
    checkpoints = folder / "two_twice" / "checkpoints"
    assert f"{checkpoints / f'step_{BEFORE_LAST:09}'} is corrupted" in printed
    cut = checkpoints / f"step_{NUM_STEPS:09}"
    assert f"{cut} is corrupted (the checksum of tensors/ocdbt.process_1/d/" in printed
    # And written again
    assert (checkpoints / f"step_{BEFORE_LAST:09}" / "state.json").is_file()


@pytest.mark.parametrize("name", ["one_then_two", "two_then_one"])
def test_a_run_that_goes_on_on_another_number_of_hosts_has_the_same_curve(runs, name):
    folder, _ = runs
    assert_same_curve(log(folder / name), log(folder / "one"))


def test_each_process_writes_its_part_of_a_checkpoint(runs):
    folder, _ = runs
    checkpoint = folder / "two" / "checkpoints" / f"step_{NUM_STEPS:09}"
    sizes = [part_size(process, checkpoint) for process in (0, 1)]
    assert min(sizes) > 0.8 * max(sizes)
    # One process writes a file of its own, also where it resumes from such parts.
    one = folder / "two_then_one" / "checkpoints" / f"step_{NUM_STEPS:09}"
    assert names(one) == ["state.json", "tensors.safetensors"]


def test_the_parts_of_a_divided_optimizer_are_read_by_orbax_alone(runs):
    folder, _ = runs
    step = Path("checkpoints") / f"step_{NUM_STEPS:09}"
    expected = load_file(folder / "one" / step / "tensors.safetensors")
    checkpointer = ocp.Checkpointer(ocp.PyTreeCheckpointHandler())
    path = folder / "one_then_two" / step / "tensors"
    arrays = ocp.RestoreArgs(restore_type=np.ndarray)
    names = checkpointer.metadata(path).item_metadata.tree
    tensors = checkpointer.restore(
        path, args=ocp.args.PyTreeRestore(restore_args=dict.fromkeys(names, arrays))
    )
    assert tensors.keys() == expected.keys()
    for name, tensor in expected.items():
        np.testing.assert_allclose(tensors[name], tensor, rtol=1e-4, atol=1e-6, err_msg=name)


def test_a_full_disk_of_one_process_is_told_by_all(runs):
    for answers in runs[1]:
        assert "not enough disk space for the checkpoint of step 2" in answers["full"]
        assert "step_000000001 is kept" in answers["full"]
        assert answers["read after errors"] == 1
        assert answers["names"] == ["step_000000001"]


def test_a_checkpoint_is_written_to_its_end_where_one_process_fails(runs):
    for answers in runs[1]:
        expected = ["step_000000001", "step_000000003"]
        assert answers["names after another error"] == expected


def test_processes_know_one_another_and_disagree_in_all_of_them(runs):
    # Each looks at the free space of the disk by itself, which changes.
    answers = [
        {**answer, "full": re.sub(r"only [\d,]+ are free", "", answer["full"])}
        for answer in runs[1]
    ]
    assert answers[0] == answers[1]
    assert answers[0]["gathered"] == [[0, 2, True], [1, 2, False]]
    assert answers[0]["divided"] == [["a", 0], ["b", 1], ["c", 1]]
    assert answers[0]["merged"] == {"of all": 3, "of 0": 1, "of 1": 1}
    expected = "the sizes differs between the processes: {'of all': 0} in process 0, {'of all': 1}"
    assert expected in answers[0]["sizes"]
    assert "the number differs between the processes: 0 in process 0, 1 in" in answers[0]["number"]
    expected = "the command differs between the processes: {'seed': 1} in process 0, {'seed': 2} in"
    assert expected in answers[0]["seed"]
    assert "a batch has 3 rows" in answers[0]["rows"]
