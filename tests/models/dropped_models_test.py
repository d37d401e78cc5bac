# SPDX-License-Identifier: Apache-2.0
"""What is left of a model that was trained and dropped, as those of the folds of a study are."""

import gc
import weakref

import numpy as np
import pytest

from keras_bert import Backbone, TextClassifier
from tests.small_tasks import CONFIG, make_text_task

TEXTS, LABELS = ["a b", "b", "a", "b a"], [0, 1, 0, 1]


@pytest.mark.needs_tensorflow
@pytest.mark.on_tensorflow
def test_no_graph_outlives_its_model():
    """TensorFlow keeps what `tf.custom_gradient` is given, with its graph, for good."""
    import tensorflow as tf

    def graphs():
        gc.collect()
        # (`isinstance` also reads `__class__`, of which deprecated objects of PyTorch warn.)
        return sum(issubclass(type(one), tf.Graph) for one in gc.get_objects())

    counts = []
    for _ in range(3):
        classifier = TextClassifier(Backbone(CONFIG), num_classes=2)
        classifier.compile()
        classifier.fit(np.ones((4, 3), "int32"), np.array([0, 1, 0, 1]), verbose=0)
        del classifier
        counts.append(graphs())
    # The first one traces what all models share.
    assert counts[1] == counts[2]


@pytest.mark.filterwarnings("ignore:Your input ran out of data")
@pytest.mark.parametrize("batches_are_counted", [True, False])
def test_a_model_of_text_is_freed(batches_are_counted):
    """TensorFlow keeps the functions that datasets call, and what they refer to, for good."""

    def batches():
        yield TEXTS, LABELS

    classifier = make_text_task("TextClassifier", 2)
    classifier.compile()
    data = (TEXTS, LABELS) if batches_are_counted else (batches(),)
    classifier.fit(*data, validation_data=(TEXTS, LABELS), verbose=0)
    classifier.evaluate(TEXTS, LABELS, verbose=0)
    classifier.classify(TEXTS)
    alive = weakref.ref(classifier)
    del classifier, data
    gc.collect()
    assert alive() is None
