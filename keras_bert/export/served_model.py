# SPDX-License-Identifier: Apache-2.0
"""Runs an exported SavedModel with its task's inputs and predictions."""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from keras_bert.data.columns import columns_of_rows
from keras_bert.export.description import (
    DESCRIPTION_FILE,
    TOKENIZER_FILE,
    ExportDescription,
    RowRequest,
)
from keras_bert.text.from_config import tokenizer_from_config
from keras_bert.text.tokenizer import Tokenizer

Row = Mapping[str, Any]


class ServedModel:
    """A SavedModel in this process, with the input fields and predictions of its task.

    Args:
        filepath: Directory written by `export`.

    Raises:
        OSError: If the directory has no SavedModel.
        ValueError: If the SavedModel was not written by `export`.

    Example:

    ```python
    classifier.export("export/sst2/1")
    served = ServedModel("export/sst2/1")
    served.fields       # ("text",)
    served.predict_rows([{"text": "a gripping film"}])
    # [{"label": "positive", "probabilities": [0.1, 0.9], "score": 0.9}]
    ```
    """

    def __init__(self, filepath: str | os.PathLike[str]) -> None:
        import tensorflow as tf
        import tensorflow_text  # noqa: F401  # registers the operations of tokenizers

        self._signatures = tf.saved_model.load(os.fspath(filepath)).signatures
        if "serving_default" not in self._signatures:
            raise ValueError(
                "A SavedModel must have the signature serving_default, as written by `export`. "
                f"Received: {sorted(self._signatures)} ({os.fspath(filepath)})"
            )
        self._directory = Path(filepath)
        path = self._directory / DESCRIPTION_FILE
        if not path.is_file():
            raise ValueError(
                f"filepath must be a directory written by `export`: {path} is missing."
            )
        try:
            self.description = ExportDescription.from_json(path.read_text(encoding="utf-8"))
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"{path} is invalid: {error!r}") from error

    @property
    def signatures(self) -> Mapping[str, Any]:
        """The SavedModel's signatures by name, as functions of TensorFlow tensors."""
        return dict(self._signatures)

    @property
    def predict_method(self) -> str:
        """The task's prediction method with the same results, for example `classify`."""
        return self.description.predict_method

    @property
    def fields(self) -> tuple[str, ...]:
        """The names of the text fields."""
        return self.description.fields

    @property
    def list_fields(self) -> tuple[str, ...]:
        """The fields with lists of strings, or with either a string or a list."""
        return self.description.list_fields

    @functools.cached_property
    def tokenizer(self) -> Tokenizer:
        """The model's tokenizer, in Python."""
        config = (self._directory / TOKENIZER_FILE).read_text(encoding="utf-8")
        return tokenizer_from_config(json.loads(config))

    def predict_rows(self, rows: Sequence[Row]) -> list[Any]:
        """Predicts outputs for examples, as the task's `predict_rows` does.

        Args:
            rows: Examples, dicts with the `fields`. Other entries are ignored.

        Returns:
            For each example, a dict of outputs sorted by name, or a list of dicts.

        Raises:
            ValueError: If an example lacks a field, or has a list where the task expects a string,
                or the reverse.
        """
        columns_of_rows(rows, self.fields)
        answers: list[Any] = [None] * len(rows)
        remaining = list(range(len(rows)))
        for request in self.description.requests:
            inputs = dict(self._signatures[request.signature].structured_input_signature[1])
            indices = [index for index in remaining if _fits(request, inputs, rows[index])]
            remaining = sorted(set(remaining).difference(indices))
            request_answers = self._answers(request, inputs, [rows[index] for index in indices])
            for index, answer in zip(indices, request_answers, strict=True):
                answers[index] = answer
        if remaining:
            row = rows[remaining[0]]
            raise ValueError(
                f"{', '.join(self.fields)} must be strings or lists of strings, as in the model's "
                f"task. Received: {row!r} (row {remaining[0]})"
            )
        return answers

    def predict(
        self, inputs: Mapping[str, Sequence[Any]], signature: str = "serving_default"
    ) -> dict[str, list[Any]]:
        """Computes a signature's outputs.

        Args:
            inputs: Values of each input by name, one per example. Lists must have the same length
                in all examples.
            signature: Name of the signature.

        Returns:
            Values of each output, sorted by name, one per example, as numbers, strings and lists.
        """
        import tensorflow as tf

        function = self._signatures[signature]
        specs = function.structured_input_signature[1]
        outputs = function(
            **{name: tf.constant(inputs[name], spec.dtype) for name, spec in specs.items()}
        )
        return {name: _plain(outputs[name].numpy()) for name in sorted(outputs)}

    def _answers(
        self, request: RowRequest, inputs: Mapping[str, Any], rows: Sequence[Row]
    ) -> list[Any]:
        if not rows:
            return []
        values: dict[str, list[Any]] = {}
        for name in inputs:
            list_name = name.removeprefix("num_")
            column = [row[request.inputs.get(list_name, list_name)] for row in rows]
            values[name] = column if list_name == name else list(map(len, column))
        rectangular = {name: _padded(column) for name, column in values.items()}
        outputs = self.predict(rectangular, request.signature)
        if not request.items:
            counts = outputs.pop(request.count, None)
            return [
                {
                    name: column[row] if counts is None else column[row][: counts[row]]
                    for name, column in outputs.items()
                }
                for row in range(len(rows))
            ]
        columns = {**values, **outputs}
        if request.keys:
            return [
                {
                    name: {k: v for k, v in zip(keys, columns[output][row], strict=True) if k}
                    for name, output in request.items.items()
                }
                for row, keys in enumerate(columns[request.keys])
            ]
        return [
            [
                {key: columns[name][row][item] for key, name in request.items.items()}
                for item in range(columns[request.count][row])
            ]
            for row in range(len(rows))
        ]


def _fits(request: RowRequest, inputs: Mapping[str, Any], row: Row) -> bool:
    """Returns whether an example has lists exactly where a request's inputs are lists."""
    return all(
        isinstance(row[request.inputs.get(name, name)], list) == (spec.shape.rank == 2)
        for name, spec in inputs.items()
        if not name.startswith("num_")
    )


def _padded(values: list[Any]) -> list[Any]:
    """Pads lists of strings with empty strings. Returns anything else unchanged."""
    if not any(isinstance(value, list) for value in values):
        return values
    longest = max(len(value) for value in values)
    return [[*value, *[""] * (longest - len(value))] for value in values]


def _plain(value: np.ndarray[Any, Any]) -> Any:
    """Converts an array to numbers, strings and lists."""
    if value.dtype.kind in "SO":
        strings = [str(item, "utf-8", "replace") for item in value.reshape(-1).tolist()]
        value = np.array(strings, dtype=object).reshape(value.shape)
    return value.tolist()
