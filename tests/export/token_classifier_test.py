# SPDX-License-Identifier: Apache-2.0
"""The signatures of a tagger that take words and ids; served_model_test.py has texts."""

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")
pytest.importorskip("tensorflow_text")

# What a SavedModel answers is the same on all backends: saved_model_test.py exports on each.
pytestmark = [pytest.mark.needs_tensorflow, pytest.mark.on_tensorflow]


def test_words_that_are_split_already(served_tagger):
    words = [["the cat", "", "?", "", ""], ["a", "b", "a", "a", "mat"], [""] * 5]
    serve = served_tagger.signatures["serve_words"]
    outputs = serve(words=tf.constant(words))
    tags = served_tagger.task.tag([words[0][:3], words[1], []])
    for row, labels, scores in zip(
        tags, outputs["labels"].numpy(), outputs["scores"].numpy(), strict=True
    ):
        padding = [0.0] * (5 - len(row))
        assert [x.decode() for x in labels] == [*(t["label"] for t in row), *("" for _ in padding)]
        np.testing.assert_allclose(scores, [*(t["score"] for t in row), *padding], atol=1e-4)
    assert serve(words=tf.zeros([2, 0], tf.string))["labels"].shape == (2, 0)


def test_ids_give_the_logits_of_predict(served_tagger):
    task = served_tagger.task
    features = task.preprocessor([["a", "cat"], ["b"]])
    received = served_tagger.signatures["serve_ids"](token_ids=tf.constant(features["token_ids"]))
    expected, mask = task.predict(features, verbose=0), features["padding_mask"]
    np.testing.assert_allclose(received["logits"].numpy()[mask], expected[mask], atol=1e-4)
    best = np.array(task.class_names)[expected.argmax(-1)]
    assert [x.decode() for x in received["labels"].numpy()[mask]] == list(best[mask])
