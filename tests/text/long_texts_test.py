# SPDX-License-Identifier: Apache-2.0
"""Texts of megabytes must not take quadratic time."""

import random
import time
import unicodedata

import pytest

tf = pytest.importorskip("tensorflow")

from keras_bert.text.composition import normalize_form  # noqa: E402
from keras_bert.text.graph.normalization import normalize_unicode  # noqa: E402
from keras_bert.text.graph.special_tokens import SplitTexts  # noqa: E402
from keras_bert.text.special_tokens import TokenSplitter  # noqa: E402
from tests.text.executors import EXECUTORS  # noqa: E402

pytestmark = [pytest.mark.needs_tensorflow, pytest.mark.backend_independent]

# Marks of multiple combining classes, marks that decompose to marks, and two other characters
MARKS = "\u0301\u0323\u0345\u302e\U00016ff0\u0344\u0f73\u0f81\u3099\u034f\u0941"
SIZE, MAX_SECONDS = 1_000_000, 10


@pytest.fixture(params=EXECUTORS)
def normalize(request):
    """A function that normalizes a text to a given form."""
    if request.param == "python":
        return normalize_form
    return lambda form, text: normalize_unicode(tf.constant([text]), form)[0].numpy().decode()


def test_long_runs_of_marks_match_unicodedata(normalize):
    generator = random.Random(0)
    for form in ("NFC", "NFD", "NFKD"):
        runs = ("".join(generator.choices(MARKS, k=count)) for count in (0, 3, 40, 100))
        text = "".join(f"{letter}{run}" for letter, run in zip("eộ가ﾞ", runs, strict=True))
        # Marks that no other character separates form a long run.
        text += "a" + "\u0323\u0301" * 20 + "\U0010ffff"
        assert normalize(form, text) == unicodedata.normalize(form, text)


@pytest.mark.parametrize("marks", ["\u0301\u0323", "\u0f73"])
def test_normalization_takes_linear_time(normalize, marks):
    start = time.process_time()
    normalize("NFC", "a" + marks * (SIZE // len(marks.encode())))
    assert time.process_time() - start < MAX_SECONDS


@pytest.mark.parametrize("executor", EXECUTORS)
def test_special_token_search_takes_linear_time(executor):
    spaces = " " * 20
    splitter = TokenSplitter({"<mask>": 1, spaces: 2, "<s>": 3}, {"<mask>"})

    def split(text):
        if executor == "python":
            return [text[start:end] for start, end, _ in splitter(text)]
        parts = SplitTexts(splitter)._split(tf.constant([text]))[0]
        return [part.decode() for part in parts.numpy()]

    parts = [
        part for part in split(f"a{spaces} <mask><s>{spaces}b") if part.strip() or len(part) > 1
    ]
    assert [part.strip() or part for part in parts] == ["a", "<mask>", "<s>", spaces, "b"]
    start = time.process_time()
    assert split(" " * SIZE + "b").count(spaces) == SIZE // len(spaces)
    assert time.process_time() - start < MAX_SECONDS
