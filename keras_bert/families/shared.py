# SPDX-License-Identifier: Apache-2.0
"""Config fields, classes and special tokens for multiple families."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# === Config fields ===

REQUIRED_WITHOUT_SEGMENTS = {
    "vocabulary_size": "vocab_size",
    "num_layers": "num_hidden_layers",
    "num_heads": "num_attention_heads",
    "hidden_dim": "hidden_size",
    "intermediate_dim": "intermediate_size",
    "max_sequence_length": "max_position_embeddings",
}
"""Names of the size fields that most families have."""
REQUIRED = {**REQUIRED_WITHOUT_SEGMENTS, "num_segments": "type_vocab_size"}
OPTIONAL = {
    "dropout": "hidden_dropout_prob",
    "attention_dropout": "attention_probs_dropout_prob",
    "classifier_dropout": "classifier_dropout",
    "layer_norm_epsilon": "layer_norm_eps",
    "initializer_range": "initializer_range",
    "pad_token_id": "pad_token_id",
}
"""Fields in config.json and in the configuration files of the TF1 releases."""
CAN_BE_CAUSAL: dict[str, tuple[Any, ...]] = {"is_decoder": (False, True)}
"""Fields of families with classes that can be causal."""
BOS_AND_EOS = {"bos_token_id": "cls", "eos_token_id": "sep"}

ACTIVATIONS = {
    "gelu": "gelu_erf",
    "gelu_python": "gelu_erf",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_python_tanh": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu_accurate": "gelu_tanh",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
    "tanh": "tanh",
}
"""`BertConfig` activations by their names in Hugging Face's files."""
TF1_ACTIVATIONS = {"gelu": "gelu_tanh", "relu": "relu", "tanh": "tanh"}
"""Activations in BERT's and ALBERT's TF1 releases. "gelu" is the tanh approximation."""

HUB_FIELDS = {
    name: name
    for name in (
        "vocabulary_size",
        "num_layers",
        "num_heads",
        "hidden_dim",
        "intermediate_dim",
        "dropout",
        "max_sequence_length",
    )
}
"""Arguments of KerasHub's encoders."""
HUB_SEGMENT_FIELDS = {**HUB_FIELDS, "num_segments": "num_segments"}
HUB_TANH_GELU = {"activation": "gelu_tanh", "layer_norm_epsilon": 1e-12}


def map_value(
    fields: Mapping[str, Any], name: str, words: Mapping[str, str], default: str = ""
) -> str:
    """Returns the `BertConfig` name for the word in a field. `default` replaces an absent field."""
    word = fields.get(name, default)
    if not isinstance(word, str) or word not in words:
        raise ValueError(f"{name} must be one of {', '.join(words)}. Received: {word!r}")
    return words[word]


def word_of(value: str, field: str, words: Mapping[str, str]) -> str:
    """Returns the first word in a file for a `BertConfig` value, the inverse of `map_value`."""
    for word, name in words.items():
        if name == value:
            return word
    choices = ", ".join(dict.fromkeys(words.values()))
    raise ValueError(f"{field} must be one of {choices} in this format. Received: {value!r}")


# === Classes of transformers ===

HF_TASK_CLASSES: dict[str, tuple[str, ...]] = {
    "ForSequenceClassification": ("classifier",),
    "ForTokenClassification": ("token_classifier",),
    "ForMultipleChoice": ("multiple_choice",),
    "ForQuestionAnswering": ("question_answerer",),
}
MASKED_LM_CLASSES: dict[str, tuple[str, ...]] = {"Model": (), "ForMaskedLM": ("masked_lm",)}
"""Classes without a head and with the masked LM head. Most families have both."""
CLASSIFIER_CLASSES = {
    ending: HF_TASK_CLASSES[ending]
    for ending in ("ForSequenceClassification", "ForTokenClassification")
}
"""The task classes in `transformers` for families that only have these."""

# === Special tokens by their roles ===

WORDPIECE_TOKENS = {
    "pad": "[PAD]",
    "unk": "[UNK]",
    "cls": "[CLS]",
    "sep": "[SEP]",
    "mask": "[MASK]",
}
"""Special tokens of BERT and DeBERTa."""
ROBERTA_TOKENS = {
    "pad": "<pad>",
    "unk": "<unk>",
    "cls": "<s>",
    "sep": "</s>",
    "mask": "<mask>",
}
"""Special tokens of RoBERTa, XLM-RoBERTa and CamemBERT."""

UNCLEANED = {"lowercase": False, "keep_accents": True, "albert_rules": False}
"""Options for a SentencePiece tokenizer without cleaning rules beyond its model."""


def size(num_layers: int, hidden_dim: int, **fields: Any) -> dict[str, Any]:
    """Returns `BertConfig` values for a released model, with the usual proportions as defaults."""
    return {
        "num_layers": num_layers,
        "hidden_dim": hidden_dim,
        "num_heads": hidden_dim // 64,
        "intermediate_dim": 4 * hidden_dim,
        **fields,
    }
