# SPDX-License-Identifier: Apache-2.0
"""Text that every machine has: docstrings, labeled with their packages, or whole.

It is read from the sources of installed packages, so that `quickstart --from_scratch` and
`benchmark` need no download. The texts depend on the installed versions.
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
from dataclasses import dataclass
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
    """Docstrings labeled with their packages.

    Args:
        train, dev, test: The examples of each split, `SHARES` of all. Those of a file are all in
            the same split.
    """

    train: LabeledText
    dev: LabeledText
    test: LabeledText


def collect_docstrings(
    packages: Sequence[str] = DEFAULT_PACKAGES, *, max_per_package: int = 200, seed: int = 0
) -> DocstringData:
    """Reads the docstrings of installed packages, without importing them.

    An example is the first sentence of the docstring of a module, class or function, truncated to
    300 characters at a word boundary. Texts under 20 characters are dropped, and so are those that
    contain the name of one of the packages or its usual alias (`np`, `tf`), which would make the
    task trivial. Of texts that differ only in case, spaces and punctuation, the first is kept, or
    none if they come from two packages. A source file contributes at most twenty examples, all to
    the same split. Tests, vendored packages and files over 100 kB are not read.

    Args:
        packages: Top-level names of packages, two or more.
        max_per_package: Maximum number of examples of one package, over all three splits.
        seed: Seed of the choice of files and examples. With the same versions of the packages, the
            same seed gives the same data in the same order.

    Returns:
        The three splits. Class names are the packages, sorted.

    Raises:
        ValueError: If fewer than two packages are given, or one is not installed or has too few
            docstrings for one of the splits.
    """
    names = tuple(sorted(set(packages)))
    if len(names) < 2:
        raise ValueError(f"packages is {packages!r}, expected two names or more")
    giveaway = _giveaway_pattern(names)
    texts = {package: _split_texts(package, giveaway, max_per_package, seed) for package in names}
    num_packages = Counter(
        _key(text) for splits in texts.values() for own in splits.values() for text in own
    )
    rng = random.Random(seed)
    chosen: dict[str, list[tuple[str, str]]] = {}
    for split, share in SHARES.items():
        limit = round(share * max_per_package)
        chosen[split] = []
        for package in names:
            own = [text for text in texts[package][split] if num_packages[_key(text)] == 1]
            if not own or not limit:
                raise ValueError(
                    f"package {package!r} has {min(len(own), limit)} docstrings for {split}, "
                    f"expected 1 or more; --max_per_package is {max_per_package}"
                )
            chosen[split] += [(text, package) for text in rng.sample(own, min(len(own), limit))]
        rng.shuffle(chosen[split])
    return DocstringData(*(_labeled(chosen[split], names) for split in SHARES))


def raw_sentences(
    packages: Sequence[str] = DEFAULT_PACKAGES,
    *,
    leave_out: Iterable[str] = (),
    max_characters: int = 3_000_000,
    seed: int = 0,
) -> Iterator[list[str]]:
    """Reads whole docstrings without labels, for pre-training.

    Args:
        packages: Top-level names of packages.
        leave_out: Texts to exclude, ignoring case and punctuation.
        max_characters: Approximate number of characters to read, equally from each package.
        seed: Seed of the choice of files.

    Yields:
        For each source file, the sentences of the prose in all its docstrings.
    """
    names = sorted(set(packages))
    unwanted = {_key(text) for text in leave_out}
    for package in names:
        space = max_characters / len(names)
        for file in _source_files(package, random.Random(f"{seed} {package}")):
            texts = (" ".join(text.split()) for prose in _prose(file) for text in _sentences(prose))
            sentences = [text for text in texts if text and _key(text) not in unwanted]
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


def _split_texts(
    package: str, giveaway: re.Pattern[str], max_per_package: int, seed: int
) -> dict[str, list[str]]:
    """Reads a package's texts; each file goes to the split that is furthest below its share."""
    splits: dict[str, list[str]] = {split: [] for split in SHARES}
    seen: set[str] = set()
    rng = random.Random(f"{seed} {package}")
    for file in _source_files(package, rng):
        split = min(SHARES, key=lambda name: len(splits[name]) / SHARES[name])
        if len(splits[split]) >= SHARES[split] * max_per_package * _SURPLUS:
            break
        firsts = (
            textwrap.shorten(_sentences(prose)[0], MAX_CHARACTERS, placeholder="")
            for prose in _prose(file)
        )
        found = {
            _key(text): text
            for text in firsts
            if len(text) >= MIN_CHARACTERS and not giveaway.search(text)
        }
        texts = [text for key, text in found.items() if key not in seen]
        seen.update(found)
        splits[split] += rng.sample(texts, min(len(texts), _MAX_PER_FILE))
    return splits


def _source_files(package: str, rng: random.Random) -> list[Path]:
    """Returns a package's Python files in random order."""
    spec = importlib.util.find_spec(package)
    if spec is None or not (spec.submodule_search_locations or spec.has_location):
        raise ValueError(f"no source of package {package!r} was found, expected it to be installed")
    roots = [Path(location) for location in spec.submodule_search_locations or ()]
    files = sorted(
        file
        for root in roots
        for file in root.rglob("*.py")
        if not _LEFT_OUT.search(file.relative_to(root.parent).as_posix())
        and file.stat().st_size <= _MAX_BYTES
    )
    files = files if roots else [Path(spec.origin or "")]
    rng.shuffle(files)
    return files


def _prose(file: Path) -> Iterator[str]:
    """Yields the prose of a file's docstrings, up to the first title, rule or code."""
    with warnings.catch_warnings():
        # Third-party sources may have invalid escape sequences.
        warnings.simplefilter("ignore")
        try:
            tree = ast.parse(file.read_bytes())
        except (SyntaxError, ValueError, RecursionError):  # as of templates, or of other versions
            return
    for node in _documented(tree):
        docstring = inspect.cleandoc(ast.get_docstring(node, clean=False) or "")
        yield _SECTION.split(docstring, maxsplit=1)[0]


def _sentences(prose: str) -> list[str]:
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


def _labeled(examples: list[tuple[str, str]], packages: tuple[str, ...]) -> LabeledText:
    return LabeledText(
        texts=[text for text, _ in examples],
        text_pairs=None,
        labels=np.array([packages.index(package) for _, package in examples], "int32"),
        class_names=packages,
        path=f"docstrings of {', '.join(packages)}",
    )
