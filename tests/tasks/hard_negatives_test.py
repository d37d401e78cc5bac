# SPDX-License-Identifier: Apache-2.0
"""Hard negatives are the same as sentence-transformers mines from the same vectors."""

import types

import numpy as np
import pytest

pytestmark = pytest.mark.on_torch

import keras_bert  # noqa: E402

RANDOM = np.random.default_rng(0)
TEXTS = [f"text {index}" for index in range(40)]
QUERIES = [f"query {index}" for index in range(8)]
# Two queries have two relevant texts.
PAIRS = [(query, TEXTS[index]) for index, query in enumerate([*QUERIES, *QUERIES[:2]])]
VECTORS = {text: RANDOM.normal(size=6).astype("float32") for text in (*QUERIES, *TEXTS)}
for query, text in PAIRS:
    VECTORS[text] = VECTORS[text] + VECTORS[query]


def embed(texts, **_):
    return np.stack([VECTORS[text] for text in texts])


EMBEDDER = types.SimpleNamespace(embed_queries=embed, embed_documents=embed)


def score(query, text):
    return float(np.tanh(VECTORS[query] @ VECTORS[text] / 6))


class CrossEncoder:
    """A re-ranker in the forms of both libraries."""

    def rank(self, query, texts, batch_size):
        scores = [score(query, text) for text in texts]
        return [{"index": index, "score": scores[index]} for index in np.argsort(scores)]

    def predict(self, pairs, **_):
        torch = pytest.importorskip("torch")
        return torch.tensor([score(*pair) for pair in pairs])


def mine_with_sentence_transformers(options):
    datasets = pytest.importorskip("datasets")
    torch = pytest.importorskip("torch")
    util = pytest.importorskip("sentence_transformers.util")

    def encode(texts, **_):
        vectors = embed(texts)
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)

    model = types.SimpleNamespace(
        device="cpu",
        encode_query=encode,
        encode_document=encode,
        similarity=lambda x, y: torch.as_tensor(x) @ torch.as_tensor(y).T,
        similarity_pairwise=lambda x, y: (torch.as_tensor(x) * torch.as_tensor(y)).sum(-1),
    )
    queries, texts = zip(*PAIRS, strict=True)
    rows = util.mine_hard_negatives(
        datasets.Dataset.from_dict({"query": queries, "positive": texts}),
        model,
        corpus=TEXTS,
        output_format="labeled-list",
        output_scores=True,
        verbose=False,
        **options,
    )
    return {
        (query, documents[0]): (documents[1:], scores)
        for query, documents, scores in zip(
            rows["query"], rows["positive"], rows["scores"], strict=True
        )
    }


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"num_negatives": 4, "range_min": 2, "range_max": 9},
        {"relative_margin": 0.3, "num_negatives": 5},
        {"absolute_margin": 0.4, "min_score": 0.1},
        {"max_score": 0.3},
        {"cross_encoder": CrossEncoder(), "absolute_margin": 0.2, "range_max": 12},
    ],
)
def test_mined_negatives_match_sentence_transformers(options):
    expected = mine_with_sentence_transformers(options)
    rows = keras_bert.mine_hard_negatives(EMBEDDER, PAIRS, TEXTS, **options)
    assert list(zip(rows["text"], rows["text_pair"], strict=True)) == PAIRS
    for pair, negatives, scores in zip(PAIRS, rows["negatives"], rows["scores"], strict=True):
        texts, expected_scores = expected.get(pair, ([], scores[:1]))
        assert negatives == texts
        np.testing.assert_allclose(scores, expected_scores, atol=1e-5)
    assert any(rows["negatives"])


def test_random_negatives_are_among_the_candidates():
    options = {"range_max": 12, "num_negatives": 4}
    rows = keras_bert.mine_hard_negatives(EMBEDDER, PAIRS, TEXTS, sampling="random", **options)
    top = keras_bert.mine_hard_negatives(EMBEDDER, PAIRS, TEXTS, range_max=12, num_negatives=12)
    for negatives, candidates in zip(rows["negatives"], top["negatives"], strict=True):
        assert len(set(negatives)) == 4
        assert set(negatives) <= set(candidates)
    assert rows["negatives"] != [row[:4] for row in top["negatives"]]


def test_query_is_not_its_own_negative():
    texts = pytest.importorskip("pandas").Series([*TEXTS, *QUERIES])
    options = {"cross_encoder": CrossEncoder(), "num_negatives": 4}
    rows = keras_bert.mine_hard_negatives(EMBEDDER, PAIRS, texts, **options)
    for query, positive, negatives, scores in zip(*rows.values(), strict=True):
        assert query not in negatives
        expected = [score(query, text) for text in (positive, *negatives)]
        np.testing.assert_allclose(scores, expected, atol=1e-6)


def test_scores_are_computed_in_chunks(monkeypatch):
    expected = keras_bert.mine_hard_negatives(EMBEDDER, PAIRS, TEXTS)
    monkeypatch.setattr("keras_bert.tasks.hard_negatives._SCORES_AT_A_TIME", 3 * len(TEXTS))
    assert keras_bert.mine_hard_negatives(EMBEDDER, PAIRS, TEXTS) == expected


def test_embedder_of_token_vectors_raises():
    embedder = types.SimpleNamespace(embed_queries=lambda texts, **_: [embed(texts)])
    with pytest.raises(ValueError, match="one dense vector for each text"):
        keras_bert.mine_hard_negatives(embedder, PAIRS)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_negatives": 3, "range_min": 2, "range_max": 4}, r"at least .* 5\. Received: 4"),
        ({"relative_margin": -0.1}, "relative_margin must be"),
        ({"sampling": "best"}, "sampling must be"),
    ],
)
def test_invalid_mining_options_raise(options, message):
    with pytest.raises(ValueError, match=message):
        keras_bert.mine_hard_negatives(EMBEDDER, PAIRS, TEXTS, **options)
