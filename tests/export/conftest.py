# SPDX-License-Identifier: Apache-2.0
"""An export shared by the tests."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from tests.export import served_tasks
from tests.export.small_classifier import make_classifier


@dataclasses.dataclass(frozen=True)
class Exported:
    """A classifier, and the folder it was exported to."""

    classifier: Any
    folder: Path


@pytest.fixture(scope="session")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Exported:
    """Three classes, single texts, float32."""
    folder = tmp_path_factory.mktemp("exported") / "model" / "1"
    classifier = make_classifier(class_names=["bad", "fair", "größer"])
    classifier.export(folder)
    return Exported(classifier, folder)


@pytest.fixture(scope="session", params=served_tasks.KINDS)
def served(request: pytest.FixtureRequest) -> Any:
    """Each kind of task with the signatures of its export, on the TensorFlow backend."""
    return served_tasks.make(request.param)


@pytest.fixture(scope="session")
def served_tagger() -> Any:
    """The tagger by itself."""
    return served_tasks.make("tagger")


@pytest.fixture(scope="session")
def served_chooser() -> Any:
    """The multiple-choice task by itself."""
    return served_tasks.make("chooser")
