# SPDX-License-Identifier: Apache-2.0
"""What is left of a model that was trained and dropped, as those of the folds of a study are."""

import gc

import numpy as np
import pytest

pytestmark = [pytest.mark.needs_tensorflow, pytest.mark.on_tensorflow]

tf = pytest.importorskip("tensorflow")

from keras_bert import Backbone, TextClassifier  # noqa: E402
from tests.small_tasks import CONFIG  # noqa: E402


def test_no_graph_outlives_its_model():
    """TensorFlow keeps what `tf.custom_gradient` is given, with its graph, for good."""

    def graphs():
        gc.collect()
        # (`isinstance` also reads `__class__`, of which deprecated objects of PyTorch warn.)
        return sum(issubclass(type(found), tf.Graph) for found in gc.get_objects())

    counts = []
    for _ in range(3):
        classifier = TextClassifier(Backbone(CONFIG), num_classes=2)
        classifier.compile()
        classifier.fit(np.ones((4, 3), "int32"), np.array([0, 1, 0, 1]), verbose=0)
        del classifier
        counts.append(graphs())
    # The first one traces what all models share.
    assert counts[1] == counts[2]
