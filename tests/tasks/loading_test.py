# SPDX-License-Identifier: Apache-2.0

import os
import subprocess
import sys
import zipfile

import keras
import numpy as np
import pytest

import keras_bert
from tests.models.small_backbone import SMALL, features

pytestmark = pytest.mark.filterwarnings("ignore:.*legacy")


def zipped(path, **files):
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in files.items():
            archive.writestr(f"{name}.json", text)


def cut_off(path):
    keras_bert.Backbone(SMALL).save(path)
    path.write_bytes(path.read_bytes()[:-3000])


def damaged(path):
    keras_bert.Backbone(SMALL).save(path)
    content = bytearray(path.read_bytes())
    middle = len(content) // 2
    content[middle : middle + 8] = bytes(255 - byte for byte in content[middle : middle + 8])
    path.write_bytes(content)


def foreign(path):
    keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)]).save(path)


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (lambda path: path.write_text("hello world"), "not a valid .* 11 bytes, starting with"),
        (lambda path: path.write_bytes(b"\x89HDF\r\n\x1a\n..."), "found 11 bytes, an HDF5 file"),
        (cut_off, "not a valid .* a truncated archive"),
        (damaged, "is a corrupt `.keras` archive: Bad CRC-32"),
        (lambda path: zipped(path, other="{}"), r"has no config\.json; found other\.json"),
        (lambda path: zipped(path, config="[" * 10**5), r"its config\.json is not JSON"),
        (lambda path: zipped(path, config="[]"), "of the class None"),
        (foreign, "has a model of the class 'Sequential' .*expected a task or a Backbone"),
        (lambda path: path.mkdir(), "is a folder without config.json"),
    ],
)
def test_what_is_no_model_of_ours_is_an_error_that_says_what_was_found(write, message, tmp_path):
    path = tmp_path / "model.keras"
    write(path)
    with pytest.raises(ValueError, match=rf"model\.keras.*{message}"):
        keras_bert.load_model(path)


def test_a_missing_file_and_a_preset_are_told_from_models(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"gone\.keras does not exist"):
        keras_bert.load_model(tmp_path / "gone.keras")
    keras_bert.Backbone(SMALL).save_to_preset(tmp_path)
    with pytest.raises(ValueError, match=r"folder of a preset .* `from_preset`"):
        keras_bert.load_model(tmp_path)


PROGRAM = """
import sys
import keras_bert
model = keras_bert.load_model(sys.argv[1], compile=False)
print(type(model).__name__)
"""


@pytest.mark.backend_independent
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
