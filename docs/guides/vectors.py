# SPDX-License-Identifier: Apache-2.0

# %% [markdown]
# # Sentence vectors and search
#
# A `TextEmbedder` turns texts of similar meaning into similar vectors. In short:
#
# ```python
# embedder = keras_bert.TextEmbedder.from_preset("minilm")
# vectors = embedder.embed(documents)
# np.argsort(-(vectors @ embedder.embed("a smooth line")))     # the best documents first
# embedder.compile()
# embedder.fit(pairs)                                          # (text, text) that belong together
# ```
#
# This guide searches the documentation of installed packages, compares with a bag of words, and trains the embedder on pairs.
# It needs an [installation](../start/install.md) with the extra `training` and MiniLM's weights.

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
    folder = Path(importlib.util.find_spec(package).origin).parent
    for path in sorted(folder.rglob("*.py")):
        if (
            "test" in path.as_posix().removeprefix(folder.as_posix())
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
# A query is the second sentence of a docstring; the first is to be found among all first sentences of the test. The score is the mean reciprocal
# rank: 1 if the right one is always first, 1/2 if it is always second.

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
# ## Embed
#
# MiniLM was trained for sentence vectors. They have length 1, so dot products are cosine similarities.

# %% small="embedder = keras_bert.TextEmbedder.from_preset(small_encoder(), sequence_length=64)"
embedder = keras_bert.TextEmbedder.from_preset("minilm", sequence_length=64, dtype="mixed_bfloat16")


def score(embedder):
    vectors = embedder.embed(documents + queries)
    return mean_reciprocal_rank(vectors[len(documents) :] @ vectors[: len(documents)].T)


print(f"MiniLM:       {score(embedder):.3f}")

# %% [markdown]
# A search is one product:

# %%
vectors = embedder.embed(documents)
for query in ("How do I draw a smooth line through points?", "probability of rare events"):
    similarity = vectors @ embedder.embed(query)
    print(query)
    for index in np.argsort(-similarity)[:3]:
        print(f"  {similarity[index]:.2f}  {documents[index]}")

# %% [markdown]
# ## Train on pairs
#
# Training needs only pairs that belong together: question and answer, or here two sentences of one docstring. The other texts of a batch are the
# negatives, so a larger batch is a harder task.

# %%
steps = embedder.num_steps(train, batch_size=32)
embedder.compile(
    optimizer=keras_bert.optimizers.AdamW(5e-5, num_train_steps=steps, num_warmup_steps=steps // 10)
)
embedder.fit(train, batch_size=32, epochs=1, verbose=0)
print(f"MiniLM, trained on {len(train)} pairs: {score(embedder):.3f}")

# %% [markdown]
# To re-rank the results of a search, see `keras-bert finetune --task=ranking`.
