# SPDX-License-Identifier: Apache-2.0
"""Public datasets in the directory in `KERAS_BERT_DATA`, if it is set."""

import itertools
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from keras_bert.vocabularies.vocab_txt import load_vocabulary

# Whether to test all lines and characters instead of a sample
WHOLE = os.environ.get("KERAS_BERT_RELEASE") == "1"
# Comparisons use every third random text or character, except before a release.
STEP = 1 if WHOLE else 3
TEXT_SUFFIXES = (".tsv", ".csv", ".conll", ".annotated", ".tokens", ".txt", ".1400", ".qry")


def has_data() -> bool:
    """Returns whether the datasets exist."""
    return "KERAS_BERT_DATA" in os.environ and data_directory().is_dir()


def data_directory() -> Path:
    """Returns the directory with the datasets."""
    return Path(os.environ["KERAS_BERT_DATA"])


requires_data = pytest.mark.skipif(
    not has_data(), reason="KERAS_BERT_DATA is not a directory of datasets"
)


def vocabulary(name: str) -> tuple[str, ...]:
    """Returns a released vocabulary: `uncased`, `cased` or `chinese`."""
    return load_vocabulary(data_directory() / "vocab" / f"bert-base-{name}.txt")


def lines() -> Iterator[str]:
    """Yields each distinct line of the text files and each distinct string in the JSON files."""
    seen = set()
    for path in sorted(data_directory().rglob("*")):
        for line in _read_lines(path):
            if line not in seen:
                seen.add(line)
                yield line


def batches(size: int, every: int) -> Iterator[list[str]]:
    """Yields every n-th batch of lines, or all batches if `KERAS_BERT_RELEASE` is 1."""
    iterator = lines()
    for number in itertools.count():
        batch = list(itertools.islice(iterator, size))
        if not batch:
            return
        if WHOLE or number % every == 0:
            yield batch


def _read_lines(path: Path) -> Iterator[str]:
    if path.suffix in TEXT_SUFFIXES:
        yield from path.read_bytes().decode("utf-8", "ignore").split("\n")
    elif path.suffix == ".json":
        yield from _strings(json.loads(path.read_bytes()))


def _strings(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _strings(item)
    elif isinstance(value, list):
        for item in value:
            yield from _strings(item)
