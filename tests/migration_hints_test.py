# SPDX-License-Identifier: Apache-2.0
"""Argument names of other libraries raise errors that suggest this library's names."""

import pytest

import keras_bert
from keras_bert.text import special_tokens
from tests.checkpoints.small_models import small_backbone

pytestmark = pytest.mark.backend_independent


@pytest.fixture(scope="module")
def backbone():
    return small_backbone()


@pytest.fixture(scope="module")
def classifier(backbone):
    return keras_bert.TextClassifier(backbone, num_classes=2)


def test_constructor_error_suggests_argument(backbone):
    message = r"TextClassifier has no argument num_labels\. Use num_classes"
    for arguments in ({}, {"num_classes": 2}):
        with pytest.raises(TypeError, match=message + " or class_names instead"):
            keras_bert.TextClassifier(backbone, num_labels=2, **arguments)
    with pytest.raises(TypeError, match="Use class_names instead of id2label"):
        keras_bert.TokenClassifier(backbone, id2label={0: "O"})
    with pytest.raises(TypeError, match=r"Backbone has no argument torch_dtype\. Use dtype"):
        keras_bert.Backbone(backbone.config, torch_dtype="bfloat16")
    # A constructor would ignore the argument, which has no other name here.
    with pytest.raises(TypeError, match=r"MultipleChoice has no argument max_length\.$"):
        keras_bert.MultipleChoice(backbone, max_length=8)


def test_subclass_can_have_foreign_argument(backbone):
    class CustomClassifier(keras_bert.TextClassifier):
        def __init__(self, backbone, num_labels, **kwargs):
            super().__init__(backbone, num_classes=num_labels, **kwargs)

    assert CustomClassifier(backbone, num_labels=3).num_classes == 3


def test_from_preset_error_suggests_option(backbone, tmp_path):
    tokenizer = {"vocabulary": list(special_tokens.SPECIAL_TOKENS)}
    keras_bert.checkpoints.save_preset(backbone, tmp_path, tokenizer=tokenizer)
    for options, advice in (
        ({"num_labels": 2}, "Use num_classes or class_names instead of num_labels"),
        ({"max_length": 8}, "Use sequence_length instead of max_length"),
        ({"torch_dtype": "bfloat16"}, "Use dtype instead of torch_dtype"),
        ({"classifier_dropout": 0.1}, "Use dropout instead of classifier_dropout"),
    ):
        with pytest.raises(
            ValueError, match=f"must be among .*Received: {next(iter(options))}.*{advice}"
        ):
            keras_bert.TextClassifier.from_preset(tmp_path, **options)


def test_compile_and_fit_errors_suggest_argument(classifier):
    with pytest.raises(TypeError, match=r"compile has no argument learning_rate\. Use optimizer"):
        classifier.compile(learning_rate=2e-5)
    with pytest.raises(TypeError, match="Use epochs instead of num_train_epochs"):
        classifier.fit(["a"], [0], num_train_epochs=3)
