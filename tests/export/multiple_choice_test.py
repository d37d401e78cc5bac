# SPDX-License-Identifier: Apache-2.0
"""A served multiple choice task ranks the choices as the task does."""

import pytest

import keras_bert
from tests.export.small_classifier import make_classifier

tf = pytest.importorskip("tensorflow")
pytest.importorskip("tensorflow_text")

# How other backends export is tested by tests/export/saved_model_test.py.
pytestmark = [pytest.mark.needs_tensorflow, pytest.mark.on_tensorflow]

ROWS = [
    ("the cat sat", ["mat", "on the mat", "中?"]),
    ("a", ["cat"]),
    ("", ["the mat", "able unable"]),
]


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    from keras_bert.data import MultipleChoicePreprocessor

    folder = tmp_path_factory.mktemp("choices")
    classifier = make_classifier(num_classes=1)
    preprocessor = MultipleChoicePreprocessor(classifier.preprocessor.tokenizer, 24)
    task = keras_bert.MultipleChoice(classifier.backbone, preprocessor)
    task.head.dense.kernel.assign(classifier.head.dense.kernel)
    task.export(folder / "1")
    return task, folder / "1"


def signature(folder):
    return tf.saved_model.load(str(folder)).signatures["serving_default"]


def test_the_answers_are_those_of_the_task(served):
    task, folder = served
    padded = [own + [""] * (3 - len(own)) for _, own in ROWS]
    outputs = signature(folder)(
        text=tf.constant([text for text, _ in ROWS]), choices=tf.constant(padded)
    )
    outputs = {name: value.numpy() for name, value in outputs.items()}
    for row, answer in enumerate(task.choose(ROWS)):
        assert outputs["choice"][row] == answer[0]["choice"]
        assert outputs["score"][row] == pytest.approx(answer[0]["score"], abs=1e-5)
        assert outputs["probabilities"][row].sum() == pytest.approx(1, abs=1e-5)
        for place, ranked in enumerate(answer):
            assert outputs["ranking"][row, place] == ranked["choice"]
            assert outputs["ranked_choices"][row, place].decode() == ranked["text"]
            assert outputs["ranked_scores"][row, place] == pytest.approx(ranked["score"], abs=1e-5)
        assert (outputs["ranked_scores"][row, len(answer) :] == 0).all()


def test_a_format_of_one_shape_is_refused(served, tmp_path):
    with pytest.raises(ValueError, match="has tf_saved_model, onnx and openvino"):
        served[0].export(tmp_path / "model.tflite", "litert")
