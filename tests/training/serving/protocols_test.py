# SPDX-License-Identifier: Apache-2.0
"""Clients of OpenAI, of Text Embeddings Inference and of Hugging Face, at one server of models."""

import asyncio
import base64
import dataclasses
import itertools
import urllib.parse

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
from tests.checkpoints.small_models import small_config
from tests.text.small_tokenizers import LETTER_TOKENS, make_tokenizer
from tests.training.serving.model_server import ask, loaded, serving
from training.serving.models import answers_of_task
from training.serving.server import respond

pytestmark = pytest.mark.on_tensorflow

LENGTH, MAX_ROWS = 16, 8
TOKENIZER = make_tokenizer(*LETTER_TOKENS)
LONG = "film plot " * LENGTH
TEXTS = ["a film", "b", "naïve é"]
NON_ASCII = [
    "héé 東京 test",
    "한국어 b",
    "\u1112\u1161\u11ab a",
    "👩\u200d💻é",
    "e\u0301 שלום b",
    "\U0001f3d4 a",
]


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
    labels = {"class_names": ["-", "+"], "multi_label": True}
    return {
        "embedder": made(keras_bert.TextEmbedder, TextClassifierPreprocessor),
        "raw": made(keras_bert.TextEmbedder, TextClassifierPreprocessor, normalize=False),
        "sst2": made(keras_bert.TextClassifier, TextClassifierPreprocessor, class_names=["-", "+"]),
        "toxic": made(keras_bert.TextClassifier, TextClassifierPreprocessor, **labels),
        "bare": made(
            keras_bert.TokenClassifier, TokenClassifierPreprocessor, class_names=["O", "LOC", "PER"]
        ),
        "ranker": made(keras_bert.TextClassifier, TextClassifierPreprocessor, 1),
        "tagger": made(keras_bert.TokenClassifier, TokenClassifierPreprocessor, class_names=names),
        "chooser": made(keras_bert.MultipleChoice, MultipleChoicePreprocessor),
    }


@pytest.fixture(scope="module")
def server():
    """A server in a thread: its tasks by name, and its port."""
    models, models_in_python = {}, tasks()
    same = {"alone": "embedder", "org/한": "embedder"}
    models_in_python |= {name: models_in_python[of] for name, of in same.items()}
    for name, task in models_in_python.items():
        answers = answers_of_task(task, task.fields)
        models[name] = loaded(name, answers, batch_size=1 if name == "alone" else 8)
    models["wide"] = dataclasses.replace(models["embedder"], name="wide", embedding_dim=2**20)
    with serving(models, max_rows=MAX_ROWS, max_bytes=10_000) as port:
        yield models_in_python | {"wide": None}, port


def answer(server, path, request=None):
    status, _, content = ask(server[1], path, request)
    assert status == 200, content
    return content


def close_to(values):
    return pytest.approx(np.asarray(values), abs=1e-5)


def test_openai_embeddings(server):
    name = "embedder"
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


@pytest.mark.parametrize("name", ["org/%ED%95%9C", "org%2F%ED%95%9C"])
def test_addresses_of_a_name_with_slashes(server, name):
    state = answer(server, f"/v1/models/{name}")
    assert (state["id"], state["model_version_status"][0]["state"]) == ("org/한", "AVAILABLE")
    for path in ("", "/metadata", "/versions/1", "/versions/1/metadata"):
        assert answer(server, f"/v1/models/{name}{path}")
    (vector,) = server[0]["embedder"].embed(["a"])
    for path in (":predict", "/versions/1:predict"):
        answered = answer(server, f"/v1/models/{name}{path}", {"instances": ["a"]})
        assert np.array(answered["predictions"]) == close_to([vector])
    for path in ("", "/embed"):
        assert np.array(answer(server, f"/models/{name}{path}", {"inputs": "a"})) == close_to(
            [vector]
        )
    assert answer(server, f"/models/{name}/info")["model_id"] == "org/한"
    request = {"model": urllib.parse.unquote(name), "input": "a"}
    assert answer(server, "/v1/embeddings", request)["model"] == "org/한"


@pytest.mark.parametrize(
    ("path", "error"),
    [
        ("/v1/models/none", {"message", "type", "param", "code"}),
        ("/v1/chat/completions", {"message", "type", "param", "code"}),
        ("/v1/models/none/metadata", None),
        ("/v1/models/sst2/versions/7", None),
        ("/models/none/info", None),
        ("/nothing/é", None),
    ],
)
def test_errors_have_the_format_of_the_address(server, path, error):
    status, _, content = ask(server[1], urllib.parse.quote(path))
    assert status == 404
    if error:
        assert set(content["error"]) == error
        assert (content["error"]["code"] is None) == ("chat" in path)
    else:
        assert isinstance(content["error"], str)
        assert ("error_type" in content) == (not path.startswith("/v1"))


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Content-Type": "text/plain", "Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://localhost:1", "Host": "localhost"}, 403),
        # A page whose own name points to this machine
        ({"Origin": "http://evil.example:80", "Host": "evil.example:80"}, 403),
        ({"Host": "evil.example"}, 403),
        ({"Host": "127.0.0.1.evil.example"}, 403),
        ({"Host": "[::1"}, 403),
        ({"Origin": "http://localhost:1", "Host": "127.0.0.1:8501"}, 403),
        ({"Origin": "http://10.0.0.1:8501", "Host": "127.0.0.1:8501"}, 403),
        ({"Origin": "http://localhost:x", "Host": "localhost:x"}, 403),
        ({"Host": "docker.internal.evil.example"}, 403),
        ({"Host": "host.docker.internal:8501"}, 200),
        ({"Host": "localhost."}, 200),
        ({"Origin": "http://localhost:8501", "Host": "127.0.0.1:8501"}, 200),
        ({"Content-Type": "application/x-www-form-urlencoded"}, 200),  # as curl -d
        ({"Origin": "http://LOCALHOST:8501", "Host": "localhost:8501"}, 200),
        ({"Host": "[::1]:8501"}, 200),
    ],
)
def test_pages_of_other_sites_are_refused(server, headers, status):
    for path in ("/models/sst2/predict", "/v1/embeddings", "/v1/models/sst2:predict"):
        request = {"inputs": "a"} if path.endswith("/predict") else {"instances": ["a"]}
        request = {"model": "embedder", "input": "a"} if path == OPENAI else request
        own_status, _, content = ask(server[1], path, request, headers)
        assert own_status == status, content
        assert (status == 200) != ("error" in content)


@pytest.mark.parametrize(
    ("path", "token", "status"),
    [
        ("/v1/models", "Bearer secret", 200),
        ("/v1/models", "Bearer other", 401),
        ("/v1/models", "secret", 401),
        ("/v1/models", None, 401),
        ("/none", None, 401),
        ("/health", None, 200),
        ("/v2/health/ready", None, 200),
    ],
)
def test_api_key_is_required(path, token, status):
    with serving({}, max_rows=16, max_bytes=9999, api_key="secret") as port:
        headers = {} if token is None else {"Authorization": token}
        own_status, answered, content = ask(port, path, headers=headers)
        assert own_status == status
        if status == 401:
            assert answered["WWW-Authenticate"] == "Bearer"
            assert "Authorization: Bearer" in str(content["error"])


def test_the_header_of_cut_texts_is_bounded():
    response = asyncio.run(respond(lambda: b"[]", range(2048)))
    assert response.headers["X-Truncated-Inputs"].split(",") == list(map(str, range(100)))
    assert response.headers["X-Truncated-Count"] == "2048"


@pytest.mark.parametrize(
    ("path", "request_"),
    [
        ("/v1/embeddings", {"model": "wide", "input": ["a"] * 5}),
        ("/models/wide/embed", {"inputs": ["a"] * 5}),
        ("/v1/models/wide:predict", {"instances": ["a"] * 5}),
    ],
)
def test_an_answer_that_is_too_large_is_not_computed(server, path, request_):
    status, _, content = ask(server[1], path, request_)
    message = content["error"]["message"] if path == OPENAI else content["error"]
    assert (status, "Send at most 4 examples" in message) == (413, True)


def test_batch_size_one_is_deterministic(server):
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
    status, headers, content = ask(server[1], path, {"inputs": mixed, "truncate": True})
    assert (status, headers["X-Truncated-Inputs"]) == (200, "2,3")
    assert headers["X-Truncated-Count"] == "2"
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
    score = {row["label"]: row["score"] for row in one}["+"]
    assert relevant[0]["score"] == pytest.approx(score, abs=1e-6)
    row = {"text": "a", "choices": texts}
    (choices,) = models["chooser"].serving_answers([row])
    ranks = answer(server, "/models/chooser", {"query": "a", "texts": texts})
    assert [one["index"] for one in ranks] == choices["ranking"]


def test_choices_of_a_row_share_batches_of_any_size(server):
    """The answers do not depend on them, nor on padding."""
    task, sizes = server[0]["chooser"], []
    answers = answers_of_task(task, task.fields)
    answer_rows = answers.choice_signature.answer

    def record(rows):
        sizes.append(len(rows))
        return answer_rows(rows)

    choice_signature = dataclasses.replace(answers.choice_signature, answer=record)
    answers = dataclasses.replace(answers, choice_signature=choice_signature)
    texts = ["plot", "film", "a film", "", "b", "c a", "é"]
    rows = [{"text": "a", "choices": [*texts, ""]}, {"text": "b", "choices": [*texts[::-1], "a"]}]
    with serving({"chooser": loaded("chooser", answers, 2)}, max_rows=16, max_bytes=9999) as port:
        predicted = ask(port, "/v1/models/chooser:predict", {"instances": rows})[2]["predictions"]
        ranks = ask(port, "/rerank", {"query": "a", "texts": texts})[2]
        empty = {"instances": [{"text": "a", "choices": []}]}
        assert ask(port, "/v1/models/chooser:predict", empty)[0] == 400
    assert max(sizes) <= 2
    for row, expected, own in zip(rows, task.serving_answers(rows), predicted, strict=True):
        assert own["probabilities"] == pytest.approx(expected["probabilities"], abs=1e-5)
        assert own["ranked_scores"] == sorted(own["probabilities"], reverse=True)
        assert own["ranked_choices"] == [row["choices"][index] for index in own["ranking"]]
    (choices,) = task.serving_answers([{"text": "a", "choices": texts}])
    scores = [one["score"] for one in sorted(ranks, key=lambda one: one["index"])]
    assert scores == pytest.approx(choices["probabilities"], abs=1e-5)


def test_tei_entities(server):
    """Groups of words with offsets in the text, in windows where it is long."""
    path, text = "/models/tagger/predict", "Ann é Lee, film. " * 8
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
    texts = [text, text[:-6]]
    words = answer(server, path, {"inputs": [[text] for text in texts], **options})
    assert [[(one["entity"], one["start"]) for one in row] for row in words] == [
        [(tag["label"], tag["start"]) for tag in row if tag["label"] != "B-PER"]
        for row in server[0]["tagger"].tag(texts)
    ]


def test_tei_bare_types(server):
    """As in pipelines, adjacent words of one type are an entity, and O is a type if not ignored."""
    texts = ["a b c film plot a", "é, film"]
    for text in texts:
        tags, groups = server[0]["bare"].tag(text), []
        for label, words in itertools.groupby(tags, key=lambda tag: tag["label"]):
            first, *_, last = [*words] * 2
            groups.append((label, first["start"], last["end"]))
        request = {"inputs": text, "parameters": {"ignore_labels": []}}
        answered = answer(server, "/models/bare", request)
        assert [(one["entity_group"], one["start"], one["end"]) for one in answered] == groups
        expected = [group for group in groups if group[0] != "O"]
        entities = server[0]["bare"].entities(text)
        assert [(one["type"], one["start"], one["end"]) for one in entities] == expected
        answered = answer(server, "/models/bare/predict", {"inputs": text})
        assert [(one["entity_group"], one["start"], one["end"]) for one in answered] == expected


def test_tei_functions_to_apply(server):
    functions = {"sst2": {"softmax"}, "toxic": {"sigmoid"}, "ranker": {"sigmoid", "none"}}
    for name, allowed in functions.items():
        for function in ("softmax", "sigmoid", "none"):
            request = {"inputs": "a", "parameters": {"function_to_apply": function}}
            status, _, content = ask(server[1], f"/models/{name}", request)
            assert status == (200 if function in allowed else 422), (name, function)
            if name != "ranker" and status == 200:
                total = sum(one["score"] for one in content[0])
                assert (total == pytest.approx(1)) == (function == "softmax")


def test_tei_nulls_are_absent(server):
    """Options that may be null in TEI's schema, with all others at their default."""
    nulls = dict.fromkeys(["truncate", "truncation_direction", "prompt_name", "raw_scores"])
    requests = {
        "/models/embedder/embed": {"inputs": "a", "dimensions": None, **nulls},
        "/models/embedder/similarity": {
            "inputs": {"source_sentence": "a", "sentences": ["b"]},
            "parameters": nulls,
        },
        "/models/embedder/tokenize": {"inputs": "a", "add_special_tokens": None, **nulls},
        "/models/sst2/predict": {"inputs": "a", **nulls},
        "/models/ranker/rerank": {"query": "a", "texts": ["b"], "return_text": None, **nulls},
        "/models/ranker": {"inputs": "a", "parameters": {"top_k": None, "function_to_apply": None}},
        "/v1/embeddings": {"model": "embedder", "input": "a", "dimensions": None, "user": None},
    }
    for path, request in requests.items():
        absent = {name: value for name, value in request.items() if value is not None}
        assert answer(server, path, request) == answer(server, path, absent), path
    request = {**requests["/models/embedder/similarity"], "parameters": None}
    assert len(answer(server, "/models/embedder/similarity", request)) == 1
    request["parameters"] = {"truncation_direction": "Right", "truncate": True}
    assert len(answer(server, "/models/embedder/similarity", request)) == 1


def test_tei_tokens_and_descriptions(server):
    path = "/models/embedder/tokenize"
    (row,) = answer(server, path, {"inputs": "é b"})
    assert [token["id"] for token in row] == TOKENIZER.encode("é b")
    # Offsets are in bytes of UTF-8.
    assert row[1] == {"id": row[1]["id"], "text": "é", "special": False, "start": 0, "stop": 2}
    assert row[0] == {**row[0], "text": "[CLS]", "special": True, "start": None, "stop": None}
    for text in NON_ASCII:
        (row,) = answer(server, path, {"inputs": text, "add_special_tokens": False})
        for token in row:
            assert text.encode()[token["start"] : token["stop"]].decode() == token["text"]
    rows = answer(server, path, {"inputs": TEXTS, "add_special_tokens": False})
    assert [[token["id"] for token in row] for row in rows] == TOKENIZER(TEXTS)
    ids = {"ids": TOKENIZER.encode(["a b", "c"])}
    assert answer(server, "/models/embedder/decode", ids) == ["a b", "c"]
    info = answer(server, "/models/sst2/info")
    assert (info["model_id"], info["max_input_length"]) == ("sst2", LENGTH)
    assert info["model_type"]["classifier"]["id2label"] == {"0": "-", "1": "+"}
    for path in ("/health", "/ping", "/"):
        assert answer(server, path) is None


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
        (OPENAI, {"model": "other", "input": "a"}, 404, "model must be one of embedder"),
        (OPENAI, {"model": "embedder", "input": LONG}, 400, "the model reads at most 16 tokens"),
        (
            OPENAI,
            {"model": "embedder", "input": "a", "dimensions": 9},
            400,
            "dimensions must be at most 8",
        ),
        (
            OPENAI,
            b'{"model": "\\ud800", "input": "a"}',
            400,
            "model must only contain characters that UTF-8",
        ),
        (EMBED, b'{"inputs": "a", "\\ud800": 1}', 422, "Received: '\\ud800'"),
        (
            OPENAI,
            {"model": "embedder", "input": "a", "n": 1},
            400,
            "user. Received: 'n'",
        ),
        (OPENAI, b'{"input": "' + b"a" * 20_000 + b'"}', 413, "at most 10000 bytes"),
        (OPENAI, b"{", 400, "the body must be JSON. Received: '{'"),
        (EMBED, {"inputs": []}, 400, "inputs must be a string, token ids"),
        (OPENAI, {"model": "embedder", "input": ["a", ""]}, 400, "input[1] must not be empty"),
        (EMBED, {"inputs": ""}, 400, "inputs[0] must not be empty"),
        ("/models/tagger/predict", {"inputs": [["a"], [""]]}, 400, "inputs[1] must not be empty"),
        (
            "/models/embedder/tokenize",
            {"inputs": []},
            400,
            "inputs must be a list of one or more strings",
        ),
        ("/models/embedder/decode", {"ids": [[]]}, 400, "ids[0] must have at least one token id"),
        (
            "/models/ranker/rerank",
            {"query": "a", "texts": []},
            400,
            "texts must be a list of one or more strings. Received: an empty list",
        ),
        ("/models/toxic/rerank", {"query": "a", "texts": ["b"]}, 424, "toxic has multiple labels"),
        ("/models/tagger/rerank", {"query": "a", "texts": ["b"]}, 424, "tagger has the method tag"),
        (EMBED, {"inputs": "a", "normalize": False}, 422, "normalize must be true"),
        (
            "/models/sst2/embed",
            {"inputs": "a"},
            424,
            "a model with embeddings: sst2 has the met",
        ),
        (EMBED, {"inputs": "a", "prompt_name": "b"}, 422, "Received: 'prompt_name'"),
        (
            "/embed",
            {"inputs": "a"},
            404,
            "/embed is ambiguous with multiple models. Use /models/emb",
        ),
        (
            "/models/tagger/predict",
            {"inputs": "a", "aggregation_strategy": "max"},
            422,
            "aggregation_strategy must be none or simple or first",
        ),
        ("/models/ranker/rerank", {"query": "a"}, 422, "texts is missing"),
        ("/models/embedder/decode", {"ids": [99_999]}, 422, "ids: Token ids must be in [0, 57)"),
        (
            "/models/sst2",
            {"inputs": "a", "parameters": {"top_k": 0}},
            422,
            "top_k must be a positive integer. Received: a number, 0",
        ),
    ],
)
def test_a_malformed_request_names_the_field(server, path, request_, status, message):
    own_status, _, content = ask(server[1], path, request_)
    if path == OPENAI:
        error = content["error"]
        assert set(error) == {"message", "type", "param", "code"}
        assert error["type"] == "invalid_request_error"
        assert error["param"] in {None, "model", "input", "dimensions", "n"}
        content = {"error": error["message"], "error_type": ""}
    assert set(content) == {"error", "error_type"}
    assert (content["error_type"] == "Empty") == (path != OPENAI and status == 400)
    assert own_status == status
    assert message in content["error"]
