# SPDX-License-Identifier: Apache-2.0

import shutil
from pathlib import Path

import keras
import numpy as np
import pytest

pytestmark = [
    pytest.mark.on_torch,
    pytest.mark.filterwarnings("ignore:.* texts are truncated"),
]

from keras_bert import (  # noqa: E402
    Backbone,
    LateInteractionEmbedder,
    TextEmbedder,
    checkpoints,
    load_model,
)
from keras_bert.checkpoints import CheckpointError  # noqa: E402
from keras_bert.checkpoints.tensors import write_safetensors  # noqa: E402
from keras_bert.losses import SoftTargetDivergence, TripletLoss  # noqa: E402
from tests.checkpoints.small_models import edit_json  # noqa: E402

PYLATE = Path(__file__).parent / "pylate"  # See README.md.
EXPECTED = np.load(PYLATE / "expected.npz")
TUPLES = [
    ("what is the capital", "Paris is the capital.", "it is on the Seine"),
    ("der Faust", "Goethe schrieb Faust", "eine"),
    ("한국", "서울은 대한민국의 수도이다.", "한강이 흐른다."),
]
QUERIES, DOCUMENTS = EXPECTED["queries"].tolist(), EXPECTED["documents"].tolist()


@pytest.fixture(scope="module")
def embedder():
    return LateInteractionEmbedder.from_preset(PYLATE / "model")


def check_same_vectors(actual, expected, tolerance=1e-6):
    for part in ("embed_queries", "embed_documents"):
        texts = QUERIES if part == "embed_queries" else DOCUMENTS
        received, wanted = getattr(actual, part)(texts), getattr(expected, part)(texts)
        for one, other in zip(received, wanted, strict=True):
            np.testing.assert_allclose(one, other, atol=tolerance)


@pytest.mark.on_each_backend
def test_vectors_match_pylate(embedder):
    vectors = embedder.embed_queries(QUERIES)
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(vectors, EXPECTED["query_vectors"], atol=1e-5)
    np.testing.assert_allclose(embedder.embed_queries(QUERIES[2]), vectors[2], atol=1e-5)
    for factor in (1, 2, 3):
        documents = embedder.embed_documents(DOCUMENTS, batch_size=4, pool_factor=factor)
        assert [len(rows) for rows in documents] == EXPECTED[f"lengths_{factor}"].tolist()
        np.testing.assert_allclose(
            np.concatenate(documents), EXPECTED[f"vectors_{factor}"], atol=1e-5
        )


def test_rank_uses_max_similarities(embedder):
    query, documents = embedder.embed_queries(QUERIES[0]), embedder.embed_documents(DOCUMENTS)
    expected = [(query @ rows.T).max(axis=1).sum() for rows in documents]
    np.testing.assert_allclose(embedder.score(QUERIES[0], DOCUMENTS), expected, rtol=1e-5)
    ranks = embedder.rank(QUERIES[0], DOCUMENTS, top_k=3)
    assert [rank["index"] for rank in ranks] == np.argsort(expected)[::-1][:3].tolist()
    assert ranks[0]["score"] == pytest.approx(max(expected), rel=1e-5)
    assert embedder.rank(QUERIES[0], []) == []
    assert embedder.embed_queries([]).shape == (0, 12, 8)
    with pytest.raises(ValueError, match=r"query must be a string.*query=\['a'\]"):
        embedder.rank(["a"], DOCUMENTS)
    with pytest.raises(ValueError, match="x must be single texts"):
        embedder.embed_documents([("a", "b")])


@pytest.mark.on_each_backend
def test_unpadded_encoder_computes_expansion_tokens(embedder):
    """Otherwise, the vectors of expansion tokens would be 0, because they count as padding."""
    unpadded = LateInteractionEmbedder.from_preset(PYLATE / "model", unpadded=True)
    np.testing.assert_allclose(
        unpadded.embed_queries(QUERIES), EXPECTED["query_vectors"], atol=1e-5
    )


def test_options_are_saved(embedder, tmp_path):
    options = {
        **{
            "query_length": 9,
            "document_length": 16,
            "document_prefix": "",
            "skiplist_words": [","],
        },
        **{"do_query_expansion": False, "prompts": {"query": "what ", "passage": "the "}},
    }
    changed = LateInteractionEmbedder.from_preset(PYLATE / "model", **options)
    changed.save_to_preset(tmp_path / "preset")
    changed.save_hugging_face(tmp_path / "pylate")
    changed.save(tmp_path / "task.keras")
    for loaded in (
        *(LateInteractionEmbedder.from_preset(tmp_path / name) for name in ("preset", "pylate")),
        load_model(tmp_path / "task.keras"),
    ):
        for name, value in options.items():
            part = loaded if name == "prompts" else loaded.preprocessor
            assert getattr(part, name) == value
        assert loaded.preprocessor.query_prefix == "[Q] "
        check_same_vectors(loaded, changed)
    lengths = [len(rows) for rows in changed.embed_queries(["", "what is the capital of France?"])]
    assert lengths == [4, 9]  # [CLS] [Q] what [SEP], and the maximum length
    as_written = LateInteractionEmbedder.from_preset(
        tmp_path / "pylate", prompts={"query": "", "passage": ""}
    )
    np.testing.assert_allclose(
        as_written.embed_queries("what is it"), changed.embed_queries("is it"), atol=1e-6
    )


@pytest.mark.parametrize("layout", ["pylate", "sentence_transformers"])
@pytest.mark.parametrize(
    # In texts, "##h" is only found as an added token.
    "options",
    [{}, {"attend_to_expansion_tokens": True, "document_prefix": "##h"}],
)
def test_sentence_transformers_reads_both_layouts(layout, options, tmp_path):
    sentence_transformers = pytest.importorskip("sentence_transformers")
    saved = LateInteractionEmbedder.from_preset(PYLATE / "model", **options)
    saved.save_hugging_face(tmp_path / "saved", layout=layout)
    check_same_vectors(LateInteractionEmbedder.from_preset(tmp_path / "saved"), saved)
    encoder = sentence_transformers.MultiVectorEncoder(str(tmp_path / "saved"), device="cpu")
    encoder.save_pretrained(str(tmp_path / "again"), create_model_card=False)
    again = LateInteractionEmbedder.from_preset(tmp_path / "again")
    for expected, received, others in (
        (
            encoder.encode_query(QUERIES, convert_to_numpy=True),
            saved.embed_queries(QUERIES),
            again.embed_queries(QUERIES),
        ),
        (
            encoder.encode_document(DOCUMENTS, convert_to_numpy=True),
            saved.embed_documents(DOCUMENTS),
            again.embed_documents(DOCUMENTS),
        ),
    ):
        for one, other, third in zip(expected, received, others, strict=True):
            np.testing.assert_allclose(other, one, atol=1e-5)
            np.testing.assert_allclose(third, one, atol=1e-5)


def test_original_colbert_is_read(embedder, tmp_path):
    shutil.copytree(PYLATE / "model", tmp_path / "model")
    for name in ("modules.json", "config_sentence_transformers.json"):
        (tmp_path / "model" / name).unlink()
    edit_json(tmp_path / "model" / "config.json", architectures=["HF_ColBERT"])
    (tmp_path / "model" / "artifact.metadata").write_text(
        '{"query_token_id": "[Q] ", "doc_token_id": "[D] ", "query_maxlen": 12, "doc_maxlen": 22}'
    )
    # Its projection has no bias, and is in the encoder's file.
    checkpoint = checkpoints.open_checkpoint(PYLATE / "model")
    tensors = checkpoint.open_tensors()
    names = [name for name in tensors.names() if name != "linear.bias"]
    write_safetensors(
        tmp_path / "model" / "model.safetensors",
        {name if name == "linear.weight" else f"bert.{name}": tensors.read(name) for name in names},
    )
    loaded = LateInteractionEmbedder.from_preset(tmp_path / "model")
    assert (loaded.projection_dim, loaded.projection_bias) == (8, False)
    expected = LateInteractionEmbedder(
        embedder.backbone,
        {
            **embedder.preprocessor.get_config(),
            "skiplist_words": loaded.preprocessor.skiplist_words,
        },
        projection_dim=8,
    )
    expected.head.dense.kernel.assign(embedder.head.dense.kernel)
    check_same_vectors(loaded, expected)


def test_new_projection_has_the_markers_of_colbert(tmp_path):
    config = checkpoints.open_checkpoint(PYLATE / "model").config.replace(vocabulary_size=8)
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "[unused0]", "[unused1]", "a"]
    checkpoints.save_hugging_face(Backbone(config), tmp_path, tokenizer={"vocabulary": tokens})
    with pytest.warns(checkpoints.CheckpointWarning, match="no token_projection head"):
        new = LateInteractionEmbedder.from_preset(tmp_path, query_length=6)
    assert new.preprocessor("a", is_query=True)["token_ids"].tolist() == [2, 5, 7, 3, 4, 4]
    assert new.preprocessor("a")["token_ids"].tolist() == [2, 6, 7, 3]
    assert new.embed_queries(["a"]).shape == (1, 6, 128)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"query_prefix": "[X]"}, r"query_prefix must be a token in the vocabulary.*'\[X\]'"),
        ({"document_length": 3}, "document_length must be an integer of at least 4"),
        ({"skiplist_words": "abc"}, "skiplist_words must be a list or tuple of names"),
        ({"prompts": ["a"]}, "prompts must be a dict"),
        ({"projection_dim": 4}, r"'linear\.weight' must have shape \(4, 16\)"),
    ],
)
def test_invalid_option_raises(options, message):
    with pytest.raises(CheckpointError, match=message):
        LateInteractionEmbedder.from_preset(PYLATE / "model", **options)


@pytest.mark.parametrize(
    ("file", "fields", "message"),
    [
        ("1_Dense/config.json", {"use_residual": True}, "use_residual must be False"),
        ("1_Dense/config.json", {"activation_function": "torch.nn.Tanh"}, "activation_function"),
        ("config_sentence_transformers.json", {"default_prompt_name": "x"}, "must be absent"),
        ("config_sentence_transformers.json", {"similarity_fn_name": "meanmaxsim"}, "maxsim"),
    ],
)
def test_unsupported_field_raises(file, fields, message, tmp_path):
    shutil.copytree(PYLATE / "model", tmp_path / "model")
    edit_json(tmp_path / "model" / file, **fields)
    with pytest.raises(CheckpointError, match=message):
        LateInteractionEmbedder.from_preset(tmp_path / "model")


def test_other_task_rejects_the_modules():
    with pytest.raises(CheckpointError, match="Received: Transformer, Dense"):
        TextEmbedder.from_preset(PYLATE / "model")


def test_layers_are_zero_at_unused_tokens(embedder):
    features = embedder.preprocessor(DOCUMENTS)
    vectors = keras.ops.convert_to_numpy(embedder(features))
    norms = np.linalg.norm(vectors, axis=-1)
    np.testing.assert_allclose(norms, features["pooling_mask"], atol=1e-6)


@pytest.mark.on_each_backend
def test_losses_match_pylate(embedder):
    embedder.compile("sgd")
    # `pylate.losses.Contrastive`
    assert embedder.evaluate(TUPLES, verbose=0) == pytest.approx(2.0021, abs=1e-5)
    embedder.compile("sgd", SoftTargetDivergence(temperature=1.0))
    # `pylate.losses.Distillation` with normalize_scores=False
    scores = [[3, 1], [2, 2.5], [0, 4]]
    assert embedder.evaluate(TUPLES, scores, verbose=0) == pytest.approx(0.2358508, abs=1e-5)


def test_fit_learns_pairs():
    learning = LateInteractionEmbedder.from_preset(PYLATE / "model", encoder_dropout=0.0)
    learning.compile(keras.optimizers.Adam(1e-2))
    pairs = [row[:2] for row in TUPLES]
    before = learning.evaluate(pairs, verbose=0)
    learning.fit(pairs * 10, batch_size=3, verbose=0)
    learning.fit((batch for batch in [(pairs,)] * 5), steps_per_epoch=5, verbose=0)
    assert learning.evaluate(pairs, verbose=0) < 0.5 * before
    # Short queries in a batch with long documents have vectors at padding.
    learning.compile(keras.optimizers.SGD(0.0))
    rows = list(zip(QUERIES[:4], DOCUMENTS[4:5] + DOCUMENTS[:3], strict=True))
    (loss,) = learning.fit(rows, batch_size=4, verbose=0).history["loss"]
    assert learning.evaluate(rows, batch_size=4, verbose=0) == pytest.approx(loss, rel=1e-5)
    with pytest.raises(ValueError, match="mini_batch_size must be None"):
        learning.fit(rows, mini_batch_size=2)
    with pytest.raises(ValueError, match="Received: single texts"):
        learning.fit(["a", "b"])
    learning.compile("sgd", TripletLoss())
    with pytest.raises(ValueError, match="must be InBatchNegatives, or compare scores"):
        learning.fit(TUPLES)


def test_micro_batches_have_the_same_update():
    """Regression: the divisor was the number of texts instead of tuples."""
    scores = [[3.0, 1.0], [2.0, 2.5], [0.0, 4.0], [1.0, 0.0]]
    updated = []
    for size, steps in ((4, None), (2, 2)):
        learning = LateInteractionEmbedder.from_preset(PYLATE / "model", encoder_dropout=0.0)
        optimizer = keras.optimizers.SGD(1.0, gradient_accumulation_steps=steps)
        learning.compile(optimizer, SoftTargetDivergence(temperature=1.0))
        learning.fit([*TUPLES, TUPLES[0]], scores, batch_size=size, verbose=0)
        updated.append(keras.ops.convert_to_numpy(learning.head.dense.kernel))
    np.testing.assert_allclose(*updated, atol=1e-5)
