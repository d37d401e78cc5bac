# SPDX-License-Identifier: Apache-2.0
"""An ensemble is one export, which answers as the ensemble does, alone and in batches."""

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")
pytest.importorskip("tensorflow_text")

import keras_bert  # noqa: E402
from keras_bert.export import ServedModel  # noqa: E402
from tests.export.batching_session import check_same, run_alone, run_together  # noqa: E402
from tests.export.served_tasks import strings  # noqa: E402
from tests.small_tasks import make_text_task  # noqa: E402
from tests.tasks.contract_test import check_alike  # noqa: E402

pytestmark = [pytest.mark.needs_tensorflow, pytest.mark.backend_independent]

OF_QUESTIONS = {"doc_stride": 8, "max_query_length": 4}
TASKS = {
    "TextClassifier": ([2], {}),
    "TokenClassifier": ([2], {}),
    "QuestionAnswerer": ([], OF_QUESTIONS),
    "MultipleChoice": ([], {}),
}


def ensemble_of(name):
    arguments, options = TASKS[name]
    members = [make_text_task(name, *arguments, sequence_length=16, **options) for _ in range(2)]
    for seed, member in enumerate(members):
        kernel = member.head.dense.kernel
        kernel.assign(np.random.default_rng(seed).normal(0, 1, kernel.shape))
    return keras_bert.Ensemble(members)


@pytest.mark.parametrize("name", TASKS)
def test_an_export_answers_as_the_ensemble(name, tmp_path):
    ensemble = ensemble_of(name)
    ensemble.export(tmp_path / "1", max_batch_size=4)
    served = ServedModel(tmp_path / "1")
    assert (served.verb, served.fields) == (ensemble.verb, ensemble.fields)
    columns = {
        "text": ["a b", "b", "a b b " * 9],
        "question": ["a", "b a", "a"],
        "context": ["a b a", "b", "a b b " * 9],
        "choices": [["a", "b"], ["b a", "a"], ["b", "a b"]],
    }
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    answers = ensemble.apply_verb(rows)
    received = [
        {key: row[key] for key in answer} if isinstance(answer, dict) else row
        for row, answer in zip(served.apply_verb(rows), answers, strict=True)
    ]
    check_alike(received, answers)
    # Requests of one row and of two rows, in one batch
    loaded = tf.saved_model.load(str(tmp_path / "1"))
    signature = loaded.signatures["serving_default"]
    requests = [
        {field: strings(columns[field][part]) for field in ensemble.fields}
        for part in (slice(0, 2), slice(2, 3))
    ]
    together = run_together(signature, requests, (4,))
    for answer, request in zip(together, requests, strict=True):
        check_same(answer, run_alone(signature, request))
    # Of each member its weights, and one set of requests with which a server warms up
    weights = [variable for variable in loaded.weights if variable.dtype.is_floating]
    assert len(weights) == len(ensemble.weights)
    assert (tmp_path / "1/assets.extra/tf_serving_warmup_requests").stat().st_size > 0
