# SPDX-License-Identifier: Apache-2.0
"""Exports shared by the tests."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from tests.export import served_tasks
from tests.export.small_classifier import make_classifier


@dataclasses.dataclass(frozen=True)
class ExportedClassifier:
    """A classifier and the directory of its export."""

    classifier: Any
    directory: Path


@pytest.fixture(scope="session")
def exported_classifier(tmp_path_factory: pytest.TempPathFactory) -> ExportedClassifier:
    """A float32 export for single texts with three classes."""
    directory = tmp_path_factory.mktemp("exported") / "model" / "1"
    classifier = make_classifier(class_names=["bad", "fair", "größer"])
    classifier.export(directory)
    return ExportedClassifier(classifier, directory)


@pytest.fixture(
    scope="session", params=[kind for kind in served_tasks.KINDS if kind not in ("sparse", "late")]
)
def served_task(request: pytest.FixtureRequest) -> Any:
    """Each kind of task with its signatures, on the TensorFlow backend.

    A sparse embedder has the signatures of the embedder, with other outputs. Late interaction has
    simpler signatures.
    """
    return served_tasks.make_served_task(request.param)


@pytest.fixture(scope="session")
def served_tagger() -> Any:
    """The token classifier."""
    return served_tasks.make_served_task("tagger")


@pytest.fixture(scope="session")
def served_chooser() -> Any:
    """The multiple-choice task."""
    return served_tasks.make_served_task("chooser")
