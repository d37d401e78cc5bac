# SPDX-License-Identifier: Apache-2.0
"""Runs clients of other servers against `keras-bert serve` with the models of `tiny.py`.

    python clients.py http://localhost:8765

The server has `export/1` as `sst2` and `embedder.keras` as `minilm`.
"""

import importlib
import sys

import numpy as np

import keras_bert

# importlib hides the imports from BUILD. Otherwise, every test would depend on these packages.
libraries = ("openai", "huggingface_hub", "langchain_openai")
openai, hugging_face, langchain = map(importlib.import_module, libraries)
address = sys.argv[1]
texts = ["a good film", "bad", ""]
expected = keras_bert.load_model("embedder.keras").embed(texts)
options = {"model": "minilm", "base_url": f"{address}/v1", "api_key": "none"}

client = openai.OpenAI(base_url=options["base_url"], api_key="none")
assert {model.id for model in client.models.list()} == {"sst2", "minilm"}
assert client.models.retrieve("minilm").id == "minilm"
for arguments in ({}, {"encoding_format": "float"}):
    response = client.embeddings.create(model="minilm", input=texts, **arguments)
    actual = [item.embedding for item in response.data]
    np.testing.assert_allclose(actual, expected, atol=1e-5)
assert response.usage.total_tokens == sum(len(text.split()) + 2 for text in texts), response.usage
errors = {}
for arguments in ({"model": "other", "input": "good"}, {"model": "minilm", "input": "good " * 100}):
    try:
        client.embeddings.create(**arguments)
    except openai.APIStatusError as error:
        errors[type(error)] = error.param
assert errors == {openai.NotFoundError: "model", openai.BadRequestError: "input"}, errors

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
