# SPDX-License-Identifier: Apache-2.0
"""Reads files of predictions, and matches them with the rows in a labeled file."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

from absl import logging

from .data_files import read_records
from .row_values import as_id, excerpt, is_number, row_error, row_ids

Answer = TypeVar("Answer")
# Tolerance for sums of float32 probabilities
_ROUNDING = 1e-5


def read_answers(
    path: Path, read_row: Callable[[dict[str, Any]], Answer]
) -> tuple[list[Answer], list[str | None] | None, list[str]]:
    """Reads the prediction of each row.

    Returns:
        A tuple `(predictions, ids, places)` with one element per row. `ids` is `None` if no row has
        an ID.

    Raises:
        ValueError: If a row is invalid. The message contains the file and the line.
    """
    answers, ids, places = [], [], []
    for place, row in read_records(path):
        try:
            answers.append(read_row(row))
        except ValueError as error:
            raise row_error(path, place, str(error)) from error
        ids.append(None if row.get("id") is None else as_id(row["id"]))
        places.append(place)
    return answers, row_ids(ids), places


def matched_answers(
    path: Path,
    read_row: Callable[[dict[str, Any]], Answer],
    data_file: str,
    count: int,
    ids: Sequence[str | None] | None = None,
    left_out: Mapping[int, str | None] = MappingProxyType({}),
) -> list[Answer]:
    """Reads a file of predictions, and returns the prediction for each row in a labeled file.

    Args:
        path: The file of predictions.
        read_row: See `read_answers`.
        data_file: The labeled file, for messages.
        count: The number of rows in the labeled file.
        ids: The IDs of these rows. Predictions are matched by ID if both files have IDs, and by
            their order otherwise.
        left_out: The rows that were skipped in the labeled file, see `LabeledText`. If the file of
            predictions contains these rows, they are also skipped there.

    Raises:
        ValueError: If the files have different numbers of rows or different IDs, if an ID occurs
            twice, or if a row is invalid.
    """
    answers, own_ids, places = read_answers(path, read_row)
    if left_out and len(answers) == count + len(left_out):  # The predictions include them.
        others = left_out.keys() if None in (ids, own_ids) else left_out.values()
        keys = range(len(answers)) if None in (ids, own_ids) else own_ids
        indices = [index for index, key in enumerate(keys) if key not in others]
        answers, places = ([part[index] for index in indices] for part in (answers, places))
        own_ids = own_ids and [own_ids[index] for index in indices]
    if len(answers) != count:
        note = ". Blank rows at the end of labeled tables do not count"
        raise ValueError(
            f"{path} must have one prediction for each of the {count} rows in {data_file}. "
            f"Received: {len(answers)} predictions{note if len(answers) > count else ''}"
        )
    if ids is None or own_ids is None:
        without = path if own_ids is None else data_file
        logging.info("%s: matched by order, because %s has no ids", path, without)
        return answers
    logging.info("%s: matched by id", path)
    if list(ids) == own_ids:
        return answers
    data_index = index_ids(ids, data_file, [f"row {number}" for number in range(1, count + 1)])
    answer_index = index_ids(own_ids, path, places)
    unknown_ids = [id for id in answer_index if id not in data_index]
    if unknown_ids:
        unanswered_id = next(id for id in data_index if id not in answer_index)
        raise ValueError(
            f"{path} must have the same ids as {data_file}. Received: {len(unknown_ids)} other "
            f"ids, such as {excerpt(unknown_ids[0])}, but no prediction for "
            f"{excerpt(unanswered_id)}"
        )
    return [answers[answer_index[id]] for id in data_index]


def answers_by_id(
    path: Path, read_row: Callable[[dict[str, Any]], Answer]
) -> dict[str | None, Answer]:
    """Reads a file of predictions with IDs.

    Raises:
        ValueError: If a row has no ID, if an ID occurs twice, or if a row is invalid.
    """
    answers, ids, places = read_answers(path, read_row)
    indices = index_ids(ids or [None] * len(places), path, places)
    return {id: answers[index] for id, index in indices.items()}


def index_ids(
    ids: Sequence[str | None], path: Path | str, places: Sequence[str]
) -> dict[str | None, int]:
    """Returns the index of each ID.

    Raises:
        ValueError: If a row has no ID, or if an ID occurs twice. The message contains the places.
    """
    indices: dict[str | None, int] = {}
    for index, id in enumerate(ids):
        if not id:
            raise ValueError(f"{path}, {places[index]}: each row must have an id")
        if id in indices:
            raise ValueError(
                f"{path}: each id must be unique. Received: {excerpt(id)} in "
                f"{places[indices[id]]} and {places[index]}"
            )
        indices[id] = index
    return indices


def relabeled(row: dict[str, Any], label_map: Mapping[str, str]) -> dict[str, Any]:
    """Renames the labels in a prediction.

    These are its `label` or `labels`, and the `label` of each entity or word in its `answers`.
    """
    if not label_map:
        return row
    return {name: _relabeled(name, value, label_map) for name, value in row.items()}


def _relabeled(name: str, value: Any, label_map: Mapping[str, str]) -> Any:
    if name == "label" and value is not None:
        return label_map.get(as_id(value), value)
    if isinstance(value, list):
        return [
            relabeled(item, label_map)
            if isinstance(item, dict)
            else label_map.get(as_id(item), item)
            if name == "labels"
            else item
            for item in value
        ]
    return value


def read_class(row: dict[str, Any], class_names: Sequence[str]) -> dict[str, Any]:
    """Returns a prediction's `label`, and its `score`, a probability, if present.

    Raises:
        ValueError: If the label is not a class, or the score is not a probability.
    """
    label = as_id(_required(row, "label"))
    if label not in class_names:
        raise ValueError(
            f"label must be one of {excerpt(list(class_names), 300)}. Received: {excerpt(label)}"
        )
    return {"label": label, **_probability(row)}


def read_number(row: dict[str, Any]) -> dict[str, float]:
    """Returns a prediction's `score`, a number.

    Raises:
        ValueError: If the score is not a finite number.
    """
    return {"score": _number(_required(row, "score"))}


def read_choice(row: dict[str, Any]) -> dict[str, Any]:
    """Returns a prediction's `choice`, or the first of its ranked `answers`, and the `score`.

    Raises:
        ValueError: If the choice is not an index, or the score is not a probability.
    """
    best = row
    if "answers" in row:
        answers = row["answers"]
        if not isinstance(answers, list) or not answers or not isinstance(answers[0], dict):
            raise ValueError(f"answers must be a list of objects. Received: {excerpt(answers)}")
        best = answers[0]
    choice = _required(best, "choice")
    if isinstance(choice, bool) or not str(choice).isdecimal():
        raise ValueError(f"choice must be an integer from 0. Received: {excerpt(choice)}")
    return {"choice": int(choice), **_probability(best)}


def read_tags(row: dict[str, Any]) -> list[tuple[str, str]]:
    """Returns the word and the label of each element in a prediction's `answers`.

    Raises:
        ValueError: If `answers` is not a list of objects with `word` and `label`.
    """
    tags = _required(row, "answers")
    for tag in tags if isinstance(tags, list) else [tags]:
        is_tag = isinstance(tag, dict) and isinstance(tag.get("word"), str)
        if not is_tag or not isinstance(tag.get("label"), str):
            raise ValueError(
                f"answers must be objects with a word and a label. Received: {excerpt(tag)}"
            )
    return [(tag["word"], tag["label"]) for tag in tags]


def read_text(row: dict[str, Any]) -> str:
    """Returns a prediction's `answer`, a string.

    Raises:
        ValueError: If the answer is not a string.
    """
    answer = _required(row, "answer")
    if not isinstance(answer, str):
        raise ValueError(f"answer must be a string. Received: {excerpt(answer)}")
    return answer


def _required(row: dict[str, Any], name: str) -> Any:
    if row.get(name) is None:
        if name in row:
            raise ValueError(f"{name} must not be null")
        raise ValueError(f"the fields must include {name}. Received: {excerpt(sorted(row), 300)}")
    return row[name]


def _probability(row: dict[str, Any]) -> dict[str, float]:
    if row.get("score") in (None, ""):
        return {}
    score = _number(row["score"])
    if not -_ROUNDING <= score <= 1 + _ROUNDING:
        raise ValueError(f"score must be a probability, from 0 to 1. Received: {score:g}")
    return {"score": score}


def _number(value: Any) -> float:
    is_finite = isinstance(value, int | float) and math.isfinite(value)
    if isinstance(value, bool) or not (is_finite or (isinstance(value, str) and is_number(value))):
        raise ValueError(f"score must be a finite number. Received: {excerpt(value)}")
    return float(value)
