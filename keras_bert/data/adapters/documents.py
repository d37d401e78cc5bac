# SPDX-License-Identifier: Apache-2.0
"""Reads documents in memory, and creates segment pairs or sequences of sentences from them."""

from __future__ import annotations

import dataclasses
from typing import Any, Never, Self

import numpy as np

from keras_bert.data.adapters.base import InputAdapter
from keras_bert.data.adapters.texts import is_text
from keras_bert.data.arrays import NUMPY, Ragged
from keras_bert.data.batch_options import BatchOptions
from keras_bert.data.batches import Batches
from keras_bert.data.columns import as_list, column_names, is_dataset
from keras_bert.data.labels import LabelRules
from keras_bert.data.loader import Batch, Loader, RowsInMemory, to_keras_batch
from keras_bert.data.packing import Sequences, pack_texts, tokenized
from keras_bert.data.pretraining.instances import PAIR_FORMATS, Instance, InstanceGenerator
from keras_bert.data.texts import InMemory
from keras_bert.text.characters import check_characters


@dataclasses.dataclass(frozen=True, eq=False)
class DocumentsAdapter(InputAdapter):
    """Documents in memory, each a list of sentences.

    Args:
        documents: The sentences of each document, in order.
        sequence_format: See `InstanceGenerator`.
    """

    forms = "documents (a list of lists of sentences)"

    documents: list[list[str]]
    sequence_format: str = "next_sentence"

    @classmethod
    def matches(cls, x: object) -> bool:
        return is_text(x)

    @classmethod
    def read(
        cls, x: Any, y: Any = None, sample_weight: Any = None, rules: LabelRules | None = None
    ) -> Self:
        is_list = column_names(x) is None and not isinstance(x, (str, bytes)) and not is_dataset(x)
        documents = as_list(x) if is_list else [x]
        for index, document in enumerate(documents):
            if not isinstance(document, (list, tuple, np.ndarray)):
                raise ValueError(
                    "x must be documents, each a list of sentences, because segment pairs are "
                    "created from consecutive sentences. Received: "
                    f"{_describe(document, index) if is_list else type(x).__name__}. Read files "
                    "with keras_bert.data.read_documents. A MaskedLM can train on single texts."
                )
            for sentence in document:
                if not isinstance(sentence, str):
                    raise ValueError(
                        "A document must be a list of sentences. Received: "
                        f"{_describe(sentence, index)}"
                    )
                check_characters(sentence, f"Document {index}")
        return cls([list(document) for document in documents])

    def __len__(self) -> int:
        return len(self.documents)

    def __getitem__(self, rows: slice) -> Self:
        return dataclasses.replace(self, documents=self.documents[rows])

    def batches(self, preprocessor: Any, options: BatchOptions) -> Batches:
        tokenizer = preprocessor.tokenizer
        num_texts = 2 if self.sequence_format in PAIR_FORMATS else 1
        make_instances = InstanceGenerator(
            tokenizer.cls_token_id,
            tokenizer.sep_token_id,
            sequence_format=self.sequence_format,
            # Its pairs have one separator between segments. RoBERTa has two.
            sequence_length=preprocessor.max_tokens(num_texts) + num_texts + 1,
            duplicate_factor=options.duplicate_factor,
        )
        instances = make_instances(self._token_ids(tokenizer))
        segments = [Ragged.from_rows(rows) for rows in zip(*map(_segments, instances), strict=True)]
        sequences = Sequences(pack_texts(NUMPY, tokenizer, *segments[:num_texts]))
        columns = {}
        if num_texts == 2:
            columns["next_sentence_labels"] = np.array([row.label for row in instances], "int32")
        return Loader(RowsInMemory(InMemory(sequences), columns), preprocessor, options, _finish)

    def prediction_batches(self, preprocessor: Any, options: BatchOptions) -> Never:
        raise ValueError("Documents are only for training and evaluation.")

    def _token_ids(self, tokenizer: Any) -> list[list[np.ndarray]]:
        """Tokenizes the documents, without empty sentences and documents."""
        flat = [sentence for document in self.documents for sentence in document]
        sentences = iter(tokenized(tokenizer, flat).to_arrays())
        documents = [
            [ids for _ in document if len(ids := next(sentences))] for document in self.documents
        ]
        documents = [document for document in documents if document]
        if not documents:
            raise ValueError("At least one document must have a sentence. Received: no sentences")
        return documents


def _describe(value: object, index: int) -> str:
    return f"{type(value).__name__} (document {index})"


def _segments(instance: Instance) -> tuple[Any, Any]:
    """Returns both segments without special tokens. The second is empty in single sequences."""
    start_of_second = len(instance.token_ids) - int(instance.segment_ids.sum())
    return instance.token_ids[1 : start_of_second - 1], instance.token_ids[start_of_second:-1]


def _finish(batch: Batch) -> tuple[Any, ...]:
    """Adds the labels of pairs to the features, as in batches of records."""
    features, *weights = to_keras_batch(batch)
    return {**features, **batch.columns}, *weights
