# SPDX-License-Identifier: Apache-2.0
"""Distillation losses match NumPy, and students are initialized from their teachers."""

import keras
import numpy as np
import pytest

from keras_bert import Backbone, MaskedLM, TextClassifier
from keras_bert.tasks import Distiller
from tests.models.small_backbone import SMALL, features, random_weights, to_numpy

POSITIONS = np.array([[2, 4, 6], [1, 3, 0], [1, 0, 0]], "int32")
WEIGHTS = np.array([[1, 1, 1], [1, 1, 0], [2, 0, 0]], "float32")
IDS = np.random.default_rng(1).integers(1, 50, POSITIONS.shape).astype("int32")
# A high rate makes dropout in the teacher detectable.
TEACHER = SMALL.replace(num_layers=2, dropout=0.5, attention_dropout=0.5)
DEEP = TEACHER.replace(num_layers=4)
STUDENT = SMALL.replace(num_layers=1, dropout=0.0, attention_dropout=0.0)


def make_inputs() -> dict[str, np.ndarray]:
    return {**features(), "mask_positions": POSITIONS}


def randomize(task, seed=0):
    random_weights(task, seed=seed)
    return task


def make_masked_pair(student=STUDENT):
    return randomize(MaskedLM(Backbone(student)), 1), randomize(MaskedLM(Backbone(TEACHER)))


def make_classifier_pair(num_classes=3):
    student = randomize(TextClassifier(Backbone(STUDENT), num_classes, dropout=0.0), 1)
    teacher = randomize(TextClassifier(Backbone(TEACHER), num_classes))
    for head in (student.head, teacher.head):
        # The divergence between close distributions would be mostly rounding error.
        head.dense.kernel.assign(5 * head.dense.kernel)
    return student, teacher


def compute_outputs(model, x, training=False):
    return {
        name: to_numpy(value).astype("float64")
        for name, value in model(x, training=training).items()
    }


def log_softmax(logits):
    shifted = logits - logits.max(axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))


def divergence(teacher, student, temperature):
    teacher, student = log_softmax(teacher / temperature), log_softmax(student / temperature)
    return temperature**2 * (np.exp(teacher) * (teacher - student)).sum(axis=-1)


def entropy(logits, labels):
    return -np.take_along_axis(log_softmax(logits), labels[..., None], axis=-1)[..., 0]


def cosine(x, y):
    return (x * y).sum(-1) / np.linalg.norm(x, axis=-1) / np.linalg.norm(y, axis=-1)


@pytest.mark.parametrize(
    ("tokens", "width"), [("masked", 8), pytest.param("all", 16, marks=pytest.mark.on_torch)]
)
def test_triple_loss_matches_numpy(tokens, width):
    student, teacher = make_masked_pair(STUDENT.replace(hidden_dim=width))
    model = Distiller(student, teacher, divergence_tokens=tokens)
    x = make_inputs()
    outputs = compute_outputs(model, x)
    token_weights = x["padding_mask"] * WEIGHTS.max(axis=1)[:, None]
    logits = outputs["student_logits"]
    assert logits.shape == ((3, 7, 50) if tokens == "all" else (3, 3, 50))
    if tokens == "all":
        logits = np.take_along_axis(logits, POSITIONS[..., None], axis=1)
    expected = {
        "divergence": np.average(
            divergence(outputs["teacher_logits"], outputs["student_logits"], 2.0),
            weights=token_weights if tokens == "all" else WEIGHTS,
        ),
        "label_loss": np.average(entropy(logits, IDS), weights=WEIGHTS),
        "cosine_distance": np.average(
            1 - cosine(outputs["student_hidden"], outputs["teacher_hidden"]), weights=token_weights
        ),
        "accuracy": np.average(logits.argmax(-1) == IDS, weights=WEIGHTS),
    }
    expected["loss"] = np.dot(
        [5, 2, 1], [expected[name] for name in ("divergence", "label_loss", "cosine_distance")]
    )
    model.compile()
    received = model.evaluate(x, IDS, sample_weight=WEIGHTS, return_dict=True, verbose=0)
    assert set(received) == set(expected)
    for name, value in expected.items():
        np.testing.assert_allclose(received[name], value, rtol=1e-5, err_msg=name)
    for task, name in ((student, "student_logits"), (teacher, "teacher_logits")):
        separate_logits = to_numpy(task({name: x[name] for name in task.input}))
        if tokens == "masked":
            np.testing.assert_allclose(outputs[name], separate_logits, atol=1e-4)


@pytest.mark.on_torch
def test_teacher_does_not_change():
    student, teacher = make_masked_pair()
    model = Distiller(student, teacher)
    x = make_inputs()
    expected = to_numpy(teacher(x))
    np.testing.assert_allclose(
        compute_outputs(model, x, True)["teacher_logits"], expected, atol=1e-4
    )
    learning = {id(variable) for variable in model.trainable_variables}
    assert learning == {id(variable) for variable in student.trainable_variables}
    # The teacher can still be trained elsewhere.
    assert all(weight.trainable for weight in teacher.weights)
    before = [weight.numpy().copy() for weight in teacher.weights]
    start = [weight.numpy().copy() for weight in student.trainable_weights]
    model.compile(keras.optimizers.SGD(0.1))
    model.fit(x, IDS, sample_weight=WEIGHTS, verbose=0)
    for weight, value in zip(teacher.weights, before, strict=True):
        np.testing.assert_array_equal(weight.numpy(), value)
    for weight, value in zip(student.trainable_weights, start, strict=True):
        assert (weight.numpy() != value).any(), weight.path


@pytest.fixture(scope="module")
def distiller_and_outputs():
    """A compiled distiller with three classes, and its outputs."""
    model = Distiller(*make_classifier_pair(), temperature=3.0, label_weight=0.25)
    model.compile()
    assert model.optimizer.learning_rate == np.float32(1.5e-4)  # The default for the student's size
    return model, compute_outputs(model, features())


@pytest.mark.on_torch
@pytest.mark.parametrize(
    "labels", [None, np.array([2, 0, 1]), np.array([2, -1, 0]), np.array([-1, -1, -1])]
)
def test_classifier_loss_matches_numpy(distiller_and_outputs, labels):
    model, outputs = distiller_and_outputs
    x, weights = features(), np.array([1.0, 2.0, 0.5], "float32")
    divergences = divergence(outputs["teacher_logits"], outputs["student_logits"], 3.0)
    expected = 0.5 * np.average(divergences, weights=weights)
    if labels is not None and (labels >= 0).any():
        known = weights * (labels >= 0)
        wrong = entropy(outputs["student_logits"], np.maximum(labels, 0))
        expected += 0.25 * np.average(wrong, weights=known)
    if labels is None:  # With arrays, Keras does not accept weights without labels.
        expected = 0.5 * divergences.mean()
        received = model.evaluate(x, return_dict=True, verbose=0)
    else:
        received = model.evaluate(x, labels, sample_weight=weights, return_dict=True, verbose=0)
    np.testing.assert_allclose(received["loss"], expected, rtol=1e-5)


@pytest.mark.on_torch
def test_regression_loss_matches_numpy():
    model = Distiller(*make_classifier_pair(num_classes=1))
    x, labels = features(), np.array([0.5, np.nan, 2.0], "float32")
    outputs = {name: value[:, 0] for name, value in compute_outputs(model, x).items()}
    expected = 0.5 * np.square(outputs["student_logits"] - outputs["teacher_logits"]).mean()
    expected += 0.5 * np.square(outputs["student_logits"] - labels)[[0, 2]].mean()
    model.compile()
    received = model.evaluate(x, labels, return_dict=True, verbose=0)
    np.testing.assert_allclose(received["loss"], expected, rtol=1e-5)
    assert set(received) == {"loss", "divergence", "label_loss"}


@pytest.mark.on_torch
def test_student_starts_with_teacher_layers():
    teacher = randomize(MaskedLM(Backbone(DEEP)))
    teacher.trainable = False
    student = Distiller.student_from_teacher(
        teacher, layers=(0, 3), num_segments=0, pooler=False, dropout=0.1
    )
    assert isinstance(student, MaskedLM)
    assert student.config.num_layers == 2
    for index, block in zip((0, 3), student.backbone.blocks, strict=True):
        for weight, value in zip(
            block.get_weights(), teacher.backbone.blocks[index].get_weights(), strict=True
        ):
            np.testing.assert_array_equal(weight, value)
    for layer, other in zip(student.heads["masked_lm"], teacher.heads["masked_lm"], strict=True):
        for weight, value in zip(layer.get_weights(), other.get_weights(), strict=True):
            np.testing.assert_array_equal(weight, value)
    table = student.backbone.token_embedding_table
    np.testing.assert_array_equal(table.numpy(), teacher.backbone.token_embedding_table.numpy())
    assert len(student.trainable_variables) == len(student.weights)


@pytest.mark.on_torch
def test_mismatched_student_and_teacher_raise():
    student, teacher = make_masked_pair()
    with pytest.raises(TypeError, match="Received: MaskedLM and TextClassifier"):
        Distiller(student, make_classifier_pair()[1])
    with pytest.raises(ValueError, match="must have different encoders"):
        Distiller(student, student)
    with pytest.raises(ValueError, match=r"same vocabulary_size. Received: 60 and 50"):
        Distiller(MaskedLM(Backbone(STUDENT.replace(vocabulary_size=60))), teacher)
    narrow = MaskedLM(Backbone(STUDENT.replace(hidden_dim=8)))
    with pytest.raises(ValueError, match=r"the same hidden_dim. Received: 8 and 16"):
        Distiller(narrow, teacher, project_hidden=False)
    Distiller(narrow, teacher, project_hidden=False, cosine_weight=0)
    with pytest.raises(ValueError, match="cosine_weight must be 0 for classifiers"):
        Distiller(*make_classifier_pair(), cosine_weight=1.0)
    with pytest.raises(ValueError, match=r"same num_classes. Received: 3 and 2"):
        Distiller(make_classifier_pair()[0], make_classifier_pair(2)[1])
    with pytest.raises(
        ValueError, match=r"divergence_tokens must be one of masked, all\. Received: 'some'"
    ):
        Distiller(student, teacher, divergence_tokens="some")
    with pytest.raises(
        ValueError, match=r"temperature must be a finite number above 0\. Received: 0"
    ):
        Distiller(student, teacher, temperature=0)
    with pytest.raises(ValueError, match="Exactly one of num_layers and layers"):
        Distiller.student_from_teacher(teacher)
    with pytest.raises(ValueError, match=r"below the teacher.s num_layers, 4. Received: \(0, 4\)"):
        Distiller.student_from_teacher(randomize(MaskedLM(Backbone(DEEP))), layers=(0, 4))
    with pytest.raises(ValueError, match="must have the same shape in teacher and student"):
        Distiller.student_from_teacher(teacher, num_layers=2, hidden_dim=8)
