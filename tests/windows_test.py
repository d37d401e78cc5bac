# SPDX-License-Identifier: Apache-2.0
"""Parts that Windows does not have are neither required nor used without an alternative.

The workflow `.github/workflows/windows.yml` runs on Windows.
"""

import ast
import subprocess
import sys
import tomllib

import pytest
from packaging.markers import default_environment
from packaging.requirements import Requirement

from tests.source_imports import ROOT

pytestmark = pytest.mark.backend_independent

SYSTEMS = {"Windows": "win32", "Darwin": "darwin", "Linux": "linux"}
# Modules of the standard library that Windows lacks
LACKING = {"fcntl", "grp", "pty", "pwd", "resource", "termios"}
# Functions of `os` that Windows lacks
FUNCTIONS = ("fork", "getloadavg", "pread", "register_at_fork", "sched_getaffinity", "uname")
# Handles files like the commands, without these modules and functions
PROGRAM = f"""
import os, sys, threading
import keras  # with libraries that ask which system it is
for name in {sorted(LACKING)}:
    sys.modules[name] = None
for name in {FUNCTIONS}:
    delattr(os, name)

from pathlib import Path
from keras_bert.atomic import atomic_path
from keras_bert.data.pretraining.token_store import TokenStore, TokenStoreWriter
import keras_bert.models.threads
import training.benchmarks.library
from training.engine import output_directory, program

def main(arguments):
    with output_directory.lock_output_dir("output") as directory:
        with atomic_path(directory / "saved", sync=True) as new:
            new.mkdir()
            (new / "vocab.txt").write_text("[PAD]")
        documents = [[[start, start + 1], [start]] for start in range(50)]
        with TokenStoreWriter(directory / "store") as writer:
            for document in documents:
                writer.add_sentences(document)
                writer.end_document()
        store = TokenStore(directory / "store")
        read = []

        def read_all():
            read.append([[ids.tolist() for ids in document] for document in store])

        threads = [threading.Thread(target=read_all) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert read == [documents] * 4
    print("kept", sorted(path.name for path in directory.iterdir()))

sys.argv = ["program"]
program.run(main)
"""


def read_project():
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def required_distributions(requirements, system):
    """The names of the distributions that pip installs on a system."""
    environment = {
        **default_environment(),
        "platform_system": system,
        "sys_platform": SYSTEMS[system],
        "os_name": "nt" if system == "Windows" else "posix",
        "extra": "",
    }
    parsed = map(Requirement, requirements)
    return {
        item.name for item in parsed if item.marker is None or item.marker.evaluate(environment)
    }


@pytest.mark.parametrize("system", SYSTEMS)
def test_tensorflow_text_is_not_required_on_windows(system):
    pinned = [
        line
        for line in (ROOT / "requirements-test.txt").read_text(encoding="utf-8").splitlines()
        if not line.startswith("#")
    ]
    optional = [
        item for items in read_project()["optional-dependencies"].values() for item in items
    ]
    for requirements in (read_project()["dependencies"], pinned, optional):
        everywhere = {Requirement(item).name for item in requirements}
        missing = {"tensorflow-text"} & everywhere if system == "Windows" else set()
        assert required_distributions(requirements, system) == everywhere - missing
    assert {"keras", "numpy", "sentencepiece"} <= required_distributions(
        read_project()["dependencies"], system
    )


def test_unix_imports_are_guarded():
    for path in [*ROOT.glob("keras_bert/**/*.py"), *ROOT.glob("training/**/*.py")]:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        handled = {
            child
            for node in ast.walk(tree)
            if isinstance(node, ast.Try) and node.handlers
            for child in ast.walk(node)
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.Import) and node not in handled:
                names = {alias.name for alias in node.names}
                assert not names & LACKING, f"{path}:{node.lineno}"


def test_commands_run_without_unix_modules(tmp_path):
    process = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT), "KERAS_BACKEND": "jax", "PATH": ""},
        capture_output=True,
        text=True,
    )
    assert process.returncode == 0, process.stderr
    assert process.stdout == "kept ['.keras_bert.lock', 'saved', 'store']\n"
