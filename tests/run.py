# SPDX-License-Identifier: Apache-2.0
"""Runs the whole suite, or the legs that are named.

Each backend is a process of its own, for Keras picks its backend at import. On JAX and PyTorch, the
suite runs where TensorFlow cannot be imported; what needs it, exports and `tf.data` inputs, is left
for the legs `jax` and `torch_with_tensorflow`. The TensorFlow backend has several: TensorFlow keeps
the graph of every function that there was, and the more there are, the longer each pipeline takes
to set up, at the end of an hour twice as long. Two legs run at a time where there are two
processors; each line begins with the leg that it is of. The exit status is 1 if any failed.

    python -m tests.run                # everything
    python -m tests.run jax ruff       # two legs
    python -m tests.run --quick        # the core on TensorFlow, and the linter
"""

import argparse
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from tests import processes

ROOT = Path(__file__).resolve().parent.parent
PYTEST = ("-m", "pytest", "-q", "--durations=15")
DOCTESTED = (*PYTEST, "--doctest-modules", "keras_bert", "training")
# What most changes break first
CORE = (
    *(f"tests/{room}" for room in ("layers", "vocabularies", "optimizers")),
    *(f"tests/{name}_test.py" for name in ("config", "losses", "metrics", "build")),
    *(
        "tests/dependency_rule_test.py",
        "tests/models/backbone_test.py",
        "tests/data/input_forms_test.py",
    ),
    *("tests/text/wordpiece_test.py", "tests/tasks/text_classifier_test.py"),
    "--ignore=tests/optimizers/distribution_test.py",  # starts processes
)


@dataclass(frozen=True)
class Leg:
    """One part of the suite: commands for this Python, run in order under an environment.

    They are forked from a process that has imported what most tests import, unless it matters how
    that is imported.
    """

    commands: tuple[tuple[str, ...], ...]
    environment: dict[str, str] = field(default_factory=dict)
    is_forked: bool = True


# Tests of programs, most of which start some
PROGRAMS = ("tests/training", "tests/parallel_test.py", "tests/without_tensorflow_test.py")
TASKS = "tests/tasks"
DOCS = "tests/docs"
GRID = "tests/tasks/learning_grid_test.py"
# Tests of operations, compiled as users have them, and of one step
COMPILED = ("tests/ops",)
COMPILED_STEP = "tests/compiled_steps_test.py::test_compiled_steps[TextClassifier]"
# Elsewhere XLA compiles without optimization, which takes a third of the time
HASTE = {
    "XLA_FLAGS": "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
    " --xla_cpu_use_fusion_emitters=false"
}
TENSORFLOW = {"KERAS_BACKEND": "tensorflow"}
BLOCK_TENSORFLOW = {"KERAS_BERT_BLOCK_TENSORFLOW": "1"}
BLOCKED = {"KERAS_BACKEND": "jax", **BLOCK_TENSORFLOW}


def without(paths: tuple[str, ...]) -> tuple[str, ...]:
    """Arguments of pytest that leave paths out."""
    return tuple(f"--ignore={path}" for path in paths)


# The longest first: two at a time, they end together. The second one is not forked, for the
# libraries of the first are being imported.
LEGS = {
    "tensorflow": Leg(
        ((*DOCTESTED, "tests", *without((*PROGRAMS, TASKS, DOCS, *COMPILED))),),
        {**TENSORFLOW, **HASTE},
    ),
    "without_tensorflow": Leg(
        ((*PYTEST, *without(COMPILED)),), {**BLOCKED, **HASTE}, is_forked=False
    ),
    "programs": Leg(((*PYTEST, *PROGRAMS),), {**TENSORFLOW, **HASTE}),
    "tasks": Leg(((*PYTEST, TASKS, *without((GRID,))), (*PYTEST, GRID)), {**TENSORFLOW, **HASTE}),
    "jax": Leg(((*PYTEST, "-m", "needs_tensorflow"),), {"KERAS_BACKEND": "jax", **HASTE}),
    "torch": Leg((PYTEST,), {"KERAS_BACKEND": "torch", **BLOCK_TENSORFLOW}, is_forked=False),
    "torch_with_tensorflow": Leg(
        ((*PYTEST, "-m", "needs_tensorflow"),), {"KERAS_BACKEND": "torch", **HASTE}
    ),
    # Strict: a link to a page or heading that does not exist is an error
    "docs": Leg(
        (("-m", "mkdocs", "build", "--quiet", "--strict"), (*PYTEST, DOCS)),
        {"NO_MKDOCS_2_WARNING": "1", **TENSORFLOW, **HASTE},
    ),
    "compiled_tensorflow": Leg(((*PYTEST, *COMPILED, COMPILED_STEP),), TENSORFLOW, is_forked=False),
    "compiled_jax": Leg(((*PYTEST, *COMPILED, COMPILED_STEP),), BLOCKED, is_forked=False),
    "mypy": Leg((("-m", "mypy"),), is_forked=False),
    "ruff": Leg((("-m", "ruff", "check"), ("-m", "ruff", "format", "--check")), is_forked=False),
    "core": Leg(((*PYTEST, *CORE),), TENSORFLOW, is_forked=False),
}
EVERYTHING = [name for name in LEGS if name != "core"]
QUICK = ["core", "ruff"]


def run_leg(name: str, jobs: int) -> bool:
    """Runs one leg to its end, shows what it prints as it comes, and says whether it passed."""
    leg = LEGS[name]
    own = {
        # OpenMP's threads wait by spinning: more than processors steal the other leg's time.
        "OMP_NUM_THREADS": str(max(1, (os.cpu_count() or 1) // jobs)),
        "PYTHONUNBUFFERED": "1",
        "TF_CPP_MIN_LOG_LEVEL": "3",
    }
    environment = own | os.environ | leg.environment
    started = time.monotonic()
    start = processes.server_for(env=environment).start if leg.is_forked else subprocess.Popen
    statuses = []
    for command in leg.commands:
        read, write = os.pipe()
        with open(read, encoding="utf-8", errors="replace") as printed:
            with open(write, "wb") as output:
                process = start(
                    (sys.executable, *command),
                    stdout=output,
                    stderr=output,
                    cwd=ROOT,
                    env=environment,
                )
            for line in printed:
                print(f"{name}: {line}", end="", flush=True)
        statuses.append(process.wait())
    verdict = f"FAILED with exit status {statuses}" if any(statuses) else "passed"
    print(f"===== {name} {verdict} in {time.monotonic() - started:.0f} s", flush=True)
    return not any(statuses)


def main() -> int:
    parser = argparse.ArgumentParser(description="Runs the whole suite, or the legs named.")
    parser.add_argument("legs", nargs="*", metavar="leg", help=", ".join(LEGS))
    jobs = min(2, os.cpu_count() or 1)
    parser.add_argument(
        "--jobs", type=int, default=jobs, help=f"legs at a time (default here: {jobs})"
    )
    parser.add_argument("--quick", action="store_true", help=f"no legs but {', '.join(QUICK)}")
    arguments = parser.parse_args()
    unknown = sorted(set(arguments.legs) - LEGS.keys())
    if unknown:
        parser.error(f"no such leg: {', '.join(unknown)}; there are {', '.join(LEGS)}")
    names = arguments.legs or (QUICK if arguments.quick else EVERYTHING)
    print(f"===== {', '.join(names)}; {arguments.jobs} at a time", flush=True)
    processes.share()
    try:
        with ThreadPoolExecutor(arguments.jobs) as pool:
            results = pool.map(lambda name: run_leg(name, arguments.jobs), names)
            passed = dict(zip(names, results, strict=True))
    finally:
        processes.close()
    print("\n".join(f"{'passed' if ok else 'FAILED'}  {name}" for name, ok in passed.items()))
    return 0 if all(passed.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
