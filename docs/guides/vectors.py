# SPDX-License-Identifier: Apache-2.0

# %% [markdown]
# # Embeddings and semantic search
#
# A `TextEmbedder` turns texts with similar meanings into similar vectors. Use it for semantic search, clustering, deduplication and
# retrieval-augmented generation (RAG):
#
# ```python
# embedder = keras_bert.TextEmbedder.from_preset("minilm")
# vectors = embedder.embed(documents)                          # shape (documents, 384)
# np.argsort(-(vectors @ embedder.embed("a smooth line")))     # documents in descending order of similarity
# embedder.compile()
# embedder.fit(pairs)                                          # pairs of texts that belong together
# ```
#
# In this guide you search the docstrings of installed packages. MiniLM reaches a mean reciprocal rank of 0.613, and 0.638 after training on 640
# pairs. A bag of words reaches 0.510.
#
# To run it, [install keras_bert](../start/install.md) with the extra `training` and the MiniLM weights.
#
# <details markdown="1"><summary>Code that collects pairs of sentences from docstrings</summary>

# %%
import ast
import importlib.util
import random
import re
from pathlib import Path

import keras
import numpy as np

import keras_bert

keras.utils.set_random_seed(1)


def first_two_sentences(package):
    """The first two sentences of each docstring of a package that has two."""
    directory = Path(importlib.util.find_spec(package).origin).parent
    for path in sorted(directory.rglob("*.py")):
        if (
            "test" in path.as_posix().removeprefix(directory.as_posix())
            or path.stat().st_size > 100_000
        ):
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                prose = re.split(
                    r"\n\w+\n *---|\n\w+:\n|>>>|\.\. |::", ast.get_docstring(node) or ""
                )[0]
                found = re.split(r"(?<=[.!?])\s+(?=[A-Z])", prose)[:2]
                if len(found) == 2 and all(30 < len(text) < 200 for text in found):
                    yield tuple(" ".join(text.split()) for text in found)


pairs = sorted(
    {
        pair
        for package in ("matplotlib", "scipy", "sklearn")
        for pair in first_two_sentences(package)
    }
)
pairs = list({first: (first, second) for first, second in pairs}.values())
random.Random(1).shuffle(pairs)
train, test = pairs[300:940], pairs[:300]
print(len(train), "pairs for training,", len(test), "for the test; for example")
print(*test[0], sep="\n")

# %% [markdown]
# </details>
#
# Each query is a docstring's second sentence, and the right document is the same docstring's first sentence. The metric is the mean reciprocal rank
# (MRR). It is 1 if the right document is always first, and 1/2 if it is always second.

# %% small="train, test = train[:32], test[:40]"
from sklearn.feature_extraction.text import TfidfVectorizer

# %%
documents, queries = map(list, zip(*test, strict=True))


def mean_reciprocal_rank(similarities):
    """The score of similarities `(queries, documents)`; document i is the right one of query i."""
    right = np.diag(similarities)[:, None]
    return np.mean(1 / (1 + (similarities > right).sum(axis=1)))


words = TfidfVectorizer(sublinear_tf=True, stop_words="english").fit(documents)
similarities = (words.transform(queries) @ words.transform(documents).T).toarray()
chance = np.mean(1 / np.arange(1, len(test) + 1))
print(f"chance:       {chance:.3f}")
print(f"bag of words: {mean_reciprocal_rank(similarities):.3f}")

# %% [markdown]
# ## Compute embeddings
#
# The embeddings have length 1, so their dot product is the cosine similarity.

# %% small="embedder = keras_bert.TextEmbedder.from_preset(small_encoder(), sequence_length=64)"
embedder = keras_bert.TextEmbedder.from_preset("minilm", sequence_length=64, dtype="mixed_bfloat16")


def score(embedder):
    vectors = embedder.embed(documents + queries)
    return mean_reciprocal_rank(vectors[len(documents) :] @ vectors[: len(documents)].T)


print(f"MiniLM:       {score(embedder):.3f}")

# %% [markdown]
# ## Search
#
# To search, multiply the document embeddings by the query embedding:

# %%
vectors = embedder.embed(documents)
for query in ("How do I draw a smooth line through points?", "probability of rare events"):
    similarity = vectors @ embedder.embed(query)
    print(query)
    for index in np.argsort(-similarity)[:3]:
        print(f"  {similarity[index]:.2f}  {documents[index]}")

# %% [markdown]
# ## Prompts
#
# Some models are trained with a prompt in front of each text, for example E5, BGE and Nomic. Without the prompts, they find fewer of the
# right documents. `embed_queries` and `embed_documents` add them:
#
# ```python
# embedder = keras_bert.TextEmbedder.from_preset(
#     "hf://intfloat/multilingual-e5-small", prompts={"query": "query: ", "document": "passage: "}
# )
# vectors = embedder.embed_documents(documents)
# np.argsort(-(vectors @ embedder.embed_queries("a smooth line")))
# ```
#
# - **Where they come from.** `from_preset` reads `prompts` and `default_prompt_name` from `config_sentence_transformers.json`. If the model's
#   page names prompts that this file lacks, pass `prompts`. Presets, `.keras` files, Hugging Face directories and exports keep them.
# - **Other prompts.** `embed` adds the default prompt. `embed(texts, prompt_name="clustering")` adds another prompt of the model, and
#   `embed(texts, prompt="Represent this: ")` adds this text.
# - **Pooling.** If `1_Pooling/config.json` has `include_prompt: false`, as for Instructor models, the tokens of a prompt are not pooled. This
#   applies to the prompts that `embed` or an export adds.
# - **Long texts.** With [`long_texts`](../commands/finetune.md#long-texts), each window of a text has the prompt.
# - **Training.** `fit(pairs, add_prompts=True)` adds the prompt for queries to each first text, and the prompt for documents to the others.
# - **sentence-transformers** computes the same embeddings, with one exception. If a model has a prompt called `passage` or `corpus` but none
#   called `document`, its version 6.2 encodes documents without a prompt.
#
# ## Shorter embeddings
#
# Models trained with Matryoshka representation learning work with the first elements of each embedding, which saves memory. With `dimensions`,
# the embeddings are cut and then scaled to length 1:
#
# ```python
# embedder.embed(documents, dimensions=128)
# embedder.export("export/short/1", dimensions=128)
# embedder = keras_bert.TextEmbedder.from_preset("minilm", dimensions=128)    # also in `fit`
# ```
#
# Clients of a [server](../serving/local_server.md) can also set `dimensions` in each request.
#
# ## Fine-tune on pairs
#
# You only need texts that belong together, for example questions and answers. Here we use two sentences from the same docstring. The other texts
# in the batch serve as negatives, so a larger batch makes the task harder.

# %%
steps = embedder.num_steps(train, batch_size=32)
embedder.compile(
    optimizer=keras_bert.optimizers.AdamW(5e-5, num_train_steps=steps, num_warmup_steps=steps // 10)
)
embedder.fit(train, batch_size=32, epochs=1, verbose=0)
print(f"MiniLM, trained on {len(train)} pairs: {score(embedder):.3f}")

# %% [markdown]
# ## Hard negatives
#
# A retrieval model learns most from texts that it confuses with the right document. `mine_hard_negatives` searches for them with the model, and
# `fit` uses them as candidates for every query in the batch:
#
# ```python
# rows = keras_bert.mine_hard_negatives(embedder, pairs, documents, relative_margin=0.05, num_negatives=5)
# embedder.fit(rows, batch_size=32)
# ```
#
# Some of the documents found are relevant, although no pair says so. `relative_margin=0.05` drops documents that score nearly as high as the
# relevant text. There are also `absolute_margin`, `max_score`, `min_score` and `range_min`, and `cross_encoder` scores with a re-ranker. Pairs
# with too few documents left have fewer negatives. The query's own text is never a negative. The options and results match `mine_hard_negatives` of sentence-transformers.
#
# If you already have negatives, pass tuples `(query, relevant text, negative, …)`, or a table with the columns `text`, `text_pair` and
# `negatives`. Batches of them can also come from a generator or a `tf.data.Dataset`. A batch is a list of tuples or a table.
#
# ## Large batches
#
# More in-batch negatives make a better model, but the activations of 1,024 pairs do not fit in memory. With `mini_batch_size`, `fit` encodes
# a few texts at a time, and again in the backward pass (GradCache). The gradients are the same as with one large batch:
#
# ```python
# embedder.fit(pairs, batch_size=1024, mini_batch_size=32)
# ```
#
# It works on JAX and PyTorch, on one device. With MiniLM and passages of up to 256 tokens, a step with 1,024 pairs needs 4.6 GB of memory with
# `mini_batch_size=16`, and 8.8 GB with 64.
#
# ## Distillation
#
# A cross-encoder ranks better than an embedder, but is too slow to search with. An embedder can learn its scores. `y` has the score of each
# text after the query:
#
# ```python
# scores = rows["scores"]    # of mine_hard_negatives with a cross_encoder
# embedder.compile(loss=keras_bert.losses.MarginMSELoss(scale=10))    # or ListNetLoss(scale=20), SoftTargetDivergence()
# embedder.fit(rows, scores)
# ```
#
# `scale` multiplies the embedder's cosine similarities, which would otherwise be smaller than the teacher's scores. To learn the embeddings of
# another model with the same dimension, train on single texts:
#
# ```python
# embedder.compile(loss="mse")
# embedder.fit(texts, teacher.embed(texts))
# ```
#
# ## Matryoshka embeddings
#
# `MatryoshkaLoss` trains [shorter embeddings](#shorter-embeddings), for any loss of pairs or tuples:
#
# ```python
# loss = keras_bert.losses.MatryoshkaLoss(keras_bert.losses.InBatchNegatives(), dimensions=[384, 192, 96])
# embedder.compile(loss=loss)
# ```
#
# ## Next steps
#
# - To re-rank the search results with a cross-encoder, run `keras-bert finetune --task=ranking`.
# - To compare texts with descriptions of labels, see [zero-shot classification](../start/choose_a_task.md#zero-shot-classification).
# - To serve embeddings to OpenAI clients, see [serving](../serving/index.md).
