# SPDX-License-Identifier: Apache-2.0
"""Loads models' signatures and the metadata that protocols need."""

from __future__ import annotations

import dataclasses
import itertools
import time
from collections.abc import Mapping, Sequence
from typing import Any

from keras_bert.data.packing import num_special_tokens
from keras_bert.data.prompts import Prompts
from keras_bert.export.description import text_lengths
from keras_bert.text.tokenizer import Tokenizer

from .batching import Batcher
from .signatures import (
    CHOICES,
    DEFAULT_SIGNATURE,
    DOCUMENT,
    IDS_SIGNATURE,
    PROMPT_NAME,
    QUERY,
    TEXT_PAIR,
    Row,
    Signature,
    saved_model_pair_signature,
    saved_model_signatures,
    task_pair_signature,
    task_signatures,
    token_ids_signature,
)

# Signatures that clients cannot request
TOKEN_IDS_SIGNATURE, PAIR_SIGNATURE = "token_ids", "pairs"
# The prediction methods that split long texts into windows
_IN_WINDOWS = ("tag", "answer")


@dataclasses.dataclass(frozen=True)
class TextLimits:
    """The length limits for a model's texts.

    Args:
        tokenizer: The model's tokenizer.
        sequence_length: Maximum sequence length in tokens. `None` if long texts are split into
            windows.
        max_text_bytes: Maximum number of bytes to read per text. `None` for no limit.
        prompts: An embedder's prompts. Their tokens count.
        query_length: Maximum sequence length of queries, if they have their own. A query has the
            `prompt_name` `query`.
    """

    tokenizer: Tokenizer
    sequence_length: int | None
    max_text_bytes: int | None = None
    prompts: Prompts = dataclasses.field(default_factory=Prompts)
    query_length: int | None = None

    @property
    def description(self) -> str:
        """The limits as an error message states them."""
        limits = {
            "tokens": self.sequence_length,
            "tokens per query": self.query_length,
            "bytes per text": self.max_text_bytes,
        }
        words = [f"at most {limit} {unit}" for unit, limit in limits.items() if limit is not None]
        return f"the model reads {' and '.join(words) or 'everything'}"

    def count(self, rows: Sequence[Row]) -> list[Row]:
        """Counts the tokens in each example.

        Returns:
            A dict for each example. `num_tokens` is the number of tokens, including special tokens.
            With choices, it counts the longest choice. `is_truncated` is whether the model
            truncates the example.
        """
        texts = [_texts(row) for row in rows]
        prompts = (self.prompts.text(row.get(PROMPT_NAME)) for row in rows)
        prompted = (
            (f"{prompt}{first}", *others)
            for prompt, (first, *others) in zip(prompts, texts, strict=True)
        )
        flat = list(itertools.chain.from_iterable(prompted))
        lengths = iter(self.tokenizer.flat_ids(flat)[1].tolist())
        return [
            self._counted(own, list(itertools.islice(lengths, len(own))), self._length(row))
            for row, own in zip(rows, texts, strict=True)
        ]

    def read_tokens(self, count: Row) -> int:
        """Returns how many of an example's tokens the model reads, given its count."""
        number: int = count["num_tokens"]
        return number if self.sequence_length is None else min(number, self.sequence_length)

    def _length(self, row: Row) -> int | None:
        is_query = self.query_length is not None and row.get(PROMPT_NAME) == QUERY
        return self.query_length if is_query else self.sequence_length

    def _counted(self, texts: Sequence[str], lengths: Sequence[int], limit: int | None) -> Row:
        first, *others = lengths
        special = num_special_tokens(self.tokenizer, 2 if others else 1)
        num_tokens = first + max(others, default=0) + special
        is_truncated = limit is not None and num_tokens > limit
        if self.max_text_bytes is not None:
            is_truncated |= any(len(text.encode()) > self.max_text_bytes for text in texts)
        return {"num_tokens": num_tokens, "is_truncated": is_truncated}


def _texts(row: Row) -> list[str]:
    """Returns an example's text, followed by its choices or its second text, if any."""
    return [row["text"], *row.get(CHOICES, [row[TEXT_PAIR]] if TEXT_PAIR in row else [])]


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelPredictions:
    """A model's signatures and metadata.

    Args:
        predict_method: The task's prediction method, such as `classify`.
        signatures: The signatures by name.
        ids_signature: For embedders, the signature for `token_ids`.
        pair_signature: The signature for the logits of a `text` and a `text_pair`, which is a
            single choice for multiple choice. `None` for other tasks, and for ensembles of multiple
            choice because they average probabilities over all choices.
        limits: The length limits for texts.
        class_names: The labels in the order of their ids. Empty for regression, and for tasks
            without classes.
        text_pairs: Whether examples have a second text: `""` (never), `"optional"` (if it is
            unknown whether the model was trained on pairs) or `"required"`.
        multi_label: Whether an example can have multiple labels.
        embedding_kind: The kind of an embedder's embeddings, see `Task.embedding_kind`. Empty for
            other tasks.
        embedding_dim: Maximum number of values in an embedding, or 0 if it is sparse or if the
            model is not an embedder.
        pooling: How an embedder combines the tokens' hidden states.
        normalize: Whether an embedder scales its embeddings to unit norm.
        dtype: Precision of the encoder's weights and matmuls.
    """

    predict_method: str
    signatures: Mapping[str, Signature]
    ids_signature: Signature | None
    pair_signature: Signature | None
    limits: TextLimits
    class_names: tuple[str, ...] = ()
    text_pairs: str = ""
    multi_label: bool = False
    embedding_kind: str = ""
    embedding_dim: int = 0
    pooling: str = ""
    normalize: bool = False
    dtype: str = "float32"

    @property
    def tokenizer(self) -> Tokenizer:
        """The model's tokenizer."""
        return self.limits.tokenizer

    @property
    def prompts(self) -> Prompts:
        """An embedder's prompts."""
        return self.limits.prompts

    def compute(self, signature: str, rows: Sequence[Row]) -> list[Row]:
        """Computes the predictions for a batch.

        Args:
            signature: A name in `signatures`, `TOKEN_IDS_SIGNATURE` or `PAIR_SIGNATURE`.
            rows: The inputs of each example.
        """
        others = {TOKEN_IDS_SIGNATURE: self.ids_signature, PAIR_SIGNATURE: self.pair_signature}
        return (others.get(signature) or self.signatures[signature]).answer(rows)

    @property
    def texts(self) -> Signature:
        """The signature for texts. The warmup calls it."""
        is_choice = self.predict_method == "choose"
        return (is_choice and self.pair_signature) or self.signatures[DEFAULT_SIGNATURE]


@dataclasses.dataclass(frozen=True, kw_only=True)
class LoadedModel(ModelPredictions):
    """A model on the server.

    Args:
        name: The model's name in paths and requests.
        version: The version, a number.
        batcher: Computes examples in batches.
        since: Unix time when the model was loaded.
    """

    name: str
    version: str
    batcher: Batcher
    since: int = dataclasses.field(default_factory=lambda: int(time.time()))


def answers_of_saved_model(served: Any) -> ModelPredictions:
    """Returns a `keras_bert.export.ServedModel`'s signatures and metadata."""
    description = served.description
    signatures = saved_model_signatures(served)
    outputs = signatures[DEFAULT_SIGNATURE].outputs
    length = None if description.predict_method in _IN_WINDOWS else description.sequence_length
    dim = next((outputs[name].shape[-1] for name in ("embedding", "vectors") if name in outputs), 0)
    return ModelPredictions(
        predict_method=description.predict_method,
        signatures=signatures,
        ids_signature=signatures.get(IDS_SIGNATURE) if description.embedding_kind else None,
        pair_signature=saved_model_pair_signature(served),
        limits=TextLimits(
            served.tokenizer,
            length,
            description.max_text_bytes,
            _prompts_of_kind(
                Prompts(description.prompts, description.default_prompt_name),
                description.embedding_kind,
            ),
            description.query_length,
        ),
        class_names=description.class_names,
        text_pairs="required" if TEXT_PAIR in description.fields else "",
        multi_label="num_labels" in outputs,
        embedding_kind=description.embedding_kind,
        embedding_dim=_embedding_size(description.embedding_kind, dim, length),
        pooling=description.pooling,
        normalize=description.normalize,
        dtype=description.dtype,
    )


def answers_of_task(
    task: Any, fields: Sequence[str], optional_fields: Sequence[str] | None = None
) -> ModelPredictions:
    """Returns a task's signatures and metadata.

    Args:
        task: The task.
        fields: The required input fields.
        optional_fields: The optional input fields. Defaults to the task's optional fields.
    """
    optional = task.optional_fields if optional_fields is None else optional_fields
    preprocessor = task.preprocessor
    splits_texts = task.predict_method in _IN_WINDOWS or preprocessor.splits_texts
    length, query_length = (None, None) if splits_texts else text_lengths(preprocessor)
    prompts = _prompts_of_kind(Prompts.from_task(task), task.embedding_kind)
    names = getattr(task, "class_names", None)
    if names is None and not getattr(task, "is_regression", False):
        names = range(getattr(task, "num_classes", 0))
    # A question answerer has multiple outputs.
    dim = task.output.shape[-1] if task.embedding_kind else 0
    return ModelPredictions(
        predict_method=task.predict_method,
        signatures=task_signatures(task, fields),
        ids_signature=token_ids_signature(task) if hasattr(task, "embed") else None,
        pair_signature=task_pair_signature(task),
        limits=TextLimits(
            preprocessor.tokenizer, length, prompts=prompts, query_length=query_length
        ),
        class_names=tuple(map(str, names or ())),
        text_pairs="required"
        if TEXT_PAIR in fields
        else "optional"
        if TEXT_PAIR in optional
        else "",
        multi_label=getattr(task, "multi_label", False),
        embedding_kind=task.embedding_kind,
        embedding_dim=_embedding_size(task.embedding_kind, dim, length),
        pooling=getattr(task, "pooling", ""),
        normalize=getattr(task, "normalize", False),
        dtype=task.compute_dtype,
    )


def _prompts_of_kind(prompts: Prompts, kind: str) -> Prompts:
    """Returns an embedder's prompts. For late interaction, they are `query` and `document`."""
    if kind != "multi_vector":
        return prompts
    names = {QUERY: prompts.query_name, DOCUMENT: prompts.document_name}
    return Prompts({key: prompts.text(name) for key, name in names.items()}, DOCUMENT)


def _embedding_size(kind: str, dim: int, length: int | None) -> int:
    """Returns the maximum number of values in an embedding, see `ModelPredictions`."""
    if kind == "multi_vector":
        return dim * (length or 1)
    return dim if kind == "dense" else 0
