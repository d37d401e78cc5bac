# SPDX-License-Identifier: Apache-2.0
"""A served tagger returns the tags of the task, from text alone."""

import numpy as np
import pytest

import keras_bert
from tests.export.small_classifier import make_classifier

tf = pytest.importorskip("tensorflow")
pytest.importorskip("tensorflow_text")

# The other backends export in a process of this one, as they do for `saved_model_test` and
# `multiple_choice_test`: what a SavedModel answers is the same.
pytestmark = [pytest.mark.needs_tensorflow, pytest.mark.on_tensorflow]

NAMES = ["O", "B-größe", "I-größe"]
TEXTS = (
    "the cat sat, unable.",
    "",
    "naïve 🏔 café, ÉTÉ? 中 able " * 9,  # windows
    "\x00 \u200b",
    "cat",
)


@pytest.fixture(scope="module")
def tagger():
    from keras_bert.data import TokenClassifierPreprocessor

    classifier = make_classifier(num_classes=3)
    preprocessor = TokenClassifierPreprocessor(classifier.preprocessor.tokenizer, 20)
    tagger = keras_bert.TokenClassifier(
        classifier.backbone, preprocessor=preprocessor, class_names=NAMES
    )
    kernel = tagger.head.dense.kernel
    kernel.assign(np.random.default_rng(1).normal(0, 0.5, kernel.shape))
    return tagger


@pytest.fixture(scope="module")
def folder(tagger, tmp_path_factory):
    folder = tmp_path_factory.mktemp("exported") / "1"
    tagger.export(folder, warm_up=False)
    return folder


@pytest.fixture(scope="module")
def signatures(folder):
    return tf.saved_model.load(str(folder)).signatures


def serve(signatures, texts):
    outputs = signatures["serving_default"](text=tf.constant(texts, tf.string))
    return {name: value.numpy() for name, value in outputs.items()}


def check_tags(received, expected):
    counts = [len(tags) for tags in expected]
    assert list(received["num_words"]) == counts
    for name, key in (("words", "word"), ("labels", "label"), ("starts", "start"), ("ends", "end")):
        values = np.asarray(received[name])
        assert values.shape == (len(expected), max(counts))
        for row, count, tags in zip(values, counts, expected, strict=True):
            row = [x.decode() if isinstance(x, bytes) else x for x in row]
            assert row[:count] == [tag[key] for tag in tags]
            assert not any(row[count:])
    for row, tags in zip(np.asarray(received["scores"]), expected, strict=True):
        np.testing.assert_allclose(row[: len(tags)], [tag["score"] for tag in tags], atol=1e-4)


def test_it_gives_the_tags_of_the_task(tagger, signatures):
    expected = tagger.tag(list(TEXTS))
    assert len({tag["label"] for tags in expected for tag in tags}) > 1
    check_tags(serve(signatures, TEXTS), expected)


def test_words_that_are_split_already(tagger, signatures):
    words = [["the cat", "", "?", "", ""], ["a", "b", "a", "a", "mat"], [""] * 5]
    outputs = signatures["serve_words"](words=tf.constant(words))
    tags = tagger.tag([words[0][:3], words[1], []])
    for row, labels, scores in zip(
        tags, outputs["labels"].numpy(), outputs["scores"].numpy(), strict=True
    ):
        padding = [0.0] * (5 - len(row))
        assert [x.decode() for x in labels] == [*(t["label"] for t in row), *("" for _ in padding)]
        np.testing.assert_allclose(scores, [*(t["score"] for t in row), *padding], atol=1e-4)
    empty = signatures["serve_words"](words=tf.zeros([2, 0], tf.string))
    assert empty["labels"].shape == (2, 0)


def test_ids_give_the_logits_of_predict(tagger, signatures):
    features = tagger.preprocessor([["a", "cat"], ["b"]])
    received = signatures["serve_ids"](token_ids=tf.constant(features["token_ids"]))
    expected, mask = tagger.predict(features, verbose=0), features["padding_mask"]
    np.testing.assert_allclose(received["logits"].numpy()[mask], expected[mask], atol=1e-4)
    best = np.array(NAMES)[expected.argmax(-1)]
    assert [x.decode() for x in received["labels"].numpy()[mask]] == list(best[mask])
