# SPDX-License-Identifier: Apache-2.0
"""What works without TensorFlow, everything that takes ids; and the error without a backend."""

import os
import re
import subprocess
import sys

import pytest

from tests import tensorflow_blocker
from tests.source_imports import ROOT, source_files

# Each program is a process of its own, so one run of this file serves every backend.
pytestmark = pytest.mark.backend_independent

NEED_TENSORFLOW = {"keras_bert.data", "keras_bert.export"}

SMALL_MODEL = """
import numpy as np
import keras_bert

config = keras_bert.BertConfig(
    vocabulary_size=20, num_layers=2, hidden_dim=8, num_heads=2, intermediate_dim=16
)
backbone = keras_bert.Backbone(config)
ids = {
    "token_ids": np.arange(24, dtype="int32").reshape(4, 6) % 20,
    "segment_ids": np.zeros((4, 6), dtype="int32"),
    "padding_mask": np.ones((4, 6), dtype="bool"),
}
"""

TRAINING = """
print(tuple(backbone(ids)["sequence_output"].shape))
classifier = keras_bert.TextClassifier(backbone, num_classes=2)
classifier.compile()
history = classifier.fit(ids, np.array([0, 1, 0, 1]), batch_size=2, epochs=2, verbose=0)
print(np.isfinite(history.history["loss"]).tolist())
print(np.shape(classifier.predict(ids, verbose=0)))
"""

TOKENIZING = """
from keras_bert.text import WordPieceTokenizer, train_vocabulary

tokenizer = WordPieceTokenizer(train_vocabulary(["low lower", "lower, lowest"], 40, progress=False))
print(tokenizer.detokenize(tokenizer("Lower, LOW")), tokenizer.tokenize_with_offsets("löw")[1:])
"""

BLOCKER = """
import importlib.util
print(importlib.util.find_spec("tensorflow"), importlib.util.find_spec("jax") is None)
try:
    import tensorflow_text
except ModuleNotFoundError as error:
    print(error)
"""


def output_of(program: str, backend: str) -> str:
    """What a program prints in a fresh Python."""
    finished = subprocess.run(
        [sys.executable, "-c", program],
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
    return output_of("\n".join(lines), backend)


def test_the_blocker_hides_tensorflow_and_nothing_else():
    expected = "None False\nNo module named 'tensorflow_text'"
    assert run_without_tensorflow(BLOCKER, "jax") == expected


def test_the_blocker_comes_before_tensorflow_or_not_at_all(monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorflow", object())
    with pytest.raises(RuntimeError, match=r"found \['tensorflow'"):
        tensorflow_blocker.install()


@pytest.mark.parametrize("backend", ["jax", "torch"])
def test_rooms_import_and_fit_on_ids_trains(backend):
    rooms = {module for module in source_files() if re.fullmatch(r"keras_bert\.\w+", module)}
    imports = "".join(f"import {room}\n" for room in sorted(rooms - NEED_TENSORFLOW))
    printed = run_without_tensorflow(imports + TOKENIZING + SMALL_MODEL + TRAINING, backend)
    assert printed == "lower , low ([0], [3])\n(4, 6, 8)\n[True, True]\n(4, 2)"


WITHOUT_BACKEND = """
from tests import tensorflow_blocker
tensorflow_blocker.BLOCKED = {{{backend!r}}}
tensorflow_blocker.install()
import keras_bert
for name in ("Backbone", "losses"):
    try:
        getattr(keras_bert, name)
    except ModuleNotFoundError as error:
        print(error.name, error)
try:
    from keras_bert import TextClassifier
except ModuleNotFoundError as error:
    print(error.name, error)
"""


@pytest.mark.parametrize("backend", ["jax", "torch"])
def test_a_backend_that_is_not_installed_is_named_with_its_extra(backend):
    printed = output_of(WITHOUT_BACKEND.format(backend=backend), backend)
    line = (
        f"{backend} No module named {backend!r}, the backend that Keras is set to use "
        f"(KERAS_BACKEND={backend}): pip install 'keras3-bert[{backend}]'"
    )
    assert printed.splitlines() == [line] * 3
