# SPDX-License-Identifier: Apache-2.0
"""An exported ensemble returns the ensemble's predictions, with and without batching."""

import dataclasses

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")
pytest.importorskip("tensorflow_text")

import keras_bert  # noqa: E402
from keras_bert.export import ServedModel  # noqa: E402
from tests.export.batching_session import assert_same_outputs, run_alone, run_together  # noqa: E402
from tests.export.served_tasks import OPTIONS, strings  # noqa: E402
from tests.small_tasks import make_text_task  # noqa: E402
from tests.tasks.contract_test import check_close  # noqa: E402

pytestmark = [pytest.mark.needs_tensorflow, pytest.mark.backend_independent]

ROWS = [
    {"text": "a b", "question": "a", "context": "a b a", "choices": ["a", "b"]},
    {"text": "b", "question": "b a", "context": "b", "choices": ["b a", "a"]},
    {"text": "a b b " * 9, "question": "a", "context": "a b b " * 9, "choices": ["b", "a b"]},
]
# The output with the scores of the predictions
SCORES = {"TextClassifier": "score", "TokenClassifier": "scores", "MultipleChoice": "ranked_scores"}


def make_ensemble(name):
    arguments = [2] if name.endswith("Classifier") else []
    options = {"doc_stride": 8, "max_query_length": 4} if name == "QuestionAnswerer" else {}
    members = [make_text_task(name, *arguments, sequence_length=16, **options) for _ in range(2)]
    for seed, member in enumerate(members):
        kernel = member.head.dense.kernel
        kernel.assign(np.random.default_rng(seed).normal(0, 1, kernel.shape))
    return keras_bert.Ensemble(members)


def test_export_matches_ensemble(tmp_path):
    ensemble = make_ensemble("QuestionAnswerer")
    ensemble.export(tmp_path / "1", max_batch_size=4)
    served = ServedModel(tmp_path / "1")
    assert (served.predict_method, served.fields) == (ensemble.predict_method, ensemble.fields)
    check_close(served.predict_rows(ROWS), ensemble.predict_rows(ROWS))
    loaded = tf.saved_model.load(str(tmp_path / "1"))
    check_batches(loaded.signatures["serving_default"], ensemble)
    # The export has each member's weights, and one set of warm-up requests.
    assert len([x for x in loaded.weights if x.dtype.is_floating]) == len(ensemble.weights)
    assert (tmp_path / "1/assets.extra/tf_serving_warmup_requests").stat().st_size > 0


@pytest.mark.parametrize("name", ["TextClassifier", "TokenClassifier", "MultipleChoice"])
def test_signature_matches_ensemble(name):
    ensemble = make_ensemble(name)
    options = dataclasses.replace(OPTIONS, class_names=("0", "1"))
    function = ensemble.serving_signatures(options)["serving_default"]
    outputs = check_batches(function.get_concrete_function(), ensemble)
    for row, prediction in enumerate(ensemble.predict_rows(ROWS)):
        scores = np.atleast_1d(outputs[SCORES[name]][row])
        expected = [
            label_prediction["score"]
            for label_prediction in (prediction if isinstance(prediction, list) else [prediction])
        ]
        np.testing.assert_allclose(scores[: len(expected)], expected, atol=1e-5)


def check_batches(signature, ensemble):
    """Checks batched requests against single requests, and returns the outputs of all rows."""
    columns = {field: [row[field] for row in ROWS] for field in ensemble.fields}
    requests = [
        {field: strings(values[part]) for field, values in columns.items()}
        for part in (slice(0, 2), slice(2, 3))
    ]
    for outputs, request in zip(run_together(signature, requests, (4,)), requests, strict=True):
        assert_same_outputs(outputs, run_alone(signature, request))
    return run_alone(signature, {field: strings(values) for field, values in columns.items()})
