# SPDX-License-Identifier: Apache-2.0
"""Public data sets, if `KERAS_BERT_DATA` names a folder with them."""

import itertools
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from keras_bert.vocabularies.vocab_txt import load_vocabulary

# All lines and characters, and not a part of them
WHOLE = os.environ.get("KERAS_BERT_RELEASE") == "1"
TEXT_SUFFIXES = (".tsv", ".csv", ".conll", ".annotated", ".tokens", ".txt", ".1400", ".qry")


def is_there() -> bool:
    """Whether there are data sets."""
    return "KERAS_BERT_DATA" in os.environ and folder().is_dir()


def folder() -> Path:
    """The folder of data sets."""
    return Path(os.environ["KERAS_BERT_DATA"])


needed = pytest.mark.skipif(not is_there(), reason="KERAS_BERT_DATA names no folder of data sets")


def vocabulary(name: str) -> tuple[str, ...]:
    """A released vocabulary: `uncased`, `cased` or `chinese`."""
    return load_vocabulary(folder() / "vocab" / f"bert-base-{name}.txt")


def lines() -> Iterator[str]:
    """Every line of every text file, and the strings in every JSON file, each once."""
    seen = set()
    for path in sorted(folder().rglob("*")):
        for line in _lines_of(path):
            if line not in seen:
                seen.add(line)
                yield line


def batches(size: int, every: int) -> Iterator[list[str]]:
    """The lines in lists of `size`: one list of `every`, or all with `KERAS_BERT_RELEASE=1`."""
    iterator = lines()
    for number in itertools.count():
        batch = list(itertools.islice(iterator, size))
        if not batch:
            return
        if WHOLE or number % every == 0:
            yield batch


def _lines_of(path: Path) -> Iterator[str]:
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
