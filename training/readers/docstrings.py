# SPDX-License-Identifier: Apache-2.0
"""A labeled data set that every machine has: docstrings, labeled with their packages.

It is read from the sources of installed packages, so that the quickstart needs no download. The
texts depend on the installed versions.
"""

import ast
import importlib.util
import inspect
import itertools
import random
import re
import textwrap
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from .labeled_text import LabeledText

# Packages on different subjects, all of which come with Python or with the extra `training`
DEFAULT_PACKAGES = (
    "asyncio",
    "email",
    "fontTools",
    "keras",
    "matplotlib",
    "numpy",
    "PIL",
    "pip",
    "pygments",
    "rich",
    "scipy",
    "sklearn",
    "tensorflow",
    "werkzeug",
)
# Those of the standard library
_STANDARD_LIBRARY = ("asyncio", "email", "http", "json", "logging", "unittest")

# Few training examples, where pre-training matters most; many test examples, for a precise score
SHARES = {"train": 0.5, "dev": 0.1, "test": 0.4}
MIN_CHARACTERS = 20
MAX_CHARACTERS = 300

# Aliases that identify a package, as whole words
_ALIASES = {
    "matplotlib": ("mpl", "plt", "pyplot"),
    "numpy": ("np",),
    "sklearn": ("scikit",),
    "tensorflow": ("tf",),
}
# The end of the prose: a title ("Args:", or underlined), a rule, a directive, a field or code,
# whose style would identify the package.
_SECTION = re.compile(
    r"^(?:[A-Z][\w ]*:$|\S.*\n *[-=~]{3,}$|[-=~*#]{3,}|\.\. |:\w|>>>|```)", re.MULTILINE
)
# Tests have few docstrings, and vendored packages would have the wrong label: TensorFlow includes
# an old Keras.
_LEFT_OUT = re.compile(
    r"/(?:tests?|testing|externals|_vendor|array_api_compat)/|(?:_test|/test_\w+|/conftest)\.py$"
    r"|^tensorflow/python/keras/"
)
# The end of a sentence; "e.g." and "i.e." do not match, since a lower-case letter follows them.
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[^a-z])")
# Longer files take too much time for the few docstrings taken from each.
_MAX_BYTES = 100_000
_MAX_PER_FILE = 20
# Ratio of texts gathered to texts requested, since duplicates are dropped
_SURPLUS = 1.2

_Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class DocstringData:
    """Docstrings labeled with their packages, and a held-out one.

    Args:
        train: Training examples, a share of `SHARES["train"]`. The examples of a file are all in
            the same split.
        dev: Development examples.
        test: Test examples.
        held_out_text: A docstring from the test files that is in none of the splits.
        held_out_label: Its package.
        num_files: Number of files that were read.
        num_skipped_files: Number of files that could not be parsed, and were skipped.
    """

    train: LabeledText
    dev: LabeledText
    test: LabeledText
    held_out_text: str
    held_out_label: str
    num_files: int
    num_skipped_files: int


@dataclass
class _Gathered:
    """Texts by split, each with its package, in the order in which they were read."""

    texts: dict[str, list[tuple[str, str]]] = field(
        default_factory=lambda: {split: [] for split in SHARES}
    )
    num_files: int = 0
    num_skipped_files: int = 0


def collect_docstrings(
    packages: Sequence[str] | None = None, *, max_per_package: int = 200, seed: int = 0
) -> DocstringData:
    """Reads the docstrings of installed packages, without importing them.

    An example is the first sentence of the docstring of a module, class or function, truncated to
    300 characters at a word boundary. Texts under 20 characters are dropped, and so are those that
    contain the name of one of the packages or its usual alias (`np`, `tf`), which would make the
    task trivial. Of texts that differ only in case, spaces and punctuation, the first is kept, or
    none if they come from two packages. A source file contributes at most twenty examples, all to
    the same split. Tests, vendored packages and files over 100 kB are not read.

    Args:
        packages: Top-level names of packages, two or more; `DEFAULT_PACKAGES` by default.
        max_per_package: Maximum number of examples of one package, over all three splits.
        seed: Seed of the choice of files and examples. With the same versions of the packages, the
            same seed gives the same data in the same order.

    Returns:
        The three splits, and a held-out example. Class names are the packages, sorted.

    Raises:
        ValueError: If fewer than two packages are given, or one is not installed or has too few
            docstrings for one of the splits.
    """
    names = tuple(sorted(set(packages or DEFAULT_PACKAGES)))
    if len(names) < 2:
        raise ValueError(f"packages is {packages!r}, expected two names or more")
    gathered = _Gathered()
    giveaway = _giveaway_pattern(names)
    for package in names:
        _gather(package, giveaway, max_per_package, seed, gathered)
    unique = _of_one_package(gathered.texts)
    rng = random.Random(seed)
    chosen = {
        split: _balanced(split, unique[split], names, max_per_package, rng) for split in SHARES
    }
    held_out_text, held_out_label = chosen["test"].pop()
    return DocstringData(
        train=_labeled(chosen["train"], names),
        dev=_labeled(chosen["dev"], names),
        test=_labeled(chosen["test"], names),
        held_out_text=held_out_text,
        held_out_label=held_out_label,
        num_files=gathered.num_files,
        num_skipped_files=gathered.num_skipped_files,
    )


def raw_sentences(
    packages: Sequence[str] | None = None,
    *,
    leave_out: Iterable[str] = (),
    max_characters: int = 3_000_000,
    seed: int = 0,
) -> Iterator[list[str]]:
    """Reads whole docstrings without labels, for pre-training.

    Args:
        packages: Top-level names of packages; `DEFAULT_PACKAGES` by default.
        leave_out: Texts to exclude, ignoring case and punctuation.
        max_characters: Approximate number of characters to read, equally from each package.
        seed: Seed of the choice of files.

    Yields:
        For each source file, the sentences of the prose in all its docstrings.
    """
    names = tuple(sorted(set(packages or DEFAULT_PACKAGES)))
    unwanted = {_key(text) for text in leave_out}
    for package in names:
        files = _source_files(package)
        random.Random(f"{seed} {package}").shuffle(files)
        space = max_characters / len(names)
        for file in files:
            try:
                sentences = [text for text in _sentences(file) if _key(text) not in unwanted]
            except (SyntaxError, ValueError, RecursionError):
                continue
            space -= sum(map(len, sentences))
            if sentences:
                yield sentences
            if space < 0:
                break


def standard_library_sentences(count: int) -> list[str]:
    """Reads sentences of docstrings of Python's standard library, whose lengths are those of prose.

    Args:
        count: Maximum number of sentences.
    """
    sentences = itertools.chain(*raw_sentences(_STANDARD_LIBRARY, max_characters=400_000))
    return list(itertools.islice(sentences, count))


def _gather(
    package: str, giveaway: re.Pattern[str], max_per_package: int, seed: int, into: _Gathered
) -> None:
    """Assigns each file to the split that is furthest below its share, and reads its texts."""
    files = _source_files(package)
    rng = random.Random(f"{seed} {package}")
    rng.shuffle(files)
    counts = dict.fromkeys(SHARES, 0)
    seen: set[str] = set()
    for file in files:
        split = min(SHARES, key=lambda name: counts[name] / SHARES[name])
        if counts[split] >= SHARES[split] * max_per_package * _SURPLUS:
            return
        into.num_files += 1
        try:
            found = {_key(text): text for text in _docstrings(file) if not giveaway.search(text)}
        except (SyntaxError, ValueError, RecursionError):
            into.num_skipped_files += 1
            continue
        texts = [text for key, text in found.items() if key not in seen]
        seen.update(found)
        chosen = rng.sample(texts, min(len(texts), _MAX_PER_FILE))
        counts[split] += len(chosen)
        into.texts[split] += [(text, package) for text in chosen]


def _source_files(package: str) -> list[Path]:
    """Returns a package's Python files, sorted by path."""
    spec = importlib.util.find_spec(package)
    if spec is None or not (spec.submodule_search_locations or spec.has_location):
        raise ValueError(f"no source of package {package!r} was found, expected it to be installed")
    if not spec.submodule_search_locations:
        return [Path(spec.origin or "")]
    roots = [Path(location) for location in spec.submodule_search_locations]
    return sorted(
        file
        for root in roots
        for file in root.rglob("*.py")
        if not _LEFT_OUT.search(file.relative_to(root.parent).as_posix())
        and file.stat().st_size <= _MAX_BYTES
    )


def _docstrings(file: Path) -> Iterator[str]:
    """Yields the first sentence of each docstring of a file, if it is long enough."""
    for prose in _prose(file):
        text = textwrap.shorten(_split_sentences(prose)[0], MAX_CHARACTERS, placeholder="")
        if len(text) >= MIN_CHARACTERS:
            yield text


def _sentences(file: Path) -> Iterator[str]:
    """Yields all sentences of a file's docstrings."""
    for prose in _prose(file):
        for sentence in _split_sentences(prose):
            text = " ".join(sentence.split())
            if text:
                yield text


def _prose(file: Path) -> Iterator[str]:
    """Yields the prose of a file's docstrings, up to the first title, rule or code."""
    with warnings.catch_warnings():
        # Third-party sources may have invalid escape sequences.
        warnings.simplefilter("ignore")
        tree = ast.parse(file.read_bytes())
    for node in _documented(tree):
        docstring = inspect.cleandoc(ast.get_docstring(node, clean=False) or "")
        yield _SECTION.split(docstring, maxsplit=1)[0]


def _split_sentences(prose: str) -> list[str]:
    return _SENTENCE_END.split(prose.strip())


def _documented(node: ast.AST) -> Iterator[_Documented]:
    """Yields the nodes that may have a docstring, without visiting expressions as `ast.walk`."""
    if isinstance(node, _Documented):
        yield node
    for block in ("body", "orelse", "handlers", "finalbody"):
        for statement in getattr(node, block, ()):
            yield from _documented(statement)


def _giveaway_pattern(packages: Sequence[str]) -> re.Pattern[str]:
    """Returns a pattern for the packages' names anywhere, and for their aliases as whole words."""
    names = "|".join(re.escape(package) for package in packages)
    aliases = [re.escape(alias) for package in packages for alias in _ALIASES.get(package, ())]
    if aliases:
        names += rf"|(?<![^\W_])(?:{'|'.join(aliases)})(?![^\W_])"
    return re.compile(names, re.IGNORECASE)


def _key(text: str) -> str:
    """Normalizes case, spaces and punctuation of a text."""
    return " ".join(re.findall(r"\w+", text.casefold()))


def _of_one_package(
    texts: dict[str, list[tuple[str, str]]],
) -> dict[str, list[tuple[str, str]]]:
    """Drops texts that occur in two packages; within a package they are already unique."""
    num_packages = Counter(_key(text) for found in texts.values() for text, _ in found)
    return {
        split: [example for example in found if num_packages[_key(example[0])] == 1]
        for split, found in texts.items()
    }


def _balanced(
    split: str,
    examples: list[tuple[str, str]],
    packages: Sequence[str],
    max_per_package: int,
    rng: random.Random,
) -> list[tuple[str, str]]:
    """Samples at most the split's share of each package, and shuffles."""
    limit = round(SHARES[split] * max_per_package)
    chosen = []
    for package in packages:
        own = [example for example in examples if example[1] == package]
        # One of the test examples will be held out.
        needed = 2 if split == "test" else 1
        if min(len(own), limit) < needed:
            raise ValueError(
                f"package {package!r} has {min(len(own), limit)} docstrings for {split}, expected "
                f"{needed} or more; --max_per_package is {max_per_package}"
            )
        chosen += rng.sample(own, min(len(own), limit))
    rng.shuffle(chosen)
    return chosen


def _labeled(examples: list[tuple[str, str]], packages: tuple[str, ...]) -> LabeledText:
    return LabeledText(
        texts=[text for text, _ in examples],
        text_pairs=None,
        labels=np.array([packages.index(package) for _, package in examples], "int32"),
        class_names=packages,
        path=f"docstrings of {', '.join(packages)}",
    )
