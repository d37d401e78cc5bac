# SPDX-License-Identifier: Apache-2.0
"""Loads and runs a SavedModel like a server."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")
pytest.importorskip("tensorflow_text")
saved_model_pb2 = pytest.importorskip("tensorflow.core.protobuf.saved_model_pb2")

# On JAX and PyTorch, a process on TensorFlow exports the task. Two tests of its weights are enough.
pytestmark = [pytest.mark.needs_tensorflow, pytest.mark.on_tensorflow, pytest.mark.slow]

TEXTS = (
    "",
    "a",
    "naïve café, ÉTÉ?",
    "the cat sat on the mat",
    "unbelievable " * 9,
    "many words " * 60,
)

FRESH_PROCESS = """
import json, sys
import tensorflow as tf
import tensorflow_text
directory, texts = sys.argv[1], json.loads(sys.argv[2])
signature = tf.saved_model.load(directory).signatures["serving_default"]
answers = {name: value.numpy() for name, value in signature(text=tf.constant(texts)).items()}
answers["label"] = [label.decode() for label in answers["label"]]
assert "keras_bert" not in sys.modules
print(json.dumps(answers, default=lambda value: value.tolist()))
"""


def softmax(logits):
    exponentials = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return exponentials / exponentials.sum(axis=-1, keepdims=True)


@pytest.fixture(scope="module")
def loaded_model(exported_classifier):
    return tf.saved_model.load(str(exported_classifier.directory))


@pytest.fixture(scope="module")
def serve_text(loaded_model):
    return lambda *texts: {
        name: value.numpy()
        for name, value in loaded_model.signatures["serving_default"](
            text=tf.constant(texts)
        ).items()
    }


@pytest.fixture(scope="module")
def serve_ids(loaded_model):
    return lambda ids: {
        name: value.numpy()
        for name, value in loaded_model.signatures["serve_ids"](
            token_ids=tf.constant(ids, tf.int32)
        ).items()
    }


@pytest.mark.on_each_backend
def test_tensorflow_only_process_matches_predict(exported_classifier, tmp_path):
    finished = subprocess.run(
        [
            sys.executable,
            "-c",
            FRESH_PROCESS,
            str(exported_classifier.directory),
            json.dumps(TEXTS),
        ],
        cwd=tmp_path,
        env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
        capture_output=True,
        text=True,
    )
    assert finished.returncode == 0, finished.stderr
    outputs = json.loads(finished.stdout.splitlines()[-1])

    expected = softmax(exported_classifier.classifier.predict(list(TEXTS), verbose=0))
    assert np.ptp(expected, axis=0).max() > 0.25  # The predictions differ between texts.
    np.testing.assert_allclose(outputs["probabilities"], expected, atol=1e-5)
    np.testing.assert_allclose(outputs["score"], expected.max(axis=-1), atol=1e-5)
    predictions = exported_classifier.classifier.classify(list(TEXTS))
    assert outputs["label"] == [prediction["label"] for prediction in predictions]


@pytest.mark.parametrize(
    ("unusual", "plain"),
    [
        (b"\xff\xfethe \xc3cat\x80", b"the cat"),
        (b"the\x00 cat", b"the cat"),
        (b"the cat sat " * 8500, b"the cat sat " * 50),  # 100 kB, truncated to 48 tokens
        ("the\u200b cat".encode(), b"the cat"),
    ],
    ids=["invalid UTF-8", "NUL", "100 kB", "zero-width space"],
)
def test_unusual_texts_match_plain_texts(serve_text, unusual, plain):
    np.testing.assert_allclose(
        serve_text(unusual)["probabilities"], serve_text(plain)["probabilities"], atol=1e-5
    )


def test_serve_ids_is_independent_of_padding(exported_classifier, serve_ids, serve_text):
    texts = ["the cat", "unbelievable cat"]
    features = exported_classifier.classifier.preprocessor(texts)
    ids, mask = features["token_ids"], features["padding_mask"]
    assert not mask.all()
    expected = serve_text(*texts)["probabilities"]
    padded_by_server = np.where(mask, ids, ids[0, 0])  # the first id of the batch, [CLS]
    for padded in (ids, padded_by_server, np.pad(ids, ((0, 0), (0, 9)), constant_values=2)):
        outputs = serve_ids(padded)
        np.testing.assert_allclose(outputs["probabilities"], expected, atol=1e-5)
        np.testing.assert_allclose(softmax(outputs["logits"]), expected, atol=1e-5)
    assert outputs["label"].dtype == object


@pytest.mark.on_each_backend
def test_weights_are_stored_exactly_once(exported_classifier):
    reader = tf.train.load_checkpoint(
        str(exported_classifier.directory / "variables" / "variables")
    )
    names = [name for name in reader.get_variable_to_shape_map() if name.startswith("weights/")]
    stored = sorted(reader.get_tensor(name).tobytes() for name in names)
    weights = [np.asarray(w, "float32") for w in exported_classifier.classifier.trainable_weights]
    assert stored == sorted(weight.tobytes() for weight in weights)

    data = exported_classifier.directory / "variables" / "variables.data-00000-of-00001"
    assert data.stat().st_size < sum(weight.nbytes for weight in weights) + 4000


def test_signatures_share_the_encoder_graph(exported_classifier, loaded_model):
    saved_model = saved_model_pb2.SavedModel()
    saved_model.ParseFromString((exported_classifier.directory / "saved_model.pb").read_bytes())
    (meta_graph,) = saved_model.meta_graphs
    functions = meta_graph.graph_def.library.function
    activations = [node for function in functions for node in function.node_def if node.op == "Erf"]
    assert len(loaded_model.signatures) == 4
    assert len(activations) == exported_classifier.classifier.config.num_layers


def test_export_contains_no_local_paths(exported_classifier):
    paths = {
        os.fsencode(path)
        for path in (
            exported_classifier.directory.parent,
            Path.cwd(),
            Path.home(),
            sys.prefix,
            Path(tf.__file__).parent,
        )
        if str(path) != "/"
    }
    files = [path for path in exported_classifier.directory.rglob("*") if path.is_file()]
    assert {path.name for path in files} >= {"saved_model.pb", "variables.index"}
    mentions = [(path.name, name) for path in files for name in paths if name in path.read_bytes()]
    assert mentions == []
    assert not (exported_classifier.directory / "assets").is_dir() or not any(
        (exported_classifier.directory / "assets").iterdir()
    )
