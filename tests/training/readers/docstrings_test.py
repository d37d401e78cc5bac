# SPDX-License-Identifier: Apache-2.0
"""Docstrings as labeled text: of generated packages, and once of installed ones."""

import sys

import pytest

from training.readers.docstrings import SHARES, collect_docstrings, raw_sentences

pytestmark = pytest.mark.backend_independent

PACKAGES = ("applelib", "pearlib")
SPLITS = tuple(SHARES)


def module(package, number):
    """A source file with functions in a class and under an `if`; its number tells it apart."""
    said = "TWICE" if number % 2 else "twice"
    name = package.upper()
    return (
        f'"""Module number {number} of {package[0]} with much to say."""\n'
        "class Thing:\n"
        "    def work(self):\n"
        f'        """Does all of the {package[0]} work, i.e. part {number}.\n\n'
        "        And no more.\n\n"
        '        Args:\n            never: read.\n        """\n'
        "if True:\n"
        f'    def helper():\n        """Helps with {package[0]} thing {number} at   length."""\n'
        '    def short():\n        """Too short."""\n'
        f'    def telling():\n        """A docstring that gives {name} away {number}."""\n'
        '    async def shared():\n        """Found in both packages, word for word!"""\n'
        f'    def again():\n        """It is said {said} by {package[0]}."""\n'
    )


@pytest.fixture
def packages(tmp_path, monkeypatch):
    for package in PACKAGES:
        folder = tmp_path / package
        (folder / "inner" / "tests").mkdir(parents=True)
        (folder / "__init__.py").write_text("raise RuntimeError('imported')\n")
        (folder / "inner" / "broken.py").write_text("def broken(:\n")
        test = '"""A test of something that is left out."""\n'
        (folder / "inner" / "tests" / "a.py").write_text(test)
        (folder / "inner" / "a_test.py").write_text(test)
        for number in range(30):
            (folder / "inner" / f"m{number}.py").write_text(module(package, number))
    monkeypatch.syspath_prepend(tmp_path)
    return PACKAGES


def everything(data):
    return [
        (text, split_data.class_names[label], split)
        for split in SPLITS
        for split_data in [getattr(data, split)]
        for text, label in zip(split_data.texts, split_data.labels, strict=True)
    ]


def test_texts_are_clean_unique_and_tell_nothing_away(packages):
    examples = everything(collect_docstrings(packages, max_per_package=1000))
    texts = [text for text, _, _ in examples]
    assert len({text.casefold() for text in texts}) == len(texts)
    assert "Found in both packages, word for word!" not in texts
    assert sum(text.casefold().startswith("it is said twice") for text in texts) == 2
    assert not any("LIB" in text.upper() or "left out" in text for text in texts)
    assert any(
        text.startswith("Helps with a thing") and text.endswith("at length.") for text in texts
    )
    assert any(
        text.startswith("Does all of the p work, i.e. part ") and "more" not in text
        for text in texts
    )
    # Three texts from each of 30 files, and the duplicate.
    assert len(texts) == 2 * (3 * 30 + 1)
    assert all(text.split()[-1] != "read." and label in PACKAGES for text, label, _ in examples)


def test_a_file_gives_to_one_split_only(packages):
    split_of = {}
    for text, label, split in everything(collect_docstrings(packages, max_per_package=1000)):
        for number in [word.rstrip(".") for word in text.split() if word.rstrip(".").isdigit()]:
            assert split_of.setdefault((label, number), split) == split
    assert set(split_of.values()) == set(SPLITS)


def test_classes_are_balanced_and_capped(packages):
    data = collect_docstrings(packages, max_per_package=50)
    assert data.train.class_names == PACKAGES
    assert (data.train.labels == 0).sum() == (data.train.labels == 1).sum() == 25
    assert (len(data.dev), len(data.test)) == (10, 40)


def test_packages_are_not_imported(packages):
    collect_docstrings(packages, max_per_package=1000)
    assert not set(PACKAGES) & sys.modules.keys()


def test_the_seed_decides(packages):
    def texts(seed):
        data = collect_docstrings(packages, max_per_package=50, seed=seed)
        return [data.train.texts, data.dev.texts, data.test.texts]

    assert texts(1) == texts(1)
    assert texts(1) != texts(2)


def test_what_cannot_be_collected(packages):
    with pytest.raises(ValueError, match="expected two names or more"):
        collect_docstrings(["applelib"])
    with pytest.raises(ValueError, match="no source of package 'plumlib'"):
        collect_docstrings(["applelib", "plumlib"])
    with pytest.raises(ValueError, match="no source of package 'sys'"):
        collect_docstrings(["applelib", "sys"])
    with pytest.raises(ValueError, match="has 0 docstrings for dev, expected 1"):
        collect_docstrings(packages, max_per_package=4)


def test_installed_packages():
    data = collect_docstrings(("numpy", "sklearn"), max_per_package=60)
    assert (len(data.train), len(data.dev), len(data.test)) == (60, 12, 48)
    for text, _, _ in everything(data):
        assert 20 <= len(text) <= 300
        assert not {"numpy", "np", "sklearn", "scikit"} & set(
            text.lower().replace(".", " ").split()
        )


def test_raw_sentences_are_whole_docstrings_without_what_is_scored(packages):
    files = list(raw_sentences(PACKAGES))
    sentences = [sentence for file in files for sentence in file]
    assert "And no more." in sentences
    assert "Too short." in sentences
    assert not [sentence for sentence in sentences if "never" in sentence]
    unwanted = "does all of the A work,  i.e. part 3"
    assert "Does all of the a work, i.e. part 3." in sentences
    rest = [s for file in raw_sentences(PACKAGES, leave_out=[unwanted]) for s in file]
    assert set(sentences) - set(rest) == {"Does all of the a work, i.e. part 3."}


def test_raw_sentences_are_no_more_than_asked_for(packages):
    few = list(raw_sentences(PACKAGES, max_characters=200))
    assert 0 < len(few) < len(list(raw_sentences(PACKAGES)))
