# SPDX-License-Identifier: Apache-2.0
"""Predicts with any trained model on a file or on standard input, and writes JSON Lines.

    python -m training.predict --model=runs/reviews/export/1 --input=reviews.txt
    python -m training.predict --model=runs/reviews/export/1 --input=reviews.csv --text=review
    cat questions.jsonl | python -m training.predict --model=runs/squad/seed_1/model.keras
    python -m training.predict --model='runs/reviews/seed_*/model.keras' --input=reviews.txt

The model is a directory written by `export`, a task's `.keras` file, or a checkpoint. Multiple
`.keras` files form an ensemble that averages their predictions. The command reads the same formats
as training and evaluation: TSV, CSV, Excel's .xlsx, JSON Lines, a JSON array or Parquet with the
task's fields (`text` and, for pairs, `text_pair`; `question` and `context`; `text` and `choices`),
SQuAD's JSON, CoNLL columns, SWAG's CSV and CODAH's TSV. Text files may be compressed. Any other
file, and standard input, is read as one text per line or as JSON Lines.

The command writes one prediction per row, in the order of the input. A blank row is predicted as an
empty text. The field `id` is copied to the output, and with --include_input also the texts.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any, get_args

from absl import logging

from keras_bert.atomic import atomic_path
from keras_bert.data.columns import columns_of_rows
from keras_bert.data.squad import question_id
from keras_bert.data.text_files import decoded_lines, read_lines

from .engine import output_directory, program, saved_models
from .engine.options import (
    PositiveInt,
    TextFileOptions,
    UnusedFlags,
    check_formats,
    check_one_of,
    check_unset,
)
from .readers import answer_files
from .readers.choice_files import FORMATS as CHOICE_FORMATS
from .readers.choice_files import choice_fields, read_choices
from .readers.column_names import TEXT, TEXT_PAIR
from .readers.data_files import (
    FORMATS,
    FORMATS_OF,
    TAGGING_SUFFIXES,
    Header,
    data_suffix,
    exists,
    infer_format,
    is_array,
    read_columns,
    read_records,
    without_header,
)
from .readers.json_objects import read_objects
from .readers.labeled_text import TextColumns, parse_label_map
from .readers.question_files import read_questions
from .readers.row_values import BadRows, excerpt, field
from .readers.separated_values import Quoting
from .readers.tagged_words import WORDS, WordColumns
from .readers.task_files import first_tag

Row = dict[str, Any]

_FORMATS = dict.fromkeys(("auto", "lines", *FORMATS.values(), "squad", "conll", *CHOICE_FORMATS))
# Flags that only some formats support, and these formats. `auto` is lines of text or JSON Lines.
_RECORD_FORMATS = ("auto", "tsv", "csv", "jsonl", "arrow", "xlsx")
_FORMATS_OF = {
    **dict.fromkeys(("text", "text_pair"), _RECORD_FORMATS),
    **FORMATS_OF,
    "quoting": ("tsv", "codah"),
    "encoding": tuple(name for name in _FORMATS if name not in ("arrow", "xlsx")),
    **dict.fromkeys(("word_column", "separator", "comments"), ("conll",)),
}


class RowError(ValueError):
    """Raised for an invalid row in the input."""


@dataclasses.dataclass(frozen=True)
class RowFields:
    """The row fields that a model requires.

    Args:
        names: Names of the required fields.
        lists: Names of fields that may contain a list of strings.
        optional: Names of optional fields.
    """

    names: tuple[str, ...]
    lists: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class PredictConfig(TextFileOptions):
    """The model, the input and the output.

    Args:
        model: A directory written by export, a .keras file, or a checkpoint (minilm,
            hf://organization/model or its directory). Multiple files, separated by commas or given
            by wildcards such as seed_*/model.keras, are an ensemble.
        input: The input file, or - for standard input.
        output: The file for the predictions, or - for standard output.
        format: Format of the input, one of auto, lines, tsv, csv, jsonl, arrow (Parquet and Arrow),
            xlsx, squad, conll, swag and codah. auto infers it from the suffix. If the suffix is
            unknown, auto reads JSON Lines if the first line starts with {, and lines of text
            otherwise.
        text: The column of the text, by name or by index from 0. In JSON, it can also be a nested
            field, such as document.text. If the input file has no column text, a usual name, such
            as review, is looked for, and for pairs two names, such as premise and hypothesis.
        text_pair: The column of the second text. If empty, the column text_pair is used if it
            exists.
        header: Whether the first row of TSV or CSV is a header: auto, yes or no.
        quoting: How to read quotes in TSV. With csv, they enclose cells and are doubled inside, as
            written by Excel and pandas. With none, they are text. auto infers it from the file.
        word_column: For CoNLL columns, the index of the words' column from 0, or a negative index
            from the end. Defaults to the first column that does not only contain word numbers.
        separator: The separator of CoNLL columns: auto, tab or space.
        comments: Whether lines that start with # before a sentence are comments. By default, only
            in CoNLL-U, or if such a line starts every sentence.
        label_map: Labels to rename in the output. For example, neutral:no,contradiction:no writes
            no for both, with the probability of the predicted label.
        skip_invalid: Whether to skip and count invalid rows, instead of raising an error. Then
            match the predictions and rows by their IDs.
        include_input: Whether to repeat the input in each prediction, under the names of the
            model's fields: text and text_pair, question and context, or text and choices.
        batch_size: Number of examples per batch.
        overwrite: Whether to replace an existing --output that starts like a file of predictions.
    """

    model: str = ""
    input: str = "-"
    output: str = "-"
    format: str = "auto"
    text: str = "text"
    text_pair: str = ""
    header: str = "auto"
    quoting: str = "auto"
    word_column: int | None = None
    separator: str = "auto"
    comments: bool | None = None
    label_map: tuple[str, ...] = ()
    skip_invalid: bool = False
    include_input: bool = False
    batch_size: PositiveInt = 64
    overwrite: bool = False

    def unused_flags(self) -> UnusedFlags:
        if self.output == "-":
            yield ["overwrite"], "--output is not given"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_one_of(
            self, format=tuple(_FORMATS), header=get_args(Header), quoting=get_args(Quoting)
        )
        parse_label_map(self.label_map)


def main(config: PredictConfig) -> None:
    program.import_quietly()
    predict(config)


def predict(config: PredictConfig) -> int:
    """Writes a prediction for each row in the input.

    Returns:
        The number of predictions.

    Raises:
        FileNotFoundError: If the model or the input does not exist.
        RowError: If a row is invalid. The message contains its line. If the output is standard
            output, the predictions for earlier batches have already been written.
    """
    if config.input != "-" and not exists(Path(config.input)):
        raise FileNotFoundError(f"--input={config.input} does not exist")
    _check_other_file(config)
    model, fields = load_model(config.model)
    label_map = _label_map(config, model)
    config = _with_columns_of_file(config, fields)
    if config.text_pair or config.text != TEXT:
        fields = _add_given_columns(config, fields)
    truncated_rows = find_truncated_rows(model)
    if truncated_rows is not None:
        truncated_rows.is_reported = True  # `predict` warns once, after the last batch.
    count = 0
    with _opened_output(config.output) as output:
        rows = read_rows(config, fields)
        while batch := list(itertools.islice(rows, config.batch_size)):
            try:
                answers = model.predict_rows(batch)
            except ValueError as error:  # Its message counts rows from 0 within the batch.
                where = f"in the batch of rows {count + 1} to {count + len(batch)}"
                raise RowError(f"{_input_name(config)}, {where}: {error}") from error
            windows = _window_counts(model, batch)
            for row, answer, num_windows in zip(batch, answers, windows, strict=True):
                line = answered_row(row, answer, fields.names if config.include_input else ())
                line |= {} if num_windows is None else {"num_windows": num_windows}
                line = answer_files.relabeled(line, label_map)
                output.write(json.dumps(line, ensure_ascii=False, default=str) + "\n")
            output.flush()
            count += len(batch)
    if not count:
        logging.warning("%s has no rows", _input_name(config))
    if truncated_rows is not None and (message := truncated_rows.message()):
        logging.warning("%s: %s", _input_name(config), message)
    return count


def _window_counts(model: Any, rows: Sequence[Row]) -> Sequence[int | None]:
    """Returns each row's number of windows, or `None` if the model does not split texts.

    An export's predictions contain the numbers.
    """
    if not getattr(getattr(model, "preprocessor", None), "splits_texts", False):
        return [None] * len(rows)
    columns = columns_of_rows(rows, model.fields, model.optional_fields)
    counts: list[int] = model.num_windows(columns).tolist()
    return counts


def _check_other_file(config: PredictConfig) -> None:
    """Raises an error if --output would replace the input or the model."""
    for flag in ("input", "model"):
        path = Path(getattr(config, flag))
        if path.is_file() and Path(config.output).is_file() and path.samefile(config.output):
            raise ValueError(f"--output must be a different file than --{flag}. Received: {path}")
    program.check_new_file("--output", config.output, config.overwrite)


def _label_map(config: PredictConfig, model: Any) -> dict[str, str]:
    """Returns the labels to rename, after checking that the model can predict them."""
    label_map = parse_label_map(config.label_map)
    names = getattr(getattr(model, "description", model), "class_names", None)
    if not names and not getattr(model, "is_regression", False):
        names = tuple(map(str, range(getattr(model, "num_classes", 0))))
    if unknown := [label for label in label_map if label not in (names or ())]:
        raise ValueError(
            f"--label_map must have labels of the model, {excerpt(list(names or ()), 300)}. "
            f"Received: {unknown[0]}"
        )
    return label_map


def _with_columns_of_file(config: PredictConfig, fields: RowFields) -> PredictConfig:
    """Returns a config with a file's own column names in place of a missing column `text`."""
    format = _format(config, fields)
    if "text" not in fields.names or "text" in fields.lists or format not in FORMATS.values():
        return config
    if config.input == "-" or config.text_pair not in ("", TEXT_PAIR):
        return config
    columns = TextColumns(
        text=config.text, format=format, header=config.header, encoding=config.encoding
    )
    columns = columns.for_file(config.input, labeled=False)
    if columns.text_pair and "text_pair" not in (*fields.names, *fields.optional):
        raise ValueError(
            f"--text must be given for a file of text pairs, because {config.model} accepts single "
            f"texts. Received: the columns {columns.text} and {columns.text_pair}"
        )
    return dataclasses.replace(config, text=columns.text, text_pair=columns.text_pair)


def _add_given_columns(config: PredictConfig, fields: RowFields) -> RowFields:
    """Adds the second text to the required fields if its column is given."""
    accepted = (*fields.names, *fields.optional)
    for flag, given in (("text", config.text != TEXT), ("text_pair", config.text_pair)):
        if given and flag not in accepted:
            raise ValueError(
                f"--{flag} is only for models that accept {flag}. Received: "
                f"--model={config.model}, a model for {', '.join(fields.names)}"
            )
    if not config.text_pair or "text_pair" in fields.names:
        return fields
    return dataclasses.replace(fields, names=(*fields.names, "text_pair"))


def answered_row(row: Row, answer: Any, fields: Sequence[str] = ()) -> dict[str, Any]:
    """Returns a row's output line, with its ID, the input fields `fields`, and the prediction."""
    answer = answer if isinstance(answer, dict) else {"answers": answer}
    names = [
        *(["id"] if "id" in row else []),
        *(_read_fields(row, fields) if fields else []),
    ]
    return {**{name: row[name] for name in names}, **answer}


def read_rows(config: PredictConfig, fields: RowFields) -> Iterator[Row]:
    """Yields the rows in the input, with the fields that the model reads, and `id` if present.

    Raises:
        RowError: If a field is missing or has the wrong type, and `skip_invalid` is off. The
            message contains the line.
        ValueError: If the file is invalid in a different way.
    """
    name = _input_name(config)
    blank, bad = [], BadRows(collect=config.skip_invalid)
    for place, row in _placed_rows(config, fields, bad):
        field_names = _read_fields(row, fields.names)
        if "text_pair" in row and "text_pair" not in (*fields.names, *fields.optional):
            raise ValueError(
                f"{name}, {place}: the model accepts {', '.join(fields.names)}. Received: a row "
                "with text_pair. Remove or rename that field, or use a model for pairs"
            )
        try:
            for field_name in field_names:
                _check_field(row, field_name, fields, f"{name}, {place}")
        except RowError as error:
            bad.add(error)
            continue
        if not any("".join(row[field_name]).strip() for field_name in field_names):
            blank.append(place)
        yield row
    if blank:
        logging.warning(
            "%s: %d rows are blank, the first in %s. They were predicted as empty texts",
            name,
            len(blank),
            blank[0],
        )
    if bad.messages:
        count = len(bad.messages)
        logging.warning("%d invalid rows were skipped, the first: %s", count, bad.messages[0])


def _read_fields(row: Row, fields: Sequence[str]) -> list[str]:
    """Returns the required fields, and `text_pair` if the row has it."""
    return list(dict.fromkeys([*fields, *(["text_pair"] if "text_pair" in row else [])]))


def _check_field(row: Row, name: str, fields: RowFields, where: str) -> None:
    if name not in row:
        names = ", ".join(fields.names)
        raise RowError(f"{where}: {name} must be given. Received: {excerpt(row)} (expects {names})")
    value = row[name]
    if name != "choices" and (value is None or value != value):  # pandas writes null and NaN.
        value = row[name] = ""
    is_list = isinstance(value, list) and all(isinstance(item, str) for item in value)
    is_list &= bool(value) or name != "choices"
    if not isinstance(value, str) and not (is_list and name in fields.lists):
        kind = "a list of one or more strings" if name == "choices" else "a string"
        raise RowError(f"{where}: {name} must be {kind}. Received: {excerpt(value)}")


def _placed_rows(
    config: PredictConfig, fields: RowFields, bad: BadRows
) -> Iterator[tuple[str, Row]]:
    """Yields the place and the fields of each row, in any format."""
    format = _format(config, fields)
    check_formats(config, _FORMATS_OF, [format])
    if format in ("auto", "lines", "jsonl"):
        yield from _line_rows(config, fields, format, bad)
    elif config.input == "-":
        with tempfile.TemporaryDirectory() as directory:
            path = Path(directory, "standard_input")
            path.write_bytes(sys.stdin.buffer.read())
            yield from _file_rows(config, fields, path, format, bad)
    else:
        yield from _file_rows(config, fields, Path(config.input), format, bad)


def _file_rows(
    config: PredictConfig, fields: RowFields, path: Path, format: str, bad: BadRows
) -> Iterator[tuple[str, Row]]:
    if format == "arrow":
        for place, record in read_records(path, format, bad):
            yield place, _rename_fields(config, fields, record)
    elif format in ("tsv", "csv", "xlsx"):
        yield from _table_rows(config, fields, path, format, bad)
    elif format == "squad":
        questions = read_questions(
            path, labeled=False, skip_invalid=bad.collect, encoding=config.encoding
        )
        bad.messages += questions.skipped
        for number, example in enumerate(questions.examples, start=1):
            texts = {"question": example.question, "context": example.context}
            yield f"row {number}", {"id": example.id, **texts}
    elif format == "conll":
        columns = WordColumns(
            encoding=config.encoding,
            word_column=config.word_column,
            separator=config.separator,
            comments=config.comments,
        )
        text = columns.read_words(str(path), labeled=False, skip_invalid=bad.collect)
        bad.messages += text.skipped
        for number, words in enumerate(text.words, start=1):
            yield f"row {number}", {"text": words}
    else:
        data = read_choices(path, format, config.quoting, bad, False, config.encoding)
        ids = data.ids or [None] * len(data)
        for number, (id, text, choices) in enumerate(zip(ids, *data.inputs, strict=True), start=1):
            row = {"text": text, "choices": choices}
            yield f"row {number}", row if id is None else {"id": id, **row}


def _format(config: PredictConfig, fields: RowFields) -> str:
    if config.format != "auto":
        return config.format
    path = Path(config.input)
    suffix = data_suffix(path)
    if suffix in TAGGING_SUFFIXES:
        if "text" not in fields.lists:
            raise ValueError(
                f"{config.input} is a file of words in columns, but the model accepts "
                f"{', '.join(fields.names)}. --format=lines reads each line as a text"
            )
        return "conll"
    format = FORMATS.get(suffix, "auto")
    has_words = "text" in fields.lists and format in ("auto", "tsv") and path.is_file()
    if has_words and first_tag(path, config.encoding):
        return "conll"
    if format == "auto" and config.input != "-" and not path.is_file():  # a directory
        format = infer_format(path, config.encoding)
    if "choices" in fields.names:
        return {read: name for name, read in CHOICE_FORMATS.items()}.get(format, format)
    if suffix == ".json" and "context" in fields.names and not is_array(path, config.encoding):
        return "squad"
    return format


def _table_rows(
    config: PredictConfig, fields: RowFields, path: Path, format: Any, bad: BadRows
) -> Iterator[tuple[str, Row]]:
    columns = {name: config.text if name == "text" else name for name in fields.names}
    optional = {"id": "id"}
    if "text" in columns and config.text_pair:
        columns["text_pair"] = config.text_pair
    elif "text" in columns and "text_pair" not in columns:
        optional["text_pair"] = "text_pair"
    rows, has_header = read_columns(
        path,
        format,
        columns,
        config.header,
        quoting=config.quoting,
        optional=optional,
        bad=bad,
        encoding=config.encoding,
    )
    yield from without_header(path, rows, has_header)


def _line_rows(
    config: PredictConfig, fields: RowFields, format: str, bad: BadRows
) -> Iterator[tuple[str, Row]]:
    """Yields rows of plain text lines or JSON Lines. With `auto`, the first line decides."""
    name = _input_name(config)
    is_piped = config.input == "-"
    if is_piped and sys.stdin.isatty():
        logging.info("reading one text per line from the terminal. Press Ctrl-D to end the input")
    encoding = config.encoding
    if is_piped:
        lines = decoded_lines(sys.stdin.buffer, name, encoding)
    else:
        lines = read_lines(name, encoding)
    first = next(lines, "")
    lines = itertools.chain([first], lines)
    if format == "lines" or (format == "auto" and not first.lstrip().startswith("{")):
        check_unset(config, ("text", "text_pair"), "each line of the input is a text")
        for number, line in enumerate(filter(None, lines), start=1):
            yield f"line {number}", {"text": line.rstrip("\r\n")}
        return
    for place, record in read_objects(lines, name, bad):
        yield place, _rename_fields(config, fields, record)


def _rename_fields(config: PredictConfig, fields: RowFields, record: Row) -> Row:
    """Renames a record's texts or choices to the model's field names.

    Missing and invalid fields raise no error here, because `read_rows` checks the fields that the
    model requires.
    """
    if record.get("id") is None and question_id(record) is not None:
        record = {**record, "id": question_id(record)}
    if "choices" in fields.names:
        with contextlib.suppress(ValueError):
            text, choices, _ = choice_fields(record, labeled=False)
            return {**record, "text": text, "choices": choices}
    words = [record[name] for name in WORDS if name in record]
    if words and "text" in fields.lists and config.text not in record:
        return {**record, "text": words[0]}
    columns = {"text": config.text} | ({"text_pair": config.text_pair} if config.text_pair else {})
    for role, column in columns.items():
        try:
            record[role] = field(record, column)
        except KeyError:
            if column != role:
                record.pop(role, None)  # A different column was given.
    return record


def _input_name(config: PredictConfig) -> str:
    return "standard input" if config.input == "-" else config.input


def load_model(model: str) -> tuple[Any, RowFields]:
    """Loads a model for prediction.

    Returns:
        A task or a `keras_bert.export.ServedModel`, and the fields of its rows.

    Raises:
        FileNotFoundError: If the model does not exist.
        ValueError: If the path is neither an export, a task's `.keras` file nor a checkpoint, or if
            the task does not predict on text.
    """
    if saved_models.is_preset(model):
        return _with_fields(saved_models.load_preset(model), pairs=None)
    files = saved_models.model_files(model, exported=True)
    return _exported(files[0]) if files[0].is_dir() else _saved(files)


def _saved(files: Sequence[Path]) -> tuple[Any, RowFields]:
    task = saved_models.load_task(files)
    if not getattr(task, "predict_method", ""):  # For example, an encoder.
        name = type(task).__name__
        raise ValueError(
            f"{files[0]} must be a task that predicts on text. Received: a {name}. Save a preset, "
            "and load it as such a task, for example as a MaskedLM."
        )
    pairs = {output_directory.load_results(file).get("pairs") for file in files}
    return _with_fields(task, True if True in pairs else None if None in pairs else False)


def _with_fields(task: Any, pairs: bool | None) -> tuple[Any, RowFields]:
    """Returns a task and the fields of its rows.

    Args:
        task: The task.
        pairs: Whether it was trained on pairs. `None` if this is unknown.
    """
    names = (*task.fields, *(task.optional_fields if pairs else ()))
    return task, RowFields(names, task.list_fields, task.optional_fields if pairs is None else ())


def _exported(path: Path) -> tuple[Any, RowFields]:
    # The exported tokenizer uses operations that tensorflow_text registers.
    program.require(("tensorflow", "tensorflow_text"), "export")
    program.import_quietly("tensorflow")
    from keras_bert.export import ServedModel

    model = ServedModel(path)
    return model, RowFields(model.fields, model.list_fields)


def find_truncated_rows(model: Any) -> Any:
    """Returns a model's record of truncated rows, or `None` for exports and tasks without one."""
    return getattr(getattr(model, "preprocessor", None), "truncated_rows", None)


@contextlib.contextmanager
def _opened_output(name: str) -> Iterator[IO[str]]:
    if name == "-":
        yield sys.stdout
        return
    with atomic_path(name) as temporary, open(temporary, "w", encoding="utf-8") as file:
        yield file


if __name__ == "__main__":
    program.run(main, PredictConfig)
