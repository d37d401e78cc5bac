# SPDX-License-Identifier: Apache-2.0
"""Clients that were written for other servers, at `keras-bert serve` with `tiny.py`'s models.

    python clients.py http://localhost:8765

The server has `export/1` as `sst2`, and `embedder.keras` as `minilm`.
"""

import importlib
import sys

import numpy as np

import keras_bert

# Not by `import`, for BUILD would have every test depend on them
libraries = ("openai", "huggingface_hub", "langchain_openai")
openai, hugging_face, langchain = map(importlib.import_module, libraries)
address = sys.argv[1]
texts = ["a good film", "bad", ""]
expected = keras_bert.load_model("embedder.keras").embed(texts)
options = {"model": "minilm", "base_url": f"{address}/v1", "api_key": "none"}

client = openai.OpenAI(base_url=options["base_url"], api_key="none")
assert {model.id for model in client.models.list()} == {"sst2", "minilm"}
assert client.models.retrieve("minilm").id == "minilm"
for asked in ({}, {"encoding_format": "float"}):
    answer = client.embeddings.create(model="minilm", input=texts, **asked)
    vectors = [one.embedding for one in answer.data]
    np.testing.assert_allclose(vectors, expected, atol=1e-5)
assert answer.usage.total_tokens == sum(len(text.split()) + 2 for text in texts), answer.usage
refused = {}
for asked in ({"model": "other", "input": "good"}, {"model": "minilm", "input": "good " * 100}):
    try:
        client.embeddings.create(**asked)
    except openai.APIStatusError as error:
        refused[type(error)] = error.param
assert refused == {openai.NotFoundError: "model", openai.BadRequestError: "input"}, refused

embeddings = langchain.OpenAIEmbeddings(**options, check_embedding_ctx_length=False)
np.testing.assert_allclose(embeddings.embed_documents(texts), expected, atol=1e-5)
np.testing.assert_allclose(embeddings.embed_query(texts[0]), expected[0], atol=1e-5)

minilm, sst2 = (
    hugging_face.InferenceClient(f"{address}/models/{name}", token="none")
    for name in ("minilm", "sst2")
)
np.testing.assert_allclose(minilm.feature_extraction(texts), expected, atol=1e-5)
classes = sst2.text_classification("good plot")
assert classes[0].label == "positive", classes
