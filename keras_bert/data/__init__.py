# SPDX-License-Identifier: Apache-2.0
"""tf.data pipelines: from text to batches of ids."""

from keras_bert.data.batching import bucket_lengths, length_bucketed_batches
from keras_bert.data.choices import MultipleChoicePreprocessor
from keras_bert.data.conll import TaggedText, read_conll, write_conll
from keras_bert.data.corpus import read_corpus
from keras_bert.data.instances import Instance, InstanceMaker
from keras_bert.data.masking import MaskedLMMasker
from keras_bert.data.next_tokens import NextTokenTargets
from keras_bert.data.packing import pack_sequences, packed_batches
from keras_bert.data.preprocessors import TextClassifierPreprocessor
from keras_bert.data.pretraining_stream import PretrainingStream, pretraining_examples
from keras_bert.data.question_windows import QuestionAnswererPreprocessor
from keras_bert.data.record_reading import (
    check_record_files,
    has_masks,
    pretraining_batches,
    ragged_pretraining_batches,
)
from keras_bert.data.records import InstanceEncoder, write_records
from keras_bert.data.squad import QuestionExample, SpanAnswer, SquadError, read_squad
from keras_bert.data.static_masking import StaticMasker
from keras_bert.data.tagging import TokenClassifierPreprocessor
from keras_bert.data.token_store import TokenStore, TokenStoreWriter

__all__ = [
    "Instance",
    "InstanceEncoder",
    "InstanceMaker",
    "MaskedLMMasker",
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
    "length_bucketed_batches",
    "pack_sequences",
    "packed_batches",
    "pretraining_batches",
    "pretraining_examples",
    "ragged_pretraining_batches",
    "read_conll",
    "read_corpus",
    "read_squad",
    "write_conll",
    "write_records",
]
