# SPDX-License-Identifier: Apache-2.0
"""`tf.data` pipelines that convert text to batches of token ids."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from keras_bert.data.choices import MultipleChoicePreprocessor
    from keras_bert.data.conll import TaggedText, read_conll, write_conll
    from keras_bert.data.loader import bucket_lengths
    from keras_bert.data.pretraining.corpus import read_corpus
    from keras_bert.data.pretraining.instances import Instance, InstanceMaker
    from keras_bert.data.pretraining.masking import MaskedLMMasker
    from keras_bert.data.pretraining.next_tokens import NextTokenTargets
    from keras_bert.data.pretraining.packing import pack_sequences, packed_batches
    from keras_bert.data.pretraining.records import (
        InstanceEncoder,
        check_record_files,
        has_masks,
        pretraining_batches,
        ragged_pretraining_batches,
        write_records,
    )
    from keras_bert.data.pretraining.static_masking import StaticMasker
    from keras_bert.data.pretraining.stream import PretrainingStream, pretraining_examples
    from keras_bert.data.pretraining.token_store import TokenStore, TokenStoreWriter
    from keras_bert.data.questions import QuestionAnswererPreprocessor
    from keras_bert.data.squad import QuestionExample, SpanAnswer, SquadError, read_squad
    from keras_bert.data.texts import TextClassifierPreprocessor
    from keras_bert.data.words import TokenClassifierPreprocessor

# Imported on first use: reading a file of labeled words does not import TensorFlow.
_LAZY_IMPORTS = {
    "Instance": "keras_bert.data.pretraining.instances",
    "InstanceEncoder": "keras_bert.data.pretraining.records",
    "InstanceMaker": "keras_bert.data.pretraining.instances",
    "MaskedLMMasker": "keras_bert.data.pretraining.masking",
    "MultipleChoicePreprocessor": "keras_bert.data.choices",
    "NextTokenTargets": "keras_bert.data.pretraining.next_tokens",
    "PretrainingStream": "keras_bert.data.pretraining.stream",
    "QuestionAnswererPreprocessor": "keras_bert.data.questions",
    "QuestionExample": "keras_bert.data.squad",
    "SpanAnswer": "keras_bert.data.squad",
    "SquadError": "keras_bert.data.squad",
    "StaticMasker": "keras_bert.data.pretraining.static_masking",
    "TaggedText": "keras_bert.data.conll",
    "TextClassifierPreprocessor": "keras_bert.data.texts",
    "TokenClassifierPreprocessor": "keras_bert.data.words",
    "TokenStore": "keras_bert.data.pretraining.token_store",
    "TokenStoreWriter": "keras_bert.data.pretraining.token_store",
    "bucket_lengths": "keras_bert.data.loader",
    "check_record_files": "keras_bert.data.pretraining.records",
    "has_masks": "keras_bert.data.pretraining.records",
    "pack_sequences": "keras_bert.data.pretraining.packing",
    "packed_batches": "keras_bert.data.pretraining.packing",
    "pretraining_batches": "keras_bert.data.pretraining.records",
    "pretraining_examples": "keras_bert.data.pretraining.stream",
    "ragged_pretraining_batches": "keras_bert.data.pretraining.records",
    "read_conll": "keras_bert.data.conll",
    "read_corpus": "keras_bert.data.pretraining.corpus",
    "read_squad": "keras_bert.data.squad",
    "write_conll": "keras_bert.data.conll",
    "write_records": "keras_bert.data.pretraining.records",
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
    if name in _LAZY_IMPORTS:
        return getattr(importlib.import_module(_LAZY_IMPORTS[name]), name)
    raise AttributeError(f"module 'keras_bert.data' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY_IMPORTS})
