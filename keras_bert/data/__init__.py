# SPDX-License-Identifier: Apache-2.0
"""tf.data pipelines: from text to batches of ids."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
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

# Loaded on first use: who reads a file of labelled words need not wait for TensorFlow.
_HOMES = {
    "Instance": "keras_bert.data.instances",
    "InstanceEncoder": "keras_bert.data.records",
    "InstanceMaker": "keras_bert.data.instances",
    "MaskedLMMasker": "keras_bert.data.masking",
    "MultipleChoicePreprocessor": "keras_bert.data.choices",
    "NextTokenTargets": "keras_bert.data.next_tokens",
    "PretrainingStream": "keras_bert.data.pretraining_stream",
    "QuestionAnswererPreprocessor": "keras_bert.data.question_windows",
    "QuestionExample": "keras_bert.data.squad",
    "SpanAnswer": "keras_bert.data.squad",
    "SquadError": "keras_bert.data.squad",
    "StaticMasker": "keras_bert.data.static_masking",
    "TaggedText": "keras_bert.data.conll",
    "TextClassifierPreprocessor": "keras_bert.data.preprocessors",
    "TokenClassifierPreprocessor": "keras_bert.data.tagging",
    "TokenStore": "keras_bert.data.token_store",
    "TokenStoreWriter": "keras_bert.data.token_store",
    "bucket_lengths": "keras_bert.data.batching",
    "check_record_files": "keras_bert.data.record_reading",
    "has_masks": "keras_bert.data.record_reading",
    "length_bucketed_batches": "keras_bert.data.batching",
    "pack_sequences": "keras_bert.data.packing",
    "packed_batches": "keras_bert.data.packing",
    "pretraining_batches": "keras_bert.data.record_reading",
    "pretraining_examples": "keras_bert.data.pretraining_stream",
    "ragged_pretraining_batches": "keras_bert.data.record_reading",
    "read_conll": "keras_bert.data.conll",
    "read_corpus": "keras_bert.data.corpus",
    "read_squad": "keras_bert.data.squad",
    "write_conll": "keras_bert.data.conll",
    "write_records": "keras_bert.data.records",
}

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


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'keras_bert.data' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
