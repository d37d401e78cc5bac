# SPDX-License-Identifier: Apache-2.0
"""Names of arguments that other libraries have are answered with those of this one."""

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


def test_constructors_name_the_argument(backbone):
    message = (
        r"TextClassifier has no argument num_labels\. Instead of num_labels, write num_classes"
    )
    for arguments in ({}, {"num_classes": 2}):
        with pytest.raises(TypeError, match=message + " or class_names"):
            keras_bert.TextClassifier(backbone, num_labels=2, **arguments)
    with pytest.raises(TypeError, match="Instead of id2label, write class_names"):
        keras_bert.TokenClassifier(backbone, id2label={0: "O"})
    with pytest.raises(TypeError, match=r"Backbone has no argument torch_dtype\. .* write dtype"):
        keras_bert.Backbone(backbone.config, torch_dtype="bfloat16")
    # A constructor would ignore it, and has no other name for it
    with pytest.raises(TypeError, match=r"MultipleChoice has no argument max_length\.$"):
        keras_bert.MultipleChoice(backbone, max_length=8)


def test_a_subclass_may_have_such_an_argument(backbone):
    class Mine(keras_bert.TextClassifier):
        def __init__(self, backbone, num_labels, **kwargs):
            super().__init__(backbone, num_classes=num_labels, **kwargs)

    assert Mine(backbone, num_labels=3).num_classes == 3


def test_from_preset_names_the_option(backbone, tmp_path):
    tokenizer = {"vocabulary": list(special_tokens.SPECIAL_TOKENS)}
    keras_bert.checkpoints.save_preset(backbone, tmp_path, tokenizer=tokenizer)
    for options, advice in (
        ({"num_labels": 2}, "Instead of num_labels, write num_classes or class_names"),
        ({"max_length": 8}, "Instead of max_length, write sequence_length"),
        ({"torch_dtype": "bfloat16"}, "Instead of torch_dtype, write dtype"),
        ({"classifier_dropout": 0.1}, "Instead of classifier_dropout, write dropout"),
    ):
        with pytest.raises(
            ValueError, match=f"must be among .*Received: {next(iter(options))}.*{advice}"
        ):
            keras_bert.TextClassifier.from_preset(tmp_path, **options)


def test_compile_and_fit_name_the_argument(classifier):
    with pytest.raises(TypeError, match=r"compile has no argument learning_rate.*write optimizer"):
        classifier.compile(learning_rate=2e-5)
    with pytest.raises(TypeError, match="Instead of num_train_epochs, write epochs"):
        classifier.fit(["a"], [0], num_train_epochs=3)
