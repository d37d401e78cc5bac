# SPDX-License-Identifier: Apache-2.0

import copy
import json
import os
import subprocess
import sys
import zipfile

import keras
import numpy as np
import pytest

import keras_bert
from keras_bert.vocabularies import files
from tests.models.small_backbone import SMALL, features

pytestmark = pytest.mark.filterwarnings("ignore:.*legacy")


def write_archive(path, **files):
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in files.items():
            archive.writestr(f"{name}.json", text)


def write_truncated(path):
    keras_bert.Backbone(SMALL).save(path)
    path.write_bytes(path.read_bytes()[:-3000])


def write_corrupt(path):
    keras_bert.Backbone(SMALL).save(path)
    content = bytearray(path.read_bytes())
    middle = len(content) // 2
    content[middle : middle + 8] = bytes(255 - byte for byte in content[middle : middle + 8])
    path.write_bytes(content)


def write_foreign(path):
    keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)]).save(path)


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (lambda path: path.write_text("hello world"), "Received: 11 bytes, starting with"),
        (
            lambda path: path.write_bytes(b"\x89HDF\r\n\x1a\n..."),
            "Received: 11 bytes, an HDF5 file",
        ),
        (write_truncated, r"Received: [\d,]+ bytes, a truncated archive"),
        (write_corrupt, "is a corrupt `.keras` archive: Bad CRC-32"),
        (lambda path: write_archive(path, other="{}"), r"without config\.json, with other\.json"),
        (lambda path: write_archive(path, config="[" * 10**5), r"its config\.json is not JSON"),
        (lambda path: write_archive(path, config="[]"), "of the class None"),
        (
            write_foreign,
            r"must contain a task or a Backbone of keras_bert\. Received: a model of the class "
            "'Sequential'",
        ),
        (
            lambda path: write_archive(path, config='{"registered_name": "keras_bert>Backbone"}'),
            r"must contain weights in model\.weights\.h5 or",
        ),
        (lambda path: path.mkdir(), "a directory without config.json"),
    ],
)
def test_unloadable_file_error_includes_path(write, message, tmp_path):
    path = tmp_path / "model.keras"
    write(path)
    with pytest.raises(ValueError, match=rf"model\.keras.*{message}"):
        keras_bert.load_model(path)


def test_load_model_rejects_other_paths(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"gone\.keras does not exist"):
        keras_bert.load_model(tmp_path / "gone.keras")
    keras_bert.Backbone(SMALL).save_to_preset(tmp_path)
    with pytest.raises(
        ValueError, match=r"directory of a preset or checkpoint\. Load it with `from_preset`"
    ):
        keras_bert.load_model(tmp_path)
    export = tmp_path / "1"
    export.mkdir()
    (export / "saved_model.pb").touch()
    with pytest.raises(ValueError, match=r"Load an export with `keras_bert\.export\.ServedModel`"):
        keras_bert.load_model(export)


VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "a", "film"]


@pytest.fixture(scope="module")
def saved_classifier(tmp_path_factory):
    preprocessor = {"tokenizer": {"vocabulary": VOCABULARY}, "sequence_length": 8}
    classifier = keras_bert.TextClassifier(keras_bert.Backbone(SMALL), 2, preprocessor)
    classifier.compile("sgd")
    path = tmp_path_factory.mktemp("saved") / "classifier.keras"
    classifier.save(path)
    return path


def write_edited(source, target, *keys, value):
    """Writes a copy of an archive with a new value in config.json. `...` removes the value."""
    with zipfile.ZipFile(source) as archive:
        contents = {name: archive.read(name) for name in archive.namelist()}
    config = json.loads(contents["config.json"])
    fields = config
    for key in keys[:-1]:
        fields = fields[key]
    if value is ...:
        del fields[keys[-1]]
    else:
        fields[keys[-1]] = copy.deepcopy(value)
    contents["config.json"] = json.dumps(config).encode()
    with zipfile.ZipFile(target, "w") as archive:
        for name, content in contents.items():
            archive.writestr(name, content)


PREPROCESSOR = ("config", "preprocessor")
TOKENIZER = (*PREPROCESSOR, "tokenizer")
ARCHITECTURE = ("config", "backbone", "config", "config")
HUB_TOKENIZER = {
    "module": "keras_hub.tokenizers",
    "class_name": "BertTokenizer",
    "registered_name": "keras_hub>BertTokenizer",
    "config": {"vocabulary": "vocab.txt"},
}


@pytest.mark.on_torch
@pytest.mark.parametrize(
    ("keys", "value", "message"),
    [
        (
            [*TOKENIZER, "vocabulary"],
            ["[PAD]", 5],
            r"vocabulary in a tokenizer config must be a list of strings",
        ),
        ([*TOKENIZER, "vocabulary"], ..., "wordpiece tokenizer lacks vocabulary. The fields are"),
        (
            [*TOKENIZER, "lowercase"],
            "yes",
            "lowercase in a tokenizer config must be True or False",
        ),
        ([*TOKENIZER, "file"], "x", "wordpiece tokenizer has 'file'. The fields are"),
        (TOKENIZER, [], r"A tokenizer config must be a dict"),
        (
            [*PREPROCESSOR, "sequence_length"],
            "8",
            "sequence_length of the preprocessor must be an integer",
        ),
        (
            [*PREPROCESSOR, "sequence_length"],
            ...,
            "preprocessor must have sequence_length. Received",
        ),
        (["config", "backbone"], ..., "KeyError: 'backbone'"),
        (["config", "backbone"], HUB_TOKENIZER, "Received: a 'BertTokenizer' of keras_hub"),
        (
            ["config", "num_classes"],
            10**9,
            "num_classes must fit in the file of weights. Received: 1000000000",
        ),
        (["config", "num_classes"], "two", "cannot be loaded: "),
        (
            [*ARCHITECTURE, "vocabulary_size"],
            10**12,
            r"must contain the architecture's 16,000,[\d,]+ parameters",
        ),
        ([*ARCHITECTURE, "hidden_dim"], {}, "BertConfig.hidden_dim must be an integer"),
        ([*ARCHITECTURE, "dropout"], float("nan"), "is not JSON: the number NaN is not finite"),
        (["compile_config", "optimizer"], {"class_name": 5}, "cannot be loaded: "),
        (
            ["registered_name"],
            "keras_bert>AdamW",
            "must contain a task or a Backbone of keras_bert",
        ),
    ],
)
def test_invalid_config_error_includes_file(keys, value, message, saved_classifier, tmp_path):
    path = tmp_path / "model.keras"
    write_edited(saved_classifier, path, *keys, value=value)
    with pytest.raises(ValueError, match=message) as raised:
        keras_bert.load_model(path)
    assert str(raised.value).startswith(str(path))
    assert "\n" not in str(raised.value)
    assert len(str(raised.value)) < 700 + len(str(path))


@pytest.mark.on_torch
def test_vocabulary_path_in_config_is_not_opened(saved_classifier, tmp_path):
    """Otherwise an error message or a saved copy could contain the file's content."""
    secret, path = tmp_path / "vocab.txt", tmp_path / "model.keras"
    secret.write_text("\n".join([*VOCABULARY, "secret"]))
    write_edited(saved_classifier, path, *TOKENIZER, "vocabulary", value=os.fspath(secret))
    with pytest.raises(ValueError, match="must be a list of strings") as raised:
        keras_bert.load_model(path)
    assert "'secret'" not in str(raised.value)


@pytest.mark.on_torch
@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("part", ["backbone", "optimizer"])
def test_non_finite_weight_error_includes_name(part, value, tmp_path):
    backbone = keras_bert.Backbone(SMALL)
    backbone.compile(keras_bert.optimizers.AdamW(1e-3))
    backbone.optimizer.build(backbone.trainable_variables)
    variables = {"backbone": backbone.weights, "optimizer": backbone.optimizer.variables}[part]
    variable = next(variable for variable in variables if len(variable.shape) == 2)
    array = keras.ops.convert_to_numpy(variable).copy()
    array[1, 2:4] = value
    variable.assign(array)
    path = tmp_path / "model.keras"
    backbone.save(path)
    expected = (
        rf"model\.keras: weight '{variable.path}' must only have finite values\. Received: 2 "
        rf"infinite or NaN values, the first is {value} at \[1, 2"
    )
    with pytest.raises(ValueError, match=expected):
        keras_bert.load_model(path)
    if part == "optimizer":
        keras_bert.load_model(path, compile=False)


@pytest.mark.backend_independent
def test_oversized_archive_raises_before_reading(tmp_path, monkeypatch):
    path = tmp_path / "model.keras"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("config.json", "{}")
        archive.writestr("model.weights.h5", bytes(2**26 + 1))
    with pytest.raises(
        ValueError,
        match=r"model\.weights\.h5 must expand to at most 100 times its .* size\. Received: 67,1",
    ):
        keras_bert.load_model(path)
    monkeypatch.setattr(files, "MAX_BYTES", 1000)
    write_archive(path, config=" " * 1001)
    expected = r"model\.keras: its config\.json must have at most 1,000 bytes"
    with pytest.raises(ValueError, match=expected):
        keras_bert.load_model(path)
    directory = tmp_path / "directory.keras"
    directory.mkdir()
    for name in ("config", "metadata"):
        (directory / f"{name}.json").write_text(" " * 1001)
    with pytest.raises(ValueError, match=r"config\.json: the file must have at most 1,000 bytes"):
        keras_bert.load_model(directory)


PROGRAM = """
import sys
import keras_bert
model = keras_bert.load_model(sys.argv[1], compile=False)
print(type(model).__name__)
"""


@pytest.mark.on_torch
def test_new_process_loads_without_custom_objects(tmp_path):
    task = keras_bert.TokenClassifier(keras_bert.Backbone(SMALL), num_classes=3)
    path = tmp_path / "model.keras"
    task.save(path)
    process = subprocess.run(
        [sys.executable, "-c", PROGRAM, os.fspath(path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.stdout.split() == ["TokenClassifier"], process.stderr
    loaded = keras_bert.load_model(path, compile=False)
    for one, other in zip(
        loaded.predict(features(), verbose=0), task.predict(features(), verbose=0), strict=True
    ):
        np.testing.assert_array_equal(one, other)
