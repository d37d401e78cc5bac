# SPDX-License-Identifier: Apache-2.0
"""Files written by a released wheel can be read, and give the same predictions.

`tests/released/VERSION` contains the files that `tests/installed/tiny.py` writes with that wheel.
"""

import json
from pathlib import Path

import pytest

import keras_bert

DIRECTORIES = sorted((Path(__file__).parent / "released").iterdir())


@pytest.mark.parametrize("directory", DIRECTORIES, ids=lambda directory: directory.name)
@pytest.mark.parametrize("name", ["tiny.keras", "preset"])
def test_predictions_match_released_version(name, directory):
    if name == "preset":
        classifier = keras_bert.TextClassifier.from_preset(directory / name)
    else:
        classifier = keras_bert.load_model(directory / name)
    expected = json.loads((directory / "answers.json").read_text())
    answers = classifier.classify(list(expected))
    assert [answer["label"] for answer in answers] == [
        answer["label"] for answer in expected.values()
    ]
    assert [answer["score"] for answer in answers] == pytest.approx(
        [answer["score"] for answer in expected.values()], abs=1e-5
    )
