# SPDX-License-Identifier: Apache-2.0

import time

import keras
import pytest

from tests.training.host_processes import SECONDS, HostProcesses, free_port
from training.engine import connection, hosts
from training.engine.options import HostOptions

pytestmark = pytest.mark.slow
BACKEND = keras.backend.backend()
JAX_ONLY = pytest.mark.skipif(BACKEND != "jax", reason="multi-host")

TIMEOUT = 8
# The first argument determines what each process does.
PROGRAM = """
import os, random, signal, sys
from absl import flags
from training.engine import config_flags, connection, hosts, program
from training.engine.options import HostOptions

def main(options):
    with connection.join_processes(options):
        print("only one prints", flush=True)
        # The output of the other processes is discarded.
        numbers = hosts.gather(random.random())
        are_equal = numbers[0] == numbers[1]
        print("random", "the same" if are_equal else numbers, file=sys.stderr, flush=True)
        print("gathered", hosts.gather(hosts.index()), file=sys.stderr, flush=True)
        if hosts.index() == 1:
            if what == "raise":
                raise ValueError("the disk of this host is full")
            if what == "SIGSTOP":
                os.kill(os.getpid(), signal.SIGSTOP)
        else:
            hosts.barrier()
        print("the end", file=sys.stderr, flush=True)

what = sys.argv.pop(1)
program.run(main, HostOptions)
"""


def run(directory, what, environment=None, flags=(), count=2):
    command = ("-c", PROGRAM, what, *flags, f"--host_timeout={TIMEOUT}")
    return HostProcesses(command, count, directory, environment)


def test_single_process_does_not_wait():
    with connection.join_processes(HostOptions()):
        assert (hosts.index(), hosts.count(), hosts.shard()) == (0, 1, (0, 1))
        assert hosts.is_main_process()
        assert hosts.gather({"a": 1}) == [{"a": 1}]
        assert hosts.from_main_process(lambda: 5) == 5
        hosts.check_all_equal("a number", 1)
        hosts.barrier()
        with hosts.main_process_first():
            pass


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_processes": 2}, "--num_processes=2 is given, but --coordinator is not given"),
        (
            {"coordinator": "host0", "num_processes": 2, "process_id": 0},
            "--coordinator must be host:port",
        ),
        (
            {"coordinator": "host0:1", "num_processes": 2, "process_id": 2},
            "--process_id must be below --num_processes",
        ),
    ],
)
def test_invalid_host_options_raise(options, message):
    with pytest.raises(ValueError, match=message):
        HostOptions(**options)


@pytest.mark.skipif(BACKEND == "jax", reason="it can")
def test_backend_without_multi_host_raises():
    options = HostOptions(f"localhost:{free_port()}", 2, 0)
    with (
        pytest.raises(ValueError, match=rf"JAX backend\. Received: {BACKEND}\. Set KERAS_BACKEND"),
        connection.join_processes(options),
    ):
        pass


@JAX_ONLY
def test_coordinator_auto_without_cluster_fails(tmp_path):
    processes = run(tmp_path, "end", lambda number: {}, flags=("--coordinator=auto",), count=1)
    assert processes.wait() == [1]
    assert "--coordinator=auto finds no cluster in the environment" in processes.read_outputs()[0]


@JAX_ONLY
def test_slurm_error_reaches_all_processes(tmp_path):
    port = str(free_port())

    def variables(number):
        return {
            # By default, JAX derives the port from the job's number.
            "JAX_COORDINATOR_PORT": port,
            "SLURM_JOB_ID": "1",
            "SLURM_STEP_NODELIST": "localhost",
            "SLURM_NTASKS": "2",
            "SLURM_PROCID": str(number),
            "SLURM_LOCALID": str(number),
        }

    processes = run(tmp_path, "raise", variables, flags=("--coordinator=auto",))
    assert processes.wait() == [1, 1]
    first, second = processes.read_outputs()
    for text in (first, second):
        assert "gathered [0, 1]" in text
        assert "random the same" in text
    assert ["only one prints" in text for text in (first, second)] == [True, False]
    assert "error: the disk of this host is full" in second
    assert "error: process 1 on " in first
    assert "the disk of this host is full" in first
    assert "the end" not in first


@JAX_ONLY
def test_unresponsive_process_stops_the_others(tmp_path):
    """Before a release, `kill_hosts_test` checks the same for a killed process."""
    processes = run(tmp_path, "SIGSTOP")
    end = time.monotonic() + SECONDS
    first = processes.processes[0]
    while first.poll() is None and time.monotonic() < end:
        time.sleep(0.1)
    status = first.poll()
    processes.kill(1)
    processes.wait()
    assert status == 1
    assert "error: the connection to another process is lost" in processes.read_outputs()[0]
