# SPDX-License-Identifier: Apache-2.0

import os
import subprocess
import sys

import numpy as np

import keras_bert
from tests.models.small_backbone import SMALL, features

PROGRAM = """
import sys
import keras_bert
model = keras_bert.load_model(sys.argv[1], compile=False)
print(type(model).__name__)
"""


def test_a_fresh_process_needs_to_know_no_class(tmp_path):
    task = keras_bert.TokenClassifier(keras_bert.Backbone(SMALL), num_classes=3)
    path = tmp_path / "model.keras"
    task.save(path)
    finished = subprocess.run(
        [sys.executable, "-c", PROGRAM, os.fspath(path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert finished.stdout.split() == ["TokenClassifier"], finished.stderr
    loaded = keras_bert.load_model(path, compile=False)
    for one, other in zip(
        loaded.predict(features(), verbose=0), task.predict(features(), verbose=0), strict=True
    ):
        np.testing.assert_array_equal(one, other)
