# SPDX-License-Identifier: Apache-2.0
"""What every test run shares: the backend, the TensorFlow-free run, and a fresh Keras per test.

`KERAS_BACKEND` picks the backend (TensorFlow where it is unset). `KERAS_BERT_BLOCK_TENSORFLOW=1`
makes TensorFlow look as if it were not installed.
"""

import contextlib
import gc
import importlib
import os
import sys
from collections.abc import Generator, Iterator
from typing import Any

import pytest

from tests import processes, tensorflow_blocker

os.environ.setdefault("KERAS_BACKEND", "tensorflow")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

with contextlib.suppress(ImportError):
    importlib.import_module(processes.BEFORE_TENSORFLOW)

BACKEND = os.environ["KERAS_BACKEND"]
TENSORFLOW_IS_BLOCKED = os.environ.get("KERAS_BERT_BLOCK_TENSORFLOW") == "1"

if TENSORFLOW_IS_BLOCKED:
    tensorflow_blocker.install()


def _belongs_to_this_run(item: pytest.Item) -> bool:
    if TENSORFLOW_IS_BLOCKED and item.get_closest_marker("needs_tensorflow"):
        return False
    if BACKEND == "tensorflow" or item.get_closest_marker("on_each_backend"):
        return True
    runs_once = "backend_independent", "on_tensorflow"
    return not (
        isinstance(item, pytest.DoctestItem) or any(map(item.get_closest_marker, runs_once))
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    left_out = [item for item in items if not _belongs_to_this_run(item)]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if _belongs_to_this_run(item)]


def pytest_collection_finish() -> None:
    """Saves time that no test is about."""
    # The collector passes over the millions of objects that imports made: a tenth of the time.
    gc.freeze()
    gc.set_threshold(10_000, 20, 20)
    # JAX writes into each program that it compiles which lines called its operations.
    if "jax" in sys.modules:
        sys.modules["jax"].config.update("jax_traceback_in_locations_limit", 0)
    # TensorFlow optimizes each graph before its first step, which takes longer than the steps do.
    # Children of the tests, the programs among them, run optimized graphs.
    if "tensorflow" in sys.modules:
        import tensorflow as tf

        tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
        # And the graph of each pipeline, before its first batch.
        make_options = tf.data.Options

        def options() -> Any:
            made = make_options()
            made.experimental_optimization.apply_default_optimizations = False
            return made

        tf.data.Options = options
        # And it keeps, for its errors, where each operation was made: a tenth of the time to trace
        # what is below fifty calls of pytest and Keras.
        tf_stack = importlib.import_module("tensorflow.python.util.tf_stack")
        here = tf_stack.extract_stack()
        tf_stack.extract_stack = lambda stacklevel=1: here


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(
    item: pytest.Item, nextitem: pytest.Item | None
) -> Generator[None, Any, Any]:
    """Leaves each module's objects behind.

    TensorFlow keeps the graphs of functions that are gone, and Keras collects the garbage of the
    whole process for each weight that it quantizes: it took half a minute at the end of a leg.
    """
    result = yield
    if nextitem is not None and nextitem.path != item.path:
        gc.collect()
        gc.freeze()
    return result


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, Any]:
    """Where TensorFlow is blocked, a test that is skipped for that reason must be marked.

    The leg `jax` of `tests.run` runs what is marked, and nothing else.
    """
    report = yield
    if TENSORFLOW_IS_BLOCKED and report.skipped and "import 'tensorflow" in str(report.longrepr):
        report.outcome = "failed"
        report.longrepr = f"{item.nodeid} needs TensorFlow, and is not marked needs_tensorflow"
    return report


@pytest.fixture(autouse=True)
def names_in_doctests(request: pytest.FixtureRequest) -> None:
    """Examples in docstrings begin where `import keras, keras_bert, numpy as np` has been run."""
    if isinstance(request.node, pytest.DoctestItem):
        names = request.getfixturevalue("doctest_namespace")
        for name, module in {"keras": "keras", "keras_bert": "keras_bert", "np": "numpy"}.items():
            names[name] = importlib.import_module(module)


@pytest.fixture(autouse=True, scope="session")
def quick_child_processes() -> Iterator[None]:
    """Exports, and programs that others start, run in processes that have imported TensorFlow."""
    with pytest.MonkeyPatch.context() as patch:
        if not TENSORFLOW_IS_BLOCKED:
            from keras_bert.export import job
            from training.benchmarks import subject
            from training.engine import child_programs

            for module in (job, child_programs, subject):
                patch.setattr(module, "subprocess", processes)
        yield
    processes.close()


@pytest.fixture(autouse=True)
def fresh_keras() -> Iterator[None]:
    """Seeds every test alike and takes back a dtype policy that a test has set."""
    keras = sys.modules.get("keras")
    if keras is None:
        yield
        return
    policy = keras.config.dtype_policy()
    with pytest.MonkeyPatch.context() as patch:
        if "tensorflow" in sys.modules:
            # TensorFlow's own seed, which Keras does not use, would throw away all kernels: to
            # create a model then takes twice as long.
            patch.setattr(sys.modules["tensorflow"].random, "set_seed", lambda seed: None)
        keras.utils.set_random_seed(0)
    yield
    keras.config.set_dtype_policy(policy)
