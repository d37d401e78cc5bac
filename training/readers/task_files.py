# SPDX-License-Identifier: Apache-2.0
"""Infers a training file's task from its suffix, its first lines and its columns."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from keras_bert.data.text_files import UTF_8, read_lines

from . import choice_files
from .column_names import TEXT, find_texts
from .data_files import (
    FORMATS,
    TAGGING_SUFFIXES,
    TWO_FILES,
    data_suffix,
    infer_format,
    read_cells,
    read_records,
)
from .question_files import COLUMNS, is_nested
from .row_values import BadRows
from .tagged_words import LABELS, WORDS, parse_sentence, sentence_columns, word_columns

# Maps a task to the value of --kind for its files, if it is not text
_KINDS = {
    "question_answering": "squad",
    "tagging": "tagging",
    "multiple_choice": "multiple_choice",
}
# Values of the flag --kind
KINDS = ("auto", "text", *_KINDS.values())
_OUTSIDE = ("O", "-")
_TAG = re.compile(r"O|-|[BIESLUM]-\S+|\S+[-_][BIESLUM]")
_LINES_READ = 1000


class FileTask(NamedTuple):
    """A file's task.

    Attributes:
        name: A value of `finetune --task`.
        reason: How the task was inferred. For example, "train.conll has the suffix .conll".
    """

    name: str
    reason: str


def data_kind(task: str) -> str:
    """Returns the type of data in a task's files, one of `KINDS`."""
    return _KINDS.get(task, "text")


def task_of_kind(kind: str) -> str:
    """Returns the `finetune --task` value for a type of data, or `""` if the file decides."""
    return next((task for task, its in _KINDS.items() if its == kind), "")


def task_of_file(
    path: Path,
    format: str = "auto",
    text: str | None = None,
    flag: str = "--task",
    encoding: str = UTF_8,
) -> FileTask:
    """Infers a training file's task.

    Args:
        path: The file.
        format: The value of `--format`. `auto` infers it from the suffix.
        text: The column of the text, if given. Then the function does not look for a second text.
        flag: The flag that sets the task, for the error message.
        encoding: The encoding of text files without a byte order mark.

    Raises:
        ValueError: If the task cannot be inferred. The message lists what was checked.
    """
    suffix = data_suffix(path)
    if suffix in TAGGING_SUFFIXES:
        return FileTask("tagging", f"{path} has the suffix {suffix}")
    if format in choice_files.FORMATS.keys() - FORMATS.values():
        return FileTask("multiple_choice", f"--format={format} is given")
    if suffix == ".json" and is_nested(path, encoding):
        return FileTask(
            "question_answering", f"{path} is a single object, as in SQuAD and TriviaQA"
        )
    kind = FORMATS.get(suffix) if format == "auto" else format
    if kind in (None, "tsv") and path.is_file() and (tag := first_tag(path, encoding)):
        return FileTask("tagging", f"the lines of {path} end with tags, such as {tag}")
    try:
        kind = kind or infer_format(path, encoding)
    except ValueError:
        raise ValueError(
            f"the task of {path} must be clear from its suffix, one of "
            f"{', '.join((*FORMATS, *TAGGING_SUFFIXES))}, or from lines that end with tags such as "
            f"B-PER. Received: the suffix {suffix!r}. Pass {flag}, or --format for a table: "
            f"{', '.join(dict.fromkeys(FORMATS.values()))}{TWO_FILES if suffix == '.txt' else ''}"
        ) from None
    if kind in ("jsonl", "arrow"):
        records = read_records(path, kind, BadRows(collect=True), encoding=encoding)
        record = next((record for _, record in records), {})
    else:
        rows = (cells for _, cells in read_cells(path, kind, encoding=encoding))
        header = next(rows, [])
        record = dict(zip(header, next(rows, []), strict=False)) or dict.fromkeys(header)
    names = set(record)
    has_lists = names.intersection(WORDS) and names.intersection(LABELS)
    if has_lists or (text is None and all(word_columns(record))):
        return FileTask("tagging", f"{path} has words and their labels")
    if text is None and kind not in ("jsonl", "arrow") and _has_tagged_sentence(record):
        return FileTask("tagging", f"{path} has sentences and the tags of their words")
    if fields := choice_files.choice_field_names(record):
        return FileTask("multiple_choice", f"{path} has {' and '.join(fields)}")
    if kind in ("jsonl", "arrow") and names.issuperset(COLUMNS):
        return FileTask("question_answering", f"{path} has questions, contexts and answers")
    texts = {"text": TEXT, **find_texts(names)} if text is None else {}
    if "text_pair" in texts:
        return FileTask("pairs", f"{path} has {texts['text']} and {texts['text_pair']}")
    return FileTask("classification", f"{path} is a table without two texts or choices")


def _has_tagged_sentence(record: Mapping[str, str]) -> bool:
    columns = sentence_columns(record)
    if not all(columns):
        return False
    sentence = parse_sentence("\t".join(record[column] or "" for column in columns))
    return (
        sentence is not None
        and len(sentence[0]) > 1
        and all(map(_TAG.fullmatch, sentence[1]))
        and len(set(sentence[1])) > 1
    )


def first_tag(path: Path, encoding: str) -> str:
    """Returns a tag if all of the first lines have words and a tag, and `""` otherwise.

    Tags that end with the letter, such as PER-B, are only accepted if some words are outside of
    spans, because text classes may look like such tags.
    """
    tag, has_outside = "", False
    for line in itertools.islice(read_lines(path, encoding), _LINES_READ):
        if not line.strip() or line.startswith(("#", "-DOCSTART-")):
            continue
        # In tab-separated columns, a word may be a space.
        line = line.rstrip()
        cells = line.split("\t") if "\t" in line else line.split()
        sentence = parse_sentence(line)
        tags = sentence[1] if sentence else [line.split()[-1]]
        if len(cells) < 2 or not all(map(_TAG.fullmatch, tags)):
            return ""
        has_outside |= not set(tags).isdisjoint(_OUTSIDE)
        tag = tag or next((own for own in tags if own not in _OUTSIDE), "")
    return tag if has_outside or tag[1:2] == "-" else ""
