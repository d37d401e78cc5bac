# SPDX-License-Identifier: Apache-2.0

import random

import pytest

import keras_bert
from keras_bert.data import TextClassifierPreprocessor
from tests.checkpoints.small_models import randomize, small_config
from tests.text.small_tokenizers import LETTER_TOKENS, make_tokenizer

pytestmark = pytest.mark.on_torch


@pytest.mark.parametrize(
    ("task_class", "options"),
    [
        (keras_bert.TextEmbedder, {}),
        (keras_bert.TextClassifier, {"class_names": ["no", "neutral", "entailment"]}),
    ],
)
def test_order_of_150_labels_does_not_matter(task_class, options):
    tokenizer = make_tokenizer(*LETTER_TOKENS)
    config = small_config(
        vocabulary_size=tokenizer.vocabulary_size, num_layers=1, max_sequence_length=64
    )
    preprocessor = TextClassifierPreprocessor(tokenizer, sequence_length=64)
    task = task_class(keras_bert.Backbone(config), preprocessor=preprocessor, **options)
    randomize(task)
    # Multiple labels have the same description, and thus equal scores. Lengths differ.
    labels = {f"label {number}": "ab" * (number % 9) + "c" for number in range(150)}
    others = dict(random.Random(0).sample(list(labels.items()), 150))
    texts = ["I lost my card, so please send a new one", "한국어"]
    answers = task.classify_zero_shot(texts, labels)
    assert answers == task.classify_zero_shot(texts, others)
    assert [len(labels_of_text) for labels_of_text in answers] == [150] * 2
