# SPDX-License-Identifier: Apache-2.0
"""A small classifier and a small question answerer whose weights affect their predictions."""

import string
from typing import Any

import keras
import numpy as np

import keras_bert
from tests import small_tasks


def vocabulary() -> list[str]:
    pieces = [*string.ascii_lowercase, *string.digits, "the", "cat", "mat", "##able"]
    continuations = [f"##{letter}" for letter in string.ascii_lowercase]
    return ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *pieces, *continuations, ",", "?", "中"]


def make_classifier(**arguments: Any) -> Any:
    """Creates a classifier with two layers whose predictions differ between texts."""
    # Import TensorFlow here. If it is missing, tests are collected and then skipped.
    from keras_bert.data.texts import TextClassifierPreprocessor
    from tests.text.small_tokenizers import make_tokenizer

    keras.utils.set_random_seed(0)
    tokenizer = make_tokenizer(*vocabulary())
    config = small_tasks.CONFIG.replace(
        vocabulary_size=tokenizer.vocabulary_size, num_layers=2, num_heads=4, max_sequence_length=64
    )
    classifier = keras_bert.TextClassifier(
        keras_bert.Backbone(config),
        preprocessor=TextClassifierPreprocessor(tokenizer, sequence_length=48),
        **arguments,
    )
    # Initial weights differ between backends, so assign fixed weights.
    generator = np.random.default_rng(0)
    for weight in classifier.trainable_weights:
        mean = 1.0 if weight.name == "gamma" else 0.0
        weight.assign(generator.normal(mean, 0.5, weight.shape))
    return classifier


def make_answerer(**arguments: Any) -> Any:
    """Creates a question answerer with the same encoder and windows of 24 tokens."""
    from keras_bert.data import QuestionAnswererPreprocessor

    classifier = make_classifier(num_classes=2)
    preprocessor = QuestionAnswererPreprocessor(classifier.preprocessor.tokenizer, 24, 6, 8)
    answerer = keras_bert.QuestionAnswerer(classifier.backbone, preprocessor, **arguments)
    answerer.head.dense.kernel.assign(
        np.random.default_rng(1).normal(0, 0.5, answerer.head.dense.kernel.shape)
    )
    return answerer
