# SPDX-License-Identifier: Apache-2.0
"""Deleting a trained model frees its memory."""

import gc
import weakref

import numpy as np
import pytest

from keras_bert import Backbone, TextClassifier
from tests.small_tasks import CONFIG, make_text_task

TEXTS, LABELS = ["a b", "b", "a", "b a"], [0, 1, 0, 1]


@pytest.mark.needs_tensorflow
@pytest.mark.on_tensorflow
def test_graphs_are_freed_with_their_model():
    """TensorFlow keeps the arguments of `tf.custom_gradient`, and their graph, forever."""
    import tensorflow as tf

    def count_graphs():
        gc.collect()
        # `isinstance` also reads `__class__`, which makes deprecated PyTorch objects warn.
        return sum(issubclass(type(one), tf.Graph) for one in gc.get_objects())

    counts = []
    for _ in range(3):
        classifier = TextClassifier(Backbone(CONFIG), num_classes=2)
        classifier.compile()
        classifier.fit(np.ones((4, 3), "int32"), np.array([0, 1, 0, 1]), verbose=0)
        del classifier
        counts.append(count_graphs())
    # The first model also traces what all models share.
    assert counts[1] == counts[2]


@pytest.mark.filterwarnings("ignore:Your input ran out of data")
@pytest.mark.parametrize("batches_are_counted", [True, False])
def test_text_model_is_freed(batches_are_counted):
    """TensorFlow keeps the functions that datasets call, and what they refer to, forever."""

    def yield_batches():
        yield TEXTS, LABELS

    classifier = make_text_task("TextClassifier", 2)
    classifier.compile("sgd")
    data = (TEXTS, LABELS) if batches_are_counted else (yield_batches(),)
    classifier.fit(*data, validation_data=(TEXTS, LABELS), verbose=0)
    classifier.evaluate(TEXTS, LABELS, verbose=0)
    classifier.classify(TEXTS)
    alive = weakref.ref(classifier)
    del classifier, data
    gc.collect()
    assert alive() is None
