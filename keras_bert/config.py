# SPDX-License-Identifier: Apache-2.0
"""What a network of BERT's architecture is made of: one frozen record, and the released sizes."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Callable, Mapping
from typing import Any

ACTIVATIONS = ("gelu_erf", "gelu_tanh", "relu", "silu", "tanh")


class ConfigError(ValueError):
    """A field of a configuration has a value that is not allowed."""


@dataclasses.dataclass(frozen=True)
class BertConfig:
    """The architecture of an encoder, and nothing about data or training.

    Args:
        vocabulary_size: Number of token ids.
        num_layers: Number of transformer blocks (the paper's L).
        num_heads: Attention heads of a block (A); must divide `hidden_dim`.
        hidden_dim: Width of the hidden states (H).
        intermediate_dim: Width inside the feed-forward part (4H in the paper).
        max_sequence_length: Number of learned positions, the longest input in tokens.
        num_segments: Number of segment types (2: sentence A and sentence B).
        activation: One of `gelu_erf` (the exact GELU), `gelu_tanh` (its approximation, as in the
            released TF1 code), `relu`, `silu`, `tanh`. The word "gelu" alone is ambiguous between
            releases, so it is not accepted.
        dropout: Rate after the embeddings and after both sublayers of a block.
        attention_dropout: Rate on the attention probabilities.
        classifier_dropout: Rate before a classifier; `None` means `dropout`.
        layer_norm_epsilon: Added to the variance in every LayerNorm.
        initializer_range: Standard deviation of the truncated normal that kernels start from.
        pad_token_id: The id that fills a row up.
        causal: Whether a token sees only itself and those before it: the left-to-right model of
            the paper's ablation (section 5.1).
        output_hidden_states: Whether a backbone also returns every block's hidden states.
        output_attention_scores: Whether a backbone also returns every block's attention maps.

    Raises:
        ConfigError: If a field's type or value is not allowed; the message names the field,
            the value and what is allowed.

    Example:

    >>> config = BertConfig.from_name("bert_base_uncased")
    >>> config.num_layers, config.hidden_dim, config.head_dim
    (12, 768, 64)
    >>> BertConfig.from_json(config.to_json()) == config
    True

    Reference:
        [BERT](https://arxiv.org/abs/1810.04805), section 3 and appendix A.
    """

    vocabulary_size: int = 30522
    num_layers: int = 12
    num_heads: int = 12
    hidden_dim: int = 768
    intermediate_dim: int = 3072
    max_sequence_length: int = 512
    num_segments: int = 2
    activation: str = "gelu_erf"
    dropout: float = 0.1
    attention_dropout: float = 0.1
    classifier_dropout: float | None = None
    layer_norm_epsilon: float = 1e-12
    initializer_range: float = 0.02
    pad_token_id: int = 0
    causal: bool = False
    output_hidden_states: bool = False
    output_attention_scores: bool = False

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            _check_field(field.name, getattr(self, field.name))
        if self.hidden_dim % self.num_heads:
            raise ConfigError(
                f"BertConfig.num_heads is {self.num_heads}; it must divide hidden_dim, "
                f"which is {self.hidden_dim}."
            )
        if self.pad_token_id >= self.vocabulary_size:
            raise ConfigError(
                f"BertConfig.pad_token_id is {self.pad_token_id}; it must be below "
                f"vocabulary_size, which is {self.vocabulary_size}."
            )

    @property
    def head_dim(self) -> int:
        """Width of one attention head."""
        return self.hidden_dim // self.num_heads

    @property
    def effective_classifier_dropout(self) -> float:
        """The dropout rate before a classifier, with the default filled in."""
        return self.dropout if self.classifier_dropout is None else self.classifier_dropout

    def replace(self, **changes: Any) -> BertConfig:
        """A copy with some fields changed, validated again."""
        _reject_unknown_fields(changes)
        return dataclasses.replace(self, **changes)

    def to_dict(self) -> dict[str, Any]:
        """All fields as plain values."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> BertConfig:
        """The inverse of `to_dict`; missing fields take their defaults, unknown ones raise."""
        _reject_unknown_fields(fields)
        return cls(**fields)

    def to_json(self) -> str:
        """All fields as an indented JSON object."""
        return json.dumps(self.to_dict(), indent=2) + "\n"

    @classmethod
    def from_json(cls, text: str) -> BertConfig:
        """The inverse of `to_json`.

        Raises:
            ConfigError: If the text is not a JSON object of known fields.
        """
        try:
            fields = json.loads(text)
        except json.JSONDecodeError as error:
            raise ConfigError(f"A BertConfig's JSON could not be parsed: {error}.") from error
        if not isinstance(fields, dict):
            raise ConfigError(
                f"A BertConfig's JSON must be an object, received {type(fields).__name__}."
            )
        return cls.from_dict(fields)

    @classmethod
    def from_json_file(cls, path: str | os.PathLike[str]) -> BertConfig:
        """`from_json` of a file's text; an error names the file."""
        with open(path, encoding="utf-8") as file:
            text = file.read()
        try:
            return cls.from_json(text)
        except ConfigError as error:
            raise ConfigError(f"{os.fspath(path)}: {error}") from error

    @classmethod
    def from_name(cls, name: str) -> BertConfig:
        """The configuration of a released model, by its name or KerasHub's.

        Raises:
            ConfigError: If no release has the name; the message lists those that do.
        """
        canonical = _KERAS_HUB_ALIASES.get(name, name)
        if canonical not in _NAMED:
            raise ConfigError(
                f"There is no configuration named {name!r}. The names are: "
                f"{', '.join(cls.names())}."
            )
        return cls(**_NAMED[canonical])

    @classmethod
    def names(cls) -> tuple[str, ...]:
        """Every released size that `from_name` knows, KerasHub's aliases left out."""
        return tuple(_NAMED)


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _is_positive_int(value: Any) -> bool:
    return _is_int(value) and value > 0


def _is_rate(value: Any) -> bool:
    return _is_number(value) and 0 <= value < 1


def _is_positive_number(value: Any) -> bool:
    return _is_number(value) and 0 < value < float("inf")


_Rule = tuple[Callable[[Any], bool], str]
_POSITIVE_INT: _Rule = (_is_positive_int, "an integer above 0")
_RATE: _Rule = (_is_rate, "a number in [0, 1)")
_POSITIVE_NUMBER: _Rule = (_is_positive_number, "a finite number above 0")
_BOOL: _Rule = (lambda value: isinstance(value, bool), "True or False")

_RULES: dict[str, _Rule] = {
    "vocabulary_size": _POSITIVE_INT,
    "num_layers": _POSITIVE_INT,
    "num_heads": _POSITIVE_INT,
    "hidden_dim": _POSITIVE_INT,
    "intermediate_dim": _POSITIVE_INT,
    "max_sequence_length": _POSITIVE_INT,
    "num_segments": _POSITIVE_INT,
    "activation": (lambda value: value in ACTIVATIONS, f"one of {', '.join(ACTIVATIONS)}"),
    "dropout": _RATE,
    "attention_dropout": _RATE,
    "classifier_dropout": (
        lambda value: value is None or _is_rate(value),
        "None or a number in [0, 1)",
    ),
    "layer_norm_epsilon": _POSITIVE_NUMBER,
    "initializer_range": _POSITIVE_NUMBER,
    "pad_token_id": (lambda value: _is_int(value) and value >= 0, "an integer of at least 0"),
    "causal": _BOOL,
    "output_hidden_states": _BOOL,
    "output_attention_scores": _BOOL,
}


def _check_field(name: str, value: Any) -> None:
    is_allowed, allowed = _RULES[name]
    if not is_allowed(value):
        raise ConfigError(f"BertConfig.{name} is {value!r}; it must be {allowed}.")


def _reject_unknown_fields(fields: Mapping[str, Any]) -> None:
    unknown = sorted(set(fields) - set(_RULES))
    if unknown:
        raise ConfigError(
            f"BertConfig has no field {', '.join(map(repr, unknown))}. "
            f"Its fields are: {', '.join(_RULES)}."
        )


def _size(
    num_layers: int,
    hidden_dim: int,
    vocabulary_size: int = 30522,
    *,
    num_heads: int | None = None,
    activation: str = "gelu_tanh",
) -> dict[str, Any]:
    return {
        "num_layers": num_layers,
        "hidden_dim": hidden_dim,
        # The paper's rule; MiniLM keeps its teacher's twelve narrow heads instead.
        "num_heads": num_heads or hidden_dim // 64,
        "intermediate_dim": 4 * hidden_dim,
        "vocabulary_size": vocabulary_size,
        "activation": activation,
    }


_CASED, _MULTILINGUAL_CASED, _CHINESE = 28996, 119547, 21128

# The released TF1 code computes "gelu" by its tanh form; MiniLM was released for code that uses
# the exact one.
_NAMED: dict[str, dict[str, Any]] = {
    "bert_tiny_uncased": _size(2, 128),
    "bert_mini_uncased": _size(4, 256),
    "bert_small_uncased": _size(4, 512),
    "bert_medium_uncased": _size(8, 512),
    "bert_base_uncased": _size(12, 768),
    "bert_large_uncased": _size(24, 1024),
    "bert_base_cased": _size(12, 768, _CASED),
    "bert_large_cased": _size(24, 1024, _CASED),
    "bert_base_multilingual_cased": _size(12, 768, _MULTILINGUAL_CASED),
    "bert_base_chinese": _size(12, 768, _CHINESE),
    "bert_large_uncased_whole_word": _size(24, 1024),
    "bert_large_cased_whole_word": _size(24, 1024, _CASED),
    **{
        f"bert_l{num_layers}_h{hidden_dim}_uncased": _size(num_layers, hidden_dim)
        for num_layers in (2, 4, 6, 8, 10, 12)
        for hidden_dim in (128, 256, 512, 768)
    },
    "minilm_l6_h384_uncased": _size(6, 384, num_heads=12, activation="gelu_erf"),
    "minilm_l12_h384_uncased": _size(12, 384, num_heads=12, activation="gelu_erf"),
}

_KERAS_HUB_ALIASES = {
    "bert_tiny_en_uncased": "bert_tiny_uncased",
    "bert_small_en_uncased": "bert_small_uncased",
    "bert_medium_en_uncased": "bert_medium_uncased",
    "bert_base_en_uncased": "bert_base_uncased",
    "bert_base_en": "bert_base_cased",
    "bert_base_zh": "bert_base_chinese",
    "bert_base_multi": "bert_base_multilingual_cased",
    "bert_large_en_uncased": "bert_large_uncased",
    "bert_large_en": "bert_large_cased",
}
