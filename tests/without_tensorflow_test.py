# SPDX-License-Identifier: Apache-2.0
"""What works without TensorFlow: all but exports; and the error without a backend."""

import os
import re
import subprocess
import sys

import pytest

from tests import tensorflow_blocker
from tests.source_imports import ROOT, source_files

pytestmark = pytest.mark.slow
BACKEND = os.environ["KERAS_BACKEND"]
# Each program is a process of its own, which finds TensorFlow although this one does not.
on_other_backends = pytest.mark.skipif(BACKEND == "tensorflow", reason="imports TensorFlow")

BLOCKER = """
import importlib.util
print(importlib.util.find_spec("tensorflow"), importlib.util.find_spec("jax") is None)
try:
    import tensorflow_text
except ModuleNotFoundError as error:
    print(error)
"""


def output_of(*arguments: str, backend: str) -> str:
    """What a fresh Python prints."""
    finished = subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env=os.environ | {"KERAS_BACKEND": backend},
        capture_output=True,
        text=True,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr
    return finished.stdout.strip()


def run_without_tensorflow(program: str, backend: str) -> str:
    """What a program prints in a fresh Python that finds no TensorFlow."""
    lines = (
        "from tests import tensorflow_blocker",
        "tensorflow_blocker.install()",
        program,
        "import sys",
        "assert not tensorflow_blocker.BLOCKED & sys.modules.keys()",
    )
    return output_of("-c", "\n".join(lines), backend=backend)


@pytest.mark.backend_independent
def test_the_blocker_hides_tensorflow_and_nothing_else():
    expected = "None False\nNo module named 'tensorflow_text'"
    assert run_without_tensorflow(BLOCKER, "jax") == expected


@pytest.mark.backend_independent
def test_the_blocker_comes_before_tensorflow_or_not_at_all(monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorflow", object())
    with pytest.raises(RuntimeError, match=r"found \['tensorflow'"):
        tensorflow_blocker.install()


@pytest.mark.backend_independent
def test_every_room_imports():
    packages = sorted(name for name in source_files() if re.fullmatch(r"keras_bert\.\w+", name))
    assert not run_without_tensorflow("".join(f"import {name}\n" for name in packages), "jax")


@on_other_backends
def test_tasks_and_programs_on_text_do_not_import_tensorflow(tmp_path):
    printed = output_of("-m", "tests.text_without_tensorflow", str(tmp_path), backend=BACKEND)
    assert printed.splitlines()[-1] == "TensorFlow is not imported"
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
def test_a_backend_that_is_not_there_is_named_with_what_to_do(backend, advice):
    printed = output_of("-c", WITHOUT_BACKEND.format(backend=backend), backend=backend)
    lines = printed.splitlines()
    assert len(lines) == 3
    for line in lines:
        assert advice in line
