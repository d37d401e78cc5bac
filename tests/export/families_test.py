# SPDX-License-Identifier: Apache-2.0
"""The signatures of other tokenizers and encoders match the task's predictions in Python."""

import keras
import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")
pytest.importorskip("tensorflow_text")
pytest.importorskip("sentencepiece")


import keras_bert  # noqa: E402
from keras_bert.data import (  # noqa: E402
    QuestionAnswererPreprocessor,
    TextClassifierPreprocessor,
)
from keras_bert.export import ExportOptions  # noqa: E402
from keras_bert.families import SIZES  # noqa: E402
from tests.text import small_tokenizers  # noqa: E402

pytestmark = [pytest.mark.needs_tensorflow, pytest.mark.backend_independent]

# A standard configuration of each family, and its kind of tokenizer
FAMILIES = {
    "roberta": ("roberta_base", "byte_pair"),  # also without segments
    "albert": ("albert_base_v2", "sentence_piece"),
}
TEXTS = ["a test that fails", "été", "", "the case is a class of tests, and more of them " * 3]
PAIRS = ["it is run", "", "a method of it " * 4, "setUp"]
CLASS_NAMES = ("no", "maybe", "yes")


def make_backbone_and_tokenizer(family):
    name, kind = FAMILIES[family]
    tokenizer = small_tokenizers.make(kind)
    small = {"num_layers": 1, "num_heads": 2, "hidden_dim": 16, "intermediate_dim": 32}
    fields = {**SIZES[name], **small, "max_sequence_length": 64}
    if "embedding_dim" in fields:
        fields["embedding_dim"] = 8
    fields |= {"vocabulary_size": tokenizer.vocabulary_size, "initializer_range": 0.5}
    fields |= {"pad_token_id": tokenizer.pad_token_id}
    return keras_bert.Backbone(keras_bert.BertConfig(**fields)), tokenizer


def make_signatures(task, **options):
    """Returns the signatures' Python functions. The task then runs eagerly."""
    defaults = {"format": "tf_saved_model", "class_names": None, "dtype": "float32", "pair": False}
    serving = {"max_batch_size": 32, "warm_up": False, "sequence_length": 64}
    options = ExportOptions(name="1", **{**defaults, **serving, **options})
    task.run_eagerly = True
    functions = task.serving_signatures(options)
    return {name: function.python_function for name, function in functions.items()}


def assert_close(actual, expected):
    np.testing.assert_allclose(actual, expected, atol=1e-5)


def select_ids(features):
    return {name: tf.constant(features[name]) for name in ("token_ids", "segment_ids")}


@pytest.fixture(params=FAMILIES)
def parts(request):
    keras.utils.set_random_seed(0)
    return make_backbone_and_tokenizer(request.param)


def test_classifier_signatures_match_task(parts):
    backbone, tokenizer = parts
    preprocessor = TextClassifierPreprocessor(tokenizer, 32)
    task = keras_bert.TextClassifier(
        backbone, preprocessor=preprocessor, class_names=list(CLASS_NAMES)
    )
    functions = make_signatures(task, pair=True, class_names=CLASS_NAMES)
    texts = {"text": tf.constant(TEXTS), "text_pair": tf.constant(PAIRS)}
    features = preprocessor(TEXTS, PAIRS)
    text_outputs = functions["serving_default"](*texts.values())
    ids_outputs = functions["serve_ids"](*select_ids(features).values())
    assert_close(ids_outputs["logits"], task.predict(features, verbose=0))
    expected = task.classify((TEXTS, PAIRS))
    for outputs in (text_outputs, ids_outputs):
        assert_close(outputs["score"], [row["score"] for row in expected])
        labels = [label.decode() for label in outputs["label"].numpy()]
        assert labels == [row["label"] for row in expected]


def test_question_signatures_match_task(parts):
    backbone, tokenizer = parts
    preprocessor = QuestionAnswererPreprocessor(tokenizer, 32, 8, 8)
    task = keras_bert.QuestionAnswerer(backbone, preprocessor=preprocessor)
    functions = make_signatures(task)
    outputs = functions["serving_default"](tf.constant(PAIRS), tf.constant(TEXTS))
    answers = task.answer(PAIRS, TEXTS)
    assert [text.decode() for text in outputs["answer"].numpy()] == [
        answer["answer"] for answer in answers
    ]
    assert_close(outputs["score"], [answer["score"] for answer in answers])
    features = preprocessor.pad(preprocessor(PAIRS, TEXTS))
    actual = functions["serve_ids"](*select_ids(features).values())
    expected = task.predict(features, verbose=0)
    mask = np.asarray(features["padding_mask"])
    for name, logits in expected.items():
        assert_close(actual[name][:, : mask.shape[1]][mask], logits[mask])
