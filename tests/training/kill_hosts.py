# SPDX-License-Identifier: Apache-2.0
"""Kills processes of pre-training runs on one or two hosts, and compares the curves.

    KERAS_BACKEND=jax python -m tests.training.kill_hosts --kills=20 --steps=100 --after_checkpoint

A run on one host that is never interrupted gives the expected curve. Then the same command is
started on one or two hosts, at random; one of its processes is killed with SIGKILL at a random
moment, the others must end by themselves, and the command is started again, until so many have been
killed. Each run that finishes must have the same curve, whatever hosts it was trained on. There is
a checkpoint after every second step: with `--after_checkpoint`, processes are killed after they
have written one, and not while they start.
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

# A process that does not answer is lost after so many seconds
HOST_TIMEOUT = 20
RUN = CASES["pretrain_two_phases"]
# Measurements
_NOT_COMPARED = {"seconds", "tokens_per_second", "flops_per_second", "mfu"}


def start(folder: Path, target: Path, count: int, *options: str) -> HostProcesses:
    """Starts the run on so many hosts, with further flags; the folder has its text."""
    arguments = [argument.format(data=folder) for argument in RUN.arguments]
    command = ["-m", RUN.program, *arguments, f"--output_dir={target}", *options]
    printed = folder / f"{target.name}_printed"
    printed.mkdir(exist_ok=True)
    if count == 1:
        return HostProcesses(command, 1, printed, environment=lambda number: {})
    return HostProcesses([*command, f"--host_timeout={HOST_TIMEOUT}"], count, printed)


def log(folder: Path) -> list[dict[str, float]]:
    """Returns the records of a run."""
    return [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]


def differences(folder: Path, expected: Path) -> dict[str, float]:
    """Returns the largest relative difference of each loss and metric of two runs.

    Raises:
        RuntimeError: If they do not have the same records.
    """
    records, other = log(folder), log(expected)
    if [sorted(record) for record in records] != [sorted(record) for record in other]:
        raise RuntimeError(f"{folder} has {records}, expected {other}")
    return {
        name: max(
            abs(record[name] - other_record[name]) / max(abs(other_record[name]), 1e-9)
            for record, other_record in zip(records, other, strict=True)
            if name in record
        )
        for name in sorted({name for record in other for name in record} - _NOT_COMPARED)
    }


def _last_checkpoint(folder: Path) -> str:
    return max((path.name for path in folder.glob("checkpoints/step_*")), default="no checkpoint")


def _wait_for_checkpoint(hosts: HostProcesses, folder: Path) -> None:
    """Waits until a run has written a checkpoint, or has ended."""
    before = _last_checkpoint(folder)
    while hosts.are_running() and _last_checkpoint(folder) == before:
        time.sleep(0.05)


def kill_and_compare(
    kills: int, seed: int, folder: Path, steps: int = 30, after_checkpoint: bool = False
) -> float:
    """Runs pre-training to its end without a kill, and with so many.

    Args:
        kills: How many processes are killed.
        seed: Decides the moments, the processes and the number of hosts.
        folder: Where everything is written.
        steps: The number of updates of the run.
        after_checkpoint: Whether the moments begin when a checkpoint is written, each time that the
            run is started, and not when its processes are.

    Returns:
        The largest relative difference of the curves.

    Raises:
        RuntimeError: If the others do not end when a process is killed, or a run fails by itself.
    """
    make_data(folder)
    whole, target = folder / "whole", folder / "killed"
    first = start(folder, whole, 1, f"--num_steps={steps}")
    if after_checkpoint:
        _wait_for_checkpoint(first, whole)
    begin = time.monotonic()
    if first.wait() != [0]:
        raise RuntimeError(first.printed()[0])
    longest = 1.5 * (time.monotonic() - begin)
    generator = random.Random(seed)
    killed, largest, is_finished = 0, 0.0, False
    while killed < kills or not is_finished:
        count = generator.choice((1, 2))
        hosts = start(folder, target, count, f"--num_steps={steps}")
        if after_checkpoint and killed < kills:
            _wait_for_checkpoint(hosts, target)
        begin = time.monotonic()
        victim, moment = generator.randrange(count), begin + generator.uniform(0, longest)
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
            others = [status for number, status in enumerate(statuses) if number != victim]
            print(
                f"{killed}: process {victim} of {count} is killed after {moment - begin:.0f} s, "
                f"the others end with {others} after {time.monotonic() - moment:.0f} s, "
                f"{_last_checkpoint(target)}, {unfinished} not written to its end",
                flush=True,
            )
            if 0 in others and not (target / "results.json").exists():
                raise RuntimeError("\n".join(hosts.printed()))
            continue
        if any(statuses):
            raise RuntimeError(f"{statuses}\n" + "\n".join(hosts.printed()))
        is_finished = True
        if not after_checkpoint:  # or else it may have had the last few steps to do
            # Moments after the end of a run kill nothing.
            longest = min(longest, time.monotonic() - begin)
        run_differences = differences(target, whole)
        largest = max(largest, *run_differences.values())
        # (A perplexity is e to the power of a loss, and differs by as much relatively as that does
        # absolutely.)
        by_name = ", ".join(f"{name} {size:.1e}" for name, size in run_differences.items() if size)
        print(f"{killed} kills: finished, largest differences: {by_name or 'none'}", flush=True)
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
    with tempfile.TemporaryDirectory() as folder:
        kill_and_compare(
            options.kills, options.seed, Path(folder), options.steps, options.after_checkpoint
        )


if __name__ == "__main__":
    main()
