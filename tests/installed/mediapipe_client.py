# SPDX-License-Identifier: Apache-2.0
"""Checks that MediaPipe returns the predictions of the tasks that `exports.py` exported."""

import importlib
import json

# importlib hides the import from BUILD. Otherwise, every test would depend on the package.
(text,) = map(importlib.import_module, ["mediapipe.tasks.python.text"])

with open("mediapipe.json") as file:
    expected = json.load(file)


def check(actual, wanted):
    assert len(actual) == len(wanted)
    assert max(abs(a - b) for a, b in zip(actual, wanted, strict=True)) < 1e-5, (actual, wanted)


with (
    text.TextClassifier.create_from_model_path("mediapipe_classifier.tflite") as classifier,
    text.TextClassifier.create_from_model_path("mediapipe_regression.tflite") as regression,
    text.TextEmbedder.create_from_model_path("mediapipe_embedder.tflite") as embedder,
):
    for index, example in enumerate(expected["texts"]):
        (head,) = classifier.classify(example).classifications
        classes = expected["classes"][index]
        assert [each.category_name for each in head.categories] == [
            each["label"] for each in classes
        ]
        check([each.score for each in head.categories], [each["score"] for each in classes])
        (category,) = regression.classify(example).classifications[0].categories
        check([category.score], [expected["scores"][index]])
        check(embedder.embed(example).embeddings[0].embedding, expected["embeddings"][index])
print(f"MediaPipe returns the same predictions for {len(expected['texts'])} texts")
