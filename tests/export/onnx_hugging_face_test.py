# SPDX-License-Identifier: Apache-2.0
"""Exports in the Hugging Face layout, read as its clients read them."""

import functools
import json
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

import keras_bert
from tests.export.served_tasks import make_served_task
from tests.export.small_classifier import make_classifier

pytest.importorskip("tf2onnx")
onnxruntime = pytest.importorskip("onnxruntime")
tokenizers = pytest.importorskip("tokenizers")

pytestmark = [pytest.mark.needs_tensorflow, pytest.mark.backend_independent, pytest.mark.slow]

FORMAT = "onnx_hugging_face"
TEXTS = ["the cat, the mat?", "Größe 中 Éa", "", "able " * 60]


@pytest.fixture(scope="module")
def classifier():
    return make_classifier(class_names=["bad", "fair", "größer"])


@pytest.fixture(scope="module")
def embedder(classifier):
    return keras_bert.TextEmbedder(classifier.backbone, preprocessor=classifier.preprocessor)


@pytest.fixture(scope="module")
def directory(classifier, embedder, tmp_path_factory):
    """Returns a function that exports a task once."""
    tasks = {"classifier": classifier, "embedder": embedder}

    @functools.cache
    def export(name):
        path = tmp_path_factory.mktemp("exported") / name
        tasks[name].export(path, FORMAT)
        return path

    return export


def tokenize(directory, text):
    """Returns the inputs of a text, as clients create them from the directory's files."""
    tokenizer = tokenizers.Tokenizer.from_file(str(directory / "tokenizer.json"))
    settings = json.loads((directory / "tokenizer_config.json").read_text())
    tokenizer.enable_truncation(settings["model_max_length"])
    encoding = tokenizer.encode(text)
    values = (encoding.ids, encoding.attention_mask, encoding.type_ids)
    names = ("input_ids", "attention_mask", "token_type_ids")
    return {name: np.array([value], "int64") for name, value in zip(names, values, strict=True)}


def softmax(logits):
    exponentials = np.exp(logits - logits.max())
    return exponentials / exponentials.sum()


def test_classifier_matches_classify(classifier, directory):
    config = json.loads((directory("classifier") / "config.json").read_text())
    for name, tolerance in (("model", 1e-5), ("model_quantized", 0.2)):
        session = onnxruntime.InferenceSession(directory("classifier") / "onnx" / f"{name}.onnx")
        for text, expected in zip(TEXTS, classifier.classify(TEXTS), strict=True):
            (logits,) = session.run(["logits"], tokenize(directory("classifier"), text))
            scores = dict(zip(config["id2label"].values(), softmax(logits[0]), strict=True))
            assert scores[expected["label"]] == pytest.approx(expected["score"], abs=tolerance)


def test_embedder_has_its_pooling_beside(embedder, directory):
    names = {path.name for path in (directory("embedder")).iterdir()}
    assert names >= {"modules.json", "1_Pooling", "special_tokens_map.json"}
    assert "model.safetensors" not in names
    session = onnxruntime.InferenceSession(directory("embedder") / "onnx" / "model.onnx")
    for text, expected in zip(TEXTS, embedder.embed(TEXTS), strict=True):
        (states,) = session.run(["last_hidden_state"], tokenize(directory("embedder"), text))
        vector = states[0].mean(axis=0)
        np.testing.assert_allclose(vector / np.linalg.norm(vector), expected, atol=1e-5)


@pytest.mark.release
@pytest.mark.filterwarnings("ignore:onnx/model_quantized.onnx must lose")
def test_sparse_embedder_has_logits(tmp_path):
    pytest.importorskip("scipy")
    embedder = make_served_task("sparse").task
    # The second export replaces the first, and compares the int8 file with it.
    embedder.export(tmp_path / "sparse", FORMAT)
    embedder.export(tmp_path / "sparse", FORMAT, calibration=TEXTS, overwrite=True)
    session = onnxruntime.InferenceSession(tmp_path / "sparse" / "onnx" / "model.onnx")
    for text, expected in zip(TEXTS, embedder.embed(TEXTS).toarray(), strict=True):
        (logits,) = session.run(["logits"], tokenize(tmp_path / "sparse", text))
        weights = np.log1p(np.maximum(logits[0], 0)).max(axis=0)
        np.testing.assert_allclose(weights, expected, atol=1e-5)


def test_transformers_js_matches(classifier, embedder, directory):
    """Also run this test with the package from npm, see CONTRIBUTING.md."""
    find = ["node", "-e", "require.resolve('@huggingface/transformers')"]
    if (
        not shutil.which("node")
        or subprocess.run(find, check=False, capture_output=True).returncode
    ):
        pytest.skip("@huggingface/transformers is not installed")
    texts = TEXTS[:-1]  # transformers.js cuts off the last special token of truncated texts.
    calls = [
        {
            "task": task,
            "directory": str(directory(name)),
            "inputs": [[text] for text in texts],
            "options": options,
        }
        for task, name, options in (
            ("text-classification", "classifier", {}),
            ("feature-extraction", "embedder", {"pooling": "mean", "normalize": True}),
        )
    ]
    client = Path(__file__).with_name("transformers_js.cjs")
    result = subprocess.run(
        ["node", client], input=json.dumps(calls), check=True, stdout=subprocess.PIPE, text=True
    )
    answers, vectors = json.loads(result.stdout)
    np.testing.assert_allclose(vectors, embedder.embed(texts), atol=1e-5)
    for (answer,), expected in zip(answers, classifier.classify(texts), strict=True):
        assert answer["label"] == expected["label"]
        assert answer["score"] == pytest.approx(expected["score"], abs=1e-5)


def test_only_own_directories_are_replaced(classifier, directory, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(directory("classifier"), copy)
    with pytest.raises(FileExistsError, match="pass overwrite=True"):
        classifier.export(copy, FORMAT)
    (copy / "notes.txt").touch()
    with pytest.raises(FileExistsError, match=r"Received: .*notes\.txt"):
        classifier.export(copy, FORMAT, overwrite=True)
