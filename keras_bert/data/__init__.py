# SPDX-License-Identifier: Apache-2.0
"""Preprocessors, readers of data files, and pre-training data."""

from keras_bert.data.bucketing import bucket_lengths
from keras_bert.data.choices import MultipleChoicePreprocessor
from keras_bert.data.conll import TaggedText, read_conll, write_conll
from keras_bert.data.late_interaction import LateInteractionPreprocessor
from keras_bert.data.pretraining.corpus import read_corpus, read_documents
from keras_bert.data.pretraining.instances import Instance, InstanceGenerator
from keras_bert.data.pretraining.masking import MaskedLMMaskGenerator
from keras_bert.data.pretraining.next_tokens import NextTokenTargets
from keras_bert.data.pretraining.packing import pack_sequences, packed_batches
from keras_bert.data.pretraining.record_batches import (
    has_masks,
    pretraining_batches,
    ragged_pretraining_batches,
)
from keras_bert.data.pretraining.record_files import check_record_files
from keras_bert.data.pretraining.record_writing import InstanceEncoder, write_records
from keras_bert.data.pretraining.static_masking import StaticMasker
from keras_bert.data.pretraining.stream import PretrainingStream
from keras_bert.data.pretraining.token_store import TokenStore, TokenStoreWriter
from keras_bert.data.questions import QuestionAnswererPreprocessor
from keras_bert.data.squad import QuestionExample, SpanAnswer, SquadError, read_squad
from keras_bert.data.texts import TextClassifierPreprocessor
from keras_bert.data.token_vectors import max_similarities, pool_tokens
from keras_bert.data.words import TokenClassifierPreprocessor

__all__ = [
    "Instance",
    "InstanceEncoder",
    "InstanceGenerator",
    "LateInteractionPreprocessor",
    "MaskedLMMaskGenerator",
    "MultipleChoicePreprocessor",
    "NextTokenTargets",
    "PretrainingStream",
    "QuestionAnswererPreprocessor",
    "QuestionExample",
    "SpanAnswer",
    "SquadError",
    "StaticMasker",
    "TaggedText",
    "TextClassifierPreprocessor",
    "TokenClassifierPreprocessor",
    "TokenStore",
    "TokenStoreWriter",
    "bucket_lengths",
    "check_record_files",
    "has_masks",
    "max_similarities",
    "pack_sequences",
    "packed_batches",
    "pool_tokens",
    "pretraining_batches",
    "ragged_pretraining_batches",
    "read_conll",
    "read_corpus",
    "read_documents",
    "read_squad",
    "write_conll",
    "write_records",
]
