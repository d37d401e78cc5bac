# SPDX-License-Identifier: Apache-2.0
"""Reads training data for token classification: splits, tagging schemes and document context."""

from __future__ import annotations

import dataclasses
import itertools
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

from absl import logging

from keras_bert.data.conll import MissingLabelsError, Separator, TaggedText, read_conll
from keras_bert.data.tagging_schemes import (
    OUTSIDE,
    Notation,
    Scheme,
    are_span_labels,
    convert_labels,
    detect_notation,
    detect_scheme,
    deviations,
    entities,
    from_notation,
    misspelled_labels,
)
from keras_bert.data.text_files import read_lines
from keras_bert.text.words import infer_word_unit, join_words

from ..engine.options import TextFileOptions, check_formats, check_one_of
from .data_files import FORMATS_OF, infer_format, read_records
from .data_splits import hold_out_tenth, stratified_sample
from .row_values import BadRows, excerpt, row_error

# The fields with words and with labels in rows with lists. The first existing field is read.
WORDS = ("words", "tokens")
LABELS = ("labels", "tags", "ner_tags", "pos_tags", "upos")
# The columns for the word and for its label, in lower case, in tables with one word per row
_WORD = ("word", "token")
_LABEL = ("label", "tag", "ner_tag", "ner", "pos")
# Descriptions of notations that labels may violate
_DESCRIPTIONS = {
    "brackets": "spans in brackets, such as (PER* *)",
    "suffixes": "spans with the letter at the end, such as PER-B",
    "GROBID": "spans as in GROBID, such as I-<title> <title>",
}
# Prefix for the name of the column that identifies a word's sentence, or contains the sentence
_SENTENCE = "sent"
# Other columns for the sentence, in tables with one sentence per row
_TEXT = ("text", *WORDS)
# Number of lines to read to infer whether each line is a sentence
_LINES_READ = 100


@dataclasses.dataclass(frozen=True)
class WordColumns(TextFileOptions):
    """How to read a file of words in columns.

    Args:
        word_column: Index of the words' column from 0, or a negative index from the end. Defaults
            to the first column that does not only contain word numbers.
        label_column: Index of the labels' column, in the same way. Defaults to the last column, or
            in CoNLL-U to the universal part of speech.
        separator: The separator of columns: auto, tab or space.
        comments: Whether lines that start with # before a sentence are comments. By default, only
            in CoNLL-U, or if such a line starts every sentence.
    """

    word_column: int | None = None
    label_column: int | None = None
    separator: str = "auto"
    comments: bool | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_one_of(self, separator=get_args(Separator))

    def check_word_files(self, *paths: str) -> None:
        """Raises an UnusedFlagError if a flag does not apply to any of the files' formats."""
        formats_of = dict.fromkeys(WordColumns.__annotations__, ("conll",))
        formats_of["encoding"] = ("conll", "lines", *FORMATS_OF["encoding"])
        check_formats(self, formats_of, [_format(path, self.encoding) for path in paths])

    def read_words(
        self, path: str, labeled: bool = True, *, skip_invalid: bool = False
    ) -> TaggedText:
        """Reads the words in a file, with or without their labels.

        Rows of JSON, Parquet and Arrow contain lists in the fields `WORDS` and `LABELS`. Rows of
        CSV and Excel files contain a word and its label, in the columns `word_columns`, or a
        sentence and its labels, in the columns `sentence_columns`. Other files have one word per
        line, or a sentence, a tab and its labels.
        """
        format = _format(path, self.encoding)
        readers = {"jsonl": _read_lists, "arrow": _read_lists}
        readers |= {"csv": _read_table, "xlsx": _read_table, "lines": _read_sentences}
        if format in readers:
            bad = BadRows(collect=skip_invalid)
            return readers[format](Path(path), labeled, bad, self.encoding)
        return read_conll(
            path,
            word_column=self.word_column,
            label_column=self.label_column,
            separator=self.separator,
            comments=self.comments,
            labeled=labeled,
            skip_invalid=skip_invalid,
            encoding=self.encoding,
        )


def _format(path: str, encoding: str) -> str:
    """Returns a file's format, or conll for one word per line, or lines for sentences."""
    try:
        format = infer_format(Path(path), encoding)
    except ValueError:
        format = "conll"
    if format not in ("conll", "tsv"):
        return format
    # Comments may look like a sentence and its labels.
    lines = (
        line
        for line in read_lines(Path(path), encoding)
        if line.strip() and not line.startswith("#")
    )
    first = list(itertools.islice(lines, _LINES_READ))
    sentences = list(map(parse_sentence, first))
    longest = max((len(words) for words, _ in filter(None, sentences)), default=0)
    has_header = bool(first) and _is_header(first[0])
    return "lines" if longest > 1 and (has_header or None not in sentences) else "conll"


def _is_header(line: str) -> bool:
    return all(sentence_columns(line.strip().split("\t")))


def parse_sentence(line: str) -> tuple[list[str], list[str]] | None:
    """Parses a line `words TAB labels` into words and labels. Returns `None` for other lines."""
    words, *labels = (cell.strip().split(" ") for cell in line.split("\t"))
    if len(labels) != 1 or len(words) != len(labels[0]):
        return None
    return words, labels[0]


def _read_sentences(path: Path, labeled: bool, bad: BadRows, encoding: str) -> TaggedText:
    """Reads lines with a sentence, a tab and its labels, both separated by spaces."""
    sentences = []
    for number, line in enumerate(read_lines(path, encoding), start=1):
        if not line.strip() or (number == 1 and _is_header(line)):
            continue
        if sentence := parse_sentence(line):
            sentences.append(sentence)
        else:
            message = (
                "each line must be words, a tab and one label for each word. Received: "
                f"{excerpt(line)}"
            )
            bad.add(row_error(path, f"line {number}", message))
    words, labels = map(list, zip(*sentences, strict=True))
    return TaggedText(
        words, labels if labeled else None, path=str(path), skipped=tuple(bad.messages)
    )


def _read_lists(path: Path, labeled: bool, bad: BadRows, encoding: str) -> TaggedText:
    words: list[list[str]] = []
    labels: list[list[str]] = []
    for place, record in read_records(path, bad=bad, encoding=encoding):
        if labeled and not words and not any(name in record for name in LABELS):
            raise MissingLabelsError(
                f"{path}, {place}: the fields must include {' or '.join(LABELS)}. Received: "
                f"{excerpt(sorted(record), 300)}"
            )
        try:
            own = _strings(record, WORDS)
            tags = _strings(record, LABELS) if labeled else own
            if len(tags) != len(own):
                raise ValueError(
                    f"each word must have one label. Received: {len(own)} words and {len(tags)} "
                    "labels"
                )
        except ValueError as error:
            bad.add(row_error(path, place, str(error)))
        else:
            words.append(own)
            labels.append(tags)
    if not words:
        raise ValueError(f"{path} must have at least one valid sentence")
    return TaggedText(
        words, labels if labeled else None, path=str(path), skipped=tuple(bad.messages)
    )


def _read_table(path: Path, labeled: bool, bad: BadRows, encoding: str) -> TaggedText:
    """Reads a table with one word or one sentence per row.

    With one word per row, a new value in the sentence column starts a sentence. In later rows of
    the same sentence, this column has the same value or is empty.
    """
    words: list[list[str]] = []
    labels: list[list[str]] = []
    current = ""
    for place, record in read_records(path, bad=bad, encoding=encoding):
        if all(sentence_columns(record)):
            cells = [record[column] for column in sentence_columns(record)]
            if parsed := parse_sentence("\t".join(cells)):
                words.append(parsed[0])
                labels.append(parsed[1])
            else:
                message = f"each word must have one label. Received: {excerpt(record)}"
                bad.add(row_error(path, place, message))
            continue
        sentence, *columns = word_columns(record)
        if labeled and not columns[-1] and columns[0]:
            raise MissingLabelsError(
                f"{path} must have a column of labels. Received: {excerpt([*record], 300)}"
            )
        if not sentence or not columns[0]:
            raise ValueError(
                f"{path} must have the columns Sentence, Word and Tag, with a word in each row. "
                f"Received: {excerpt([*record], 300)}. Rename the columns, or write each word with "
                "its tag on a line, and an empty line after each sentence, to a .conll file."
            )
        if record[sentence] not in ("", current) or not words:
            current = record[sentence]
            words.append([])
            labels.append([])
        values = [record[column].strip() for column in columns if column]
        if all(values):
            words[-1].append(values[0])
            labels[-1].append(values[-1])
        else:
            message = (
                f"each word must have a label, and each label a word. Received: {excerpt(record)}"
            )
            bad.add(row_error(path, place, message))
    sentences = [index for index, own in enumerate(words) if own]
    if not sentences:
        raise ValueError(f"{path} must have at least one valid sentence")
    text = TaggedText(words, labels if labeled else None, path=str(path), skipped=(*bad.messages,))
    return _sentences(text, [[index] for index in sentences])


def word_columns(names: Iterable[str]) -> tuple[str, str, str]:
    """Returns the columns of the sentence, the word and its label, or `""` for missing columns."""
    lower_case_names = {name.casefold(): name for name in names}
    sentence = next((name for name in lower_case_names if name.startswith(_SENTENCE)), "")
    word, label = (
        next((n for n in known if n in lower_case_names), "") for known in (_WORD, _LABEL)
    )
    return tuple(lower_case_names.get(name, "") for name in (sentence, word, label))


def sentence_columns(names: Iterable[str]) -> tuple[str, str]:
    """Returns the columns of sentences and of their labels, or `""` for missing columns.

    Both are missing in tables with one word per row.
    """
    by_name = {name.casefold(): name for name in names}
    if not by_name.keys().isdisjoint(_WORD):
        return "", ""
    sentence = next((n for n in by_name if n.startswith(_SENTENCE) or n in _TEXT), "")
    label = next((n for n in (*LABELS, *_LABEL) if n in by_name), "")
    return by_name.get(sentence, ""), by_name.get(label, "")


def _strings(record: Mapping[str, Any], names: Sequence[str]) -> list[str]:
    """Returns the first existing field among `names`. It must be a list of strings."""
    name = next((name for name in names if name in record), names[0])
    values = record.get(name)
    if not isinstance(values, list) or not values or not all(isinstance(v, str) for v in values):
        raise ValueError(
            f"{name} must be a list of one or more strings. Received: {excerpt(values)}"
        )
    return values


def sentence_texts(text: TaggedText) -> list[str]:
    """Joins the words of each sentence, without spaces if the words are characters."""
    unit = infer_word_unit(text.words)
    return [join_words(words, unit) for words in text.words]


def counts_of_words(text: TaggedText) -> dict[str, int]:
    """Counts sentences, words, and entities by type, or words by label."""
    counts = {"sentences": len(text), "words": sum(map(len, text.words))}
    return counts | dict(sorted(count_types(text).items()))


def count_types(text: TaggedText) -> Counter[str]:
    """Counts entities by type, or words by label. Empty without labels."""
    return Counter(name for names in _types(text.labels or ()) for name in names)


def _types(labels: Sequence[Sequence[str]]) -> list[list[str]]:
    """Returns the entity types in each sentence, or its labels if they do not mark spans."""
    if not are_span_labels(label for sentence in labels for label in sentence):
        return [list(sentence) for sentence in labels]
    return [[entity.type for entity in entities(sentence)] for sentence in labels]


def sample(text: TaggedText, num_sentences: int) -> TaggedText:
    """Returns a random sample of the sentences, stratified by the rarest type in each sentence."""
    sample = stratified_sample(_rarest_types(text), num_sentences)
    return _sentences(text, [[index] for index in sample])


def label_names(text: TaggedText) -> tuple[str, ...]:
    """Returns the labels in the text: `O` first, then sorted by type and prefix."""
    names = {label for sentence in text.labels or () for label in sentence}

    def order(name: str) -> tuple[bool, str, str]:
        letter, _, kind = name.partition("-")
        return name != OUTSIDE, kind, letter

    return tuple(sorted(names, key=order))


def hold_out(text: TaggedText) -> tuple[TaggedText, TaggedText]:
    """Holds out a random tenth of the sentences, or of the documents if the file has at least 10.

    Sentences are stratified by their rarest entity type or label.

    Raises:
        ValueError: If fewer than two sentences would be held out.
    """
    units = text.group_by_document(range(len(text)))
    if len(units) >= 10:
        rest, held_out = hold_out_tenth([0] * len(units), text.path, "documents", min_rows=1)
    else:
        units = [[index] for index in range(len(text))]
        rest, held_out = hold_out_tenth(_rarest_types(text), text.path, "sentences")
    train, dev = ([units[index] for index in part] for part in (rest, held_out))
    return _sentences(text, train), _sentences(text, dev)


def _rarest_types(text: TaggedText) -> list[str]:
    """Returns the rarest entity type or label in each sentence."""
    types = _types(text.labels or ())
    counts = Counter(name for names in types for name in names)
    return [min(names, key=lambda name: (counts[name], name), default="") for names in types]


def model_inputs(text: TaggedText, values: list[Any], context: bool) -> list[Any]:
    """Returns words or labels in the form that `TokenClassifier` accepts.

    Raises:
        ValueError: If `context` is set, but the file does not mark documents.
    """
    if not context:
        return values
    if text.document_starts is None:
        raise ValueError(
            f"--context requires a file that marks documents. Received: {text.path}. CoNLL files "
            "mark them by -DOCSTART- lines, or by # newdoc lines with --comments"
        )
    return text.group_by_document(values)


def _sentences(text: TaggedText, units: list[list[int]]) -> TaggedText:
    starts = None
    if text.document_starts is not None:
        starts = [sum(map(len, units[:index])) for index in range(len(units))]
    indices = [index for unit in units for index in unit]
    return dataclasses.replace(
        text,
        words=[text.words[index] for index in indices],
        labels=None if text.labels is None else [text.labels[index] for index in indices],
        document_starts=starts,
    )


def label_counts(text: TaggedText) -> Counter[str]:
    """Counts the labels of words."""
    return Counter(label for sentence in text.labels or () for label in sentence)


def convert_to_scheme(
    text: TaggedText, scheme: Scheme, notation: Notation | None = None
) -> TaggedText:
    """Converts a text's labels to a tagging scheme, if they mark spans.

    Logs a warning if the labels deviate from their own scheme, or if they are bare types next to
    `O`.

    Raises:
        ValueError: If only some labels are span labels. The message contains the other labels. Also
            if brackets are nested or unbalanced. The message contains the sentence.
    """
    if text.labels is None:
        return text
    text = with_span_labels(text, notation)
    labels = text.labels or []
    misspelled_counts = misspelled_labels(label for sentence in labels for label in sentence)
    if misspelled_counts:
        raise ValueError(
            f"{text.path}: all labels must be span labels (O, B-TYPE, I-TYPE …) if one is. "
            f"Received: {_listed(misspelled_counts)}. Pass --scheme=keep to accept any labels"
        )
    own_scheme = detect_scheme(labels)
    if own_scheme is None:
        return text
    _warn_of_mixed_schemes(text, own_scheme)
    labels_in_scheme = [convert_labels(sentence, scheme) for sentence in labels]
    return dataclasses.replace(text, labels=labels_in_scheme)


def with_span_labels(
    text: TaggedText, notation: Notation | None = None, bad: BadRows | None = None
) -> TaggedText:
    """Converts labels in other notations, such as brackets, to IOB2.

    Args:
        text: The words and labels.
        notation: The notation of the training labels. By default, it is inferred from the text.
        bad: Collects and skips sentences with nested or unbalanced brackets. By default, the first
            such sentence raises an error.

    Raises:
        ValueError: If brackets are nested or unbalanced. The message contains the sentence.
    """
    bad = bad or BadRows()
    if notation is None or are_span_labels(label_counts(text)):
        notation = detect_notation(text.labels or ())
    if notation is None:
        return text
    span_labels = []
    intact = []
    for index, (words, labels) in enumerate(zip(text.words, text.labels or (), strict=True)):
        try:
            span_labels.append(from_notation(labels, notation))
            intact.append([index])
        except ValueError as error:
            message = (
                f"{text.path}: in the sentence {excerpt(' '.join(words))}: {error} Labels are read "
                f"as {_DESCRIPTIONS[notation]}. Pass --scheme=keep to read them as they are"
            )
            bad.add(ValueError(message))
    if len(intact) < len(text):
        text = _sentences(text, intact)
    if notation != "IO":
        logging.info("%s: labels are read as %s", text.path, _DESCRIPTIONS[notation])
    else:
        logging.warning(
            "%s: labels have no B- or I- prefix, so adjacent words with the same label other than "
            "O are read as one entity. Pass --scheme=keep to read one label per word",
            text.path,
        )
    return dataclasses.replace(text, labels=span_labels)


def _warn_of_mixed_schemes(text: TaggedText, scheme: Scheme) -> None:
    others = [
        (labels[index], words[index])
        for words, labels in zip(text.words, text.labels or (), strict=True)
        for index in deviations(labels, scheme)
    ]
    if others:
        logging.warning(
            "%s: %d of %d labels deviate from the scheme %s. The first is %r for the word %r. The "
            "file may mix schemes. Such labels are interpreted as in conlleval",
            text.path,
            len(others),
            sum(map(len, text.words)),
            scheme,
            *others[0],
        )


def _listed(counts: Mapping[str, int]) -> str:
    examples = [f"{name!r} ({count} words)" for name, count in list(counts.items())[:5]]
    return ", ".join([*examples, *(["…"] if len(counts) > 5 else [])])


def warn_of_unknown_labels(text: TaggedText, class_names: tuple[str, ...]) -> None:
    """Logs a warning if a text has labels that the training file does not have."""
    counts = label_counts(text)
    others = {name: counts[name] for name in label_names(text) if name not in class_names}
    if others:
        logging.warning(
            "%s has labels that the training file does not have: %s", text.path, _listed(others)
        )
