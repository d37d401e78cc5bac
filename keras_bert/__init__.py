# SPDX-License-Identifier: Apache-2.0
"""BERT for Keras 3: text, fine-tuning and serving on TensorFlow, JAX and PyTorch."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from keras_bert.checks import importing_keras

if TYPE_CHECKING:
    from keras_bert import (
        checkpoints,
        data,
        export,
        insight,
        layers,
        losses,
        metrics,
        models,
        optimizers,
        tasks,
        text,
    )
    from keras_bert.config import BertConfig, ConfigError
    from keras_bert.models.backbone import Backbone
    from keras_bert.tasks.distiller import Distiller
    from keras_bert.tasks.ensemble import Ensemble
    from keras_bert.tasks.loading import load_model
    from keras_bert.tasks.masked_lm import MaskedLM
    from keras_bert.tasks.multiple_choice import MultipleChoice
    from keras_bert.tasks.pretrainer import Pretrainer
    from keras_bert.tasks.question_answerer import QuestionAnswerer
    from keras_bert.tasks.replaced_token_detector import ReplacedTokenDetector
    from keras_bert.tasks.text_classifier import TextClassifier
    from keras_bert.tasks.text_embedder import TextEmbedder
    from keras_bert.tasks.token_classifier import TokenClassifier
    from keras_bert.text.byte_pair import BytePairTokenizer
    from keras_bert.text.sentence_piece import SentencePieceTokenizer
    from keras_bert.text.tokenizer import Tokenizer
    from keras_bert.text.wordpiece import WordPieceTokenizer

__version__ = "0.1.0"

# Imported on first use, so that training on ids works without TensorFlow, and importing is fast.
_LAZY_IMPORTS = {
    "Backbone": "keras_bert.models.backbone",
    "BertConfig": "keras_bert.config",
    "BytePairTokenizer": "keras_bert.text.byte_pair",
    "ConfigError": "keras_bert.config",
    "Distiller": "keras_bert.tasks.distiller",
    "Ensemble": "keras_bert.tasks.ensemble",
    "MaskedLM": "keras_bert.tasks.masked_lm",
    "MultipleChoice": "keras_bert.tasks.multiple_choice",
    "Pretrainer": "keras_bert.tasks.pretrainer",
    "QuestionAnswerer": "keras_bert.tasks.question_answerer",
    "ReplacedTokenDetector": "keras_bert.tasks.replaced_token_detector",
    "SentencePieceTokenizer": "keras_bert.text.sentence_piece",
    "TextClassifier": "keras_bert.tasks.text_classifier",
    "TextEmbedder": "keras_bert.tasks.text_embedder",
    "TokenClassifier": "keras_bert.tasks.token_classifier",
    "Tokenizer": "keras_bert.text.tokenizer",
    "WordPieceTokenizer": "keras_bert.text.wordpiece",
    "load_model": "keras_bert.tasks.loading",
}

__all__ = [
    "Backbone",
    "BertConfig",
    "BytePairTokenizer",
    "ConfigError",
    "Distiller",
    "Ensemble",
    "MaskedLM",
    "MultipleChoice",
    "Pretrainer",
    "QuestionAnswerer",
    "ReplacedTokenDetector",
    "SentencePieceTokenizer",
    "TextClassifier",
    "TextEmbedder",
    "TokenClassifier",
    "Tokenizer",
    "WordPieceTokenizer",
    "checkpoints",
    "data",
    "export",
    "insight",
    "layers",
    "load_model",
    "losses",
    "metrics",
    "models",
    "optimizers",
    "tasks",
    "text",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'keras_bert' has no attribute {name!r}")
    with importing_keras():
        if name not in _LAZY_IMPORTS:  # a module
            return importlib.import_module(f"keras_bert.{name}")
        return getattr(importlib.import_module(_LAZY_IMPORTS[name]), name)


def __dir__() -> list[str]:
    return [*__all__, *(name for name in globals() if name.startswith("__"))]
