# SPDX-License-Identifier: Apache-2.0
"""What a server answers with: the signatures of a SavedModel, or one of a task in Python."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..engine.example_request import example_row

Row = dict[str, Any]

DEFAULT_SIGNATURE, IDS_SIGNATURE = "serving_default", "serve_ids"
DEFAULT_BATCH_SIZE = 32
STRING, INT32 = "DT_STRING", "DT_INT32"
CHOICES = "choices"
# Characters of the rows in a batch at most: more in one batch take no less time for each.
BATCH_CHARACTERS = 16_384
# Lengths in words of the rows that are answered before the first client's
_WARM_UP_WORDS = (1, 8, 24, 56, 120, 250, 500)


@dataclasses.dataclass(frozen=True)
class Tensor:
    """An input or an output of a signature.

    Args:
        dtype: The name of its type in TensorFlow's protocol buffers.
        shape: Its shape, in which -1 is any size; the first axis is that of the rows.
    """

    dtype: str
    shape: tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class Signature:
    """A function of rows.

    Args:
        inputs: The inputs by name.
        outputs: The outputs by name; empty if they are unknown before the first answer.
        answer: Returns the outputs of rows of the inputs, a dict for each row. The lists of a row
            have the same lengths in all rows.
        count: The output that has the number of elements in the lists of a row, which are filled up
            to those of the other rows; empty if the inputs determine their lengths.
        required_text: What a text must have to be answered: the mask that a masked LM fills.
    """

    inputs: Mapping[str, Tensor]
    outputs: Mapping[str, Tensor]
    answer: Callable[[Sequence[Row]], list[Row]]
    count: str = ""
    required_text: str = ""


def of_saved_model(served: Any) -> dict[str, Signature]:
    """Returns the signatures of a `keras_bert.export.ServedModel` by name."""
    counts = {request.signature: request.count for request in served.description.requests}
    signatures = {}
    for name, function in served.signatures.items():
        inputs = _tensors(function.structured_input_signature[1])
        outputs = _tensors(function.structured_outputs)
        count = counts.get(name, "")
        signatures[name] = Signature(
            inputs,
            outputs,
            _rows_of_columns(served, name, tuple(inputs)),
            count if count in outputs else "",
        )
    return signatures


def _rows_of_columns(served: Any, name: str, inputs: tuple[str, ...]) -> Any:
    def answer(rows: Sequence[Row]) -> list[Row]:
        columns = served.predict({key: [row[key] for row in rows] for key in inputs}, name)
        return [
            dict(zip(columns, values, strict=True))
            for values in zip(*columns.values(), strict=True)
        ]

    return answer


def _tensors(specs: Mapping[str, Any]) -> dict[str, Tensor]:
    return {
        name: Tensor(
            f"DT_{spec.dtype.name.upper().replace('FLOAT32', 'FLOAT')}",
            tuple(-1 if size is None else size for size in spec.shape),
        )
        for name, spec in sorted(specs.items())
    }


def of_task(task: Any, fields: Sequence[str]) -> dict[str, Signature]:
    """Returns the signature `serving_default` of a task, as its export has it."""
    from keras_bert.ops.dispatch import compiles_each_shape

    inputs = {name: Tensor(STRING, (-1, -1) if name == CHOICES else (-1,)) for name in fields}
    compiles = compiles_each_shape()
    required_text = task.preprocessor.tokenizer.mask_token if task.verb == "fill" else ""

    def answer(rows: Sequence[Row]) -> list[Row]:
        rows = [{name: _as_text(value) for name, value in row.items()} for row in rows]
        # A compiler sees few numbers of rows.
        num_rows = 1 << (len(rows) - 1).bit_length() if compiles else len(rows)
        # Next to no text, so that none of it is counted as cut
        empty = {
            name: [required_text] if isinstance(x, list) else required_text
            for name, x in rows[0].items()
        }
        answers: list[Row] = task.serving_answers([*rows, *[empty] * (num_rows - len(rows))])
        return answers[: len(rows)]

    # The words of a text are as many as they are.
    count = "num_words" if task.verb == "tag" else ""
    return {DEFAULT_SIGNATURE: Signature(inputs, {}, answer, count, required_text)}


def of_token_ids(embedder: Any) -> Signature:
    """Returns a signature of an embedder for `token_ids` with special tokens, as `serve_ids` is.

    All rows of a batch have one length.
    """
    import numpy as np

    from keras_bert.data.loader import bucket_for, bucket_lengths
    from keras_bert.ops.dispatch import compiles_each_shape

    tokenizer = embedder.preprocessor.tokenizer
    compiles = compiles_each_shape()
    buckets = bucket_lengths(embedder.preprocessor.sequence_length, coarse=compiles)

    def answer(rows: Sequence[Row]) -> list[Row]:
        ids = np.array([row["token_ids"] for row in rows], "int32")
        padding = bucket_for(ids.shape[1], buckets) - ids.shape[1]
        fill = (1 << (len(ids) - 1).bit_length()) - len(ids) if compiles else 0
        ids = np.pad(ids, ((0, fill), (0, padding)), constant_values=tokenizer.pad_token_id)
        # As in an export, [CLS] after the first column is padding.
        is_token = (ids != tokenizer.pad_token_id) & (ids != tokenizer.cls_token_id)
        is_token[:, 0] = True
        features = {"token_ids": ids, "segment_ids": np.zeros_like(ids), "padding_mask": is_token}
        vectors = embedder.predict(features, verbose=0)[: len(rows)]
        return [{"embedding": vector} for vector in vectors.tolist()]

    return Signature({"token_ids": Tensor(INT32, (-1, -1))}, {}, answer)


def _as_text(value: Any) -> Any:
    """Drops the bytes of a text that are not UTF-8, as the graph of an export does."""
    if isinstance(value, list):
        return [_as_text(item) for item in value]
    return value.decode("utf-8", "ignore") if isinstance(value, bytes) else value


def warm_up(
    signature: Signature, batch_sizes: Sequence[int], longest: int, *, compiles: bool
) -> None:
    """Answers rows of various lengths, in batches of various sizes: the first of each is slow.

    Args:
        signature: Its inputs are strings.
        batch_sizes: Numbers of rows.
        longest: The length of the longest row, in words.
        compiles: Whether each combination of the two is slow, and not each length and each size.
    """
    example = example_row(tuple(signature.inputs))
    long_field = next(name for name in ("context", "text") if name in example)
    lengths = [words for words in _WARM_UP_WORDS if words < longest] + [longest]
    for words in lengths:
        text = " ".join([signature.required_text, *["text"] * words])
        for rows in batch_sizes:
            is_first = rows == batch_sizes[0] or words == lengths[0]
            if is_first or (compiles and rows * len(text) <= BATCH_CHARACTERS):
                signature.answer([{**example, long_field: text}] * rows)
