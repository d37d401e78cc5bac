# SPDX-License-Identifier: Apache-2.0
"""Tests the OpenAI, Text Embeddings Inference (TEI) and Hugging Face protocols on one server."""

import asyncio
import base64
import concurrent.futures
import contextlib
import dataclasses
import functools
import http.client
import io
import itertools
import json
import time
import urllib.parse

import keras
import numpy as np
import pytest

pytest.importorskip("uvicorn")

from huggingface_hub import InferenceClient

import keras_bert
from keras_bert.data import (
    LateInteractionPreprocessor,
    MultipleChoicePreprocessor,
    TextClassifierPreprocessor,
    TokenClassifierPreprocessor,
)
from tests.checkpoints.small_models import small_config
from tests.text.small_tokenizers import LETTER_TOKENS, make_tokenizer
from tests.training.serving.model_server import (
    load_model,
    run_server,
    send_request,
    serve_models,
)
from training.serving import server as serving_server
from training.serving.batching import Batcher
from training.serving.metrics import Metrics
from training.serving.models import LoadedModel, answers_of_task
from training.serving.server import ModelServer, respond

pytestmark = pytest.mark.on_torch

LENGTH, MAX_ROWS = 16, 8
TOKENIZER = make_tokenizer(*LETTER_TOKENS)
LEFT_TOKENIZER = make_tokenizer(*LETTER_TOKENS, truncation_side="left")
LONG = "film plot " * LENGTH
TEXTS = ["a film", "b", "naïve é"]
PROMPTS = {"prompts": {"query": "film ", "STS": "b "}, "default_prompt_name": "STS"}
NON_ASCII = [
    "héé 東京 test",
    "한국어 b",
    "\u1112\u1161\u11ab a",
    "👩\u200d💻é",
    "e\u0301 שלום b",
    "\U0001f3d4 a",
]


def make_tasks():
    """Small tasks with weights large enough that each text has different predictions."""
    config = small_config(
        vocabulary_size=len(LETTER_TOKENS),
        num_layers=1,
        max_sequence_length=32,
        initializer_range=1.0,
    )

    def make_task(task, preprocessor, *arguments, tokenizer=TOKENIZER, **options):
        keras.utils.set_random_seed(1)
        preprocessor = preprocessor(tokenizer, sequence_length=LENGTH)
        return task(keras_bert.Backbone(config), *arguments, preprocessor=preprocessor, **options)

    names = ["O", "B-PER", "I-PER"]
    labels = {"class_names": ["-", "+"], "multi_label": True}
    return {
        "embedder": make_task(keras_bert.TextEmbedder, TextClassifierPreprocessor),
        "raw": make_task(keras_bert.TextEmbedder, TextClassifierPreprocessor, normalize=False),
        "left": make_task(
            keras_bert.TextEmbedder, TextClassifierPreprocessor, tokenizer=LEFT_TOKENIZER
        ),
        "prompted": make_task(
            keras_bert.TextEmbedder, TextClassifierPreprocessor, **PROMPTS, dimensions=5
        ),
        "sparse": make_task(keras_bert.SparseEmbedder, TextClassifierPreprocessor, **PROMPTS),
        "late": make_task(
            keras_bert.LateInteractionEmbedder,
            functools.partial(LateInteractionPreprocessor, query_length=14),
            prompts={"query": "film "},
        ),
        "sst2": make_task(
            keras_bert.TextClassifier, TextClassifierPreprocessor, class_names=["-", "+"]
        ),
        "nli": make_task(
            keras_bert.TextClassifier,
            TextClassifierPreprocessor,
            class_names=["entailment", "neutral", "contradiction"],
        ),
        "toxic": make_task(keras_bert.TextClassifier, TextClassifierPreprocessor, **labels),
        "bare": make_task(
            keras_bert.TokenClassifier, TokenClassifierPreprocessor, class_names=["O", "LOC", "PER"]
        ),
        "ranker": make_task(keras_bert.TextClassifier, TextClassifierPreprocessor, 1),
        "tagger": make_task(
            keras_bert.TokenClassifier, TokenClassifierPreprocessor, class_names=names
        ),
        "chooser": make_task(keras_bert.MultipleChoice, MultipleChoicePreprocessor),
    }


@pytest.fixture(scope="module")
def server():
    """The served tasks by name, and the server's port. The server runs in a thread."""
    models, tasks = {}, make_tasks()
    aliases = {"alone": "embedder", "org/한": "embedder"}
    tasks |= {name: tasks[target] for name, target in aliases.items()}
    for name, task in tasks.items():
        answers = answers_of_task(task, task.fields)
        models[name] = load_model(name, answers, batch_size=1 if name == "alone" else 8)
    models["wide"] = dataclasses.replace(models["embedder"], name="wide", embedding_dim=2**20)
    with serve_models(models, max_rows=MAX_ROWS, max_bytes=10_000) as port:
        yield tasks | {"wide": None}, port


def request_content(server, path, request=None):
    status, _, content = send_request(server[1], path, request)
    assert status == 200, content
    return content


def approximately(values):
    return pytest.approx(np.asarray(values), abs=1e-5)


def test_openai_embeddings_match_the_task(server):
    name = "embedder"
    expected = server[0][name].embed(TEXTS)
    request = {"model": name, "input": TEXTS, "user": "me"}
    content = request_content(server, "/v1/embeddings", request)
    assert (content["object"], content["model"]) == ("list", name)
    assert [(item["object"], item["index"]) for item in content["data"]] == [
        ("embedding", index) for index in range(3)
    ]
    assert np.array([item["embedding"] for item in content["data"]]) == approximately(expected)
    num_tokens = sum(map(len, TOKENIZER.encode(TEXTS)))
    assert content["usage"] == {"prompt_tokens": num_tokens, "total_tokens": num_tokens}

    def get_embeddings(**options):
        content = request_content(server, "/v1/embeddings", {"model": name, **options})
        return [item["embedding"] for item in content["data"]]

    # The `openai` package requests base64, and decodes it as little-endian float32.
    (encoded,) = get_embeddings(input=TEXTS[0], encoding_format="base64")
    assert np.frombuffer(base64.b64decode(encoded), "<f4") == approximately(expected[0])
    ids = TOKENIZER(TEXTS[0])
    assert np.array(get_embeddings(input=ids)) == approximately(expected[:1])
    # Token ids with and without special tokens, of different lengths
    assert np.array(
        get_embeddings(input=[TOKENIZER.encode(TEXTS[0]), TOKENIZER(TEXTS[2])])
    ) == approximately(expected[[0, 2]])
    (short,) = get_embeddings(input=TEXTS[0], dimensions=3)
    assert np.array(short) == approximately(expected[0, :3] / np.linalg.norm(expected[0, :3]))


@pytest.mark.parametrize("path", ["/embed_sparse", "/models/sparse"])
def test_sparse_embeddings_match_the_task(server, path):
    task = server[0]["sparse"]
    ids = [*TOKENIZER("film"), *TOKENIZER(TEXTS[1])]  # the prompt for queries and a text
    for request, expected in (
        ({"inputs": TEXTS}, task.embed(TEXTS)),
        ({"inputs": TEXTS[1], "prompt_name": "query"}, task.embed_queries([TEXTS[1]])),
        ({"inputs": [TEXTS[1]], "input_type": "query"}, task.embed_queries([TEXTS[1]])),
        ({"inputs": ids}, task.embed_queries([TEXTS[1]])),
    ):
        content = request_content(server, path, request)
        rows = [expected.indptr[row : row + 2] for row in range(expected.shape[0])]
        assert content == [
            [
                {"index": index, "value": pytest.approx(value, abs=1e-5)}
                for index, value in zip(
                    expected.indices[start:stop].tolist(),
                    expected.data[start:stop].tolist(),
                    strict=True,
                )
            ]
            for start, stop in rows
        ]
    info = request_content(server, "/models/sparse/info")
    assert info["model_type"] == {"embedding": {"pooling": "splade"}}


def test_late_interaction_matches_the_task(server):
    task = server[0]["late"]
    for options, expected in (
        ({}, task.embed_documents(TEXTS)),
        ({"input_type": "query"}, task.embed_queries(TEXTS)),
        ({"prompt_name": "query"}, task.embed_queries(TEXTS)),
    ):
        request = {"inputs": TEXTS, **options}
        for path in ("/embed_all", "/models/late/embed_all"):
            content = request_content(server, path, request)
            assert [len(rows) for rows in content] == [len(rows) for rows in expected]
            assert np.concatenate(content) == approximately(np.concatenate(expected))
    expected = task.rank("a b", TEXTS)
    # Scores are at most 1, unless they are raw.
    for options, scale in (({}, 14), ({"raw_scores": True}, 1)):
        request = {"query": "a b", "texts": TEXTS, **options}
        assert request_content(server, "/models/late/rerank", request) == [
            {"index": item["index"], "score": pytest.approx(item["score"] / scale, abs=1e-5)}
            for item in expected
        ]
    request = {"inputs": "b " * 9, "input_type": "query"}
    status, _, content = send_request(server[1], "/embed_all", request)
    assert (status, "at most 14 tokens per query" in content["error"]) == (422, True)


def test_openai_normalizes_and_lists_models(server):
    # OpenAI embeddings have unit norm, so other embeddings are normalized.
    raw = server[0]["raw"].embed(TEXTS[0])
    request = {"model": "raw", "input": TEXTS[0]}
    (item,) = request_content(server, "/v1/embeddings", request)["data"]
    assert np.array(item["embedding"]) == approximately(raw / np.linalg.norm(raw))
    models = request_content(server, "/v1/models")["data"]
    assert [model["id"] for model in models] == list(server[0])
    assert request_content(server, "/v1/models/sst2") == {
        **request_content(server, "/v1/models/sst2"),
        **next(model for model in models if model["id"] == "sst2"),
    }


@pytest.mark.parametrize("name", ["org/%ED%95%9C", "org%2F%ED%95%9C"])
def test_endpoints_accept_names_with_slashes(server, name):
    state = request_content(server, f"/v1/models/{name}")
    assert (state["id"], state["model_version_status"][0]["state"]) == ("org/한", "AVAILABLE")
    for path in ("", "/metadata", "/versions/1", "/versions/1/metadata"):
        assert request_content(server, f"/v1/models/{name}{path}")
    (embedding,) = server[0]["embedder"].embed(["a"])
    for path in (":predict", "/versions/1:predict"):
        response = request_content(server, f"/v1/models/{name}{path}", {"instances": ["a"]})
        assert np.array(response["predictions"]) == approximately([embedding])
    for path in ("", "/embed"):
        assert np.array(
            request_content(server, f"/models/{name}{path}", {"inputs": "a"})
        ) == approximately([embedding])
    assert request_content(server, f"/models/{name}/info")["model_id"] == "org/한"
    request = {"model": urllib.parse.unquote(name), "input": "a"}
    assert request_content(server, "/v1/embeddings", request)["model"] == "org/한"


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
def test_error_format_matches_the_endpoint(server, path, error):
    status, _, content = send_request(server[1], urllib.parse.quote(path))
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
        # A page whose host name resolves to this machine
        ({"Origin": "http://evil.example:80", "Host": "evil.example:80"}, 403),
        # A proxy may remove Origin.
        ({"Sec-Fetch-Site": "cross-site", "Content-Type": "text/plain"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),
        ({"Sec-Fetch-Site": "same-origin"}, 200),
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
        # `curl -d` sends this type.
        ({"Content-Type": "application/x-www-form-urlencoded"}, 200),
        ({"Origin": "http://LOCALHOST:8501", "Host": "localhost:8501"}, 200),
        ({"Host": "[::1]:8501"}, 200),
    ],
)
def test_cross_site_requests_are_rejected(server, headers, status):
    for path in ("/models/sst2/predict", "/v1/embeddings", "/v1/models/sst2:predict"):
        request = {"inputs": "a"} if path.endswith("/predict") else {"instances": ["a"]}
        request = {"model": "embedder", "input": "a"} if path == OPENAI else request
        actual_status, _, content = send_request(server[1], path, request, headers)
        assert actual_status == status, content
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
    with serve_models({}, max_rows=16, max_bytes=9999, api_key="secret") as port:
        headers = {} if token is None else {"Authorization": token}
        actual_status, response, content = send_request(port, path, headers=headers)
        assert actual_status == status
        if status == 401:
            assert response["WWW-Authenticate"] == "Bearer"
            assert "Authorization: Bearer" in str(content["error"])


@pytest.mark.parametrize("origin", ["https://app.example", "https://evil.example", "null"])
def test_only_allowed_origins_may_send_requests(origin):
    options = {"api_key": "secret", "allowed_origins": ("https://app.example",)}
    is_allowed = origin == "https://app.example"
    with serve_models({}, max_rows=16, max_bytes=9999, **options) as port:
        headers = {"Origin": origin, "Authorization": "Bearer secret"}
        status, response, _ = send_request(port, "/v1/models", headers=headers)
        assert status == (200 if is_allowed else 403)
        assert response["Access-Control-Allow-Origin"] == (origin if is_allowed else None)
        # Browsers ask first whether they may send the key.
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        with contextlib.closing(connection):
            asked = {"Method": "POST", "Headers": "authorization,content-type"}
            headers = {f"Access-Control-Request-{name}": value for name, value in asked.items()}
            connection.request("OPTIONS", "/v1/embeddings", headers={"Origin": origin, **headers})
            response = connection.getresponse()
            allowed = response.headers["Access-Control-Allow-Headers"]
            assert (response.status, allowed) == (
                (200, "authorization,content-type") if is_allowed else (403, None)
            )
        # Pages can read the error.
        status, response, _ = send_request(port, "/v1/models", headers={"Origin": origin})
        assert (status, response["Access-Control-Allow-Origin"]) == (
            (401, origin) if is_allowed else (403, None)
        )


def test_truncated_inputs_header_is_bounded():
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
def test_too_large_response_is_rejected(server, path, request_):
    status, _, content = send_request(server[1], path, request_)
    message = content["error"]["message"] if path == OPENAI else content["error"]
    assert (status, "Send at most 4 examples" in message) == (413, True)


def test_sparse_response_is_limited_while_computed(server, monkeypatch):
    monkeypatch.setattr(serving_server, "MAX_BYTES_OF_ANSWER", 1000)
    task, sizes = server[0]["sparse"], []
    answers = answers_of_task(task, task.fields)
    batcher = Batcher(
        answers.compute,
        threads=1,
        batch_size=2,
        max_waiting=20,
        report=lambda batch: sizes.append(batch.rows),
    )
    model = LoadedModel(**vars(answers), name="sparse", version="1", batcher=batcher)
    with serve_models({"sparse": model}, max_rows=MAX_ROWS, max_bytes=9999) as port:
        for path, request in (
            ("/embed_sparse", {"inputs": TEXTS[:2] * 4}),
            ("/v1/models/sparse:predict", {"instances": TEXTS[:2] * 4}),
        ):
            status, _, content = send_request(port, path, request)
            assert status == 413
            assert "at most 1000 bytes. Received: 8 examples, whose first" in content["error"]
            assert 0 < sum(sizes) < 8
            sizes.clear()


@pytest.mark.parametrize(
    ("path", "request_"),
    [
        ("/v1/embeddings", {"model": "nan", "input": "a"}),
        ("/v1/embeddings", {"model": "nan", "input": "a", "encoding_format": "base64"}),
        ("/embed", {"inputs": "a"}),
        ("/similarity", {"inputs": {"source_sentence": "a", "sentences": ["b"]}}),
        ("/", {"inputs": "a", "parameters": {"candidate_labels": ["b", "c"]}}),
        ("/v1/models/nan:predict", {"instances": ["a"]}),
    ],
)
def test_outputs_that_are_not_finite_are_errors(server, path, request_):
    answers = answers_of_task(server[0]["embedder"], ["text"])
    signature = dataclasses.replace(
        answers.signatures["serving_default"],
        answer=lambda rows: [{"embedding": [float("nan")] * 8} for row in rows],
    )
    answers = dataclasses.replace(answers, signatures={"serving_default": signature})
    with serve_models({"nan": load_model("nan", answers)}, MAX_ROWS, max_bytes=9999) as port:
        status, _, content = send_request(port, path, request_)
    assert status == (500 if path.startswith("/v1") else 424)
    assert "the model's outputs must be finite" in str(content["error"])


def test_batch_size_one_is_deterministic(server):
    texts = ["a film", "a plot of a film", "b", "é", "plot plot", "a b c", "film b c"]

    def get_embeddings(inputs):
        request = {"model": "alone", "input": inputs, "encoding_format": "base64"}
        return [
            item["embedding"] for item in request_content(server, "/v1/embeddings", request)["data"]
        ]

    assert get_embeddings(texts) == [get_embeddings(text)[0] for text in texts]


@pytest.mark.parametrize(
    ("prompt", "options"),
    [
        ("b ", {}),
        ("film ", {"prompt_name": "query"}),
        ("", {"prompt_name": ""}),
        # Cohere, NVIDIA NIM, Jina AI and Voyage AI
        ("film ", {"input_type": "search_query"}),
        ("", {"input_type": "passage", "truncate": "NONE"}),
        ("film ", {"task": "retrieval.query", "normalized": True}),
        ("film ", {"input_type": "query", "truncation": True, "output_dimension": 5}),
    ],
)
def test_prompts_match_the_task(server, prompt, options):
    task, path = server[0]["prompted"], "/models/prompted"
    texts = [f"{prompt}{text}" for text in TEXTS]
    expected = task.embed(texts, prompt="")
    content = request_content(server, f"{path}/embed", {"inputs": TEXTS, **options})
    assert np.array(content) == approximately(expected)
    sentences = {"source_sentence": TEXTS[0], "sentences": TEXTS}
    request = {"inputs": sentences, "parameters": options}
    similarities = request_content(server, f"{path}/similarity", request)
    assert np.array(similarities) == approximately(expected @ expected[0])
    request = {"model": "prompted", "input": TEXTS, **options}
    content = request_content(server, "/embeddings", request)
    assert np.array([item["embedding"] for item in content["data"]]) == approximately(expected)
    num_tokens = sum(map(len, TOKENIZER.encode(texts)))
    assert content["usage"] == {"prompt_tokens": num_tokens, "total_tokens": num_tokens}


def test_tei_embeddings_match_the_task(server):
    expected = server[0]["embedder"].embed([*TEXTS, LONG])
    path = "/models/embedder/embed"
    assert np.array(request_content(server, path, {"inputs": TEXTS[0]})) == approximately(
        expected[:1]
    )
    long_ids = list(itertools.chain(*TOKENIZER(LONG.split())))
    mixed = [TEXTS[0], TOKENIZER(TEXTS[2]), LONG, long_ids, [2, *long_ids, 3]]
    for name in ("embedder", "left"):
        status, headers, content = send_request(
            server[1], f"/models/{name}/embed", {"inputs": mixed, "truncate": True}
        )
        assert (status, headers["X-Truncated-Inputs"]) == (200, "2,3,4")
        assert headers["X-Truncated-Count"] == "3"
        truncated = server[0][name].embed([*mixed[:1], TEXTS[2], LONG])[[0, 1, 2, 2, 2]]
        assert np.array(content) == approximately(truncated)
    raw = server[0]["raw"].embed(TEXTS)
    request = {"inputs": TEXTS, "normalize": False, "dimensions": 2, "truncation_direction": "Left"}
    assert np.array(request_content(server, "/models/raw/embed", request)) == approximately(
        raw[:, :2]
    )
    sentences = {"source_sentence": TEXTS[0], "sentences": TEXTS}
    for path in ("/models/embedder/similarity", "/models/embedder"):
        similarities = request_content(
            server, path, {"inputs": sentences, "parameters": {"truncate": True}}
        )
        assert np.array(similarities) == approximately(expected[:3] @ expected[0])


def test_tei_predict_and_rerank_match_the_task(server):
    models = server[0]
    classes = models["sst2"].classify(TEXTS, top_k=2)
    expected = [
        [{"score": pytest.approx(item["score"], abs=1e-5), "label": item["label"]} for item in row]
        for row in classes
    ]
    assert request_content(server, "/models/sst2/predict", {"inputs": TEXTS[0]}) == expected[0]
    batch = {"inputs": [[text] for text in TEXTS]}
    assert request_content(server, "/models/sst2/predict", batch) == expected
    # In TEI, a list of two strings is a text pair.
    (pair,) = models["sst2"].classify([(TEXTS[0], TEXTS[2])])
    (best, _) = request_content(server, "/models/sst2/predict", {"inputs": [TEXTS[0], TEXTS[2]]})
    assert best["score"] == pytest.approx(pair["score"], abs=1e-5)

    texts = ["plot", "film", "a film"]
    scores = [item["score"] for item in models["ranker"].classify([("a", text) for text in texts])]
    order = np.argsort(scores)[::-1].tolist()
    request = {"query": "a", "texts": texts, "return_text": True}
    ranks = request_content(server, "/models/ranker/rerank", {**request, "raw_scores": True})
    assert ranks == [
        {"index": index, "score": pytest.approx(scores[index], abs=1e-5), "text": texts[index]}
        for index in order
    ]
    ranks = request_content(server, "/models/ranker/rerank", request)
    sigmoid = 1 / (1 + np.exp(-np.array(scores)))
    assert [item["score"] for item in ranks] == pytest.approx(sigmoid[order].tolist(), abs=1e-5)
    # A binary classifier ranks by its last class. Multiple choice ranks the texts as choices.
    relevant = request_content(server, "/models/sst2/rerank", {"query": "a", "texts": texts})
    items = request_content(
        server, "/models/sst2/predict", {"inputs": ["a", texts[relevant[0]["index"]]]}
    )
    score = {row["label"]: row["score"] for row in items}["+"]
    assert relevant[0]["score"] == pytest.approx(score, abs=1e-6)
    row = {"text": "a", "choices": texts}
    (choices,) = models["chooser"].serving_answers([row])
    ranks = request_content(server, "/models/chooser", {"query": "a", "texts": texts})
    assert [item["index"] for item in ranks] == choices["ranking"]


@pytest.mark.parametrize("version", ["v1", "v2"])
def test_rerank_matches_the_task(server, version):
    documents = ["plot", {"text": "film"}, "a film"]
    texts = ["plot", "film", "a film"]
    expected = server[0]["ranker"].rank("a", texts, top_k=2)
    request = {"model": "ranker", "query": "a", "documents": documents, "top_n": 2}
    request["return_documents"] = True
    content = request_content(server, f"/{version}/rerank", request)
    assert content["results"] == [
        {
            "index": item["index"],
            "relevance_score": pytest.approx(1 / (1 + np.exp(-item["score"])), abs=1e-5),
            "document": {"text": texts[item["index"]]},
        }
        for item in expected
    ]
    # A pair has three special tokens, two separate texts have four.
    num_tokens = sum(len(TOKENIZER.encode("a")) + len(ids) - 1 for ids in TOKENIZER.encode(texts))
    assert content["usage"] == {"total_tokens": num_tokens}
    request = {"model": "chooser", "query": "a", "documents": texts}
    content = request_content(server, f"/{version}/rerank", request)
    assert [(item["index"], item["relevance_score"]) for item in content["results"]] == [
        (item["index"], pytest.approx(item["score"], abs=1e-5))
        for item in server[0]["chooser"].rank("a", texts)
    ]
    for name, message in {"other": "model must be one of", "tagger": "has the method tag"}.items():
        request = {"model": name, "query": "a", "documents": texts}
        status, _, content = send_request(server[1], f"/{version}/rerank", request)
        assert status == (400 if name == "tagger" else 404)
        assert message in content["message"] == content["detail"]


def recorded_models(task, seconds=0.0):
    """The task as a model called `slow`, and a list of the sizes of computed batches."""
    answers, sizes = answers_of_task(task, task.fields), []
    (signature,) = answers.signatures.values()

    def answer(rows):
        sizes.append(len(rows))
        time.sleep(seconds)
        return signature.answer(rows)

    signatures = {"serving_default": dataclasses.replace(signature, answer=answer)}
    answers = dataclasses.replace(answers, signatures=signatures)
    return {"slow": load_model("slow", answers)}, sizes


@pytest.mark.parametrize(
    ("name", "path", "request_"),
    [
        ("sst2", "/predict", {"inputs": [[TEXTS[0]], [LONG]]}),
        ("sst2", "/predict", {"inputs": TEXTS[0], "raw_scores": True}),
        ("sst2", "/rerank", {"query": "a", "texts": TEXTS, "raw_scores": True}),
        ("ranker", "/rerank", {"query": LONG, "texts": TEXTS}),
        ("embedder", "/embed", {"inputs": [*TEXTS, LONG]}),
    ],
)
def test_invalid_requests_are_not_computed(server, name, path, request_):
    models, sizes = recorded_models(server[0][name])
    with serve_models(models, max_rows=MAX_ROWS, max_bytes=9999) as port:
        assert send_request(port, path, request_)[0] == 422
        assert sizes == []
    models, sizes = recorded_models(server[0][name])
    limits = {"auto_truncate": True}
    with serve_models(models, max_rows=MAX_ROWS, max_bytes=9999, limits=limits) as port:
        status, headers, _ = send_request(port, path, request_)
        assert (status == 200) == ("raw_scores" not in request_) == bool(sizes)
        assert ("X-Truncated-Inputs" in headers) == (status == 200)


def test_slow_requests_time_out_and_are_logged(server):
    models, sizes = recorded_models(server[0]["embedder"], seconds=0.5)
    file, limits = io.StringIO(), {"request_timeout": 0.1}
    with serve_models(
        models, max_rows=MAX_ROWS, max_bytes=9999, limits=limits, access_log=file
    ) as port:
        request = {"model": "slow", "input": ["a"] * 8}
        status, _, content = send_request(port, "/embeddings", request)
        message = "the request must be computed within 0.1 s"
        assert (status, content["error"]["message"]) == (504, message)
        send_request(port, "/none")
        request = {"inputs": [*TEXTS, LONG]}
        assert send_request(port, "/embed", request)[0] == 422
    assert sum(sizes) <= 8
    lines = [json.loads(line) for line in file.getvalue().splitlines()]
    assert [(line["method"], line["path"], line["status"], line["model"]) for line in lines] == [
        ("POST", "/embeddings", 504, "slow"),
        ("GET", "/none", 404, None),
        ("POST", "/embed", 422, "slow"),
    ]
    assert lines[0]["seconds"] >= 0.1
    assert lines[0]["client"] == "127.0.0.1"
    assert lines[0]["bytes"] > len(message)


def test_replaced_model_finishes_its_requests(server):
    """A request that has started gets the old model's prediction, and then its threads stop."""
    old, sizes = recorded_models(server[0]["embedder"], seconds=0.5)
    new, _ = recorded_models(server[0]["raw"])
    old_thread = old["slow"].batcher._threads[0]
    model_server = ModelServer(dict(old), Metrics(), MAX_ROWS, 9999)
    with run_server(model_server) as port, concurrent.futures.ThreadPoolExecutor(1) as clients:
        request = {"instances": ["a"]}
        answer = clients.submit(send_request, port, "/v1/models/slow:predict", request)
        while not sizes:
            time.sleep(0.01)
        old.clear()
        model_server.replace(new)
        for content, name in (
            (answer.result()[2], "embedder"),
            (send_request(port, "/v1/models/slow:predict", request)[2], "raw"),
        ):
            assert np.array(content["predictions"]) == approximately(server[0][name].embed(["a"]))
        assert not old_thread.is_alive()


def test_choices_are_batched_at_any_size(server):
    """The predictions do not depend on the batch size or on padding."""
    task, sizes = server[0]["chooser"], []
    answers = answers_of_task(task, task.fields)
    answer_rows = answers.pair_signature.answer

    def record(rows):
        sizes.append(len(rows))
        return answer_rows(rows)

    pair_signature = dataclasses.replace(answers.pair_signature, answer=record)
    answers = dataclasses.replace(answers, pair_signature=pair_signature)
    texts = ["plot", "film", "a film", "", "b", "c a", "é"]
    rows = [{"text": "a", "choices": [*texts, ""]}, {"text": "b", "choices": [*texts[::-1], "a"]}]
    with serve_models(
        {"chooser": load_model("chooser", answers, 2)}, max_rows=16, max_bytes=9999
    ) as port:
        predictions = send_request(port, "/v1/models/chooser:predict", {"instances": rows})[2][
            "predictions"
        ]
        ranks = send_request(port, "/rerank", {"query": "a", "texts": texts})[2]
        for row in ({"text": "a", "choices": []}, {"text": "a" * 2000, "choices": ["b"] * 5}):
            request = {"instances": [row]}
            assert send_request(port, "/v1/models/chooser:predict", request)[0] == 400
    assert max(sizes) <= 2
    for row, expected, prediction in zip(
        rows, task.serving_answers(rows), predictions, strict=True
    ):
        assert prediction["probabilities"] == pytest.approx(expected["probabilities"], abs=1e-5)
        assert prediction["ranked_scores"] == sorted(prediction["probabilities"], reverse=True)
        assert prediction["ranked_choices"] == [
            row["choices"][index] for index in prediction["ranking"]
        ]
    (choices,) = task.serving_answers([{"text": "a", "choices": texts}])
    scores = [item["score"] for item in sorted(ranks, key=lambda item: item["index"])]
    assert scores == pytest.approx(choices["probabilities"], abs=1e-5)


def test_tei_entities_match_the_task(server):
    """A long text is split into windows. The offsets still count from its start."""
    path, text = "/models/tagger/predict", "Ann é Lee, film. " * 8
    expected = server[0]["tagger"].entities(text)
    assert expected
    groups = request_content(server, path, {"inputs": text})
    assert groups == [
        {
            "entity_group": item["type"],
            "score": pytest.approx(item["score"], abs=1e-5),
            "word": item["text"],
            "start": item["start"],
            "end": item["end"],
        }
        for item in expected
    ]
    options = {"aggregation_strategy": "none", "ignore_labels": ["B-PER"]}
    texts = [text, text[:-6]]
    words = request_content(server, path, {"inputs": [[text] for text in texts], **options})
    assert [[(item["entity"], item["start"]) for item in row] for row in words] == [
        [(tag["label"], tag["start"]) for tag in row if tag["label"] != "B-PER"]
        for row in server[0]["tagger"].tag(texts)
    ]


def test_tei_labels_without_prefixes_are_grouped(server):
    """Like in transformers pipelines, adjacent words with the same label form an entity.

    O is also a label unless it is ignored.
    """
    texts = ["a b c film plot a", "é, film"]
    for text in texts:
        tags, groups = server[0]["bare"].tag(text), []
        for label, words in itertools.groupby(tags, key=lambda tag: tag["label"]):
            first, *_, last = [*words] * 2
            groups.append((label, first["start"], last["end"]))
        request = {"inputs": text, "parameters": {"ignore_labels": []}}
        response = request_content(server, "/models/bare", request)
        assert [(item["entity_group"], item["start"], item["end"]) for item in response] == groups
        expected = [group for group in groups if group[0] != "O"]
        entities = server[0]["bare"].entities(text)
        assert [(item["type"], item["start"], item["end"]) for item in entities] == expected
        response = request_content(server, "/models/bare/predict", {"inputs": text})
        assert [(item["entity_group"], item["start"], item["end"]) for item in response] == expected


def test_tei_function_to_apply_is_validated(server):
    functions = {"sst2": {"softmax"}, "toxic": {"sigmoid"}, "ranker": {"sigmoid", "none"}}
    for name, allowed in functions.items():
        for function in ("softmax", "sigmoid", "none"):
            request = {"inputs": "a", "parameters": {"function_to_apply": function}}
            status, _, content = send_request(server[1], f"/models/{name}", request)
            assert status == (200 if function in allowed else 422), (name, function)
            if name != "ranker" and status == 200:
                total = sum(item["score"] for item in content[0])
                assert (total == pytest.approx(1)) == (function == "softmax")


def test_tei_null_means_the_default(server):
    """TEI's schema allows null for these options."""
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
        assert request_content(server, path, request) == request_content(server, path, absent), path
    request = {**requests["/models/embedder/similarity"], "parameters": None}
    assert len(request_content(server, "/models/embedder/similarity", request)) == 1
    request["parameters"] = {"truncation_direction": "Right", "truncate": True}
    assert len(request_content(server, "/models/embedder/similarity", request)) == 1


def test_tei_tokenize_decode_and_info(server):
    path = "/models/embedder/tokenize"
    (row,) = request_content(server, path, {"inputs": "é b"})
    assert [token["id"] for token in row] == TOKENIZER.encode("é b")
    # Offsets count UTF-8 bytes.
    assert row[1] == {"id": row[1]["id"], "text": "é", "special": False, "start": 0, "stop": 2}
    assert row[0] == {**row[0], "text": "[CLS]", "special": True, "start": None, "stop": None}
    for text in NON_ASCII:
        (row,) = request_content(server, path, {"inputs": text, "add_special_tokens": False})
        for token in row:
            assert text.encode()[token["start"] : token["stop"]].decode() == token["text"]
    rows = request_content(server, path, {"inputs": TEXTS, "add_special_tokens": False})
    assert [[token["id"] for token in row] for row in rows] == TOKENIZER(TEXTS)
    ids = {"ids": TOKENIZER.encode(["a b", "c"])}
    assert request_content(server, "/models/embedder/decode", ids) == ["a b", "c"]
    info = request_content(server, "/models/sst2/info")
    assert (info["model_id"], info["max_input_length"]) == ("sst2", LENGTH)
    assert info["model_type"]["classifier"]["id2label"] == {"0": "-", "1": "+"}
    for path in ("/health", "/ping", "/"):
        assert request_content(server, path) is None


def test_hugging_face_inference_client_matches_tasks(server):
    """The client sends requests to the model's URL without a path, and expects pipeline outputs."""

    def client(name):
        return InferenceClient(f"http://127.0.0.1:{server[1]}/models/{name}", token="none")

    expected = server[0]["embedder"].embed(TEXTS)
    assert client("embedder").feature_extraction(TEXTS) == approximately(expected)
    similarities = client("embedder").sentence_similarity(TEXTS[0], TEXTS)
    assert np.array(similarities) == approximately(expected @ expected[0])
    (best,) = client("sst2").text_classification(TEXTS[0], top_k=1)
    assert best.label == server[0]["sst2"].classify(TEXTS[0])["label"]
    entities = client("tagger").token_classification("Ann Lee, film.")
    assert [(item.entity_group, item.start, item.end) for item in entities] == [
        (item["type"], item["start"], item["end"])
        for item in server[0]["tagger"].entities("Ann Lee, film.")
    ]


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("embedder", {"hypothesis": "a {} b"}),
        ("raw", {}),
        ("nli", {"hypothesis": "{} b"}),
        ("nli", {"hypothesis": "{}", "multi_label": True}),
    ],
)
def test_zero_shot_classification_matches_the_task(server, name, options):
    labels = ["b_c", "plot", "é"]
    client = InferenceClient(f"http://127.0.0.1:{server[1]}/models/{name}", token="none")
    fields = {"multi_label": options.get("multi_label", False)}
    fields["hypothesis_template"] = options.get("hypothesis")
    expected = server[0][name].classify_zero_shot(TEXTS[:2], labels, **options)
    result = client.zero_shot_classification(TEXTS[0], labels, **fields)
    assert [(item.label, item.score) for item in result] == [
        (item["label"], pytest.approx(item["score"], abs=1e-6)) for item in expected[0]
    ]
    request = {"inputs": TEXTS[:2], "parameters": {"candidate_labels": labels[::-1], **fields}}
    content = request_content(server, f"/models/{name}", request)
    assert [[item["label"] for item in ranked] for ranked in content] == [
        [item["label"] for item in ranked] for ranked in expected
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
            "truncation_direction. Received: 'n'",
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
        (
            "/models/sparse/embed",
            {"inputs": "a"},
            424,
            "with embeddings: sparse computes sparse embeddings, see /embed_sparse",
        ),
        (
            OPENAI,
            {"model": "sparse", "input": "a"},
            400,
            "Received: sparse, which computes sparse embeddings, see /embed_sparse",
        ),
        (
            "/models/embedder/embed_sparse",
            {"inputs": "a"},
            424,
            "with sparse embeddings: embedder computes embeddings, see /embed",
        ),
        (EMBED, {"inputs": "a", "prompt_name": "b"}, 422, "model has no prompts. Received: 'b'"),
        (
            OPENAI,
            {"model": "prompted", "input": "a", "input_type": "clustering"},
            400,
            "input_type must be one of query, document, passage, corpus, STS. Received: 'clust",
        ),
        (
            "/models/prompted/embed",
            {"inputs": [[5]], "prompt_name": "STS"},
            422,
            "inputs must be strings to add a prompt. Received: token ids (inputs[0])",
        ),
        (
            "/models/prompted/embed",
            {"inputs": "a", "prompt_name": "STS", "input_type": "query"},
            422,
            "only one of prompt_name and input_type",
        ),
        (EMBED, {"inputs": "a", "truncate": True, "truncation": True}, 422, "only one of truncate"),
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
        *(
            (f"/models/{name}", {"inputs": "a", "parameters": parameters}, status, message)
            for name, parameters, status, message in [
                (
                    "embedder",
                    {"candidate_labels": ["a", "a"]},
                    422,
                    "candidate_labels must be different. Received: ['a', 'a']",
                ),
                ("embedder", {"candidate_labels": ["a", LONG]}, 422, "candidate_labels: the model"),
                (
                    "embedder",
                    {"candidate_labels": list("abcdefgh")},
                    422,
                    "candidate_labels must have at most 7 elements for 1 texts. Received: 8",
                ),
                (
                    "embedder",
                    {"candidate_labels": ["a"], "hypothesis_template": "b"},
                    422,
                    "hypothesis_template must have {} for the label. Received: 'b'",
                ),
                (
                    "nli",
                    {"candidate_labels": ["b" * 9]},
                    422,
                    "candidate_labels must have at most 6 tokens each, with the hypothesis",
                ),
                ("nli", {"candidate_labels": []}, 400, "candidate_labels must be a list of one"),
                ("sst2", {"candidate_labels": ["a"]}, 424, "sst2 has no entailment class"),
            ]
        ),
        # Clients send these texts once, but the model would read them with each other text.
        *(
            (path, request, 422, "at most 10000 characters in total, counted for each text or ")
            for path, request in [
                ("/models/ranker/rerank", {"query": "a" * 2000, "texts": ["b"] * 6}),
                ("/models/chooser/rerank", {"query": "a" * 2000, "texts": ["b"] * 6}),
                *(
                    (
                        f"/models/{name}",
                        {
                            "inputs": "a",
                            "parameters": {
                                "candidate_labels": list("abcdef"),
                                "hypothesis_template": f"{{}}{'a' * 1998}",
                            },
                        },
                    )
                    for name in ("embedder", "nli")
                ),
                (
                    "/models/nli",
                    {
                        "inputs": "a" * 2000,
                        "parameters": {"candidate_labels": list("abcdef")},
                    },
                ),
            ]
        ),
    ],
)
def test_invalid_request_error_has_the_format(server, path, request_, status, message):
    actual_status, _, content = send_request(server[1], path, request_)
    if path == OPENAI:
        error = content["error"]
        assert set(error) == {"message", "type", "param", "code"}
        assert error["type"] == "invalid_request_error"
        assert error["param"] in {None, "model", "input", "dimensions", "n", "input_type"}
        content = {"error": error["message"], "error_type": ""}
    assert set(content) == {"error", "error_type"}
    assert (content["error_type"] == "Empty") == (path != OPENAI and status == 400)
    assert actual_status == status
    assert message in content["error"]
