# SPDX-License-Identifier: Apache-2.0
"""Answers of any trained model to a file, or to standard input, as JSON Lines.

    python -m training.predict --model=runs/finetune/export/1 --input=reviews.txt
    python -m training.predict --model=runs/finetune/export/1 --input=reviews.csv --text=review
    cat questions.jsonl | python -m training.predict --model=runs/squad/seed_1/model.keras

The model is a folder that `export` wrote, or a `.keras` file of a task. The input is what the
programs that train and score take: TSV, CSV, JSON Lines or an array with the task's fields (`text`,
and for pairs `text_pair`; `question` and `context`; `text` and `choices`), SQuAD's JSON, CoNLL's
columns, SWAG's CSV and CODAH's TSV, also with `.gz`; in any other file, and on standard input, a
text a line or JSON Lines. Answers come in the order of the input, one line each; an `id` in the
input is in the answer too.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np
from absl import flags

from keras_bert.atomic import atomic_path

from .engine import program
from .engine.config_flags import define_flags, read_flags
from .engine.options import check_at_least, check_one_of
from .readers.choice_files import read_choices
from .readers.labelled_text import HEADERS
from .readers.text_rows import (
    FORMATS,
    TAGGING_SUFFIXES,
    excerpt,
    field,
    is_array,
    objects_of,
    read_cells,
    read_columns,
    read_lines,
    without_header,
)

Row = dict[str, Any]

_FORMATS = ("auto", "lines", "tsv", "csv", "jsonl", "squad", "conll", "swag", "codah")


class RowError(ValueError):
    """A row of the input is malformed."""


@dataclasses.dataclass(frozen=True)
class Predictor:
    """What answers rows.

    Args:
        fields: the fields that it reads of each row; of those of a classifier's pairs, the first.
        answer: from rows to answers.
        lists: those of the fields that hold, or may hold, a list of strings.
    """

    fields: tuple[str, ...]
    answer: Callable[[list[Row]], list[Any]]
    lists: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class PredictConfig:
    """Which model, and on what.

    Args:
        model: a folder that export wrote, or a .keras file.
        input: a file; - for standard input.
        output: where the answers go; - for standard output.
        format: of the input: lines, tsv, csv, jsonl, squad, conll, swag or codah; auto tells by the
            suffix, and takes lines for any other one, or JSON Lines if the first begins with {.
        text: the column of the text, by name or by number from 0; in JSON also a nested field,
            as in document.text.
        text_pair: the column of the second text; empty takes text_pair where there is one.
        header: whether the first row of TSV or CSV names the columns: auto, yes or no.
        word_column: in CoNLL's columns the words', from 0, or from the end with a negative number.
        separator: what stands between those columns: auto, tab or space.
        comments: whether lines that begin with # before a sentence are comments (CoNLL-U).
        batch_size: lines that are answered at once.
    """

    model: str = ""
    input: str = "-"
    output: str = "-"
    format: str = "auto"
    text: str = "text"
    text_pair: str = ""
    header: str = "auto"
    word_column: int = 0
    separator: str = "auto"
    comments: bool = False
    batch_size: int = 64

    def __post_init__(self) -> None:
        check_at_least(self, 1, "batch_size")
        check_one_of(self, format=_FORMATS, header=tuple(HEADERS))


def main(arguments: list[str]) -> None:
    program.refuse_arguments(arguments)
    program.import_quietly()
    try:
        predict(read_flags(PredictConfig))
    except BrokenPipeError:
        # Whoever reads has read enough; Python would write to the pipe again when it ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def predict(config: PredictConfig) -> int:
    """Answers line by line.

    Returns:
        How many lines were answered.

    Raises:
        FileNotFoundError: if the model or the input is not there.
        RowError: if a line is malformed; the message names it. What was answered before it stays.
    """
    predictor = load_predictor(config.model)
    count = 0
    with _opened_output(config.output) as output:
        rows = read_rows(config, predictor)
        while batch := list(itertools.islice(rows, config.batch_size)):
            for row, answer in zip(batch, predictor.answer(batch), strict=True):
                answer = answer if isinstance(answer, dict) else {"answers": answer}
                given = {"id": row["id"]} if "id" in row else {}
                output.write(json.dumps({**given, **answer}, ensure_ascii=False) + "\n")
            output.flush()
            count += len(batch)
    return count


def read_rows(config: PredictConfig, predictor: Predictor) -> Iterator[Row]:
    """The rows of the input, with the fields that a model reads, and `id` where there is one.

    Raises:
        FileNotFoundError: if the input is not there.
        RowError: if a row lacks a field, or holds no string there; the message names its line.
        ValueError: if the file is malformed otherwise.
    """
    if config.input != "-" and not Path(config.input).is_file():
        raise FileNotFoundError(f"input {config.input!r} is not there, expected a file")
    name = "standard input" if config.input == "-" else config.input
    for line, row in _numbered_rows(config, predictor):
        for field_name in predictor.fields:
            _check_field(row, field_name, predictor, f"{name}, line {line}")
        if "text_pair" in row:
            _check_field(row, "text_pair", predictor, f"{name}, line {line}")
        yield row


def _check_field(row: Row, name: str, predictor: Predictor, where: str) -> None:
    if name not in row:
        fields = ", ".join(predictor.fields)
        raise RowError(f"{where}: the model wants {fields}; {excerpt(row)} has no {name}")
    value = row[name]
    is_list = isinstance(value, list) and all(isinstance(item, str) for item in value)
    if not isinstance(value, str) and not (is_list and name in predictor.lists):
        expected = "a list of strings" if name == "choices" else "a string"
        raise RowError(f"{where}: {name} is {excerpt(value)}, expected {expected}")


def _numbered_rows(config: PredictConfig, predictor: Predictor) -> Iterator[tuple[int, Row]]:
    """The line and the fields of each row, in whatever format."""
    format = _format(config, predictor)
    if format in ("auto", "lines", "jsonl"):
        yield from _line_rows(config, format)
    elif config.input == "-":
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "standard_input")
            path.write_bytes(sys.stdin.buffer.read())
            yield from _file_rows(config, predictor, path, format)
    else:
        yield from _file_rows(config, predictor, Path(config.input), format)


def _file_rows(
    config: PredictConfig, predictor: Predictor, path: Path, format: str
) -> Iterator[tuple[int, Row]]:
    if format in ("tsv", "csv"):
        yield from _table_rows(config, predictor, path, format)
    elif format == "squad":
        from keras_bert.data.squad import read_squad

        for number, example in enumerate(read_squad(path, labelled=False).examples, start=1):
            fields = {"id": example.id, "question": example.question, "context": example.context}
            yield number, fields
    elif format == "conll":
        from keras_bert.data.conll import read_conll

        text = read_conll(
            path,
            word_column=config.word_column,
            label_column=None,
            separator=config.separator,
            comments=config.comments,
        )
        yield from enumerate(({"text": words} for words in text.words), start=1)
    else:
        rows = zip(*read_choices(path, format).inputs, strict=True)
        yield from enumerate(({"text": one, "choices": own} for one, own in rows), start=1)


def _format(config: PredictConfig, predictor: Predictor) -> str:
    if config.format != "auto":
        return config.format
    suffix = Path(config.input.removesuffix(".gz")).suffix.lower()
    if suffix in TAGGING_SUFFIXES and "text" in predictor.lists:
        return "conll"
    format = FORMATS.get(suffix, "auto")
    if "choices" in predictor.fields:
        return {"csv": "swag", "tsv": "codah"}.get(format, format)
    if suffix == ".json" and "context" in predictor.fields and not is_array(Path(config.input)):
        return "squad"
    return format


def _table_rows(
    config: PredictConfig, predictor: Predictor, path: Path, format: Any
) -> Iterator[tuple[int, Row]]:
    _, first = next(read_cells(path, format), (1, []))
    names = [name.strip() for name in first]
    columns = {name: config.text if name == "text" else name for name in predictor.fields}
    if "text" in columns and (config.text_pair or "text_pair" in names):
        columns["text_pair"] = config.text_pair or "text_pair"
    if "id" in names:
        columns["id"] = "id"
    found = read_columns(path, format, columns, HEADERS[config.header], skip_bad=False)
    for row in without_header(path, found):
        yield row.line, dict(row.cells)


def _line_rows(config: PredictConfig, format: str) -> Iterator[tuple[int, Row]]:
    """A text a line, or JSON; which of them, the first line tells where the format does not."""
    lines = _standard_input() if config.input == "-" else read_lines(Path(config.input))
    first = next(lines, "")
    lines = itertools.chain([first], lines)
    if format == "lines" or (format == "auto" and not first.lstrip().startswith("{")):
        texts = ({"text": line.rstrip("\r\n")} for line in lines if line)
        yield from enumerate(texts, start=1)
        return
    columns = {"text": config.text} | ({"text_pair": config.text_pair} if config.text_pair else {})
    name = "standard input" if config.input == "-" else config.input
    for number, record in objects_of(lines, name):
        for role, column in columns.items():
            with contextlib.suppress(KeyError):  # A missing field is an error only if it is wanted
                record[role] = field(record, column)
        yield number, record


def _standard_input() -> Iterator[str]:
    sys.stdin.reconfigure(encoding="utf-8", errors="replace")  # type: ignore[union-attr]
    for number, line in enumerate(sys.stdin):
        yield line if number else line.removeprefix("\ufeff")


def load_predictor(model: str) -> Predictor:
    """What answers a list of rows.

    Raises:
        FileNotFoundError: if there is no such model.
        ValueError: if the path is neither an export nor a `.keras` file of a task with an answer.
    """
    path = Path(model)
    if not model or not path.exists():
        raise FileNotFoundError(f"model {model!r} is not there, expected an export or .keras file")
    if (path / "saved_model.pb").is_file():
        return _exported(path)
    if path.suffix == ".keras" and path.is_file():
        return _saved(path)
    raise ValueError(f"{path} is neither a folder with a saved_model.pb nor a .keras file")


def _saved(path: Path) -> Predictor:
    import keras_bert

    task = keras_bert.load_model(path, compile=False)
    verbs: dict[type, tuple[tuple[str, ...], Callable[..., Any]]] = {
        keras_bert.TextClassifier: (("text",), lambda rows: task.classify(_texts(rows))),
        keras_bert.TokenClassifier: (("text",), lambda rows: task.tag(_column(rows, "text"))),
        keras_bert.QuestionAnswerer: (
            ("question", "context"),
            lambda rows: task.answer(_column(rows, "question"), _column(rows, "context")),
        ),
        keras_bert.MultipleChoice: (
            ("text", "choices"),
            lambda rows: task.choose([(row["text"], row["choices"]) for row in rows]),
        ),
        keras_bert.TextEmbedder: (
            ("text",),
            lambda rows: [{"vector": v.tolist()} for v in task.embed(_column(rows, "text"))],
        ),
        keras_bert.MaskedLM: (("text",), lambda rows: task.fill(_column(rows, "text"))),
    }
    lists = {keras_bert.TokenClassifier: ("text",), keras_bert.MultipleChoice: ("choices",)}
    for kind, (fields, verb) in verbs.items():
        if isinstance(task, kind):
            return Predictor(fields, verb, lists.get(kind, ()))
    raise ValueError(f"{path} is a {type(task).__name__}, which answers no text")


def _exported(path: Path) -> Predictor:
    # The operations of the exported tokenizer
    import tensorflow as tf
    import tensorflow_text  # noqa: F401

    loaded = tf.saved_model.load(os.fspath(path))
    # Of choices, the signature that is told how many each row has
    counted = "serve_counted_choices"
    signature = loaded.signatures[counted if counted in loaded.signatures else "serving_default"]
    specs = signature.structured_input_signature[1]
    fields = tuple(name for name in specs if name != "num_choices")

    def answer(rows: list[Row]) -> list[Any]:
        inputs = {name: tf.constant(_padded(_column(rows, name))) for name in fields}
        if "num_choices" in specs:
            inputs["num_choices"] = tf.constant([len(row["choices"]) for row in rows], tf.int32)
        outputs = {name: value.numpy() for name, value in signature(**inputs).items()}
        return [
            {name: _plain(values[index]) for name, values in outputs.items()}
            for index in range(len(rows))
        ]

    answer.loaded = loaded  # type: ignore[attr-defined]  # its variables live as long as it does
    return Predictor(fields, answer, ("choices",))


def _texts(rows: list[Row]) -> list[Any]:
    """Texts, or pairs where there are any."""
    if not any("text_pair" in row for row in rows):
        return _column(rows, "text")
    for row in rows:
        if "text_pair" not in row:
            raise RowError(f"other rows have a text_pair, and {excerpt(row)} has none")
    return [(row["text"], row["text_pair"]) for row in rows]


def _column(rows: list[Row], name: str) -> list[Any]:
    return [row[name] for row in rows]


def _padded(values: list[Any]) -> list[Any]:
    """Lists of strings filled up to the longest with empty ones, as signatures want choices."""
    if not any(isinstance(value, list) for value in values):
        return values
    longest = max(len(value) for value in values)
    return [[*value, *[""] * (longest - len(value))] for value in values]


def _plain(value: Any) -> Any:
    """Numbers, strings and lists of a tensor's row."""
    array = np.asarray(value)
    if array.dtype.kind in "SO":
        decoded = [str(item, "utf-8", "replace") for item in array.reshape(-1).tolist()]
        return np.array(decoded, dtype=object).reshape(array.shape).tolist()
    return array.tolist()


@contextlib.contextmanager
def _opened_output(name: str) -> Iterator[IO[str]]:
    if name == "-":
        yield sys.stdout
        return
    with atomic_path(name) as temporary, open(temporary, "w", encoding="utf-8") as file:
        yield file


if __name__ == "__main__":
    define_flags(PredictConfig(), flags.FLAGS)
    program.run(main)
