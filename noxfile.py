# SPDX-License-Identifier: Apache-2.0
"""The sessions of the test suite.

    nox                            # everything, as CI runs it
    nox -s quick                   # what most changes break first, in less than two minutes
    nox -s jax lint                # some of them
    nox -s jax -- tests/layers -x  # a session, with these arguments of pytest instead of its paths

Keras chooses its backend when it is imported, so each backend has a session. Sessions run in the
environment that nox is started in, which `pip install -r requirements-test.txt -e .` fills.
"""

from collections.abc import Sequence

import nox

nox.options.default_venv_backend = "none"
nox.options.sessions = ["lint", "tensorflow", "programs", "docs", "jax", "torch", "with_tensorflow"]

# What most changes break first
CORE = (
    "tests/build_test.py",
    "tests/config_test.py",
    "tests/dependency_rule_test.py",
    "tests/losses_test.py",
    "tests/metrics_test.py",
    "tests/data/input_forms_test.py",
    "tests/layers",
    "tests/models/backbone_test.py",
    "tests/optimizers",
    "tests/tasks/text_classifier_test.py",
    "tests/text/wordpiece_test.py",
    "tests/vocabularies",
    "--ignore=tests/optimizers/distribution_test.py",  # starts a process
)
WITHOUT_TENSORFLOW = {"KERAS_BERT_BLOCK_TENSORFLOW": "1"}


def run_pytest(
    session: nox.Session, *options: str, paths: Sequence[str] = (), **environment: str
) -> None:
    """Runs pytest in two processes, which share the files."""
    session.run(
        *("python", "-m", "pytest", "-q", "-n2", "--dist=loadfile", "--durations=15", *options),
        *(session.posargs or paths),
        # OpenMP's threads wait by spinning: more than there are processors slow all of them down.
        env={"KERAS_BACKEND": "tensorflow", "OMP_NUM_THREADS": "1", **environment},
    )


@nox.session
def lint(session: nox.Session) -> None:
    """Lint and format of all files, and strict type checking of `keras_bert`."""
    session.run("ruff", "check")
    session.run("ruff", "format", "--check")
    session.run("mypy")


@nox.session
def tensorflow(session: nox.Session) -> None:
    """The library on the TensorFlow backend, and the examples in docstrings."""
    elsewhere = ("--ignore=tests/docs", "--ignore=tests/training")
    paths = ("keras_bert", "training", "tests", *elsewhere)
    run_pytest(session, "--doctest-modules", paths=paths)


@nox.session
def programs(session: nox.Session) -> None:
    """The programs of `training` on the TensorFlow backend."""
    run_pytest(session, paths=["tests/training"])


@nox.session
def docs(session: nox.Session) -> None:
    """The site, strictly: a link to nothing is an error; the guides in small, and the migration."""
    site = ("python", "-m", "mkdocs", "build", "--quiet", "--strict")
    session.run(*site, env={"NO_MKDOCS_2_WARNING": "1"})
    run_pytest(session, paths=["tests/docs"])


@nox.session
def jax(session: nox.Session) -> None:
    """What depends on the backend, on JAX, in processes that cannot import TensorFlow."""
    run_pytest(session, KERAS_BACKEND="jax", **WITHOUT_TENSORFLOW)


@nox.session
def torch(session: nox.Session) -> None:
    """The same on PyTorch."""
    run_pytest(session, KERAS_BACKEND="torch", **WITHOUT_TENSORFLOW)


@nox.session
@nox.parametrize("backend", ["jax", "torch"])
def with_tensorflow(session: nox.Session, backend: str) -> None:
    """What depends on the backend and needs TensorFlow too: exports, and inputs of `tf.data`."""
    run_pytest(session, "-m", "needs_tensorflow", KERAS_BACKEND=backend)


@nox.session(default=False)
def quick(session: nox.Session) -> None:
    """The core on TensorFlow, and the linter."""
    session.run("ruff", "check")
    run_pytest(session, paths=CORE)
