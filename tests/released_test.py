# SPDX-License-Identifier: Apache-2.0
"""Files that a released wheel has written are read, and answer as then.

`tests/released/VERSION` has what `tests/installed/tiny.py` leaves with that wheel.
"""

import json
from pathlib import Path

import pytest

import keras_bert

FOLDERS = sorted((Path(__file__).parent / "released").iterdir())


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
@pytest.mark.parametrize("name", ["tiny.keras", "preset"])
def test_a_classifier_answers_as_when_it_was_written(name, folder):
    if name == "preset":
        classifier = keras_bert.TextClassifier.from_preset(folder / name)
    else:
        classifier = keras_bert.load_model(folder / name)
    expected = json.loads((folder / "answers.json").read_text())
    answers = classifier.classify(list(expected))
    assert [answer["label"] for answer in answers] == [
        answer["label"] for answer in expected.values()
    ]
    assert [answer["score"] for answer in answers] == pytest.approx(
        [answer["score"] for answer in expected.values()], abs=1e-5
    )
