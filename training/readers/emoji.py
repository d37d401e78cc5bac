# SPDX-License-Identifier: Apache-2.0
"""A labeled data set that requires no download: the names of Unicode emoji and what they show.

The names come from Python's `unicodedata`, such as "tropical fish", in lower case. The labels are
the headings of the characters in the Unicode code charts
(https://unicode.org/Public/UCD/latest/ucd/NamesList.txt). Names never change, and all characters
here are in Unicode 14 or earlier, so the data are the same in every version of Python.
"""

import csv
import random
import unicodedata
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from keras_bert import atomic

from .labeled_text import LabeledText

# Maps a label to the first and last character of sections in the code charts
HEADINGS = {
    "animal": (
        ("1F400", "1F43F"),  # Animal symbols, Animal faces
        ("1F577", "1F578"),  # Animal symbols
        ("1F980", "1F9AD"),  # Animal symbols
    ),
    "food": (
        ("1F32D", "1F32F"),  # Food symbols
        ("1F345", "1F374"),  # Fruit and vegetable symbols, Food symbols
        ("1F375", "1F37C"),  # Beverage symbols
        ("1F37E", "1F37F"),  # Beverage and food symbols
        ("1F950", "1F96F"),  # Food symbols
        ("1F9C0", "1F9CB"),  # Food symbols
        ("1FAD0", "1FAD9"),  # Food and drink
    ),
    "office": (
        ("1F4BA", "1F4DC"),  # Office symbols
        ("1F5B9", "1F5BE"),  # Office symbols
    ),
    "vehicle": (
        ("1F680", "1F6A4"),  # Vehicles
        ("1F6E5", "1F6FC"),  # Vehicles
    ),
    "weather": (
        ("1F300", "1F320"),  # Weather, landscape, and sky; Globe; Moon, sun, and star symbols
        ("1F321", "1F32C"),  # Weather symbols
    ),
}
# With few training examples, pretraining matters most. Many test examples give a precise score.
TRAINING_SHARE = 0.6


def emoji() -> Iterator[tuple[str, str]]:
    """Yields the name and the label of each emoji, in the order of the labels."""
    for label, parts in HEADINGS.items():
        for first, last in parts:
            for code in range(int(first, 16), int(last, 16) + 1):
                name = unicodedata.name(chr(code), "")
                if name:
                    yield name.lower(), label


def write_emoji(path: Path) -> None:
    """Writes all names and labels as a CSV file, with the columns `name` and `kind`."""
    with (
        atomic.atomic_path(path) as temporary,
        open(temporary, "w", encoding="utf-8", newline="") as file,
    ):
        csv.writer(file).writerows([("name", "kind"), *emoji()])


def split_emoji(seed: int) -> tuple[LabeledText, LabeledText]:
    """Splits the emoji into a training set and a test set.

    No name is in both sets, because each character has its own name.

    Returns:
        A fraction `TRAINING_SHARE` of each label, and the rest.
    """
    rng = random.Random(seed)
    train: list[tuple[str, str]] = []
    test: list[tuple[str, str]] = []
    for label in HEADINGS:
        own = [row for row in emoji() if row[1] == label]
        rng.shuffle(own)
        count = round(TRAINING_SHARE * len(own))
        train += own[:count]
        test += own[count:]
    rng.shuffle(train)
    rng.shuffle(test)
    return _labeled(train), _labeled(test)


def _labeled(rows: list[tuple[str, str]]) -> LabeledText:
    labels = tuple(HEADINGS)
    return LabeledText(
        texts=[name for name, _ in rows],
        text_pairs=None,
        labels=np.array([labels.index(label) for _, label in rows], "int32"),
        class_names=labels,
        path="names of emoji",
    )
