# SPDX-License-Identifier: Apache-2.0
"""Which tests a run has, and Keras before each of them.

`KERAS_BACKEND` chooses the backend (TensorFlow where it is unset). `KERAS_BERT_BLOCK_TENSORFLOW=1`
makes TensorFlow appear not to be installed. `KERAS_BERT_RELEASE=1` also runs the tests that are
marked `release`.
"""

import collections
import contextlib
import gc
import importlib
import importlib.util
import os
import random
import re
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

from tests import tensorflow_blocker

BACKEND = os.environ.setdefault("KERAS_BACKEND", "tensorflow")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
TENSORFLOW_IS_BLOCKED = os.environ.get("KERAS_BERT_BLOCK_TENSORFLOW") == "1"
if TENSORFLOW_IS_BLOCKED:
    tensorflow_blocker.install()
# PyTorch's builds for CUDA bring it; imported after TensorFlow, it ends the process.
BEFORE_TENSORFLOW = "triton"
MARK = r"pytest\.mark\.(\w+)"
# The backends that run a test with one of these marks. Tests without run on all of them.
RUNS_ON = {
    "backend_independent": ("tensorflow",),
    "on_tensorflow": ("tensorflow",),
    "on_torch": ("torch",),
    "on_each_backend": ("tensorflow", "jax", "torch"),
}
# Marks of tests that another session runs than those without TensorFlow
RUNS_ELSEWHERE = ("needs_tensorflow", "backend_independent", "on_tensorflow")
with contextlib.suppress(ImportError):
    importlib.import_module(BEFORE_TENSORFLOW)

# Their session, `nox -s beam`, has an environment of its own.
if importlib.util.find_spec("apache_beam") is None:
    collect_ignore_glob = ["training/pretraining/beam_*.py"]


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Hides from the garbage collector what is imported, all of which stays: it would look at a
    million objects again and again. It looks at 50,000 new ones at a time, instead of 700."""
    gc.set_threshold(50_000)
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def _is_selected(marks: Sequence[str]) -> bool:
    """Returns whether this run has a test with these marks, the nearest mark first."""
    if TENSORFLOW_IS_BLOCKED and "needs_tensorflow" in marks:
        return False
    if "release" in marks and os.environ.get("KERAS_BERT_RELEASE") != "1":
        return False
    return BACKEND in next((RUNS_ON[mark] for mark in marks if mark in RUNS_ON), (BACKEND,))


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Imports no file whose marks, of the file as a whole, leave all of its tests out."""
    if not collection_path.name.endswith("_test.py"):
        return None
    text = collection_path.read_text("utf-8")
    module = re.search(r"^pytestmark = .*?\n\n", text, re.MULTILINE | re.DOTALL)
    marks = re.findall(MARK, module[0]) if module else []
    tests = [[mark, *marks] for mark in re.findall(MARK, text)]
    return None if any(map(_is_selected, [marks, *tests])) else True


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leaves out what does not run on this backend; slow files first, then those of many tests.

    Two processes share the files in this order, and neither should begin a slow one at the end.
    """
    items[:] = [item for item in items if _is_selected([mark.name for mark in item.iter_markers()])]
    sizes = collections.Counter(item.path for item in items)
    items.sort(key=lambda item: (item.get_closest_marker("slow") is None, -sizes[item.path]))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item):
    """Fails what is skipped for want of TensorFlow without the mark: no session would run it."""
    report = yield
    if TENSORFLOW_IS_BLOCKED and report.skipped and "import 'tensorflow" in str(report.longrepr):
        report.outcome, report.longrepr = "failed", f"{item.nodeid} lacks the mark needs_tensorflow"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector):
    """Fails a module that is skipped as a whole for want of TensorFlow without the mark, too."""
    report = yield
    if TENSORFLOW_IS_BLOCKED and report.skipped and "import 'tensorflow" in str(report.longrepr):
        source = collector.path.read_text(encoding="utf-8")
        if not any(mark in source for mark in RUNS_ELSEWHERE):
            report.outcome, report.longrepr = "failed", f"{collector.nodeid} lacks needs_tensorflow"
    return report


@pytest.fixture
def press_ctrl_c() -> Iterator[Callable[[], None]]:
    """A function that presses Ctrl-C, which the processes of pytest-xdist ignore."""
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield lambda: signal.raise_signal(signal.SIGINT)
    signal.signal(signal.SIGINT, handler)


@pytest.fixture(autouse=True, scope="module")
def seeded_tensorflow() -> None:
    """Seeds TensorFlow once for each file, since it then prepares all graphs once more.

    It draws no more than the order of arrays that Keras shuffles; the rest is from `fresh_keras`.
    """
    if BACKEND == "tensorflow" and (keras := sys.modules.get("keras")):
        keras.utils.set_random_seed(0)


@pytest.fixture(autouse=True)
def fresh_keras(request: pytest.FixtureRequest) -> Iterator[None]:
    """Seeds each test alike, and takes back its dtype policy; docstrings' examples have names."""
    if isinstance(request.node, pytest.DoctestItem):
        modules = {name: importlib.import_module(name) for name in ("keras", "keras_bert", "numpy")}
        request.getfixturevalue("doctest_namespace").update(modules, np=modules["numpy"])
    with contextlib.ExitStack() as afterwards:
        random.seed(0)
        np.random.seed(0)
        if keras := sys.modules.get("keras"):
            if BACKEND != "tensorflow":
                keras.utils.set_random_seed(0)
            afterwards.callback(keras.config.set_dtype_policy, keras.config.dtype_policy())
        yield
