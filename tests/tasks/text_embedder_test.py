# SPDX-License-Identifier: Apache-2.0

import importlib
import json

import keras
import numpy as np
import pytest

pytestmark = pytest.mark.on_torch

from keras_bert import Backbone, TextEmbedder, checkpoints, load_model  # noqa: E402
from keras_bert.checkpoints import CheckpointError  # noqa: E402
from keras_bert.data import TextClassifierPreprocessor  # noqa: E402
from keras_bert.data.adapters.tuples import tuple_columns  # noqa: E402
from keras_bert.data.loader import Batch  # noqa: E402
from keras_bert.data.tuples import distinct_texts  # noqa: E402
from keras_bert.losses import (  # noqa: E402
    CosineSimilarityLoss,
    InBatchNegatives,
    MarginMSELoss,
    MatryoshkaLoss,
    SoftTargetDivergence,
    TripletLoss,
)
from keras_bert.models.inputs import INPUT_NAMES  # noqa: E402
from tests import small_tasks  # noqa: E402
from tests.checkpoints.small_models import edit_json  # noqa: E402
from tests.models.small_backbone import random_weights  # noqa: E402
from tests.text.small_tokenizers import make_tokenizer  # noqa: E402

COLORS = ["red", "green", "blue", "white", "black", "grey"]
TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "a", "b", *COLORS]
TEXTS = ["a red b", "green", "b b a blue white", "a"]


def make_embedder(sequence_length=16, pooler_activation="tanh", dropout=0.0, **arguments):
    config = small_tasks.CONFIG.replace(
        vocabulary_size=len(TOKENS),
        max_sequence_length=16,
        dropout=dropout,
        attention_dropout=dropout,
        pooler_activation=pooler_activation,
    )
    preprocessor = TextClassifierPreprocessor(
        make_tokenizer(*TOKENS), sequence_length=sequence_length
    )
    embedder = TextEmbedder(Backbone(config), preprocessor, **arguments)
    random_weights(embedder)
    return embedder


def embed_without_pipeline(embedder, texts=TEXTS):
    """Computes the same embeddings as `embed`, without a data pipeline."""
    features = embedder.preprocessor(texts)
    return keras.ops.convert_to_numpy(embedder(features))


@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_pooling_ignores_padding(pooling, normalize):
    embedder = make_embedder(pooling=pooling, normalize=normalize)
    vectors = embed_without_pipeline(embedder)
    assert vectors.dtype == np.float32
    for text, vector in zip(TEXTS, vectors, strict=True):
        ids = embedder.preprocessor(text)["token_ids"][None]
        tokens = keras.ops.convert_to_numpy(embedder.backbone(ids)["sequence_output"])[0]
        expected = tokens.mean(0) if pooling == "mean" else tokens[0]
        expected = expected / np.linalg.norm(expected) if normalize else expected
        np.testing.assert_allclose(vector, expected, atol=1e-5)
        np.testing.assert_allclose(
            keras.ops.convert_to_numpy(embedder(ids))[0], expected, atol=1e-5
        )


def test_embed_keeps_the_order():
    embedder = make_embedder()
    np.testing.assert_allclose(
        embedder.embed(TEXTS, batch_size=2), embed_without_pipeline(embedder), atol=1e-5
    )
    assert embedder.embed("a").shape == (16,)
    with pytest.raises(ValueError, match="Received: pairs"):
        embedder.embed([("a", "b")])


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        (["a", "b"], None, "Received: single texts"),
        ([("a", "b")], None, r"two or more pairs, because .* are the negatives\. Received: 1"),
        ([("a", "b")], [1], "without labels"),
        ([("a", "b"), ("a",)], None, "Row 1 must be a pair of texts. Received: 1 texts"),
        ([("a", "b", "a"), ("a", "b", 3)], None, "The negatives of row 1 must be texts"),
        ((["a", "b"], ["a", "b"], ["a"]), None, "All columns must have the same length"),
        (["a", "b"], ["a", "b"], "y must be None or scores. Received: texts"),
        (
            {"text": ["a"], "text_pair": ["b"], "negatives": [3]},
            None,
            r"The negatives of row 0 must be a text or a list of texts\. Received: 3",
        ),
    ],
)
def test_invalid_training_data_raises(x, y, message):
    with pytest.raises(ValueError, match=message):
        make_embedder().fit(x, y)


@pytest.mark.parametrize(
    ("loss", "x", "y", "message"),
    [
        (MarginMSELoss(), [("a", "b", "green")], [[1.0]], "finite score for each of its 2"),
        (MarginMSELoss(), [("a", "b", "green")], None, "y must be a list with the score of each"),
        (CosineSimilarityLoss(), [("a", "b", "green")], [1], "must be pairs of texts for the"),
        (TripletLoss(), [("a", "b"), ("b", "a")], None, "hard negatives"),
        ("mse", [("a", "b")], [[1.0] * 16], "x must be single texts for the loss mse"),
        ("mse", ["a"], [[1.0] * 15], r"16 numbers for each text\. Received: shape \(1, 15\)"),
    ],
)
def test_data_that_does_not_fit_the_loss_raises(loss, x, y, message):
    embedder = make_embedder()
    embedder.compile("sgd", loss)
    with pytest.raises(ValueError, match=message):
        embedder.fit(x, y)


@pytest.mark.parametrize(
    ("loss", "batch", "message"),
    [
        (TripletLoss(), [("a", "b"), ("b", "a")], "Batch 0 .* must have hard negatives"),
        (MarginMSELoss(), ([("a", "b")], [[1.0]]), "Batch 0 .* must have hard negatives"),
        (CosineSimilarityLoss(), ([("a", "b", "green")], [1]), "must be pairs of texts for the"),
        (InBatchNegatives(), [("a", "b")], r"two or more pairs, because .* Received: 1"),
    ],
)
def test_batches_that_do_not_fit_the_loss_raise(loss, batch, message):
    embedder = make_embedder()
    embedder.compile("sgd", loss)
    with pytest.raises(ValueError, match=message):
        embedder.fit((batch for _ in range(1)), verbose=0)
    if isinstance(loss, TripletLoss):
        x = {"text": ["a"], "text_pair": ["b"], "negatives": [[]]}
        with pytest.raises(ValueError, match="hard negatives"):
            embedder.fit(x)


def test_batches_are_lists_of_tuples():
    """Regression: a list of tuples was read as columns."""
    data = pytest.importorskip("torch.utils.data")
    embedder = make_embedder()
    embedder.compile("sgd")
    for count in (2, 4):
        rows = TUPLES[:2] if count == 2 else [row[:2] for row in TUPLES]
        expected = embedder.evaluate(rows, verbose=0)
        columns = {name: [row[index] for row in rows] for index, name in enumerate(COLUMNS)}
        table = {**columns, "negatives": [list(row[2:]) for row in rows], "label": [5] * count}
        for batch in (rows, list(map(list, rows)), table):
            assert embedder.evaluate((x for x in [batch]), steps=1, verbose=0) == pytest.approx(
                expected
            )
        loader = data.DataLoader(rows, batch_size=count, collate_fn=list)
        assert embedder.evaluate(loader, verbose=0) == pytest.approx(expected)
    rows = [(*row[:2], "blue", "red") for row in TUPLES]
    loader = data.DataLoader(rows, batch_size=4)  # It yields four columns.
    expected = embedder.evaluate(rows, verbose=0)
    assert embedder.evaluate(loader, verbose=0) == pytest.approx(expected)


@pytest.mark.on_each_backend
def test_equal_texts_are_not_negatives():
    """Otherwise, repeating all pairs would increase the loss by ln 2."""
    embedder = make_embedder()
    embedder.compile()
    pairs = [("a red b", "red"), ("green", "b b green"), ("a red", "red")]
    losses = [embedder.evaluate(rows, verbose=0) for rows in (pairs[:2], pairs[:2] * 2, pairs)]
    assert losses[1] == pytest.approx(losses[0], rel=1e-5)
    vectors = [embedder.embed(list(column)) for column in zip(*pairs, strict=True)]
    scores = 20 * vectors[0] @ vectors[1].T
    scores[[0, 2, 1], [2, 0, 2]] = -np.inf  # The same text, and a text that is already in the row
    expected = np.mean(np.log(np.exp(scores).sum(1)) - np.diag(scores))
    assert losses[2] == pytest.approx(expected, rel=1e-4)


COLUMNS = ("text", "text_pair")
TUPLES = [
    ("a red b", "red", "b green", "grey a"),
    ("green", "b b green", "blue"),
    ("a white", "white"),
    ("black", "a black", "grey a", "blue b"),
]


@pytest.mark.on_each_backend
def test_tuples_may_have_any_number_of_negatives():
    embedder = make_embedder()
    embedder.compile("sgd")
    weights = embedder.get_weights()
    loss = embedder.evaluate(TUPLES, verbose=0)
    vectors = [embedder.embed(list(texts)) for texts in TUPLES]
    queries, candidates = (
        np.concatenate([row[part] for row in vectors]) for part in (slice(1), slice(1, None))
    )
    scores = 20 * queries @ candidates.T
    scores[:, 7] = -np.inf  # "grey a" is also a negative of the first query.
    positives = scores[range(4), [0, 3, 5, 6]]
    assert loss == pytest.approx(np.mean(np.log(np.exp(scores).sum(1)) - positives), rel=1e-4)
    columns = {name: [row[index] for row in TUPLES] for index, name in enumerate(COLUMNS)}
    table = {**columns, "negatives": [list(row[2:]) for row in TUPLES]}
    generator = (batch for batch in [table])
    assert embedder.evaluate(generator, steps=1, verbose=0) == pytest.approx(loss, rel=1e-5)
    # On TensorFlow, batches with different numbers of texts need a shape that fits all.
    batches = [TUPLES[1:3], [(*row, "red") for row in TUPLES], TUPLES[:2]]
    embedder.fit((batch for batch in batches), steps_per_epoch=3, verbose=0)
    embedder.set_weights(weights)
    history = embedder.fit(table, batch_size=4, epochs=2, verbose=0).history
    assert history["loss"][0] == pytest.approx(loss, rel=1e-3)
    assert history["loss"][1] < loss


@pytest.mark.on_each_backend
def test_mini_batches_have_exact_gradients():
    if keras.backend.backend() == "tensorflow":
        with pytest.raises(ValueError, match="mini_batch_size must be None on TensorFlow"):
            make_embedder().fit(TUPLES, mini_batch_size=3)
        return
    embedder = make_embedder()
    weights = [keras.ops.convert_to_numpy(variable) for variable in embedder.variables]
    updated = []
    for size in (None, 3):
        embedder.compile("sgd")
        embedder.fit(TUPLES, batch_size=4, mini_batch_size=size, verbose=0)
        updated.append([keras.ops.convert_to_numpy(variable) for variable in embedder.weights])
        for variable, value in zip(embedder.variables, weights, strict=True):
            variable.assign(value)
    for one, other in zip(*updated, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6)


@pytest.mark.on_each_backend
def test_mini_batches_repeat_their_dropout():
    """Otherwise, the loss would not decrease by the squared norm of the gradient."""
    if keras.backend.backend() == "tensorflow":
        return
    embedder, rate = make_embedder(dropout=0.3), 1e-3
    variables = list(embedder.variables)
    values = [keras.ops.convert_to_numpy(variable) for variable in variables]
    trained = {id(variable) for variable in embedder.trainable_variables}
    losses, square = [], 0.0
    for _ in range(2):
        keras.utils.set_random_seed(1)
        embedder.compile(keras.optimizers.SGD(rate))
        history = embedder.fit(TUPLES, batch_size=4, mini_batch_size=3, verbose=0)
        losses += history.history["loss"]
        for index, (variable, value) in enumerate(zip(variables, values, strict=True)):
            if id(variable) not in trained:
                variable.assign(value)  # Seeds
            elif len(losses) == 1:
                values[index] = keras.ops.convert_to_numpy(variable)
                square += np.sum(((value - values[index]) / rate) ** 2)
    assert losses[0] - losses[1] == pytest.approx(rate * square, rel=0.1)


@pytest.mark.parametrize("include_prompt", [False, True])
def test_training_adds_prompts(include_prompt):
    embedder = make_embedder(
        prompts={"query": "a red ", "passage": "b "}, include_prompt=include_prompt
    )
    embedder.compile("sgd")
    pairs = [row[:2] for row in TUPLES]
    queries = embedder.embed_queries([query for query, _ in pairs])
    scores = 20 * queries @ embedder.embed_documents([text for _, text in pairs]).T
    expected = np.mean(np.log(np.exp(scores).sum(1)) - np.diag(scores))
    assert embedder.evaluate(pairs, add_prompts=True, verbose=0) == pytest.approx(
        expected, rel=1e-4
    )
    history = embedder.fit(pairs, validation_data=pairs, batch_size=4, add_prompts=True, verbose=0)
    assert history.history["loss"][0] == pytest.approx(expected, rel=1e-3)
    assert history.history["val_loss"][0] < expected
    assert embedder.evaluate(pairs, verbose=0) != pytest.approx(expected, rel=1e-2)
    with pytest.raises(ValueError, match="the model has no prompts for queries"):
        make_embedder().fit(pairs, add_prompts=True)
    embedder.compile("sgd", "mse")
    with pytest.raises(ValueError, match="add_prompts must be False for the loss mse"):
        embedder.fit(TEXTS, embedder.embed(TEXTS), add_prompts=True)


def test_losses_match_sentence_transformers(tmp_path):
    sentence_transformers = pytest.importorskip("sentence_transformers")
    torch = pytest.importorskip("torch")
    theirs = importlib.import_module("sentence_transformers.sentence_transformer.losses")
    embedder = make_embedder()
    embedder.save_hugging_face(tmp_path)
    model = sentence_transformers.SentenceTransformer(str(tmp_path), device="cpu")
    columns = [[f"{first} {second}" for second in COLORS[:3]] for first in ("a", *COLORS[3:])]
    features = [model.preprocess(column) for column in columns]
    scores = np.random.default_rng(0).normal(size=(3, 3)).astype("float32")
    ranking = theirs.MultipleNegativesRankingLoss(model, scale=5.0)
    for loss, expected, y in (
        (InBatchNegatives(5.0), ranking, None),
        (MatryoshkaLoss(InBatchNegatives(5.0), [16, 8], [1, 2]), "matryoshka", None),
        (TripletLoss(0.7, "euclidean"), "triplet", None),
        (MarginMSELoss(), theirs.MarginMSELoss(model), scores),
        (
            SoftTargetDivergence(3.0),
            theirs.DistillKLDivLoss(model, temperature=3.0),
            scores,
        ),
    ):
        parts, used = features, tuple(columns)
        if expected == "matryoshka":
            expected = theirs.MatryoshkaLoss(model, ranking, [16, 8], [1, 2])
        elif expected == "triplet":
            expected = theirs.TripletLoss(model, triplet_margin=0.7)
            parts, used = features[:3], tuple(columns[:3])
        copies = [dict(part) for part in parts]
        reference = expected(copies, None if y is None else torch.tensor(y)).item()
        embedder.compile("sgd", loss)
        assert embedder.evaluate(used, y, verbose=0) == pytest.approx(reference, rel=1e-4)


def test_training_on_embeddings_of_a_teacher():
    embedder, teacher = make_embedder(), make_embedder()
    random_weights(teacher, 1)
    vectors = teacher.embed(TEXTS)
    embedder.compile("sgd", "mse")
    expected = np.mean((embedder.embed(TEXTS) - vectors) ** 2)
    assert embedder.evaluate(TEXTS, vectors, verbose=0) == pytest.approx(expected, rel=1e-4)
    embedder.fit(TEXTS * 20, np.tile(vectors, (20, 1)), epochs=3, verbose=0)
    assert embedder.evaluate(TEXTS, vectors, verbose=0) < expected


def test_equal_texts_are_in_different_batches():
    embedder = make_embedder()
    embedder.compile("sgd")
    pairs = [(f"a {color}", color) for color in COLORS[:4] for _ in range(2)]
    batches = embedder.evaluation_batches(pairs, batch_size=4)
    assert [len(set(texts.reshape(-1).tolist())) for _, texts, _ in batches] == [8, 8]


def test_texts_with_the_same_checksum_differ():
    rows = [[2, 120, 840, 839, 750, 3], [2, 89, 94, 746, 769, 3]]
    # Both rows have the same `zlib.crc32(row) >> 1`.
    ids = np.array(rows, "int32")[:, None]
    features = {"token_ids": ids, "padding_mask": np.ones_like(ids, "bool")}
    converted, _, _ = distinct_texts(Batch(features, np.arange(2), None, {}))
    index = converted["rows_of_tuples"][:, 0]
    np.testing.assert_array_equal(converted["token_ids"][index], rows)


def test_missing_negatives_are_left_out():
    rows = {"text": ["a"] * 3, "text_pair": ["b"] * 3, "negatives": ["c", float("nan"), None]}
    assert tuple_columns(rows)["negatives"] == [["c"], [], []]


def test_training_on_scored_pairs():
    embedder = make_embedder()
    embedder.compile("sgd", CosineSimilarityLoss())
    pairs = [("a red b", "green"), ("green", "a"), ("green", "green"), ("a", "a red b")]
    scores = [1, 0, 0.5, 0.25]
    first, second = (embedder.embed(list(texts)) for texts in zip(*pairs, strict=True))
    expected = np.mean((scores - np.sum(first * second, axis=1)) ** 2)
    assert embedder.evaluate(pairs, scores, verbose=0) == pytest.approx(expected, rel=1e-4)
    features, targets, _ = next(iter(embedder.evaluation_batches(pairs, scores)))
    if keras.backend.backend() != "jax":
        # The three different texts, and a second copy of the text that is paired with itself
        assert len(np.unique(features["rows_of_tuples"])) == 4
    assert sorted(targets) == sorted(scores)
    for _ in range(3):
        before = embedder.evaluate(pairs, scores, verbose=0)
        embedder.fit(pairs, scores, batch_size=4, epochs=4, verbose=0)
        assert embedder.evaluate(pairs, scores, verbose=0) < before
    with pytest.raises(ValueError, match="y must be the similarities"):
        embedder.fit(pairs)


def write_modules(directory, *types, **paths):
    modules = [
        {
            "path": paths.get(name, f"{index}_{name}" if index else ""),
            "type": f"sentence_transformers.models.{name}",
        }
        for index, name in enumerate(types)
    ]
    (directory / "modules.json").write_text(json.dumps(modules))


def write_sentence_transformers(embedder, directory, **modes):
    checkpoints.save_hugging_face(embedder.backbone, directory, tokenizer={"vocabulary": TOKENS})
    (directory / "1_Pooling").mkdir()
    modes = {"pooling_mode_mean_tokens": False, **modes}
    (directory / "1_Pooling" / "config.json").write_text(json.dumps(modes))
    write_modules(directory, "Transformer", "Pooling")
    (directory / "sentence_bert_config.json").write_text('{"max_seq_length": 8}')


def test_sentence_transformers_settings_are_read(tmp_path):
    embedder = make_embedder(pooling="cls", normalize=False)
    write_sentence_transformers(embedder, tmp_path, pooling_mode_cls_token=True)
    loaded = TextEmbedder.from_preset(tmp_path)
    assert (loaded.pooling, loaded.normalize) == ("cls", False)
    assert loaded.preprocessor.sequence_length == 8
    np.testing.assert_allclose(
        embed_without_pipeline(loaded), embed_without_pipeline(embedder), atol=1e-6
    )
    other = TextEmbedder.from_preset(tmp_path, pooling="mean", normalize=True, sequence_length=9)
    assert (other.pooling, other.normalize) == ("mean", True)
    assert other.preprocessor.sequence_length == 9


@pytest.mark.parametrize(("pooling", "normalize"), [("mean", True), ("cls", False)])
def test_hugging_face_round_trip(pooling, normalize, tmp_path):
    embedder = make_embedder(pooling=pooling, normalize=normalize, sequence_length=12)
    embedder.save_hugging_face(tmp_path)
    loaded = TextEmbedder.from_preset(tmp_path)
    assert (loaded.pooling, loaded.normalize) == (pooling, normalize)
    assert loaded.preprocessor.sequence_length == 12
    np.testing.assert_allclose(
        embed_without_pipeline(loaded), embed_without_pipeline(embedder), atol=1e-6
    )
    checkpoints.save_hugging_face(embedder.backbone, tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "README.md",
        "config.json",
        "model.safetensors",
    ]


def test_sentence_transformers_6_directory_is_read(tmp_path):
    write_sentence_transformers(make_embedder(), tmp_path)
    (tmp_path / "sentence_bert_config.json").write_text(
        '{"transformer_task": "feature-extraction"}'
    )
    fields = {"embedding_dimension": 16, "pooling_mode": "cls", "include_prompt": True}
    (tmp_path / "1_Pooling" / "config.json").write_text(json.dumps(fields))
    write_modules(tmp_path, "Transformer", "Pooling", "Normalize")
    edit_json(tmp_path / "tokenizer_config.json", model_max_length=9)
    embedder = TextEmbedder.from_preset(tmp_path)
    assert (embedder.pooling, embedder.normalize) == ("cls", True)
    assert embedder.preprocessor.sequence_length == 9
    edit_json(tmp_path / "tokenizer_config.json", model_max_length=10**30)
    assert TextEmbedder.from_preset(tmp_path).preprocessor.sequence_length == 16


def test_unsupported_module_raises(tmp_path):
    write_sentence_transformers(make_embedder(), tmp_path, pooling_mode_cls_token=True)
    write_modules(tmp_path, "Transformer", "Pooling", "Dense", "Normalize")
    with pytest.raises(CheckpointError, match="Received: Transformer, Pooling, Dense, Normalize"):
        TextEmbedder.from_preset(tmp_path)
    write_modules(tmp_path, "Transformer", "Pooling", "Pooling")
    with pytest.raises(CheckpointError, match="Received: Transformer, Pooling, Pooling"):
        TextEmbedder.from_preset(tmp_path)
    for content in ('{"0": "Transformer"}', "[", "5", '[{"type": "models.Transformer"}]'):
        (tmp_path / "modules.json").write_text(content)
        with pytest.raises(CheckpointError, match=r"modules\.json must be a list of modules"):
            TextEmbedder.from_preset(tmp_path)


def test_modules_are_read_from_their_paths(tmp_path):
    write_sentence_transformers(make_embedder(), tmp_path, pooling_mode_mean_tokens=True)
    (tmp_path / "sentence_bert_config.json").unlink()
    (tmp_path / "sentence_xlm-roberta_config.json").write_text('{"max_seq_length": 7}')
    fields = json.dumps({"pooling_mode": "cls"})
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "config.json").write_text(fields)
    write_modules(tmp_path, "Transformer", "Pooling", Pooling="other")
    embedder = TextEmbedder.from_preset(tmp_path)
    assert (embedder.pooling, embedder.preprocessor.sequence_length) == ("cls", 7)
    write_modules(tmp_path, "Transformer", "Pooling", Pooling="lost")
    with pytest.raises(
        CheckpointError,
        match=r"lost.config\.json is missing, but .*modules\.json requires it\. Copy the",
    ):
        TextEmbedder.from_preset(tmp_path)
    write_modules(tmp_path, "Transformer", "Pooling", Transformer="0_Transformer")
    with pytest.raises(CheckpointError, match="Transformer in this directory"):
        TextEmbedder.from_preset(tmp_path)


def test_do_lower_case_mismatch_raises(tmp_path):
    write_sentence_transformers(make_embedder(), tmp_path, pooling_mode_cls_token=True)
    edit_json(tmp_path / "sentence_bert_config.json", do_lower_case=True)
    TextEmbedder.from_preset(tmp_path)  # The tokenizer lowercases.
    edit_json(tmp_path / "tokenizer_config.json", do_lower_case=False)
    with pytest.raises(
        CheckpointError, match=r"sentence_bert_config\.json: do_lower_case must be false"
    ):
        TextEmbedder.from_preset(tmp_path)


PROMPTS = {"query": "a red ", "passage": "b "}


def test_prompts_are_read_and_saved(tmp_path):
    write_sentence_transformers(make_embedder(), tmp_path / "read", pooling_mode_cls_token=True)
    path = tmp_path / "read" / "config_sentence_transformers.json"
    path.write_text(json.dumps({"prompts": PROMPTS, "default_prompt_name": "passage"}))
    embedder = TextEmbedder.from_preset(tmp_path / "read")
    embedder.save_to_preset(tmp_path / "preset")
    embedder.save_hugging_face(tmp_path / "written")
    embedder.save(tmp_path / "embedder.keras")
    for loaded in (
        embedder,
        *(TextEmbedder.from_preset(tmp_path / name) for name in ("preset", "written")),
        load_model(tmp_path / "embedder.keras"),
    ):
        assert (loaded.prompts, loaded.default_prompt_name) == (PROMPTS, "passage")
        as_written = loaded.embed(["green", "b green", "a red green"], prompt="")
        for index, vector in (
            (0, loaded.embed(["green"], prompt="")[0]),
            (1, loaded.embed("green")),
            (1, loaded.embed_documents("green")),
            (2, loaded.embed_queries("green")),
            (2, loaded.embed("green", prompt_name="query")),
            (2, loaded.embed("green", prompt="a red ")),
        ):
            np.testing.assert_allclose(vector, as_written[index], atol=1e-6)
    assert TextEmbedder.from_preset(tmp_path / "read", prompts={"x": "a "}, default_prompt_name="x")
    without = make_embedder()
    np.testing.assert_allclose(without.embed_queries(TEXTS), without.embed(TEXTS), atol=1e-6)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"prompt_name": "q"}, r"prompt_name must be one of 'query', 'passage'\. Received: 'q'"),
        ({"prompt": "query"}, r"the name of a prompt\. Pass prompt_name='query'\."),
        ({"prompt": "", "prompt_name": "query"}, "Only one of prompt and prompt_name"),
    ],
)
def test_invalid_prompt_raises(arguments, message):
    with pytest.raises(ValueError, match=message):
        make_embedder(prompts=PROMPTS).embed("a", **arguments)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"prompts": {"query": 5}}, "prompts must be a dict from names to texts"),
        ({"prompts": ["a"]}, r"prompts must be an object\. Received: \['a'\]"),
        ({"default_prompt_name": "a"}, "default_prompt_name must be None, because the model has"),
        ({"truncate_dim": 8}, "truncate_dim must be absent"),
    ],
)
def test_unsupported_prompts_raise(fields, message, tmp_path):
    write_sentence_transformers(make_embedder(), tmp_path, pooling_mode_cls_token=True)
    (tmp_path / "config_sentence_transformers.json").write_text(json.dumps(fields))
    with pytest.raises(CheckpointError, match=message):
        TextEmbedder.from_preset(tmp_path)


@pytest.mark.parametrize("include_prompt", [True, False])
def test_each_window_has_the_prompt(include_prompt):
    truncating = make_embedder(
        sequence_length=8, prompts=PROMPTS, include_prompt=include_prompt, normalize=False
    )
    tokenizer = truncating.preprocessor.tokenizer
    preprocessor = TextClassifierPreprocessor(tokenizer, 8, long_texts="mean", overlap=1)
    options = {name: getattr(truncating, name) for name in TextEmbedder.options}
    embedder = TextEmbedder(truncating.backbone, preprocessor, **options)
    # Without special tokens and the prompt, 4 tokens fit in a window.
    windows = ["red green blue white", "blue white black a", "black a b grey"]
    expected = truncating.embed(windows, prompt_name="query").mean(axis=0)
    text = "red green blue white black a b grey"
    vectors = embedder.embed(["a", text, ""], prompt_name="query")
    np.testing.assert_allclose(vectors[1], expected, atol=1e-6)
    expected = truncating.embed(["a", ""], prompt_name="query")
    np.testing.assert_allclose(vectors[[0, 2]], expected, atol=1e-6)


def test_exported_network_pools_all_tokens():
    """Regression: with `include_prompt=False`, it required a pooling mask."""
    embedder = make_embedder(prompts=PROMPTS, include_prompt=False)
    ids = embedder.preprocessor(TEXTS)
    features = {name: keras.ops.convert_to_tensor(ids[name]) for name in INPUT_NAMES if name in ids}
    features.setdefault("segment_ids", keras.ops.zeros_like(features["token_ids"]))
    (vectors,) = embedder.network_outputs(features).values()
    np.testing.assert_allclose(
        keras.ops.convert_to_numpy(vectors), embedder.embed(TEXTS, prompt=""), atol=1e-6
    )


def test_dimensions_are_cut_before_normalization(tmp_path):
    embedder = make_embedder()
    expected = embedder.embed(TEXTS)[:, :5]
    expected = expected / np.linalg.norm(expected, axis=1, keepdims=True)
    np.testing.assert_allclose(embedder.embed(TEXTS, dimensions=5), expected, atol=1e-6)
    shorter = TextEmbedder(embedder.backbone, embedder.preprocessor, dimensions=5)
    shorter.save_to_preset(tmp_path / "preset")
    for loaded in (shorter, TextEmbedder.from_preset(tmp_path / "preset")):
        np.testing.assert_allclose(loaded.embed(TEXTS), expected, atol=1e-6)
    with pytest.raises(ValueError, match=r"dimensions must be an integer in \[1, 5\]"):
        shorter.embed("a", dimensions=6)
    with pytest.raises(CheckpointError, match="dimensions must be None"):
        shorter.save_hugging_face(tmp_path / "written")


@pytest.mark.parametrize(
    ("pooling", "include_prompt"), [("mean", True), ("mean", False), ("cls", False)]
)
def test_prompts_match_sentence_transformers(pooling, include_prompt, tmp_path):
    sentence_transformers = pytest.importorskip("sentence_transformers")
    prompts = {"query": "a red ", "document": "b "}
    embedder = make_embedder(
        prompts=prompts,
        default_prompt_name="query",
        pooling=pooling,
        include_prompt=include_prompt,
    )
    embedder.save_hugging_face(tmp_path)
    embedder = TextEmbedder.from_preset(tmp_path)
    reference = sentence_transformers.SentenceTransformer(str(tmp_path), device="cpu")
    for received, expected in (
        (embedder.embed(TEXTS), reference.encode(TEXTS)),
        (embedder.embed_queries(TEXTS), reference.encode_query(TEXTS)),
        (embedder.embed_documents(TEXTS), reference.encode_document(TEXTS)),
        (embedder.embed(TEXTS, prompt="blue "), reference.encode(TEXTS, prompt="blue ")),
        (embedder.embed(TEXTS, prompt=""), reference.encode(TEXTS, prompt="")),
        (embedder.embed("a", prompt="b " * 99), reference.encode("a", prompt="b " * 99)),
    ):
        np.testing.assert_allclose(received, expected, atol=1e-6)


@pytest.mark.on_each_backend
def test_minilm_embeddings_match_transformers():
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    from keras_bert import minilm

    try:
        directory = minilm.directory()
    except FileNotFoundError as error:
        pytest.skip(str(error))
    texts = ["A man is eating.", "Sie isst.", "naïve café? No: 3 cafés " * 3]
    tokenizer = transformers.AutoTokenizer.from_pretrained(directory)
    model = transformers.AutoModel.from_pretrained(directory).eval()
    batch = tokenizer(texts, padding=True, return_tensors="pt")
    with torch.no_grad():
        tokens = model(**batch).last_hidden_state
    mask = batch["attention_mask"][:, :, None].float()
    expected = torch.nn.functional.normalize((tokens * mask).sum(1) / mask.sum(1), dim=1)
    embedder = TextEmbedder.from_preset(directory)
    assert (embedder.pooling, embedder.normalize) == ("mean", True)
    assert embedder.preprocessor.sequence_length == 256
    np.testing.assert_allclose(embed_without_pipeline(embedder, texts), expected.numpy(), atol=1e-5)
