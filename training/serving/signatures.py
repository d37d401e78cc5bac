# SPDX-License-Identifier: Apache-2.0
"""Signatures that the server can call, from a SavedModel or a task."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from keras_bert.data.prompts import Prompts

from ..engine.example_request import example_row

Row = dict[str, Any]

DEFAULT_SIGNATURE, IDS_SIGNATURE = "serving_default", "serve_ids"
DEFAULT_BATCH_SIZE = 32
STRING, INT32 = "DT_STRING", "DT_INT32"
PROMPT_SIGNATURE = "serve_with_prompt"
QUERY_SIGNATURE = "serve_queries"
CHOICES, TEXT_PAIR, PROMPT_NAME = "choices", "text_pair", "prompt_name"
# The values of `prompt_name` for late interaction
QUERY, DOCUMENT = "query", "document"
# Maximum number of characters in a batch. Larger batches do not increase the throughput.
BATCH_CHARACTERS = 16_384
# Lengths, in words, of the texts in the warmup
_WARM_UP_WORDS = (1, 8, 24, 56, 120, 250, 500)


@dataclasses.dataclass(frozen=True)
class Tensor:
    """Type and shape of inputs and outputs.

    Args:
        dtype: Name of the type in TensorFlow's protocol buffers.
        shape: The shape, with -1 for unknown sizes. The first axis is the batch.
    """

    dtype: str
    shape: tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class Signature:
    """A function that computes outputs for a batch.

    Args:
        inputs: The inputs by name.
        outputs: The outputs by name. Empty if they are unknown before the first call.
        answer: Returns a dict of outputs per example. Lists of words have no padding.
        required_text: Text that every input must contain, such as a masked LM's mask token.
    """

    inputs: Mapping[str, Tensor]
    outputs: Mapping[str, Tensor]
    answer: Callable[[Sequence[Row]], list[Row]]
    required_text: str = ""


def saved_model_signatures(served: Any) -> dict[str, Signature]:
    """Returns a `keras_bert.export.ServedModel`'s signatures by name."""
    signatures = {}
    for name, function in served.signatures.items():
        inputs = _tensors(function.structured_input_signature[1])
        outputs = _tensors(function.structured_outputs)
        padded = {}
        for request in served.description.requests:
            if request.count in outputs:
                # Lists of fixed length, such as labels, have no padding.
                items = [item for item, spec in outputs.items() if spec.shape[1:2] == (-1,)]
                padded = dict.fromkeys(items, request.count)
        answer = _rows_of_columns(served, name, tuple(inputs), padded)
        signatures[name] = Signature(inputs, outputs, answer)
    return signatures


def _rows_of_columns(
    served: Any, name: str, inputs: tuple[str, ...], padded: Mapping[str, str]
) -> Callable[[Sequence[Row]], list[Row]]:
    """Returns the `answer` function for a SavedModel's signature.

    Args:
        served: The `ServedModel`.
        name: Name of the signature.
        inputs: Names of the inputs.
        padded: Maps each padded output to the output with its lengths.
    """

    def answer(rows: Sequence[Row]) -> list[Row]:
        columns = served.predict({key: [row[key] for row in rows] for key in inputs}, name)
        return [
            {
                key: value[row][: max(0, columns[padded[key]][row])]
                if key in padded
                else value[row]
                for key, value in columns.items()
            }
            for row in range(len(rows))
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


def task_signatures(task: Any, fields: Sequence[str]) -> dict[str, Signature]:
    """Returns a task's signatures for texts, with the same inputs as in its export.

    They are `serving_default`, for an embedder with prompts `serve_with_prompt`, and for late
    interaction `serve_queries`.
    """
    from keras_bert.ops.dispatch import compiles_each_shape

    inputs = {name: Tensor(STRING, (-1, -1) if name == CHOICES else (-1,)) for name in fields}
    required_text = task.preprocessor.tokenizer.mask_token if task.predict_method == "fill" else ""
    compiles = compiles_each_shape()

    def answer(rows: Sequence[Row]) -> list[Row]:
        answers: list[Row] = task.serving_answers(_texts_of(rows, compiles, required_text))
        return answers[: len(rows)]

    signatures = {DEFAULT_SIGNATURE: Signature(inputs, {}, answer, required_text)}
    if task.embedding_kind == "multi_vector":

        def answer_queries(rows: Sequence[Row]) -> list[Row]:
            texts = [row["text"] for row in _texts_of(rows, compiles)]
            answers: list[Row] = task.serving_embeddings(task.embed_queries(texts))
            return answers[: len(rows)]

        signatures[QUERY_SIGNATURE] = Signature(inputs, {}, answer_queries)
    elif Prompts.from_task(task).texts:

        def answer_with_prompt(rows: Sequence[Row]) -> list[Row]:
            answers: list[Row] = [{}] * len(rows)
            for name in {row[PROMPT_NAME] for row in rows}:
                index = [at for at, row in enumerate(rows) if row[PROMPT_NAME] == name]
                texts = _texts_of([{"text": rows[at]["text"]} for at in index], compiles)
                embeddings = task.embed([text["text"] for text in texts], prompt_name=name)
                outputs = task.serving_embeddings(embeddings)
                for at, output in zip(index, outputs, strict=False):
                    answers[at] = {**output, "error": ""}
            return answers

        inputs = {**inputs, PROMPT_NAME: Tensor(STRING, (-1,))}
        signatures[PROMPT_SIGNATURE] = Signature(inputs, {}, answer_with_prompt)
    return signatures


def _texts_of(rows: Sequence[Row], compiles: bool, required_text: str = "") -> list[Row]:
    """Decodes examples. If every batch shape is compiled, also pads to a power of two."""
    texts = [{name: as_text(value) for name, value in row.items()} for row in rows]
    # With powers of two, fewer shapes are compiled.
    num_rows = 1 << (len(rows) - 1).bit_length() if compiles else len(rows)
    # The padding is as short as possible, so it is not counted as truncated.
    empty = {
        name: [required_text] if isinstance(x, list) else required_text
        for name, x in texts[0].items()
    }
    return texts + [empty] * (num_rows - len(rows))


def task_pair_signature(task: Any) -> Signature | None:
    """Returns a task's signature for the logits of pairs, or `None`, see `_pair_signature`."""
    from keras_bert.ops.dispatch import compiles_each_shape

    is_choice = task.predict_method == "choose"
    # An ensemble averages probabilities over all choices.
    if not (task.predict_method == "classify" or (is_choice and not hasattr(task, "members"))):
        return None
    compiles = compiles_each_shape()

    def logits(rows: Sequence[Row]) -> Any:
        pairs = [(row["text"], row[TEXT_PAIR]) for row in _texts_of(rows, compiles)]
        inputs = [(text, [choice]) for text, choice in pairs] if is_choice else pairs
        return task.predict(inputs, verbose=0)[: len(rows)]

    return _pair_signature(logits)


def saved_model_pair_signature(served: Any) -> Signature | None:
    """Returns an export's signature for the logits of pairs, or `None`, see `_pair_signature`."""
    from keras_bert.data.choices import MultipleChoicePreprocessor
    from keras_bert.data.texts import TextClassifierPreprocessor

    description = served.description
    is_choice = description.task == "MultipleChoice"
    is_classifier = description.predict_method == "classify" and TEXT_PAIR in description.fields
    if not (is_choice or is_classifier) or description.sequence_length is None:
        return None
    kind = MultipleChoicePreprocessor if is_choice else TextClassifierPreprocessor
    preprocessor = kind(served.tokenizer, description.sequence_length)

    def logits(rows: Sequence[Row]) -> Any:
        texts, others = (
            [as_text(row[name], description.max_text_bytes) for row in rows]
            for name in ("text", TEXT_PAIR)
        )
        ids = preprocessor(texts, [[other] for other in others] if is_choice else others)
        ids.pop("padding_mask")
        return served.predict(ids, IDS_SIGNATURE)["logits"]

    return _pair_signature(logits)


def _pair_signature(logits: Callable[[Sequence[Row]], Any]) -> Signature:
    """Returns a signature for the logits of a `text` with a `text_pair`.

    For multiple choice, `text_pair` is a single choice. A choice's logit does not depend on the
    other choices, so an example's choices can be computed in different batches.
    """

    def answer(rows: Sequence[Row]) -> list[Row]:
        return [{"logits": row} for row in logits(rows)]

    return Signature(dict.fromkeys(("text", TEXT_PAIR), Tensor(STRING, (-1,))), {}, answer)


def token_ids_signature(embedder: Any) -> Signature:
    """Returns an embedder's signature for `token_ids` with special tokens, as in `serve_ids`.

    All sequences in a batch must have the same length.
    """
    import numpy as np

    from keras_bert.data.bucketing import bucket_for, bucket_lengths
    from keras_bert.ops.dispatch import compiles_each_shape

    tokenizer = embedder.preprocessor.tokenizer
    compiles = compiles_each_shape()
    buckets = bucket_lengths(embedder.preprocessor.sequence_length, coarse=compiles)

    def answer(rows: Sequence[Row]) -> list[Row]:
        ids = np.array([row["token_ids"] for row in rows], "int32")
        padding = bucket_for(ids.shape[1], buckets) - ids.shape[1]
        fill = (1 << (len(ids) - 1).bit_length()) - len(ids) if compiles else 0
        ids = np.pad(ids, ((0, fill), (0, padding)), constant_values=tokenizer.pad_token_id)
        # As in an export, [CLS] after the first position counts as padding.
        is_token = (ids != tokenizer.pad_token_id) & (ids != tokenizer.cls_token_id)
        is_token[:, 0] = True
        features = {"token_ids": ids, "segment_ids": np.zeros_like(ids), "padding_mask": is_token}
        return embedder.serving_embeddings(embedder.predict(features, verbose=0)[: len(rows)])

    return Signature({"token_ids": Tensor(INT32, (-1, -1))}, {}, answer)


def as_text(value: Any, max_bytes: int | None = None) -> Any:
    """Truncates a text to `max_bytes` and drops invalid UTF-8, as an export's graph does."""
    if isinstance(value, list):
        return [as_text(item, max_bytes) for item in value]
    if max_bytes is not None and isinstance(value, str):
        value = value.encode()
    return value[:max_bytes].decode("utf-8", "ignore") if isinstance(value, bytes) else value


def warm_up(
    signature: Signature, batch_sizes: Sequence[int], longest: int, *, compiles: bool
) -> None:
    """Calls a signature with each length and each batch size, because the first calls are slow.

    Args:
        signature: A signature with string inputs.
        batch_sizes: The batch sizes.
        longest: The maximum length in words.
        compiles: Whether every combination of length and batch size is slow at first, as on JAX,
            rather than every length and every batch size.
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
