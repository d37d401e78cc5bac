# SPDX-License-Identifier: Apache-2.0
"""Computes embeddings of texts and token ids, for multiple protocols."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from starlette.requests import Request

from keras_bert.data.packing import num_special_tokens, truncate_tokens
from keras_bert.text.tokenizer import Tokenizer

from .json_fields import (
    MAX_BYTES_OF_NUMBER,
    Field,
    RequestError,
    check_not_empty,
    check_number,
    describe_json,
    one_of,
    read_boolean,
    read_count,
    read_text,
)
from .models import TOKEN_IDS_SIGNATURE, LoadedModel
from .server import ModelServer, NotFiniteError
from .signatures import (
    DEFAULT_SIGNATURE,
    PROMPT_NAME,
    PROMPT_SIGNATURE,
    QUERY,
    QUERY_SIGNATURE,
    Row,
)

# What each kind of embedder computes, and the endpoint for it
_KINDS = {
    "dense": ("embeddings", "/embed"),
    "sparse": ("sparse embeddings", "/embed_sparse"),
    "multi_vector": ("token embeddings", "/embed_all"),
}
# NVIDIA NIM's values of `truncate`
_TRUNCATES = {"NONE": False, "END": True}


@dataclasses.dataclass(frozen=True)
class EmbeddingRequest:
    """A request for embeddings.

    Args:
        inputs: The inputs, each a string or a list of token ids.
        field: The request field that contains the inputs, for error messages.
        options: The values of `option_fields`, or of `text_fields` for embeddings that are not
            dense. The request may have other fields.
        bytes_per_number: Maximum number of bytes per element in the response.
    """

    inputs: Sequence[str | list[int]]
    field: str
    options: Row
    bytes_per_number: int = MAX_BYTES_OF_NUMBER


def kind_of_embeddings(kind: str) -> str:
    """Returns what a kind of embedder computes, for error messages."""
    return _KINDS[kind][0]


def reason_against_embeddings(kind: str) -> Callable[[LoadedModel], str]:
    """Returns a function that returns why a model does not compute embeddings of this kind."""

    def reason(model: LoadedModel) -> str:
        if model.embedding_kind == kind:
            return ""
        if model.embedding_kind not in _KINDS:
            return f"has the method {model.predict_method}"
        return "computes {}, see {}".format(*_KINDS[model.embedding_kind])

    return reason


@dataclasses.dataclass(frozen=True)
class Embeddings:
    """The embeddings for a request.

    Args:
        values: Embeddings, float32 `(inputs, dimensions)`, or for `embed_answers` each input's
            outputs of the model's signature.
        num_tokens: Number of tokens that the model read, including special tokens.
        truncated: The indices of truncated inputs.
    """

    values: Any
    num_tokens: int
    truncated: list[int]


def truncation_fields(auto_truncate: bool) -> dict[str, Field]:
    """Returns the fields that determine how overlong texts are truncated.

    Args:
        auto_truncate: Whether overlong texts are truncated by default.
    """
    return {
        # Voyage AI calls it truncation.
        "truncate": Field(_read_truncate, auto_truncate, synonyms=("truncation",)),
        "truncation_direction": Field(one_of("right", "Right", "left", "Left")),
    }


def text_fields(auto_truncate: bool) -> dict[str, Field]:
    """Returns the options that each endpoint for embeddings of any kind accepts.

    - `prompt_name`: The name of a prompt to add to texts, or `""` for none. Defaults to the model's
      default prompt.
    - `input_type`: What the texts are, instead of `prompt_name`. See `Prompts.name_of_input_type`.
    - `truncation_fields`

    The synonyms are from Voyage AI and Jina AI.
    """
    return {
        PROMPT_NAME: Field(read_text),
        "input_type": Field(read_text, synonyms=("task",)),
        **truncation_fields(auto_truncate),
    }


def option_fields(auto_truncate: bool) -> dict[str, Field]:
    """Returns the options that each endpoint for dense embeddings accepts.

    - `dimensions`: Number of leading elements to return per embedding. Defaults to all.
    - `normalize`: Whether to scale embeddings to unit norm.
    - `text_fields`
    """
    return {
        "dimensions": Field(read_count, synonyms=("output_dimension",)),
        "normalize": Field(read_boolean, True, synonyms=("normalized",)),
        **text_fields(auto_truncate),
    }


def _read_truncate(value: Any, name: str) -> bool:
    is_word = isinstance(value, str) and value in _TRUNCATES
    return _TRUNCATES[value] if is_word else read_boolean(value, name)


def check_direction(options: Row, model: LoadedModel) -> None:
    """Checks that a model truncates texts on the requested side.

    Raises:
        RequestError: If it truncates them on the other side.
    """
    direction = options["truncation_direction"]
    side = model.tokenizer.truncation_side
    if options["truncate"] and direction is not None and direction.lower() != side:
        raise RequestError(
            f"truncation_direction must be {side} for this model. Received: {direction}",
            "truncation_direction",
        )


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
    server: ModelServer, request: Request, model: LoadedModel, embedding: EmbeddingRequest
) -> Embeddings:
    """Computes dense embeddings. The whole request is checked before anything is computed.

    Raises:
        RequestError: As in `embed_answers`.
        RejectedRequestError: As in `ModelServer.compute`, if the response may be too large, and if
            an embedding contains infinities or NaN.
    """
    options = embedding.options
    dimensions = options["dimensions"] or model.embedding_dim
    if dimensions > model.embedding_dim:
        raise RequestError(
            f"dimensions must be at most {model.embedding_dim}, the size of the model's "
            f"embeddings. Received: {dimensions}",
            "dimensions",
        )
    if model.normalize and not options["normalize"]:
        raise RequestError(
            "normalize must be true because the model normalizes its embeddings. Received: false",
            "normalize",
        )
    server.check_size(len(embedding.inputs), dimensions * embedding.bytes_per_number)
    computed = await embed_answers(server, request, model, embedding)
    vectors = np.array([answer["embedding"] for answer in computed.values], "float32")
    if not np.all(np.isfinite(vectors)):
        raise NotFiniteError
    return dataclasses.replace(computed, values=_scaled(vectors, options, model.normalize))


async def embed_answers(
    server: ModelServer, request: Request, model: LoadedModel, embedding: EmbeddingRequest
) -> Embeddings:
    """Computes embeddings of any kind, as the outputs of the model's signature.

    Raises:
        RequestError: If an input is empty, or too long and `truncate` is false, if an id is not in
            the vocabulary, or if the model does not support an option.
        RejectedRequestError: As in `ModelServer.compute`.
    """
    inputs, field, options = embedding.inputs, embedding.field, embedding.options
    check_not_empty([[one] for one in inputs], field)
    check_direction(options, model)
    text_indices = [index for index, one in enumerate(inputs) if isinstance(one, str)]
    id_indices = [index for index, one in enumerate(inputs) if not isinstance(one, str)]
    prompt = _read_prompt(options, model)
    if id_indices and prompt.get(PROMPT_NAME):
        raise RequestError(
            f"{field} must be strings to add a prompt. Received: token ids "
            f"({field}[{id_indices[0]}])",
            field,
        )
    id_rows, truncated = _rows_of_ids(inputs, id_indices, model, embedding)
    text_rows = [{"text": inputs[index], **prompt} for index in text_indices]
    counts, truncated_texts = await server.count(model, text_rows, field, options["truncate"])
    truncated += [text_indices[row] for row in truncated_texts]
    num_tokens = sum(len(row["token_ids"]) for row in id_rows)
    num_tokens += sum(map(model.limits.read_tokens, counts))
    text_signature = PROMPT_SIGNATURE if prompt else DEFAULT_SIGNATURE
    if model.embedding_kind == "multi_vector":
        is_query = prompt.get(PROMPT_NAME) == QUERY
        text_signature = QUERY_SIGNATURE if is_query else DEFAULT_SIGNATURE
    values: list[Any] = [None] * len(inputs)
    for signature, indices, rows in (
        (TOKEN_IDS_SIGNATURE, id_indices, id_rows),
        (text_signature, text_indices, text_rows),
    ):
        answers = await server.compute(request, model, signature, rows) if rows else []
        for index, answer in zip(indices, answers, strict=True):
            values[index] = answer
    return Embeddings(values, num_tokens, sorted(truncated))


def _read_prompt(options: Row, model: LoadedModel) -> Row:
    """Returns the `prompt_name` of a request's texts as a dict, empty for the default prompt."""
    name, input_type = options[PROMPT_NAME], options["input_type"]
    if name is not None and input_type is not None:
        raise RequestError(
            f"only one of {PROMPT_NAME} and input_type may be given. Received: both", "input_type"
        )
    try:
        if input_type is not None:
            name = model.prompts.name_of_input_type(input_type)
        model.prompts.text(name)
    except ValueError as error:
        field = PROMPT_NAME if input_type is None else "input_type"
        raise RequestError(str(error), field) from error
    # Only models with prompts have a signature with `prompt_name`.
    return {} if name is None or not model.prompts.texts else {PROMPT_NAME: name}


def _rows_of_ids(
    inputs: Sequence[Any], indices: Sequence[int], model: LoadedModel, embedding: EmbeddingRequest
) -> tuple[list[Row], list[int]]:
    """Returns the rows for the inputs that are token ids, and the indices of truncated inputs."""
    field, length = embedding.field, model.limits.sequence_length
    if not indices:
        return [], []
    if length is None:
        raise RequestError(
            f"{field} must have only strings, because the model splits long texts into "
            f"windows. Received: token ids ({field}[{indices[0]}])",
            field,
        )
    rows = [_with_special_tokens(inputs[index], model.tokenizer) for index in indices]
    _check_ids(rows, indices, model, field)
    truncated = [index for index, row in zip(indices, rows, strict=True) if len(row) > length]
    if truncated and not embedding.options["truncate"]:
        raise RequestError(
            f"{field}: {model.limits.description}. Received: {len(inputs[truncated[0]])} token "
            f"ids ({field}[{truncated[0]}])",
            field,
        )
    max_tokens = length - num_special_tokens(model.tokenizer)
    (kept,) = truncate_tokens(model.tokenizer, [[row[1:-1] for row in rows]], max_tokens)
    return [
        {"token_ids": [row[0], *ids, row[-1]]} for row, ids in zip(rows, kept, strict=True)
    ], truncated


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


def _scaled(vectors: np.ndarray, options: Row, is_unit: bool) -> np.ndarray:
    """Returns the vectors with the requested dimensions and norm.

    Args:
        vectors: Embeddings `(inputs, hidden)`.
        options: The request's options.
        is_unit: Whether the embeddings have unit norm.
    """
    is_cut = options["dimensions"] is not None
    vectors = vectors[:, : options["dimensions"]]
    if not options["normalize"] or (is_unit and not is_cut):
        return vectors
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors / np.where(norms > 0, norms, 1)
