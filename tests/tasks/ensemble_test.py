# SPDX-License-Identifier: Apache-2.0
"""An ensemble's outputs are the mean of its members' outputs."""

import re

import keras
import numpy as np
import pytest

pytest.importorskip("tokenizers")
pytest.importorskip("sentencepiece")

import keras_bert
from keras_bert.data.labels import sigmoid, softmax
from tests.small_tasks import LETTERS, make_text_task
from tests.small_tasks import make_task as small_task
from tests.task_cases import make_task, task_case
from tests.tasks.contract_test import check_close

# Each task runs on one backend, as in tests/tasks/contract_test.py.
NAMES_ON_BACKEND = {
    "tensorflow": ["classes"],
    "jax": ["questions"],
    "torch": ["regression", "tagging", "choices", "pairs", "labels"],
}[keras.backend.backend()]


def make_members(name):
    """Returns untrained models of one task with the same tokenizer and different encoders."""
    keras.utils.set_random_seed(0)
    case = task_case(name)
    members = [make_task(case, family) for family in ("bert", "electra")]
    for seed, member in enumerate(members):
        # New heads are small, so all predictions would be almost the same.
        kernel = member.head.dense.kernel
        kernel.assign(np.random.default_rng(seed).normal(0, 1, kernel.shape))
    return case, members


@pytest.mark.parametrize("name", NAMES_ON_BACKEND)
def test_outputs_are_means_before_and_after_saving(name, tmp_path):
    case, members = make_members(name)
    ensemble = keras_bert.Ensemble(members)
    assert (ensemble.predict_method, ensemble.fields) == (
        members[0].predict_method,
        members[0].fields,
    )
    probabilities = sigmoid if name == "labels" else softmax
    averaged, *single = (
        keras.tree.map_structure(
            lambda part: part if name in ("regression", "questions") else probabilities(part),
            task.predict(case.x, verbose=0),
        )
        for task in (ensemble, *members)
    )
    keras.tree.map_structure(
        lambda mean, *parts: np.testing.assert_allclose(
            mean, np.mean(parts, axis=0), rtol=1e-5, atol=1e-5
        ),
        averaged,
        *single,
    )
    ensemble.trainable = False
    ensemble.save(tmp_path / "ensemble.keras")
    loaded = keras_bert.load_model(tmp_path / "ensemble.keras")
    assert not loaded.trainable
    assert loaded.get_config() == ensemble.get_config()
    check_close(case.answers(loaded), case.answers(ensemble))


@pytest.mark.on_torch
def test_evaluate_scores_mean_outputs():
    members = [make_text_task("TextClassifier", 2) for _ in range(2)]
    texts, labels = ["a", "b b", "a b"], np.array([0, 1, 1])
    mean = np.mean([softmax(task.predict(texts, verbose=0)) for task in members], axis=0)
    scores = keras_bert.Ensemble(members).evaluate(texts, labels, verbose=0, return_dict=True)
    assert scores == pytest.approx(
        {
            "loss": -np.mean(np.log(mean[np.arange(3), labels])),
            "accuracy": np.mean(mean.argmax(axis=1) == labels),
        },
        rel=1e-5,
    )


@pytest.mark.on_torch
def test_members_are_matched_by_class_name():
    first, second = (make_text_task("TextClassifier", 2) for _ in range(2))
    first.class_names, second.class_names = ("no", "yes"), ("yes", "no")
    one, other = (softmax(task.predict(["a b"], verbose=0))[0] for task in (first, second))
    answer = keras_bert.Ensemble([first, second]).classify("a b", top_k=2)
    scores = {best["label"]: best["score"] for best in answer}
    expected = {"no": (one[0] + other[1]) / 2, "yes": (one[1] + other[0]) / 2}
    assert scores == pytest.approx(expected, rel=1e-5)


@pytest.mark.on_torch
def test_different_members_raise():
    classifier = make_text_task("TextClassifier", 2)
    named = make_text_task("TextClassifier", 2)
    named.class_names = ("no", "yes")
    members_by_message = {
        "num_classes. Received: 2 in members[0], and 3 in members[1]": make_text_task(
            "TextClassifier", 3
        ),
        "class_names. Received: None in members[0], and ('no', 'yes') in members[1]": named,
        "sequence_length. Received: 32 in members[0], and 16 in members[1]": make_text_task(
            "TextClassifier", 2, sequence_length=16
        ),
        "tokenizer (vocabulary). Received: one of 7 entries in members[0], and one of 6": (
            make_text_task("TextClassifier", 2, tokenizer={"vocabulary": LETTERS[:-1]})
        ),
        "preprocessor. Received: one in members[0], and none in members[1]": small_task(
            keras_bert.TextClassifier
        ),
    }
    for message, other in members_by_message.items():
        with pytest.raises(ValueError, match=re.escape(message)):
            keras_bert.Ensemble([classifier, other])
    with pytest.raises(ValueError, match="members must have at least one model"):
        keras_bert.Ensemble([])
    ensemble = keras_bert.Ensemble([classifier])
    for message, other in {
        "the same class. Received: members[0], a TextClassifier, and members[1]": make_text_task(
            "TokenClassifier", 2
        ),
        "members[1] must not be an ensemble. Received: a TextClassifierEnsemble": ensemble,
        "members[1] must be a model of a task": "model.keras",
    }.items():
        with pytest.raises(TypeError, match=re.escape(message)):
            keras_bert.Ensemble([classifier, other])


@pytest.mark.on_torch
@pytest.mark.parametrize(
    "name", ["TextEmbedder", "MaskedLM", "Pretrainer", "ReplacedTokenDetector", "Distiller"]
)
def test_unsupported_task_raises(name):
    task = small_task(getattr(keras_bert, name))
    with pytest.raises(
        TypeError,
        match=rf"TextClassifier, TokenClassifier\. Received: a {name}, whose outputs cannot be",
    ):
        keras_bert.Ensemble([task, task])


@pytest.mark.on_torch
def test_null_threshold_is_mean_of_members(tmp_path):
    members = [make_text_task("QuestionAnswerer") for _ in range(2)]
    members[0].null_threshold = 1.0
    with pytest.raises(
        ValueError,
        match=re.escape(
            "null_threshold must be None in all members of an ensemble, or in none. Received: [1.0"
        ),
    ):
        keras_bert.Ensemble(members)
    members[1].null_threshold = -4.0
    ensemble = keras_bert.Ensemble(members)
    assert ensemble.null_threshold == -1.5
    ensemble.null_threshold = 2.0  # It can be set, as for a single model.
    ensemble.save(tmp_path / "ensemble.keras")
    assert keras_bert.load_model(tmp_path / "ensemble.keras").null_threshold == 2.0


@pytest.mark.on_torch
def test_unsupported_ensemble_methods_raise(tmp_path):
    ensemble = keras_bert.Ensemble([make_text_task("TextClassifier", 2)] * 2)
    with pytest.raises(ValueError, match=r"Ensembles cannot be trained. Train the members"):
        ensemble.fit(["a"], [0])
    with pytest.raises(ValueError, match=r"Ensembles cannot be calibrated. Calibrate the members"):
        ensemble.calibrate(["a"], [0])
    with pytest.raises(
        ValueError,
        match=r"one encoder per member instead of its own\. Received: an ensemble of 2 members",
    ):
        _ = ensemble.backbone
    for save in (ensemble.save_to_preset, ensemble.save_hugging_face):
        with pytest.raises(
            ValueError, match=r"must have one encoder. Received: an ensemble of 2 members"
        ):
            save(tmp_path)
    with pytest.raises(ValueError, match=r"no presets of ensembles. Load the members"):
        keras_bert.Ensemble.from_preset(tmp_path)
    assert ensemble.trainable_variables == []
    assert ensemble.members[0].trainable_variables
