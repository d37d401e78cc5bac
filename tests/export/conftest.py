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
    """Three classes, single texts, float32; the vocabulary's file is gone."""
    home = tmp_path_factory.mktemp("exported")
    vocabulary_file = home / "vocab.txt"
    classifier = make_classifier(vocabulary_file, class_names=["bad", "fair", "größer"])
    classifier.export(home / "model" / "1")
    vocabulary_file.unlink()
    return Exported(classifier, home / "model" / "1")


@pytest.fixture(scope="session", params=served_tasks.KINDS)
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Each kind of task with the signatures of its export, on the TensorFlow backend."""
    return served_tasks.make(request.param, tmp_path_factory.mktemp(request.param))


@pytest.fixture(scope="session")
def served_tagger(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The tagger by itself."""
    return served_tasks.make("tagger", tmp_path_factory.mktemp("tagger"))


@pytest.fixture(scope="session")
def served_chooser(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The multiple-choice task by itself."""
    return served_tasks.make("chooser", tmp_path_factory.mktemp("chooser"))
