# SPDX-License-Identifier: Apache-2.0
"""Models of other layers than today's are loaded, and answer and train as they did.

`27b60fa.tar.xz` holds them; `write_changed_models.py` wrote it, with the code of that commit on
TensorFlow.
"""

import io
import json
import shutil
import zipfile
from pathlib import Path

import h5py
import keras
import numpy as np
import pytest

import keras_bert
from keras_bert.ops.unpadded import padded_form
from tests.compatibility.write_changed_models import FINISHED, MODELS, outputs, train

# What each file is read to is the same on all backends.
pytestmark = [pytest.mark.on_tensorflow, pytest.mark.slow]
NAMES = [make.__name__ for make in MODELS]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("files")
    shutil.unpack_archive(Path(__file__).with_name("27b60fa.tar.xz"), folder, filter="data")
    return folder


@pytest.fixture(scope="module")
def answers(files):
    return json.loads((files / "answers.json").read_text())


def path_of(name, files):
    found = files / name
    return found if found.is_dir() else found.with_suffix(".keras")


def check_alike(received, expected):
    assert received.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_allclose(received[name], value, rtol=1e-4, atol=1e-5, err_msg=name)


def moments(model):
    return [
        (moment.path, keras.ops.convert_to_numpy(moment)) for moment in model.optimizer.variables
    ]


@pytest.mark.parametrize("name", NAMES)
def test_a_model_answers_and_trains_as_it_did(name, files, answers, tmp_path):
    model = keras_bert.load_model(path_of(name, files))
    model.run_eagerly = True  # Tracing takes longer.
    with padded_form():  # The answers have values at padding too.
        check_alike(outputs(model), answers[name]["outputs"])
    # Saved again, it is a file of today, which Keras loads.
    model.save(tmp_path / "again.keras")
    again = keras.models.load_model(tmp_path / "again.keras")
    for weight, expected in zip(again.weights, model.weights, strict=True):
        np.testing.assert_array_equal(weight, expected, err_msg=weight.path)
    if name != "encoder":
        for (path, moment), (_, expected) in zip(moments(again), moments(model), strict=True):
            np.testing.assert_array_equal(moment, expected, err_msg=path)
    if name not in FINISHED:
        train(model)
        check_alike(outputs(model), answers[name]["trained"])


@pytest.mark.on_each_backend
def test_a_model_answers_and_trains_as_it_did_on_each_backend(files, answers):
    model = keras_bert.load_model(path_of("low_rank_updates", files))
    expected = answers["low_rank_updates"]
    check_alike(outputs(model), expected["outputs"])
    train(model)
    check_alike(outputs(model), expected["trained"])


def test_the_optimizer_of_a_frozen_model_has_the_moments_that_it_had(files):
    model = keras_bert.load_model(path_of("frozen_after_training", files))
    frozen = [weight.path for weight in model.non_trainable_weights]
    assert frozen == [
        "token_embedding/embeddings",
        "layer_0/attention/output_bias",
        "layer_0/attention_norm/gamma",
        "layer_0/attention_norm/beta",
    ]
    # It was built before, for all variables, in what is their order now.
    order = [weight.path for weight in model.optimizer._trainable_variables]
    assert order == [weight.path for weight in model.weights]
    # After so few updates, the average of a weight is near it.
    averages = [moment for path, moment in moments(model) if path.endswith("_average")]
    for weight, average in zip(model.weights, averages, strict=True):
        np.testing.assert_allclose(average, weight, atol=0.03, err_msg=weight.path)


def test_a_distiller_and_an_ensemble_have_the_optimizers_of_their_parts(files):
    distiller = keras_bert.load_model(path_of("distiller", files))
    ensemble = keras_bert.load_model(path_of("ensemble", files))
    for part in (distiller.student_task, distiller.teacher_task, *ensemble.members):
        optimizer = part.optimizer
        assert int(optimizer.iterations) == 2
        for weight, moment in zip(
            optimizer._trainable_variables, optimizer._velocities, strict=True
        ):
            assert weight.path.replace("/", "_") in moment.path
            assert moment.shape == weight.shape


def test_the_token_dropout_of_distilbert_is_completed(files):
    config = keras_bert.load_model(path_of("encoder", files)).config
    assert (config.token_dropout, config.classifier_dropout) == (config.dropout, None)


def test_keras_says_how_a_model_is_loaded(files):
    with pytest.raises(
        Exception, match=r"keras_bert\.load_model loads it, and saving it again converts the file\."
    ):
        keras.models.load_model(path_of("int8", files))


def test_a_model_can_be_loaded_without_its_optimizer_and_leaves_nothing_behind(files):
    before = sorted(files.rglob("*"))
    content = path_of("pruned_heads", files).read_bytes()
    model = keras_bert.load_model(path_of("pruned_heads", files), compile=False)
    assert not model.compiled
    assert sorted(files.rglob("*")) == before
    assert path_of("pruned_heads", files).read_bytes() == content


def edited(source, target, edit, **more):
    """Writes a copy of an archive with changed weights, and other members."""
    with zipfile.ZipFile(source) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    weights = io.BytesIO(members["model.weights.h5"])
    with h5py.File(weights, "r+") as file:
        edit(file)
    members["model.weights.h5"] = weights.getvalue()
    with zipfile.ZipFile(target, "w") as archive:
        for name, content in (members | more).items():
            archive.writestr(name, content)


@keras.saving.register_keras_serializable(package="mine")
class OwnClassifier(keras_bert.TextClassifier):
    """A task of another package."""


def test_a_task_of_another_package_is_loaded(files, answers, tmp_path):
    source, path = path_of("pruned_heads", files), tmp_path / "own.keras"
    with zipfile.ZipFile(source) as archive:
        config = json.loads(archive.read("config.json"))
    config |= {"registered_name": "mine>OwnClassifier", "class_name": "OwnClassifier"}
    content = json.dumps({**config, "module": __name__}).encode()
    edited(source, path, lambda file: None, **{"config.json": content})
    model = keras_bert.load_model(path, compile=False)
    model.run_eagerly = True
    assert type(model) is OwnClassifier
    check_alike(outputs(model), answers["pruned_heads"]["outputs"])


BLOCK = "layers/token_model/layers/transformer_block"


def without_weight(file):
    del file[f"{BLOCK}/feed_forward_norm/vars/2"]


def of_another_shape(file):
    del file[f"{BLOCK}/intermediate/vars/0"]
    file[f"{BLOCK}/intermediate/vars/0"] = np.zeros((8, 13))


def linked_to_another_file(file):
    del file[f"{BLOCK}/attention_norm"]
    file[f"{BLOCK}/attention_norm"] = h5py.ExternalLink("other.h5", "/")


def linked(file):
    file["again"] = h5py.SoftLink(f"/{BLOCK}")


@pytest.mark.parametrize(
    ("edit", "more", "message"),
    [
        (without_weight, {}, "cannot be loaded: .*feed_forward_norm.*expected 2 variables"),
        (of_another_shape, {}, r"cannot be loaded: .*\(8, 13\)"),
        (linked_to_another_file, {}, "has a ExternalLink 'attention_norm' in .*transformer_block"),
        (linked, {}, "has a SoftLink 'again' in /;"),
        (lambda file: None, {"assets/x/../../y": b""}, r"no assets; found assets/x/\.\./\.\./y"),
    ],
)
def test_a_file_that_was_changed_is_an_error_that_says_in_what(
    edit, more, message, files, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    with h5py.File("other.h5", "w") as other:
        other["vars/0"] = np.zeros(8)
    edited(path_of("pruned_heads", files), tmp_path / "edited.keras", edit, **more)
    with pytest.raises(ValueError, match=rf"edited\.keras .*{message}"):
        keras_bert.load_model(tmp_path / "edited.keras")
    with h5py.File("other.h5") as other:
        assert list(other["vars"]) == ["0"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["edited.keras", "other.h5"]
