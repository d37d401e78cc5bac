# SPDX-License-Identifier: Apache-2.0

import json

import keras
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

tokenizers = pytest.importorskip("tokenizers")
pytestmark = pytest.mark.on_torch

import keras_bert  # noqa: E402
from keras_bert import StaticEmbedder, TextEmbedder  # noqa: E402
from keras_bert.checkpoints import CheckpointError  # noqa: E402
from keras_bert.checkpoints.sentence_transformers import write_modules  # noqa: E402
from keras_bert.search import Document, Searcher, SearchIndex  # noqa: E402
from tests import small_tasks  # noqa: E402
from tests.checkpoints.small_models import edit_json  # noqa: E402
from tests.models.small_backbone import random_weights  # noqa: E402
from training.search import SearchConfig, load_embedders  # noqa: E402

WORDS = ["a", "red", "green", "##s", "cat", "dog", "sat", ".", "é"]
VOCABULARY = ["[PAD]", "[unused0]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]
KEPT = ["[PAD]", "[UNK]", *WORDS]
TEXTS = ["a red cat.", "Greens, dogs", "", "東京 é unknown", "the [MASK] sat [UNK]"]


@pytest.fixture(scope="module")
def embedder():
    config = small_tasks.CONFIG.replace(vocabulary_size=len(VOCABULARY), hidden_dim=8)
    preprocessor = {"tokenizer": {"vocabulary": VOCABULARY}, "sequence_length": 12}
    embedder = TextEmbedder(keras_bert.Backbone(config), preprocessor)
    random_weights(embedder)
    return embedder


@pytest.fixture(scope="module")
def static(embedder):
    return StaticEmbedder.distill(embedder, 4)


def embed_with_tokenizers(directory, texts=TEXTS):
    """Computes embeddings like model2vec, with the `tokenizers` library."""
    vectors = load_file(directory / "model.safetensors")["embeddings"]
    tokenizer = tokenizers.Tokenizer.from_file(str(directory / "tokenizer.json"))
    unknown = tokenizer.token_to_id("[UNK]")
    rows = []
    for text in texts:
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        known = [token_id for token_id in ids if token_id != unknown]
        mean = vectors[known].mean(axis=0) if known else np.zeros(vectors.shape[1])
        rows.append(mean / (np.linalg.norm(mean) + 1e-32))
    return np.array(rows, "float32")


def test_token_vectors_are_weighted_principal_components(embedder, static):
    rows = [[3, VOCABULARY.index(token), 4] for token in KEPT]
    outputs = embedder.backbone(np.array(rows, "int32"))["sequence_output"]
    means = keras.ops.convert_to_numpy(outputs).mean(axis=1)
    means -= means.mean(axis=0)
    _, _, axes = np.linalg.svd(means)
    frequencies = 1 / np.arange(2, 2 + len(KEPT))
    weights = 1e-4 / (1e-4 + frequencies / frequencies.sum())
    expected = means @ axes[:4].T * weights[:, None]
    expected[KEPT.index("[UNK]")] = 0
    # The sign of an axis is arbitrary.
    np.testing.assert_allclose(np.abs(static.vectors), np.abs(expected), atol=1e-6)
    np.testing.assert_allclose(
        static.vectors[2:] @ static.vectors[2:].T, expected[2:] @ expected[2:].T, atol=1e-6
    )


def test_default_dimensions_fit_the_encoder(embedder):
    static = StaticEmbedder.distill(embedder)
    assert static.vectors.shape == (len(KEPT), 8)
    rows = keras_bert.mine_hard_negatives(static, [("a cat", "cat"), ("a dog", "dog")])
    assert rows["negatives"] == [["dog"], ["cat"]]


def test_model2vec_directory(static, tmp_path):
    static.save_to_preset(tmp_path)
    embeddings = static.embed(TEXTS)
    np.testing.assert_allclose(embeddings, embed_with_tokenizers(tmp_path), atol=1e-6)
    assert not embeddings[2].any()  # It has no tokens.
    np.testing.assert_array_equal(static.embed(TEXTS[0]), embeddings[0])
    loaded = StaticEmbedder.from_preset(tmp_path)
    np.testing.assert_array_equal(loaded.embed(TEXTS), embeddings)
    modules = json.loads((tmp_path / "modules.json").read_text())
    assert [module["type"].rpartition(".")[2] for module in modules] == [
        "StaticEmbedding",
        "Normalize",
    ]
    (embedder,) = load_embedders(SearchConfig(embedder=(str(tmp_path),)))
    assert isinstance(embedder, StaticEmbedder)


def test_quantized_model2vec_vocabulary_is_read(static, tmp_path):
    static.save_to_preset(tmp_path)
    random = np.random.default_rng(0)
    clusters = random.integers(-127, 128, (3, 4)).astype("int8")
    mapping, weights = random.integers(0, 3, len(KEPT)), random.random(len(KEPT))
    weights[KEPT.index("[UNK]")] = 0
    tensors = {"embeddings": clusters, "mapping": mapping, "weights": weights}
    save_file(tensors, tmp_path / "model.safetensors")
    edit_json(tmp_path / "config.json", normalize=False, max_length=3)
    loaded = StaticEmbedder.from_preset(tmp_path)
    vectors = clusters[mapping] * weights[:, None]
    ids = [KEPT.index(token) for token in ("a", "red")]
    # The unknown word counts for the length, but not for the mean.
    embedding = loaded.embed("a 東 red cat.")
    np.testing.assert_allclose(embedding, vectors[ids].mean(axis=0), rtol=1e-5)


@pytest.mark.parametrize("path", ["", "0_StaticEmbedding"])
def test_sentence_transformers_directory_is_read(path, static, tmp_path):
    """Version 6 writes the module to the root. Version 3 writes it to a directory."""
    static.save_to_preset(tmp_path / path)
    (tmp_path / path / "config.json").unlink()
    save_file({"embedding.weight": static.vectors}, tmp_path / path / "model.safetensors")
    write_modules(tmp_path, {path: "sentence_transformers.models.StaticEmbedding"})
    expected = static.vectors[[KEPT.index("a"), KEPT.index("cat")]].mean(axis=0)
    embedding = StaticEmbedder.from_preset(tmp_path).embed("a cat")
    np.testing.assert_allclose(embedding, expected, atol=1e-6)
    modules = {path: "x.StaticEmbedding", "1_Normalize": "x.Normalize"}
    write_modules(tmp_path, modules)
    embedding = StaticEmbedder.from_preset(tmp_path).embed("a cat")
    np.testing.assert_allclose(embedding, expected / np.linalg.norm(expected), atol=1e-6)
    write_modules(tmp_path, {path: "x.StaticEmbedding", "1_Dense": "x.Dense"})
    with pytest.raises(CheckpointError, match="Received: StaticEmbedding, Dense"):
        StaticEmbedder.from_preset(tmp_path)
    for outside in ("..", "../other", "/other"):
        write_modules(tmp_path, {outside: "x.StaticEmbedding"})
        with pytest.raises(CheckpointError, match="must be names of directories next to it"):
            StaticEmbedder.from_preset(tmp_path)
    write_modules(tmp_path, modules)
    options = tmp_path / "config_sentence_transformers.json"
    for fields in ({"prompts": {"query": "query: "}}, {"truncate_dim": 2}):
        options.write_text(json.dumps(fields))
        with pytest.raises(CheckpointError, match=f"{next(iter(fields))} must be"):
            StaticEmbedder.from_preset(tmp_path)


def test_search_index(static, tmp_path):
    index = SearchIndex(tmp_path / "index", static)
    text = "a red cat sat. " * 80
    index.add([Document("cats", text, "red"), Document("dogs", "green dogs.", "")])
    assert len(index) > 2
    (hit, *_) = Searcher(index).search("a dog", mode="vectors")
    assert hit.document == "dogs"


def test_passages_are_embedded_whole(static, tmp_path):
    """A passage has at most `max_length` tokens, even if they are long."""
    vectors = np.eye(len(KEPT), dtype="float32")
    short = StaticEmbedder(static._tokenizer_json, vectors, max_length=4, sequence_length=16)
    index = SearchIndex(tmp_path / "index", short)
    index.add([Document("green", "a a a a a a red green.", "")])
    index.add([Document("red", "green green green red", "")])
    for query in ("green", "red"):
        hits = Searcher(index).search(query, mode="vectors")
        assert min(hit.score for hit in hits if query in hit.text) > 0.2


def test_invalid_arguments_raise(embedder, static, tmp_path):
    with pytest.raises(ValueError, match=r"dimensions must be an integer in \[1, 8\]. Received: 9"):
        StaticEmbedder.distill(embedder, 9)
    with pytest.raises(ValueError, match="one row for each of the 11 tokens"):
        StaticEmbedder(static._tokenizer_json, np.zeros((3, 2)))
    with pytest.raises(ValueError, match="Received: the columns"):
        static.embed([("a", "b")])
    embedder.save_hugging_face(tmp_path)
    with pytest.raises(CheckpointError, match="Load other checkpoints as a TextEmbedder"):
        StaticEmbedder.from_preset(tmp_path)
