# SPDX-License-Identifier: Apache-2.0
"""An export that the tests share."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest

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
