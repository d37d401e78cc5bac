# SPDX-License-Identifier: Apache-2.0

import json

import keras
import numpy as np
import pytest

pytest.importorskip("scipy")
pytestmark = pytest.mark.on_torch

from keras_bert import Backbone, MaskedLM, SparseEmbedder, TextEmbedder  # noqa: E402
from keras_bert.checkpoints import CheckpointError  # noqa: E402
from keras_bert.losses import SpladeLoss  # noqa: E402
from keras_bert.tasks import sparse_embedder  # noqa: E402
from tests import small_tasks  # noqa: E402
from tests.checkpoints.small_models import edit_json  # noqa: E402
from tests.models.small_backbone import random_weights  # noqa: E402

TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdef"]
TEXTS = ["a b", "c", "f e d c b a a b", "", "d e"]
CONFIG = small_tasks.CONFIG.replace(vocabulary_size=len(TOKENS), initializer_range=1.0)
PREPROCESSOR = {"tokenizer": {"vocabulary": TOKENS}, "sequence_length": 12}


def make_embedder(config=CONFIG, **options):
    embedder = SparseEmbedder(Backbone(config), PREPROCESSOR, **options)
    random_weights(embedder)
    return embedder


def copy_to_masked_lm(embedder):
    masked_lm = MaskedLM(embedder.backbone, PREPROCESSOR)
    for layer, source in zip(
        masked_lm.heads["masked_lm"], embedder.heads["masked_lm"], strict=True
    ):
        layer.set_weights(source.get_weights())
    return masked_lm


@pytest.mark.on_each_backend
@pytest.mark.parametrize(
    ("pooling", "activation"), [("max", "relu"), ("sum", "relu"), ("max", "log1p_relu")]
)
def test_weights_are_pooled_from_the_logits_of_a_masked_lm(pooling, activation, monkeypatch):
    """This holds in batches of any size, in the order of the input."""
    monkeypatch.setattr(sparse_embedder, "_MAX_LOGITS", 2 * 8 * CONFIG.vocabulary_size)
    embedder = make_embedder(pooling=pooling, activation=activation)
    masked_lm = copy_to_masked_lm(embedder)
    embeddings = embedder.embed(TEXTS).toarray()
    for text, weights in zip(TEXTS, embeddings, strict=True):
        ids = embedder.preprocessor.tokenizer.encode(text)
        x = {"token_ids": np.array([ids]), "mask_positions": np.arange(len(ids))[None]}
        (logits,) = keras.ops.convert_to_numpy(masked_lm(x))
        expected = np.log1p(np.maximum(logits, 0))
        expected = np.log1p(expected) if activation == "log1p_relu" else expected
        expected = expected.sum(0) if pooling == "sum" else expected.max(0)
        np.testing.assert_allclose(weights, expected, atol=1e-5)
    assert (embeddings == 0).any()
    assert (embeddings > 0).any()


def test_the_largest_weights_are_kept_decoded_and_ranked():
    # The last two embeddings have no token.
    config = CONFIG.replace(vocabulary_size=len(TOKENS) + 2)
    embedder = make_embedder(config, prompts={"query": "a "})
    embeddings = embedder.embed(TEXTS)
    (dense,) = embedder.embed_queries("b").toarray()
    np.testing.assert_array_equal(dense, embedder.embed("a b").toarray()[0])
    assert embedder.embed([]).shape == (0, config.vocabulary_size)

    pruned = embedder.embed_queries("b", max_active_dims=3)
    assert pruned.nnz == 3
    assert set(pruned.indices) == set(np.argsort(-dense)[:3])
    (decoded,) = embedder.decode(embedder.embed("a b"), top_k=2)
    best = np.argsort(-dense[: len(TOKENS)])[:2]
    assert list(decoded.items()) == [(TOKENS[index], dense[index]) for index in best]
    assert embedder.predict_rows([{"text": "a b"}])[0]["embedding"].keys() >= decoded.keys()

    ranking = embedder.rank("b", TEXTS, top_k=3)
    scores = embeddings.toarray() @ dense
    assert [document["index"] for document in ranking] == np.argsort(-scores)[:3].tolist()
    assert ranking[0]["score"] == pytest.approx(scores.max(), rel=1e-5)


def test_training_on_tuples_reduces_the_loss():
    config = CONFIG.replace(dropout=0.0, attention_dropout=0.0)
    embedder = make_embedder(config)
    tuples = [("a", "a b", "e"), ("c", "d c", "f"), ("f e", "e", "b")]
    loss = SpladeLoss(query_factor=0.5, document_factor=0.25)
    embedder.compile(keras.optimizers.Adam(1e-2), loss)
    vectors = np.stack(
        [embedder.embed(list(texts)).toarray() for texts in zip(*tuples, strict=True)], axis=1
    )
    before = embedder.evaluate(tuples, verbose=0)
    numbers = np.array([[0, 1, 2], [3, 4, 5], [6, 2, 7]])  # "e" occurs twice.
    assert before == pytest.approx(float(loss(numbers, vectors)), rel=1e-4)
    history = embedder.fit(tuples * 8, batch_size=3, epochs=2, verbose=0).history
    assert history["loss"][1] < before


def test_invalid_arguments_raise():
    embedder = make_embedder()
    with pytest.raises(ValueError, match="Received: pairs of texts"):
        embedder.embed([("a", "b")])
    with pytest.raises(ValueError, match="matrix with the 11 columns"):
        embedder.decode(np.zeros((1, 4)))
    with pytest.raises(ValueError, match="pooling must be one of max, sum"):
        make_embedder(pooling="mean")


def test_sentence_transformers_directory(tmp_path):
    options = {"pooling": "sum", "activation": "log1p_relu", "prompts": {"query": "a "}}
    embedder = make_embedder(**options)
    embedder.save_hugging_face(tmp_path)
    # Version 6.2 of sentence-transformers writes these files.
    modules = tmp_path / "modules.json"
    package = "sentence_transformers.sparse_encoder.modules.splade_pooling.SpladePooling"
    edit_json(tmp_path / "1_SpladePooling/config.json", embedding_dimension=11)
    (tmp_path / "sentence_bert_config.json").write_text('{"transformer_task": "fill-mask"}')
    written = json.loads(modules.read_text())
    assert [module["type"].rpartition(".")[2] for module in written] == [
        "MLMTransformer",
        "SpladePooling",
    ]
    written[0]["type"] = "sentence_transformers.base.modules.transformer.Transformer"
    written[1]["type"] = package
    modules.write_text(json.dumps(written))
    loaded = SparseEmbedder.from_preset(tmp_path)
    assert {name: getattr(loaded, name) for name in options} == options
    np.testing.assert_array_equal(
        loaded.embed_queries(TEXTS).toarray(), embedder.embed_queries(TEXTS).toarray()
    )
    with pytest.raises(CheckpointError, match="Load it as a SparseEmbedder"):
        TextEmbedder.from_preset(tmp_path)
    edit_json(tmp_path / "1_SpladePooling/config.json", pooling_strategy="mean")
    with pytest.raises(CheckpointError, match="pooling must be one of max, sum"):
        SparseEmbedder.from_preset(tmp_path)

    TextEmbedder(embedder.backbone, PREPROCESSOR).save_hugging_face(tmp_path / "dense")
    with pytest.raises(CheckpointError, match="Load it as a TextEmbedder"):
        SparseEmbedder.from_preset(tmp_path / "dense")
