# SPDX-License-Identifier: Apache-2.0
"""Answers of any trained model to a file, or to standard input, as JSON Lines.

    python -m training.predict --model=runs/finetune/export/1 --input=reviews.txt
    cat questions.jsonl | python -m training.predict --model=runs/squad/seed_1/model.keras

The model is a folder that `export` wrote, or a `.keras` file of a task. The input is a text a line,
or JSON Lines with the task's fields: `text`, and for pairs `text_pair`; `question` and `context`;
`text` and `choices`. Answers come in the order of the input, one line each; an `id` in the input is
in the answer too.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
from absl import app, flags

from training import program
from training.config_flags import define_flags, read_flags

Row = dict[str, Any]
Predictor = Callable[[list[Row]], list[Any]]


class RowError(ValueError):
    """A line of the input is malformed."""


@dataclasses.dataclass(frozen=True)
class PredictConfig:
    """Which model, and on what.

    Args:
        model: a folder that export wrote, or a .keras file.
        input: a file of text or JSON Lines; - for standard input.
        output: where the answers go; - for standard output.
        batch_size: lines that are answered at once.
    """

    model: str = ""
    input: str = "-"
    output: str = "-"
    batch_size: int = 64

    def __post_init__(self) -> None:
        if self.batch_size < 1:
            raise ValueError(f"batch_size is {self.batch_size}, expected at least 1")


def main(arguments: list[str]) -> None:
    program.refuse_arguments(arguments)
    with program.plain_errors():
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
    with _opened_input(config.input) as lines, _opened_output(config.output) as output:
        rows = read_rows(lines, "standard input" if config.input == "-" else config.input)
        while batch := list(itertools.islice(rows, config.batch_size)):
            for row, answer in zip(batch, predictor(batch), strict=True):
                answer = answer if isinstance(answer, dict) else {"answers": answer}
                given = {"id": row["id"]} if "id" in row else {}
                output.write(json.dumps({**given, **answer}, ensure_ascii=False) + "\n")
            output.flush()
            count += len(batch)
    return count


def read_rows(lines: Iterable[str], name: str) -> Iterator[Row]:
    """The rows of JSON Lines, or of a text a line; which of them, the first line tells.

    Args:
        lines: the lines.
        name: what messages call them.

    Raises:
        RowError: if a line of JSON Lines is no object.
    """
    is_json: bool | None = None
    for number, line in enumerate(lines, start=1):
        line = line.removeprefix("\ufeff") if number == 1 else line
        text = line.rstrip("\r\n")
        if is_json is None:
            is_json = text.lstrip().startswith("{")
        if not is_json:
            yield {"text": text}
        elif text.strip():
            yield _json_row(text, f"{name}, line {number}")


def _json_row(text: str, place: str) -> Row:
    try:
        row = json.loads(text)
    except json.JSONDecodeError as error:
        raise RowError(f"{place}: no JSON ({error})") from None
    if not isinstance(row, dict):
        raise RowError(f"{place}: {text[:60]!r} is no JSON object")
    return row


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
    for kind, (fields, verb) in verbs.items():
        if isinstance(task, kind):
            return _checked(fields, verb)
    raise ValueError(f"{path} is a {type(task).__name__}, which answers no text")


def _checked(fields: tuple[str, ...], verb: Callable[[list[Row]], list[Any]]) -> Predictor:
    def predict(rows: list[Row]) -> list[Any]:
        _check_fields(rows, fields)
        return verb(rows)

    return predict


def _exported(path: Path) -> Predictor:
    # The operations of the exported tokenizer
    import tensorflow as tf
    import tensorflow_text  # noqa: F401

    loaded = tf.saved_model.load(os.fspath(path))
    signature = loaded.signatures["serving_default"]
    specs = signature.structured_input_signature[1]

    def predict(rows: list[Row]) -> list[Any]:
        _check_fields(rows, tuple(specs))
        inputs = {name: tf.constant(_padded(_column(rows, name))) for name in specs}
        outputs = {name: value.numpy() for name, value in signature(**inputs).items()}
        return [
            {name: _plain(values[index]) for name, values in outputs.items()}
            for index in range(len(rows))
        ]

    predict.loaded = loaded  # type: ignore[attr-defined]  # its variables live as long as it does
    return predict


def _check_fields(rows: list[Row], fields: tuple[str, ...]) -> None:
    for row in rows:
        missing = [name for name in fields if name not in row]
        if missing:
            raise RowError(
                f"the model wants {', '.join(fields)}; {json.dumps(row)[:80]} has no "
                f"{', '.join(missing)}"
            )


def _texts(rows: list[Row]) -> list[Any]:
    """Texts, or pairs where there are any."""
    if not any("text_pair" in row for row in rows):
        return _column(rows, "text")
    _check_fields(rows, ("text", "text_pair"))
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


@contextmanager
def _opened_input(name: str) -> Iterator[IO[str]]:
    if name == "-":
        sys.stdin.reconfigure(encoding="utf-8", errors="replace")  # type: ignore[union-attr]
        yield sys.stdin
        return
    with open(name, encoding="utf-8", newline="\n") as file:
        yield file


@contextmanager
def _opened_output(name: str) -> Iterator[IO[str]]:
    if name == "-":
        yield sys.stdout
        return
    partial = f"{name}.partial"
    with open(partial, "w", encoding="utf-8") as file:
        yield file
    os.replace(partial, name)


if __name__ == "__main__":
    define_flags(PredictConfig(), flags.FLAGS)
    app.run(main)
