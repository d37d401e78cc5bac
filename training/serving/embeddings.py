# SPDX-License-Identifier: Apache-2.0
"""Computes embeddings of texts and token ids, for multiple protocols."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
from starlette.requests import Request

from keras_bert.text.tokenizer import Tokenizer

from .json_fields import (
    MAX_BYTES_OF_NUMBER,
    RequestError,
    check_not_empty,
    check_number,
    describe_json,
    read_text,
)
from .models import TOKEN_IDS_SIGNATURE, LoadedModel
from .server import ModelServer
from .signatures import DEFAULT_SIGNATURE

# Rounding to bfloat16 changes the norm of unit vectors by at most this number.
_TOLERANCE = 0.01


@dataclasses.dataclass(frozen=True)
class EmbeddingRequest:
    """A request for embeddings.

    Args:
        inputs: The inputs, each a string or a list of token ids.
        field: The request field that contains the inputs, for error messages.
        dimensions: Number of leading elements to return per embedding. `None` returns all.
        normalize: Whether to scale embeddings to unit norm.
        truncate: Whether to truncate overlong inputs instead of raising an error.
        bytes_per_number: Maximum number of bytes per element in the response.
    """

    inputs: Sequence[str | list[int]]
    field: str
    dimensions: int | None = None
    normalize: bool = True
    truncate: bool = False
    bytes_per_number: int = MAX_BYTES_OF_NUMBER


@dataclasses.dataclass(frozen=True)
class Embeddings:
    """The embeddings for a request.

    Args:
        vectors: Embeddings, float32 `(inputs, dimensions)`.
        num_tokens: Number of tokens that the model read, including special tokens.
        truncated: The indices of truncated inputs.
    """

    vectors: np.ndarray
    num_tokens: int
    truncated: list[int]


def read_inputs(max_rows: int) -> Any:
    """Returns a function that reads a string, a list of token ids, or a list of these.

    Returns:
        A function that accepts a value and its field name. It returns the list of inputs, and
        whether the value was a single input.
    """

    def read(value: Any, name: str) -> tuple[list[str | list[int]], bool]:
        if isinstance(value, str):
            return [read_text(value, name)], True
        if not isinstance(value, list) or not value:
            raise RequestError(
                f"{name} must be a string, token ids, or a non-empty list of these. "
                f"Received: {describe_json(value)}",
                name,
                is_empty=value == [],
            )
        if type(value[0]) is int:
            return [_read_ids(value, name)], True
        check_number(len(value), max_rows, name)
        return [
            _read_ids(one, f"{name}[{index}]")
            if isinstance(one, list)
            else read_text(one, f"{name}[{index}]")
            for index, one in enumerate(value)
        ], False

    return read


def _read_ids(value: list[Any], name: str) -> list[int]:
    for index, token in enumerate(value):
        if type(token) is not int or token < 0:
            raise RequestError(
                f"{name}[{index}] must be a token id. Received: {describe_json(token)}",
                name.split("[")[0],
            )
    if not value:
        message = f"{name} must have at least one token id. Received: an empty list"
        raise RequestError(message, name.split("[")[0], is_empty=True)
    return value


async def embed(
    server: ModelServer, request: Request, model: LoadedModel, options: EmbeddingRequest
) -> Embeddings:
    """Computes embeddings.

    Raises:
        RequestError: If an input is empty, or too long and `truncate` is false, if an id is not in
            the vocabulary, or if the model does not support the dimensions or the norm.
        RejectedRequestError: As in `ModelServer.compute`, and if the response may be too large.
    """
    inputs, field = options.inputs, options.field
    check_not_empty([[one] for one in inputs], field)
    dimensions = options.dimensions or model.embedding_dim
    if dimensions > model.embedding_dim:
        raise RequestError(
            f"dimensions must be at most {model.embedding_dim}, the size of the model's "
            f"embeddings. Received: {dimensions}",
            "dimensions",
        )
    server.check_size(len(inputs), dimensions * options.bytes_per_number)
    vectors: list[Any] = [None] * len(inputs)
    num_tokens, truncated = 0, []
    text_indices = [index for index, one in enumerate(inputs) if isinstance(one, str)]
    id_indices = [index for index, one in enumerate(inputs) if not isinstance(one, str)]
    length = model.limits.sequence_length
    if id_indices:
        if length is None:
            raise RequestError(
                f"{field} must have only strings, because the model splits long texts into "
                f"windows. Received: token ids ({field}[{id_indices[0]}])",
                field,
            )
        rows = [_with_special_tokens(inputs[index], model.tokenizer) for index in id_indices]
        _check_ids(rows, id_indices, model, field)
        truncated = [
            index for index, row in zip(id_indices, rows, strict=True) if len(row) > length
        ]
        if truncated and not options.truncate:
            raise RequestError(
                f"{field}: {model.limits.description}. Received: {len(inputs[truncated[0]])} token "
                f"ids ({field}[{truncated[0]}])",
                field,
            )
        rows = [row if len(row) <= length else [*row[: length - 1], row[-1]] for row in rows]
        num_tokens += sum(map(len, rows))
        answers = await server.compute(
            request, model, TOKEN_IDS_SIGNATURE, [{"token_ids": row} for row in rows]
        )
        for index, answer in zip(id_indices, answers, strict=True):
            vectors[index] = answer["embedding"]
    if text_indices:
        rows = [{"text": inputs[index]} for index in text_indices]
        counts, truncated_rows = await server.count(model, rows, field, options.truncate)
        truncated += [text_indices[row] for row in truncated_rows]
        num_tokens += sum(map(model.limits.read_tokens, counts))
        answers = await server.compute(request, model, DEFAULT_SIGNATURE, rows)
        for index, answer in zip(text_indices, answers, strict=True):
            vectors[index] = answer["embedding"]
    return Embeddings(_scaled(np.array(vectors, "float32"), options), num_tokens, sorted(truncated))


def _with_special_tokens(ids: list[int], tokenizer: Tokenizer) -> list[int]:
    """Adds special tokens to a sequence of ids, unless it already has them."""
    if (ids[0], ids[-1]) == (tokenizer.cls_token_id, tokenizer.sep_token_id):
        return ids
    return [*(tokenizer.row_format()[:1]), *ids, *(tokenizer.row_format()[-1:])]


def _check_ids(
    rows: Sequence[list[int]], indices: Sequence[int], model: LoadedModel, field: str
) -> None:
    size = model.tokenizer.vocabulary_size
    for index, row in zip(indices, rows, strict=True):
        if max(row) >= size:
            raise RequestError(
                f"token ids must be less than {size}, the size of the vocabulary. Received: "
                f"{max(row)} ({field}[{index}]). Use the ids of the model's tokenizer, not of "
                "tiktoken, or send strings (in LangChain, set check_embedding_ctx_length=False)",
                field,
            )


def _scaled(vectors: np.ndarray, options: EmbeddingRequest) -> np.ndarray:
    """Returns the vectors with the requested dimensions and norm."""
    norms = np.linalg.norm(vectors, axis=1)
    is_unit = bool(np.all(np.abs(norms - 1) < _TOLERANCE))
    if not options.normalize and is_unit:
        raise RequestError(
            "normalize must be true because the model normalizes its embeddings. Received: false",
            "normalize",
        )
    vectors = vectors[:, : options.dimensions]
    if not options.normalize or (is_unit and options.dimensions is None):
        return vectors
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors / np.where(norms > 0, norms, 1)
