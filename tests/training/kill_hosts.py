# SPDX-License-Identifier: Apache-2.0
"""Kills processes of pre-training runs on one or two hosts, and compares the curves.

    KERAS_BACKEND=jax python -m tests.training.kill_hosts --kills=20 --steps=100 --after_checkpoint

An uninterrupted run on one host yields the expected curve. Then the same command is started on one
or two hosts, chosen at random. One of its processes is killed with SIGKILL at a random moment. The
other process must stop on its own. The command is started again until `--kills` processes have been
killed. Each finished run must have the same curve, whatever hosts it was trained on. A checkpoint
is written after every second step. With `--after_checkpoint`, processes are killed only after they
have written a checkpoint, not during startup.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import tempfile
import time
from pathlib import Path

from tests.training.host_processes import HostProcesses
from tests.training.kill_runs import CASES, make_data

# A process counts as lost if it does not respond for this many seconds.
HOST_TIMEOUT = 20
CASE = CASES["pretrain_two_phases"]
# Measurements
_NOT_COMPARED = {"seconds", "tokens_per_second", "flops_per_second", "mfu"}


def start(directory: Path, target: Path, count: int, *options: str) -> HostProcesses:
    """Starts the run on `count` hosts with additional flags. `directory` contains the text."""
    arguments = [argument.format(data=directory) for argument in CASE.arguments]
    command = ["-m", CASE.module, *arguments, f"--output_dir={target}", *options]
    output_dir = directory / f"{target.name}_printed"
    output_dir.mkdir(exist_ok=True)
    if count == 1:
        return HostProcesses(command, 1, output_dir, environment=lambda number: {})
    return HostProcesses([*command, f"--host_timeout={HOST_TIMEOUT}"], count, output_dir)


def read_log(directory: Path) -> list[dict[str, float]]:
    """Returns a run's log records."""
    return [json.loads(line) for line in (directory / "log.jsonl").read_text().splitlines()]


def relative_differences(directory: Path, expected: Path) -> dict[str, float]:
    """Returns the largest relative difference between two runs in each loss and metric.

    Raises:
        RuntimeError: If the runs do not have the same records.
    """
    records, other = read_log(directory), read_log(expected)
    if [sorted(record) for record in records] != [sorted(record) for record in other]:
        raise RuntimeError(f"{directory} has {records}, expected {other}")
    return {
        name: max(
            abs(record[name] - other_record[name]) / max(abs(other_record[name]), 1e-9)
            for record, other_record in zip(records, other, strict=True)
            if name in record
        )
        for name in sorted({name for record in other for name in record} - _NOT_COMPARED)
    }


def _last_checkpoint(directory: Path) -> str:
    return max(
        (path.name for path in directory.glob("checkpoints/step_*")), default="no checkpoint"
    )


def _wait_for_checkpoint(hosts: HostProcesses, directory: Path) -> None:
    """Waits until a run has written a new checkpoint or has stopped."""
    before = _last_checkpoint(directory)
    while hosts.are_running() and _last_checkpoint(directory) == before:
        time.sleep(0.05)


def kill_and_compare(
    kills: int, seed: int, directory: Path, steps: int = 30, after_checkpoint: bool = False
) -> float:
    """Compares an uninterrupted pre-training run with runs whose processes are killed.

    Args:
        kills: The number of processes to kill.
        seed: Determines the moments, the processes and the number of hosts.
        directory: Directory for the data and the runs.
        steps: The number of training steps.
        after_checkpoint: Whether to wait for a checkpoint after each start before a process may be
            killed.

    Returns:
        The largest relative difference between the curves.

    Raises:
        RuntimeError: If the other process does not stop after a kill, or a run fails without one.
    """
    make_data(directory)
    uninterrupted, target = directory / "whole", directory / "killed"
    first_run = start(directory, uninterrupted, 1, f"--num_steps={steps}")
    if after_checkpoint:
        _wait_for_checkpoint(first_run, uninterrupted)
    start_time = time.monotonic()
    if first_run.wait() != [0]:
        raise RuntimeError(first_run.read_outputs()[0])
    longest = 1.5 * (time.monotonic() - start_time)
    generator = random.Random(seed)
    killed, largest, is_finished = 0, 0.0, False
    while killed < kills or not is_finished:
        count = generator.choice((1, 2))
        hosts = start(directory, target, count, f"--num_steps={steps}")
        if after_checkpoint and killed < kills:
            _wait_for_checkpoint(hosts, target)
        start_time = time.monotonic()
        victim, moment = generator.randrange(count), start_time + generator.uniform(0, longest)
        while killed < kills and hosts.are_running():
            if time.monotonic() > moment:
                hosts.kill(victim)
                break
            time.sleep(0.05)
        moment = time.monotonic()
        statuses = hosts.wait()
        if statuses[victim] == -signal.SIGKILL:
            killed += 1
            is_finished = False
            unfinished = len(list(target.glob("checkpoints/.*.partial")))
            other_statuses = [status for number, status in enumerate(statuses) if number != victim]
            print(
                f"{killed}: killed process {victim} of {count} after {moment - start_time:.0f} s, "
                f"the others exit with {other_statuses} after {time.monotonic() - moment:.0f} s, "
                f"{_last_checkpoint(target)}, {unfinished} unfinished",
                flush=True,
            )
            if 0 in other_statuses and not (target / "results.json").exists():
                raise RuntimeError("\n".join(hosts.read_outputs()))
            continue
        if any(statuses):
            raise RuntimeError(f"{statuses}\n" + "\n".join(hosts.read_outputs()))
        is_finished = True
        # With --after_checkpoint, this start may have had only the last few steps to train.
        if not after_checkpoint:
            # A moment after the end of the run would not kill a process.
            longest = min(longest, time.monotonic() - start_time)
        run_differences = relative_differences(target, uninterrupted)
        largest = max(largest, *run_differences.values())
        # A perplexity's relative difference equals its loss's absolute difference.
        summary = ", ".join(f"{name} {size:.1e}" for name, size in run_differences.items() if size)
        print(f"{killed} kills: finished, largest differences: {summary or 'none'}", flush=True)
        shutil.rmtree(target)
    return largest


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--after_checkpoint", action="store_true")
    options = parser.parse_args()
    print(f"on {os.environ['KERAS_BACKEND']}", flush=True)
    with tempfile.TemporaryDirectory() as directory:
        kill_and_compare(
            options.kills, options.seed, Path(directory), options.steps, options.after_checkpoint
        )


if __name__ == "__main__":
    main()
