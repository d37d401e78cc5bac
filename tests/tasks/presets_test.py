# SPDX-License-Identifier: Apache-2.0
"""Preprocessors must fit their encoders, and outputs keep their class names."""

import numpy as np
import pytest

import keras_bert
from keras_bert.checkpoints import CheckpointError, CheckpointWarning, save_preset
from keras_bert.tasks.presets import check_preprocessor
from tests.checkpoints.small_models import edit_json
from tests.small_tasks import make_text_task

pytestmark = pytest.mark.on_torch

VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b"]
IDS = np.array([[2, 5, 6, 3]])
BYTE_PAIRS = ["<s>", "<pad>", "</s>", "<unk>", "<mask>", "a", "b"]


def wordpiece(vocabulary, sequence_length=8):
    tokenizer = {"kind": "wordpiece", "vocabulary": vocabulary}
    return {"tokenizer": tokenizer, "sequence_length": sequence_length}


def byte_pair(vocabulary):
    tokenizer = {"kind": "byte_pair", "vocabulary": vocabulary, "merges": []}
    return {"tokenizer": tokenizer, "sequence_length": 8}


def config(**changes):
    sizes = {"num_layers": 1, "hidden_dim": 4, "num_heads": 1, "intermediate_dim": 4}
    limits = {"vocabulary_size": 7, "max_sequence_length": 8}
    return keras_bert.BertConfig(**sizes, **limits, **changes)


ROBERTA = {"position_offset": 2, "pad_token_id": 1}


@pytest.mark.parametrize(
    ("preprocessor", "changes"),
    [
        (wordpiece(VOCABULARY), {}),
        (wordpiece(VOCABULARY[:6]), {}),
        (byte_pair(BYTE_PAIRS), ROBERTA),
        (byte_pair(BYTE_PAIRS), {"num_segments": 1}),
        # If positions do not depend on padding, only the mask determines padding.
        (byte_pair(BYTE_PAIRS), {"pad_token_id": 3}),
    ],
)
def test_fitting_preprocessor_is_accepted(preprocessor, changes):
    check_preprocessor(preprocessor, config(**changes))


@pytest.mark.parametrize(
    ("preprocessor", "changes", "message"),
    [
        (
            wordpiece(VOCABULARY),
            {"num_segments": 1},
            r"must have num_segments=1, like the encoder\. Received: 2\. Pass num_segments=1",
        ),
        (
            wordpiece(VOCABULARY, 9),
            {},
            r"must be at most max_sequence_length of the encoder, which is 8. Received: 9",
        ),
        (
            wordpiece([*VOCABULARY, "c"]),
            {},
            r"at most vocabulary_size tokens of the encoder, which is 7. Received: 8 tokens",
        ),
        (
            byte_pair(BYTE_PAIRS),
            {**ROBERTA, "pad_token_id": 0},
            r"The pad_token_id is 0. Received: 1",
        ),
        (wordpiece(VOCABULARY), ROBERTA, r"The pad_token_id is 1. Received: 0"),
        (byte_pair(BYTE_PAIRS[2:]), ROBERTA, r"The pad_token_id is 1. Received: None"),
    ],
)
def test_mismatched_preprocessor_raises(preprocessor, changes, message):
    with pytest.raises(ValueError, match=message):
        check_preprocessor(preprocessor, config(**changes))


@pytest.fixture(params=[keras_bert.TextClassifier, keras_bert.TokenClassifier])
def saved_preset(request, tmp_path):
    """Returns a task class, its preset with classes "a", "b" and "c", and its logits."""
    task = request.param(keras_bert.Backbone(config(num_segments=1)), 3)
    random = np.random.default_rng(0)
    for weight in task.head.weights:
        weight.assign(random.normal(size=weight.shape))
    save_preset(
        task.backbone,
        tmp_path,
        heads=task.heads,
        tokenizer={"vocabulary": VOCABULARY},
        class_names=["a", "b", "c"],
    )
    return request.param, tmp_path, task.predict(IDS, verbose=0)


def test_tokenizer_has_no_more_segments_than_encoder(tmp_path):
    """For example, KLUE-RoBERTa has BERT's tokenizer and an encoder with one segment."""
    options = wordpiece(VOCABULARY)
    options["tokenizer"]["num_segments"] = 1
    task = keras_bert.TextClassifier(
        keras_bert.Backbone(config(num_segments=1)), preprocessor=options, class_names=["a", "b"]
    )
    task.save_to_preset(tmp_path)
    edit_json(tmp_path / "tokenizer_config.json", model_input_names=None)
    loaded = keras_bert.TextClassifier.from_preset(tmp_path)
    assert loaded.preprocessor.tokenizer.num_segments == 1
    expected = task.predict([("a b", "b")], verbose=0)
    np.testing.assert_allclose(loaded.predict([("a b", "b")], verbose=0), expected, atol=1e-6)


def test_reordered_class_names_reorder_outputs(saved_preset):
    task, directory, logits = saved_preset
    loaded = task.from_preset(directory, class_names=["c", "a", "b"])
    assert loaded.class_names == ("c", "a", "b")
    np.testing.assert_allclose(
        loaded.predict(IDS, verbose=0), logits[..., [2, 0, 1]], rtol=1e-6, atol=1e-6
    )


def test_other_class_names_rename_outputs_with_warning(saved_preset):
    task, directory, logits = saved_preset
    with pytest.warns(CheckpointWarning, match="classes a, b, c. .* in this order, to c, a, x"):
        loaded = task.from_preset(directory, class_names=["c", "a", "x"])
    np.testing.assert_array_equal(loaded.predict(IDS, verbose=0), logits)


def test_unnamed_outputs_get_given_names(saved_preset):
    task, directory, logits = saved_preset
    edit_json(directory / "config.json", class_names=None)
    loaded = task.from_preset(directory, class_names=["c", "b", "a"])
    assert loaded.class_names == ("c", "b", "a")
    np.testing.assert_array_equal(loaded.predict(IDS, verbose=0), logits)


@pytest.mark.parametrize(
    ("file", "changes", "message"),
    [
        (
            "config.json",
            {"class_names": ["a", "b", "a"]},
            "class_names must be unique. Received: 'a' twice",
        ),
        ("task.json", {"dropout": "0.1"}, r"dropout must be a number in"),
        (
            "task.json",
            {"sequence_length": 10**9},
            "must be at most max_sequence_length of the encoder, which is 8. Received: 1000000000",
        ),
    ],
)
def test_invalid_preset_option_includes_path(file, changes, message, saved_preset):
    task, directory, _ = saved_preset
    (directory / "task.json").write_text('{"sequence_length": 8}')
    edit_json(directory / file, **changes)
    with pytest.raises(CheckpointError, match=message) as raised:
        task.from_preset(directory)
    assert str(raised.value).startswith(str(directory))


@pytest.mark.parametrize(
    "name",
    [
        "MaskedLM",
        "MultipleChoice",
        "Pretrainer",
        "QuestionAnswerer",
        "ReplacedTokenDetector",
        "TextClassifier",
        "TextEmbedder",
        "TokenClassifier",
    ],
)
@pytest.mark.filterwarnings("ignore::keras_bert.checkpoints.CheckpointWarning")
def test_from_preset_sets_encoder_options(name, tmp_path):
    task_class = getattr(keras_bert, name)
    encoder = keras_bert.Backbone(
        config(
            num_segments=2,
        )
    )
    save_preset(encoder, tmp_path, tokenizer={"vocabulary": VOCABULARY})
    options = {"num_classes": 2} if name in ("TextClassifier", "TokenClassifier") else {}
    options |= {"max_query_length": 3} if name == "QuestionAnswerer" else {}
    task = task_class.from_preset(
        tmp_path,
        sequence_length=7,
        encoder_dropout=0.25,
        rematerialize=True,
        dtype="mixed_bfloat16",
        **options,
    )
    assert (task.config.dropout, task.config.attention_dropout) == (0.25, 0.25)
    assert task.backbone.dtype_policy.name == "mixed_bfloat16"
    assert task.backbone.rematerialize
    assert getattr(task, "generator", task.backbone).rematerialize
    assert task.preprocessor.sequence_length == 7
    with pytest.raises(
        ValueError, match=f"options of {name}.from_preset must be .*dtype.*Received: wings"
    ):
        task_class.from_preset(tmp_path, wings=2)


@pytest.mark.parametrize(
    ("name", "arguments", "options"),
    [
        ("QuestionAnswerer", (), {"max_query_length": 20}),
        ("TokenClassifier", (2,), {"overlap": 20}),
    ],
)
def test_saved_lengths_shrink_with_sequence_length(name, arguments, options, tmp_path):
    make_text_task(name, *arguments, **options).save_to_preset(tmp_path)
    task_class = getattr(keras_bert, name)
    (option,) = options
    same = task_class.from_preset(tmp_path)
    assert getattr(same.preprocessor, option) == 20
    shorter = task_class.from_preset(tmp_path, sequence_length=16)
    assert 1 <= getattr(shorter.preprocessor, option) <= 6
