# SPDX-License-Identifier: Apache-2.0
"""Clients of OpenAI, of Text Embeddings Inference and of Hugging Face, at one server of models."""

import base64
import contextlib
import http.client
import json

import keras
import numpy as np
import pytest

pytest.importorskip("tensorflow_text")
pytest.importorskip("uvicorn")

from huggingface_hub import InferenceClient

import keras_bert
from keras_bert.data import (
    MultipleChoicePreprocessor,
    TextClassifierPreprocessor,
    TokenClassifierPreprocessor,
)
from keras_bert.export import ServedModel
from tests.checkpoints.small_models import small_config
from tests.text.small_tokenizers import LETTER_TOKENS, of_tokens
from tests.training.serving.model_server import serving
from training.serving.batching import Batcher
from training.serving.models import LoadedModel, answers_of_saved_model, answers_of_task

pytestmark = pytest.mark.on_tensorflow

LENGTH, MAX_ROWS = 16, 8
TOKENIZER = of_tokens(*LETTER_TOKENS)
LONG = "film plot " * LENGTH
TEXTS = ["a film", "", "naïve é"]


def tasks():
    """Small tasks, whose weights differ from row to row enough to be told apart."""
    config = small_config(
        vocabulary_size=len(LETTER_TOKENS),
        num_layers=1,
        max_sequence_length=32,
        initializer_range=1.0,
    )

    def made(task, preprocessor, *arguments, **options):
        keras.utils.set_random_seed(1)
        preprocessor = preprocessor(TOKENIZER, sequence_length=LENGTH)
        return task(keras_bert.Backbone(config), *arguments, preprocessor=preprocessor, **options)

    names = ["O", "B-PER", "I-PER"]
    return {
        "embedder": made(keras_bert.TextEmbedder, TextClassifierPreprocessor),
        "raw": made(keras_bert.TextEmbedder, TextClassifierPreprocessor, normalize=False),
        "sst2": made(keras_bert.TextClassifier, TextClassifierPreprocessor, class_names=["-", "+"]),
        "ranker": made(keras_bert.TextClassifier, TextClassifierPreprocessor, 1),
        "tagger": made(keras_bert.TokenClassifier, TokenClassifierPreprocessor, class_names=names),
        "chooser": made(keras_bert.MultipleChoice, MultipleChoicePreprocessor),
    }


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """A server in a thread: its tasks by name, and its port. Of `*_export` it has exports."""
    models, models_in_python = {}, tasks()
    same = {"alone": "embedder", "embedder_export": "embedder", "tagger_export": "tagger"}
    models_in_python |= {name: models_in_python[of] for name, of in same.items()}
    for name, task in models_in_python.items():
        if name.endswith("_export"):
            folder = tmp_path_factory.mktemp("models") / "1"
            task.export(folder, warm_up=False)
            answers = answers_of_saved_model(ServedModel(folder))
        else:
            answers = answers_of_task(task, task.fields)
        size = 1 if name == "alone" else 8
        batcher = Batcher(answers.compute, threads=1, batch_size=size, max_waiting=20)
        models[name] = LoadedModel(**vars(answers), name=name, version="1", batcher=batcher)
    with serving(models, max_rows=MAX_ROWS, max_bytes=10_000) as port:
        yield models_in_python, port


def ask(server, path, request=None):
    """Returns the status, the headers and the content of an answer."""
    connection = http.client.HTTPConnection("127.0.0.1", server[1], timeout=60)
    with contextlib.closing(connection):
        body = request if request is None or isinstance(request, bytes) else json.dumps(request)
        connection.request("GET" if body is None else "POST", path, body)
        response = connection.getresponse()
        content = response.read()
        return response.status, response.headers, json.loads(content) if content else None


def answer(server, path, request=None):
    status, _, content = ask(server, path, request)
    assert status == 200, content
    return content


def close_to(values):
    return pytest.approx(np.asarray(values), abs=1e-5)


@pytest.mark.parametrize("name", ["embedder", "embedder_export"])
def test_openai_embeddings(server, name):
    expected = server[0][name].embed(TEXTS)
    request = {"model": name, "input": TEXTS, "user": "me"}
    content = answer(server, "/v1/embeddings", request)
    assert (content["object"], content["model"]) == ("list", name)
    assert [(one["object"], one["index"]) for one in content["data"]] == [
        ("embedding", index) for index in range(3)
    ]
    assert np.array([one["embedding"] for one in content["data"]]) == close_to(expected)
    num_tokens = sum(map(len, TOKENIZER.encode(TEXTS)))
    assert content["usage"] == {"prompt_tokens": num_tokens, "total_tokens": num_tokens}

    def vectors(**options):
        content = answer(server, "/v1/embeddings", {"model": name, **options})
        return [one["embedding"] for one in content["data"]]

    # As the `openai` package asks, which takes the bytes of little-endian float32
    (encoded,) = vectors(input=TEXTS[0], encoding_format="base64")
    assert np.frombuffer(base64.b64decode(encoded), "<f4") == close_to(expected[0])
    ids = TOKENIZER(TEXTS[0])
    assert np.array(vectors(input=ids)) == close_to(expected[:1])
    # With special tokens and without, of unequal lengths
    assert np.array(vectors(input=[TOKENIZER.encode(TEXTS[0]), TOKENIZER(TEXTS[2])])) == close_to(
        expected[[0, 2]]
    )
    (short,) = vectors(input=TEXTS[0], dimensions=3)
    assert np.array(short) == close_to(expected[0, :3] / np.linalg.norm(expected[0, :3]))


def test_openai_models(server):
    # Vectors of another norm are scaled, as all of OpenAI's are.
    raw = server[0]["raw"].embed(TEXTS[0])
    request = {"model": "raw", "input": TEXTS[0]}
    (one,) = answer(server, "/v1/embeddings", request)["data"]
    assert np.array(one["embedding"]) == close_to(raw / np.linalg.norm(raw))
    models = answer(server, "/v1/models")["data"]
    assert [model["id"] for model in models] == list(server[0])
    assert answer(server, "/v1/models/sst2") == {
        **answer(server, "/v1/models/sst2"),
        **next(model for model in models if model["id"] == "sst2"),
    }


def test_rows_in_batches_of_one_have_the_same_bits_in_any_company(server):
    texts = ["a film", "a plot of a film", "b", "é", "plot plot", "a b c", "film b c"]

    def vectors(inputs):
        request = {"model": "alone", "input": inputs, "encoding_format": "base64"}
        return [one["embedding"] for one in answer(server, "/v1/embeddings", request)["data"]]

    assert vectors(texts) == [vectors(text)[0] for text in texts]


def test_tei_embeddings(server):
    expected = server[0]["embedder"].embed([*TEXTS, LONG])
    path = "/models/embedder/embed"
    assert np.array(answer(server, path, {"inputs": TEXTS[0]})) == close_to(expected[:1])
    mixed = [TEXTS[0], TOKENIZER(TEXTS[2]), LONG, TOKENIZER(LONG)]
    status, headers, content = ask(server, path, {"inputs": mixed, "truncate": True})
    assert (status, headers["X-Truncated-Inputs"]) == (200, "2,3")
    assert np.array(content) == close_to(expected[[0, 2, 3, 3]])
    raw = server[0]["raw"].embed(TEXTS)
    request = {"inputs": TEXTS, "normalize": False, "dimensions": 2, "truncation_direction": "Left"}
    assert np.array(answer(server, "/models/raw/embed", request)) == close_to(raw[:, :2])
    sentences = {"source_sentence": TEXTS[0], "sentences": TEXTS}
    for path in ("/models/embedder/similarity", "/models/embedder"):
        similarities = answer(server, path, {"inputs": sentences, "parameters": {"truncate": True}})
        assert np.array(similarities) == close_to(expected[:3] @ expected[0])


def test_tei_predictions_and_ranks(server):
    models = server[0]
    classes = models["sst2"].classify(TEXTS, top_k=2)
    expected = [
        [{"score": pytest.approx(one["score"], abs=1e-5), "label": one["label"]} for one in row]
        for row in classes
    ]
    assert answer(server, "/models/sst2/predict", {"inputs": TEXTS[0]}) == expected[0]
    batch = {"inputs": [[text] for text in TEXTS]}
    assert answer(server, "/models/sst2/predict", batch) == expected
    # A pair is one input: TEI's two strings.
    (pair,) = models["sst2"].classify([(TEXTS[0], TEXTS[2])])
    (best, _) = answer(server, "/models/sst2/predict", {"inputs": [TEXTS[0], TEXTS[2]]})
    assert best["score"] == pytest.approx(pair["score"], abs=1e-5)

    texts = ["plot", "film", "a film"]
    scores = [one["score"] for one in models["ranker"].classify([("a", text) for text in texts])]
    order = np.argsort(scores)[::-1].tolist()
    request = {"query": "a", "texts": texts, "return_text": True}
    ranks = answer(server, "/models/ranker/rerank", {**request, "raw_scores": True})
    assert ranks == [
        {"index": index, "score": pytest.approx(scores[index], abs=1e-5), "text": texts[index]}
        for index in order
    ]
    ranks = answer(server, "/models/ranker/rerank", request)
    sigmoid = 1 / (1 + np.exp(-np.array(scores)))
    assert [one["score"] for one in ranks] == pytest.approx(sigmoid[order].tolist(), abs=1e-5)
    # A classifier of two classes ranks by its last one, and a multiple choice by its choices.
    relevant = answer(server, "/models/sst2/rerank", {"query": "a", "texts": texts})
    one = answer(server, "/models/sst2/predict", {"inputs": ["a", texts[relevant[0]["index"]]]})
    assert relevant[0]["score"] == {row["label"]: row["score"] for row in one}["+"]
    row = {"text": "a", "choices": texts}
    (choices,) = models["chooser"].serving_answers([row])
    ranks = answer(server, "/models/chooser", {"query": "a", "texts": texts})
    assert [one["index"] for one in ranks] == choices["ranking"]


@pytest.mark.parametrize("name", ["tagger", "tagger_export"])
def test_tei_entities(server, name):
    """Groups of words with offsets in the text, in windows where it is long."""
    path, text = f"/models/{name}/predict", "Ann é Lee, film. " * 8
    expected = server[0]["tagger"].entities(text)
    assert expected
    groups = answer(server, path, {"inputs": text})
    assert groups == [
        {
            "entity_group": one["type"],
            "score": pytest.approx(one["score"], abs=1e-5),
            "word": one["text"],
            "start": one["start"],
            "end": one["end"],
        }
        for one in expected
    ]
    options = {"aggregation_strategy": "none", "ignore_labels": ["B-PER"]}
    # The shorter one is padded in the batch of an export.
    texts = [text, text[:-6]]
    words = answer(server, path, {"inputs": [[text] for text in texts], **options})
    assert [[(one["entity"], one["start"]) for one in row] for row in words] == [
        [(tag["label"], tag["start"]) for tag in row if tag["label"] != "B-PER"]
        for row in server[0]["tagger"].tag(texts)
    ]


def test_tei_tokens_and_descriptions(server):
    path = "/models/embedder/tokenize"
    (row,) = answer(server, path, {"inputs": "é b"})
    assert [token["id"] for token in row] == TOKENIZER.encode("é b")
    assert row[1] == {"id": row[1]["id"], "text": "é", "special": False, "start": 0, "stop": 1}
    assert row[0] == {**row[0], "text": "[CLS]", "special": True, "start": None, "stop": None}
    rows = answer(server, path, {"inputs": TEXTS, "add_special_tokens": False})
    assert [[token["id"] for token in row] for row in rows] == TOKENIZER(TEXTS)
    ids = {"ids": TOKENIZER.encode(["a b", "c"])}
    assert answer(server, "/models/embedder/decode", ids) == ["a b", "c"]
    info = answer(server, "/models/sst2/info")
    assert (info["model_id"], info["max_input_length"]) == ("sst2", LENGTH)
    assert info["model_type"]["classifier"]["id2label"] == {"0": "-", "1": "+"}
    assert answer(server, "/health") is None


def test_hugging_face_inference_client(server):
    """Its answers are those of pipelines; it asks the address itself, without a path."""

    def client(name):
        return InferenceClient(f"http://127.0.0.1:{server[1]}/models/{name}", token="none")

    expected = server[0]["embedder"].embed(TEXTS)
    assert client("embedder").feature_extraction(TEXTS) == close_to(expected)
    similarities = client("embedder").sentence_similarity(TEXTS[0], TEXTS)
    assert np.array(similarities) == close_to(expected @ expected[0])
    (best,) = client("sst2").text_classification(TEXTS[0], top_k=1)
    assert best.label == server[0]["sst2"].classify(TEXTS[0])["label"]
    entities = client("tagger").token_classification("Ann Lee, film.")
    assert [(one.entity_group, one.start, one.end) for one in entities] == [
        (one["type"], one["start"], one["end"])
        for one in server[0]["tagger"].entities("Ann Lee, film.")
    ]


OPENAI, EMBED, PREDICT = "/v1/embeddings", "/models/embedder/embed", "/models/sst2/predict"


@pytest.mark.parametrize(
    ("path", "request_", "status", "message"),
    [
        (OPENAI, {"input": "a"}, 400, "model is missing"),
        (OPENAI, {"model": "other", "input": "a"}, 404, "received the model 'other'; there is"),
        (OPENAI, {"model": "embedder", "input": LONG}, 400, "the model reads 16 tokens"),
        (OPENAI, {"model": "embedder", "input": "a", "dimensions": 9}, 400, "dimensions is 9; the"),
        (
            OPENAI,
            {"model": "embedder", "input": "a", "n": 1},
            400,
            "'n' is not supported; expected",
        ),
        (OPENAI, b'{"input": "' + b"a" * 20_000 + b'"}', 413, "more than 10000 bytes"),
        (OPENAI, b"{", 400, "which is not JSON"),
        (EMBED, {"inputs": []}, 422, "inputs is an empty list; expected a string, token ids"),
        (EMBED, {"inputs": "a", "normalize": False}, 422, "scales its vectors to unit norm"),
        ("/models/sst2/embed", {"inputs": "a"}, 424, "needs a model with vectors; the method of"),
        ("/embed", {"inputs": "a"}, 404, "several models answer at /embed; expected /models/emb"),
        (
            "/models/tagger/predict",
            {"inputs": "a", "aggregation_strategy": "max"},
            422,
            "aggregation_strategy is a string, 'max'; expected none or simple or first",
        ),
        ("/models/ranker/rerank", {"query": "a"}, 422, "texts is missing"),
        ("/models/embedder/decode", {"ids": [99_999]}, 422, "ids: Token id 99999 is not in"),
        ("/models/sst2", {"inputs": "a", "parameters": {"top_k": 0}}, 422, "top_k is a number, 0"),
    ],
)
def test_a_malformed_request_names_the_field(server, path, request_, status, message):
    own_status, _, content = ask(server, path, request_)
    if path == OPENAI:
        error = content["error"]
        assert set(error) == {"message", "type", "param", "code"}
        assert error["type"] == "invalid_request_error"
        expected = {None} if isinstance(request_, bytes) else {"model", "input", "dimensions", "n"}
        assert error["param"] in expected
        content = {"error": error["message"], "error_type": ""}
    assert set(content) == {"error", "error_type"}
    assert own_status == status
    assert message in content["error"]
