# SPDX-License-Identifier: Apache-2.0
"""Runs the whole suite, or the legs that are named.

Each backend is a process of its own, for Keras picks its backend at import. A leg's output is
printed when the leg ends; the exit status is 1 if any failed.

    python -m tests.run                # everything
    python -m tests.run jax ruff       # two legs
"""

import argparse
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PYTEST = ("-m", "pytest", "-q", "--durations=15")


@dataclass(frozen=True)
class Leg:
    """One part of the suite: commands for this Python, run in order under an environment."""

    commands: tuple[tuple[str, ...], ...]
    environment: dict[str, str] = field(default_factory=dict)


LEGS = {
    "tensorflow": Leg(
        ((*PYTEST, "tests", "keras_bert", "training", "--doctest-modules"),),
        {"KERAS_BACKEND": "tensorflow"},
    ),
    "jax": Leg((PYTEST,), {"KERAS_BACKEND": "jax"}),
    "torch": Leg((PYTEST,), {"KERAS_BACKEND": "torch"}),
    "without_tensorflow": Leg(
        (PYTEST,), {"KERAS_BACKEND": "jax", "KERAS_BERT_BLOCK_TENSORFLOW": "1"}
    ),
    "ruff": Leg((("-m", "ruff", "check"), ("-m", "ruff", "format", "--check"))),
    "mypy": Leg((("-m", "mypy"),)),
}


def run_leg(name: str) -> bool:
    """Runs one leg to its end, prints what it printed, and says whether it passed."""
    leg = LEGS[name]
    started = time.monotonic()
    output, passed = "", True
    for command in leg.commands:
        finished = subprocess.run(
            (sys.executable, *command),
            cwd=ROOT,
            env=os.environ | leg.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        output += finished.stdout
        passed = passed and finished.returncode == 0
    verdict = "passed" if passed else "FAILED"
    seconds = time.monotonic() - started
    print(f"===== {name}\n{output}===== {name} {verdict} in {seconds:.0f} s", flush=True)
    return passed


def main() -> int:
    parser = argparse.ArgumentParser(description="Runs the whole suite, or the legs named.")
    parser.add_argument("legs", nargs="*", metavar="leg", help=", ".join(LEGS))
    parser.add_argument("--jobs", type=int, default=1, help="legs at a time (default: 1)")
    arguments = parser.parse_args()
    unknown = sorted(set(arguments.legs) - LEGS.keys())
    if unknown:
        parser.error(f"no such leg: {', '.join(unknown)}; there are {', '.join(LEGS)}")
    names = arguments.legs or list(LEGS)
    with ThreadPoolExecutor(arguments.jobs) as pool:
        passed = dict(zip(names, pool.map(run_leg, names), strict=True))
    print("\n".join(f"{'passed' if ok else 'FAILED'}  {name}" for name, ok in passed.items()))
    return 0 if all(passed.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
