# SPDX-License-Identifier: Apache-2.0
"""What works where TensorFlow is not installed: everything that takes ids."""

import os
import subprocess
import sys

import pytest

from tests import tensorflow_blocker
from tests.source_imports import ROOT

# Each program is a process of its own, so one run of this file serves every backend.
pytestmark = pytest.mark.backend_independent

SMALL_MODEL = """
import importlib
import numpy as np
import keras_bert

for room in ("ops", "layers", "models", "losses", "metrics", "optimizers", "checkpoints"):
    importlib.import_module(f"keras_bert.{room}")
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

BACKBONE = """
print(tuple(backbone(ids)["sequence_output"].shape))
"""

CLASSIFIER = """
classifier = keras_bert.TextClassifier(backbone, num_classes=2)
classifier.compile()
history = classifier.fit(ids, np.array([0, 1, 0, 1]), batch_size=2, epochs=2, verbose=0)
print(np.isfinite(history.history["loss"]).tolist())
print(np.shape(classifier.predict(ids, verbose=0)))
"""

BLOCKER = """
import importlib.util
print(importlib.util.find_spec("tensorflow"), importlib.util.find_spec("jax") is None)
try:
    import tensorflow_text
except ModuleNotFoundError as error:
    print(error)
"""


def run_without_tensorflow(program: str, backend: str) -> str:
    """What a program prints in a fresh Python that finds no TensorFlow."""
    lines = (
        "from tests import tensorflow_blocker",
        "tensorflow_blocker.install()",
        program,
        "import sys",
        "assert not tensorflow_blocker.BLOCKED & sys.modules.keys()",
    )
    finished = subprocess.run(
        [sys.executable, "-c", "\n".join(lines)],
        cwd=ROOT,
        env=os.environ | {"KERAS_BACKEND": backend},
        capture_output=True,
        text=True,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr
    return finished.stdout.strip()


def test_the_blocker_hides_tensorflow_and_nothing_else():
    expected = "None False\nNo module named 'tensorflow_text'"
    assert run_without_tensorflow(BLOCKER, "jax") == expected


def test_the_blocker_comes_before_tensorflow_or_not_at_all(monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorflow", object())
    with pytest.raises(RuntimeError, match=r"found \['tensorflow'"):
        tensorflow_blocker.install()


@pytest.mark.parametrize("backend", ["jax", "torch"])
def test_every_room_but_text_and_data_imports_and_a_backbone_computes(backend):
    assert run_without_tensorflow(SMALL_MODEL + BACKBONE, backend) == "(4, 6, 8)"


@pytest.mark.parametrize("backend", ["jax", "torch"])
def test_fit_and_predict_on_ids(backend):
    printed = run_without_tensorflow(SMALL_MODEL + CLASSIFIER, backend)
    assert printed == "[True, True]\n(4, 2)"
