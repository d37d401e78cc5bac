# SPDX-License-Identifier: Apache-2.0
"""The SavedModel, as a server would use it."""

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

pytestmark = [pytest.mark.needs_tensorflow, pytest.mark.slow]

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
folder, texts = sys.argv[1], json.loads(sys.argv[2])
signature = tf.saved_model.load(folder).signatures["serving_default"]
answers = {name: value.numpy() for name, value in signature(text=tf.constant(texts)).items()}
answers["label"] = [label.decode() for label in answers["label"]]
assert "keras_bert" not in sys.modules
print(json.dumps(answers, default=lambda value: value.tolist()))
"""


def probabilities_of(logits):
    exponentials = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return exponentials / exponentials.sum(axis=-1, keepdims=True)


@pytest.fixture(scope="module")
def loaded(exported):
    return tf.saved_model.load(str(exported.folder))


@pytest.fixture(scope="module")
def serve_text(loaded):
    return lambda *texts: {
        name: value.numpy()
        for name, value in loaded.signatures["serving_default"](text=tf.constant(texts)).items()
    }


@pytest.fixture(scope="module")
def serve_ids(loaded):
    return lambda ids: {
        name: value.numpy()
        for name, value in loaded.signatures["serve_ids"](
            token_ids=tf.constant(ids, tf.int32)
        ).items()
    }


def test_tensorflow_only_process_matches_predict(exported, tmp_path):
    finished = subprocess.run(
        [sys.executable, "-c", FRESH_PROCESS, str(exported.folder), json.dumps(TEXTS)],
        cwd=tmp_path,
        env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
        capture_output=True,
        text=True,
    )
    assert finished.returncode == 0, finished.stderr
    answers = json.loads(finished.stdout.splitlines()[-1])

    expected = probabilities_of(exported.classifier.predict(list(TEXTS), verbose=0))
    assert np.ptp(expected, axis=0).max() > 0.25  # the texts have different predictions
    np.testing.assert_allclose(answers["probabilities"], expected, atol=1e-5)
    np.testing.assert_allclose(answers["score"], expected.max(axis=-1), atol=1e-5)
    best = exported.classifier.classify(list(TEXTS))
    assert answers["label"] == [answer["label"] for answer in best]


@pytest.mark.parametrize(
    ("strange", "plain"),
    [
        (b"\xff\xfethe \xc3cat\x80", b"the cat"),
        (b"the\x00 cat", b"the cat"),
        (b"the cat sat " * 8500, b"the cat sat " * 50),  # 100 kB, cut to 48 tokens
        ("the\u200b cat".encode(), b"the cat"),
    ],
    ids=["invalid UTF-8", "NUL", "100 kB", "zero-width space"],
)
def test_strange_texts_are_read_as_the_plain_ones(serve_text, strange, plain):
    np.testing.assert_allclose(
        serve_text(strange)["probabilities"], serve_text(plain)["probabilities"], atol=1e-5
    )


def test_ids_give_the_same_numbers_however_a_server_pads_them(exported, serve_ids, serve_text):
    texts = ["the cat", "unbelievable cat"]
    features = exported.classifier.preprocessor(texts)
    ids, mask = features["token_ids"], features["padding_mask"]
    assert not mask.all()
    expected = serve_text(*texts)["probabilities"]
    padded_by_server = np.where(mask, ids, ids[0, 0])  # a batch's first id, [CLS]
    for padded in (ids, padded_by_server, np.pad(ids, ((0, 0), (0, 9)), constant_values=2)):
        answers = serve_ids(padded)
        np.testing.assert_allclose(answers["probabilities"], expected, atol=1e-5)
        np.testing.assert_allclose(probabilities_of(answers["logits"]), expected, atol=1e-5)
    assert answers["label"].dtype == object


def test_weights_are_stored_once_and_exactly(exported):
    reader = tf.train.load_checkpoint(str(exported.folder / "variables" / "variables"))
    names = [name for name in reader.get_variable_to_shape_map() if name.startswith("weights/")]
    stored = sorted(reader.get_tensor(name).tobytes() for name in names)
    weights = [np.asarray(w, "float32") for w in exported.classifier.trainable_weights]
    assert stored == sorted(weight.tobytes() for weight in weights)

    data = exported.folder / "variables" / "variables.data-00000-of-00001"
    assert data.stat().st_size < sum(weight.nbytes for weight in weights) + 4000


def test_the_encoder_is_stored_once_for_all_signatures(exported, loaded):
    saved_model = saved_model_pb2.SavedModel()
    saved_model.ParseFromString((exported.folder / "saved_model.pb").read_bytes())
    (meta_graph,) = saved_model.meta_graphs
    functions = meta_graph.graph_def.library.function
    activations = [node for function in functions for node in function.node_def if node.op == "Erf"]
    assert len(loaded.signatures) == 4
    assert len(activations) == exported.classifier.config.num_layers


def test_no_file_names_a_path_of_this_machine(exported):
    paths = {
        os.fsencode(path)
        for path in (
            exported.folder.parent,
            Path.cwd(),
            Path.home(),
            sys.prefix,
            Path(tf.__file__).parent,
        )
        if str(path) != "/"
    }
    files = [path for path in exported.folder.rglob("*") if path.is_file()]
    assert {path.name for path in files} >= {"saved_model.pb", "variables.index"}
    mentions = [(path.name, name) for path in files for name in paths if name in path.read_bytes()]
    assert mentions == []
    assert not (exported.folder / "assets").is_dir() or not any(
        (exported.folder / "assets").iterdir()
    )
