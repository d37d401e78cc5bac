# SPDX-License-Identifier: Apache-2.0
"""Finds words in prose that the project does not use, and prints what to write instead.

    python tests/wording.py           # all files, as the session `lint` does
    python tests/wording.py docs ...  # some files or directories

It reads comments and strings of Python files, and the text of Markdown pages. Code between
backticks is left out.
"""

import io
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
# Regular expression: what to write instead
WORDS = {
    r"folders?": "directory",
    r"malformed": "invalid",
    r"refus(?:e|es|ed|ing|al)": "raises, rejects, is not supported",
    r"several(?! (?:gigabytes|digits|gigabyte))": "multiple, or the number",
    r"(?-i:[Bb]egins?|[Bb]egun)": "start",
    r"shares? of": "fraction of",
    r"those of": "the noun again",
    r"beside": "next to, compared with, besides",
    r"likewise|anew|in turns|in small": "also, again, alternately, at a small scale",
    r"(?:is|are|was|were) told|alike": "reported, the same",
    r"(?:weights|masks|seeds|tokens|examples) are drawn": "sampled, initialized",
    r"real (?:tokens|rows)": "non-padding tokens, examples",
    r"(?:tasks?|task's|its) verbs?": "prediction method",
    r"filled up": "padded",
    r"theirs|ours": "expected and actual, or the noun",
    r"(?:tokens|rows|requests|texts|examples) a second": "per second",
    r"\d+ %": "93.9%, without a space",
    r"\w*[,;] expected (?:one|an?|the)|\w*; it must": "rule. Received: value. Fix.",
}
PATTERN = re.compile(rf"(?<![\w{{])(?:{'|'.join(f'({word})' for word in WORDS)})(?!\w)", re.I)
CODE = re.compile(r"^( *)```.*?^\1```|`[^`\n]+`|\]\([^)\n]*\)", re.M | re.S)
DOCTEST = re.compile(r"^ *(?:>>>|\.\.\.) .*", re.M)
# The name of an argument, under `Args:` in a docstring
ARGUMENT = re.compile(r"^ +\w+(?=: )", re.M)
EXPRESSION = re.compile(r"\{[^{}\n]*\}")


def blank(match: re.Match[str]) -> str:
    """Returns text of the same number of lines."""
    return "x" + "\n" * match[0].count("\n")


def prose(path: Path) -> Iterator[tuple[int, str]]:
    """Yields the lines with prose, each with its number."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        parts = [(1, text)]
    else:
        tokens = tokenize.generate_tokens(io.StringIO(text).readline)
        kinds = (tokenize.COMMENT, tokenize.STRING)
        parts = [(token.start[0], token.string) for token in tokens if token.type in kinds]
    for start, part in parts:
        if re.match(r"(?i)f", part):
            part = EXPRESSION.sub("x", part)
        part = ARGUMENT.sub("", DOCTEST.sub("", CODE.sub(blank, part)))
        yield from enumerate(part.splitlines(), start)


def main(arguments: list[str]) -> int:
    """Prints the places of such words, and returns their number."""
    places = 0
    roots = [Path(name) for name in arguments] or [
        *(ROOT / name for name in ("keras_bert", "training", "tests", "docs")),
        *ROOT.glob("*.md"),
        ROOT / "noxfile.py",
    ]
    for root in roots:
        for path in sorted(root.rglob("*")) if root.is_dir() else [root]:
            if path.suffix not in (".py", ".md") or path == Path(__file__):
                continue
            for number, line in prose(path):
                for match in PATTERN.finditer(line):
                    word = list(WORDS.values())[(match.lastindex or 1) - 1]
                    print(
                        f"{path.resolve().relative_to(ROOT)}:{number}: {match[0]!r}. Write: {word}"
                    )
                    places += 1
    return places


if __name__ == "__main__":
    found = main(sys.argv[1:])
    sys.exit(f"{found} words to replace." if found else 0)
