# SPDX-License-Identifier: Apache-2.0

# %% [markdown]
# # Search your own documents
#
# `keras_bert.search` indexes a directory of documents and finds the passages that answer a query. A re-ranker improves their order, and a question
# answerer marks the answer:
#
# ```python
# index = SearchIndex("index", embedder)
# index.add(read_documents("pages"))
# Searcher(index, reranker, answerer).search("2019 brazil traveler to usa need a visa")
# ```
#
# In this guide you search pages about visas, where the order of words matters: a page about travel from the USA to Brazil does not answer the query
# above. Words and embeddings often find the page for the wrong direction. A re-ranker reads query and page together, and finds the right one.
#
# To run it, [install keras_bert](../start/install.md) with the extras `training` and `search`, and the MiniLM weights. For the command line and the
# server, see [`keras-bert search`](../commands/search.md).
#
# ## Documents
#
# The rules on these pages are invented. The directory has a page for each pair of eight countries. We train the models on pages of other countries:

# %% small="OTHERS, pages = OTHERS[:3], dict(list(pages.items())[:4])"
import itertools
import random
from pathlib import Path

import keras
import numpy as np

import keras_bert
from keras_bert.search import Searcher, SearchIndex, read_documents

keras.utils.set_random_seed(1)
rng = random.Random(1)

SEARCHED = ["Brazil", "USA", "Japan", "France", "Kenya", "India", "Korea", "Mexico"]
OTHERS = [
    *("Argentina", "Austria", "Belgium", "Canada", "Chile", "China", "Cuba", "Denmark", "Egypt"),
    *("Finland", "Germany", "Ghana", "Greece", "Hungary", "Iceland", "Iran", "Italy", "Latvia"),
    *("Malta", "Morocco", "Nepal", "Norway", "Oman", "Peru", "Poland"),
]

RULES = [
    "Citizens of {a} need a visa to enter {b}. {stay} {fee}",
    "{b} requires a visa from travelers who arrive from {a}. {fee} {stay}",
    "Nobody from {a} may visit {b} without a visa. {stay} {fee}",
    "A trip from {a} to {b} is possible without a visa. {stay}",
    "{b} welcomes visitors from {a} without a visa. {stay}",
]
QUERIES = [
    "2019 {a} traveler to {b} need a visa",
    "does someone from {a} need a visa for {b}",
    "entering {b} with a passport of {a}",
]


def page(a, b):
    """Returns a page about travel from a to b, and the answer to how long one may stay."""
    days = f"{rng.choice([14, 30, 60, 90, 180])} days"
    stay = rng.choice(["They may stay for {}.", "The longest stay is {}."]).format(days)
    fee = f"The fee is {rng.randrange(20, 200, 5)} euros, and it takes {rng.randrange(2, 9)} weeks."
    return rng.choice(RULES).format(a=a, b=b, stay=stay, fee=fee), days


pages = {}
Path("pages").mkdir()
for a, b in itertools.permutations(SEARCHED, 2):
    pages[a, b], _ = page(a, b)
    Path("pages", f"{a}-{b}.txt").write_text(pages[a, b])
print(len(pages), "pages, for example")
print("Brazil-USA:", pages["Brazil", "USA"])
print("USA-Brazil:", pages["USA", "Brazil"])

# %% [markdown]
# ## Index and search
#
# A page's rank depends on its words (BM25) and its embedding: the scores of both are scaled to 0 to 1 and averaged. `top_k` limits the number of passages:

# %%
embedder = keras_bert.TextEmbedder.from_preset("minilm", sequence_length=64)
index = SearchIndex("index", embedder)
index.add(read_documents("pages"))


def show(searcher, query):
    for hit in searcher.search(query, top_k=2):
        start, end = hit.snippet
        text = f"{hit.text[:start]}[{hit.text[start:end]}]{hit.text[end:]}"
        print(f"{Path(hit.document).stem}: {text}")


query = "2019 brazil traveler to usa need a visa"
opposite = "2019 usa traveler to brazil need a visa"
searcher = Searcher(index)
show(searcher, query)
show(searcher, opposite)

# %% [markdown]
# The marked sentence has the rarest words of the query. Words and embeddings hardly see who travels where. This is how often the right page comes first, for
# a query about each of the 56 pages:


# %%
def right_pages(searcher, mode="fused"):
    """Returns the percentage of queries whose first hit is the right page."""
    first = [
        Path(searcher.search(QUERIES[0].format(a=a, b=b), 1, mode=mode)[0].document).stem
        for a, b in pages
    ]
    return 100 * np.mean([stem == f"{a}-{b}" for stem, (a, b) in zip(first, pages, strict=True)])


for mode in ("words", "vectors", "fused"):
    print(f"{mode}: {right_pages(searcher, mode):.0f}%")

# %% [markdown]
# ## A re-ranker
#
# A re-ranker is a classifier of pairs (query, page). We train it on pages about 25 other countries. For each query, it sees the right page, the page for the
# opposite direction, and two pages with one of the two countries. This takes some minutes:

# %%
rows, labels = [], []
for a, b in itertools.permutations(OTHERS, 2):
    c = rng.choice([country for country in OTHERS if country not in (a, b)])
    for relevant, (x, y) in zip([1, 0, 0, 0], [(a, b), (b, a), (a, c), (c, b)], strict=True):
        rows.append((rng.choice(QUERIES).format(a=a, b=b), page(x, y)[0]))
        labels.append(relevant)

reranker = keras_bert.TextClassifier.from_preset(
    "minilm", num_classes=2, class_names=["irrelevant", "relevant"], sequence_length=96
)
reranker.compile(optimizer=keras_bert.optimizers.AdamW(1e-4))
reranker.fit(rows, labels, epochs=7, batch_size=32, verbose=2)

searcher = Searcher(index, reranker)
print(f"re-ranked: {right_pages(searcher):.0f}%")
show(searcher, query)
show(searcher, opposite)

# %% [markdown]
# ## Answers
#
# A question answerer marks the answer in the passages. We train it on the pages about other countries:

# %%
questions = []
for a, b in itertools.permutations(OTHERS, 2):
    text, days = page(a, b)
    answer = {"text": days, "answer_start": text.index(days)}
    question = f"how long can someone from {a} stay in {b}"
    questions.append({"question": question, "context": text, "answers": [answer]})

answerer = keras_bert.QuestionAnswerer.from_preset("minilm", sequence_length=96)
answerer.compile()
answerer.fit(questions, epochs=2, batch_size=32, verbose=2)

show(Searcher(index, reranker, answerer), "how long can a brazilian stay in the usa")

# %% [markdown]
# ## The command line
#
# Save the models to use them in [`keras-bert search`](../commands/search.md), for example on its page:
#
# ```python
# reranker.save("reranker.keras")
# answerer.save("answerer.keras")
# ```
#
# ```bash
# keras-bert search serve --index=index --sequence_length=64 --reranker=reranker.keras --answerer=answerer.keras
# ```
