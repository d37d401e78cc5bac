# SPDX-License-Identifier: Apache-2.0
"""Everything except exports works without TensorFlow, and a missing backend raises an error."""

import os
import re
import subprocess
import sys

import pytest

from tests import tensorflow_blocker
from tests.source_imports import ROOT, source_files

pytestmark = pytest.mark.slow
BACKEND = os.environ["KERAS_BACKEND"]
# Each program runs in a separate process, which finds TensorFlow although this one does not.
on_other_backends = pytest.mark.skipif(BACKEND == "tensorflow", reason="imports TensorFlow")

BLOCKER = """
import importlib.util
print(importlib.util.find_spec("tensorflow"), importlib.util.find_spec("jax") is None)
try:
    import tensorflow_text
except ModuleNotFoundError as error:
    print(error)
"""


def run_python(*arguments: str, backend: str) -> str:
    """Runs Python in a new process, and returns its output."""
    process = subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env=os.environ | {"KERAS_BACKEND": backend},
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    return process.stdout.strip()


def run_without_tensorflow(program: str, backend: str) -> str:
    """Runs a program in a new Python process without TensorFlow, and returns its output."""
    lines = (
        "from tests import tensorflow_blocker",
        "tensorflow_blocker.install()",
        program,
        "import sys",
        "assert not tensorflow_blocker.BLOCKED & sys.modules.keys()",
    )
    return run_python("-c", "\n".join(lines), backend=backend)


@pytest.mark.backend_independent
def test_blocker_hides_only_tensorflow():
    expected = "None False\nNo module named 'tensorflow_text'"
    assert run_without_tensorflow(BLOCKER, "jax") == expected


@pytest.mark.backend_independent
def test_blocker_after_tensorflow_raises(monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorflow", object())
    with pytest.raises(RuntimeError, match=r"found \['tensorflow'"):
        tensorflow_blocker.install()


@pytest.mark.backend_independent
def test_all_packages_import_without_tensorflow():
    packages = sorted(name for name in source_files() if re.fullmatch(r"keras_bert\.\w+", name))
    assert not run_without_tensorflow("".join(f"import {name}\n" for name in packages), "jax")


@on_other_backends
def test_text_does_not_import_tensorflow(tmp_path):
    output = run_python("-m", "tests.text_without_tensorflow", str(tmp_path), backend=BACKEND)
    assert output.splitlines()[-1] == "TensorFlow is not imported"
    if BACKEND == "torch":
        assert len((tmp_path / "answers.jsonl").read_text().splitlines()) == 4
        assert (tmp_path / "insight" / "index.html").exists()


WITHOUT_BACKEND = """
from tests import tensorflow_blocker
tensorflow_blocker.BLOCKED = {{{backend!r}}}
tensorflow_blocker.install()
import keras_bert
for name in ("Backbone", "losses"):
    try:
        getattr(keras_bert, name)
    except (ModuleNotFoundError, ValueError) as error:
        print(error)
try:
    from keras_bert import TextClassifier
except (ModuleNotFoundError, ValueError) as error:
    print(error)
"""


@pytest.mark.backend_independent
@pytest.mark.parametrize(
    ("backend", "advice"),
    [
        (
            "tensorflow",
            "=tensorflow): pip install tensorflow, or set KERAS_BACKEND to jax or torch",
        ),
        ("jax", "(KERAS_BACKEND=jax): pip install -e '.[jax]' in a checkout of keras_bert"),
        (
            "pytorch",
            "KERAS_BACKEND must be one of tensorflow, jax, torch. Received: 'pytorch'. Did",
        ),
    ],
)
def test_missing_backend_error_shows_fix(backend, advice):
    output = run_python("-c", WITHOUT_BACKEND.format(backend=backend), backend=backend)
    lines = output.splitlines()
    assert len(lines) == 3
    for line in lines:
        assert advice in line
