# SPDX-License-Identifier: Apache-2.0
"""The configuration of an encoder, a frozen dataclass, and those of the released models."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Callable, Mapping
from typing import Any

from keras_bert import checks, named_sizes

ACTIVATIONS = ("gelu_erf", "gelu_tanh", "relu", "silu", "tanh")
LAYER_SHARING = ("none", "all", "attention", "feed_forward")
TOKENIZERS = ("wordpiece", "byte_pair", "sentence_piece")
# Far more than any model has, so that a corrupt file cannot allocate memory before its tensors are
# checked.
MAX_LAYERS = 10_000


class ConfigError(ValueError):
    """Raised if a field of a configuration is unknown or has a value that is not allowed."""


@dataclasses.dataclass(frozen=True)
class BertConfig:
    """The architecture of an encoder of the BERT family.

    The encoders of BERT, RoBERTa, ALBERT, DistilBERT and ELECTRA differ only in the values of these
    fields.

    Args:
        vocabulary_size: Number of token ids.
        num_layers: Number of transformer blocks (L in the paper).
        num_heads: Number of attention heads of a block (A); must divide `hidden_dim`.
        hidden_dim: Dimension of the hidden states (H).
        intermediate_dim: Dimension of the inner layer of the feed-forward networks (4H in the
            paper).
        embedding_dim: Dimension of the embeddings, which are projected to `hidden_dim` (ALBERT, the
            small ELECTRA). `None` for `hidden_dim`, without a projection.
        layer_sharing: Which weights the blocks share: `"none"`, `"all"` (ALBERT), `"attention"` or
            `"feed_forward"` (this sublayer only, including its LayerNorm).
        num_layer_groups: Number of groups of consecutive blocks that share weights.
        max_sequence_length: Maximum length of the input in tokens.
        num_segments: Number of segments: 2 for sentence A and sentence B, 1 for a single segment, 0
            for no segment embeddings.
        position_offset: The row of position 0 in the position table. If it is above 0 (2 in
            RoBERTa), positions count the tokens that are not padding, and padding has the row
            before that of position 0.
        activation: `"gelu_erf"` (the exact GELU), `"gelu_tanh"` (its tanh approximation, as in the
            released TF1 code), `"relu"`, `"silu"` or `"tanh"`. `"gelu"` is not accepted, since its
            meaning differs between releases.
        masked_lm_activation: The activation of the masked LM head. `None` for `activation`.
        pooler: Whether the encoder has a pooler. If not (DistilBERT, ELECTRA), tasks that need a
            pooled output have their own.
        pooler_activation: The activation of the pooler of the encoder or task.
        pooler_dropout: Dropout rate before the dense layer of the pooler.
        dropout: Dropout rate after the embeddings and after both sublayers of a block.
        attention_dropout: Dropout rate on the attention probabilities.
        classifier_dropout: Dropout rate before a classification head. `None` for `dropout`. See
            `effective_token_dropout`.
        answer_dropout: Dropout rate before a question answering head.
        layer_norm_epsilon: Added to the variance in every LayerNorm.
        initializer_range: Standard deviation of the truncated normal initializer of kernels and
            embeddings.
        pad_token_id: The id of the padding token.
        tokenizer: The kind of tokenizer: `"wordpiece"`, `"byte_pair"` or `"sentence_piece"`.
        causal: Whether tokens attend only to themselves and to the tokens before them, as in the
            left-to-right model of the paper's ablation study (section 5.1).
        output_hidden_states: Whether a backbone also returns the hidden states of every block.
        output_attention_scores: Whether a backbone also returns the attention probabilities of
            every block.
        heads_by_layer: The number of attention heads that each layer has left after pruning, from 1
            to `num_heads`; equal for layers that share their attention. `None` for `num_heads` in
            all layers. The dimension of a head does not change.

    Raises:
        ConfigError: If the type or the value of a field is not allowed; the message names the
            field, the value and what is allowed.

    Example:

    >>> config = BertConfig.from_name("bert_base_uncased")
    >>> config.num_layers, config.hidden_dim, config.head_dim
    (12, 768, 64)
    >>> BertConfig.from_json(config.to_json()) == config
    True

    Reference:
        [BERT](https://arxiv.org/abs/1810.04805), section 3 and appendix A;
        [RoBERTa](https://arxiv.org/abs/1907.11692); [ALBERT](https://arxiv.org/abs/1909.11942),
        section 3.1; [DistilBERT](https://arxiv.org/abs/1910.01108), section 3;
        [ELECTRA](https://arxiv.org/abs/2003.10555), section 3.
    """

    vocabulary_size: int = 30522
    num_layers: int = 12
    num_heads: int = 12
    hidden_dim: int = 768
    intermediate_dim: int = 3072
    embedding_dim: int | None = None
    layer_sharing: str = "none"
    num_layer_groups: int = 1
    max_sequence_length: int = 512
    num_segments: int = 2
    position_offset: int = 0
    activation: str = "gelu_erf"
    masked_lm_activation: str | None = None
    pooler: bool = True
    pooler_activation: str = "tanh"
    pooler_dropout: float = 0.0
    dropout: float = 0.1
    attention_dropout: float = 0.1
    classifier_dropout: float | None = None
    answer_dropout: float = 0.0
    layer_norm_epsilon: float = 1e-12
    initializer_range: float = 0.02
    pad_token_id: int = 0
    tokenizer: str = "wordpiece"
    causal: bool = False
    output_hidden_states: bool = False
    output_attention_scores: bool = False
    heads_by_layer: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            _check_field(field.name, getattr(self, field.name))
        if self.hidden_dim % self.num_heads:
            raise ConfigError(
                f"BertConfig.num_heads is {self.num_heads}; it must divide hidden_dim, "
                f"which is {self.hidden_dim}."
            )
        if self.num_layers > MAX_LAYERS:
            raise ConfigError(
                f"BertConfig.num_layers is {self.num_layers}; it must be at most {MAX_LAYERS}."
            )
        if self.num_layer_groups > self.num_layers:
            raise ConfigError(
                f"BertConfig.num_layer_groups is {self.num_layer_groups}; it must be at most "
                f"num_layers, which is {self.num_layers}."
            )
        self._check_heads_by_layer()
        if self.pad_token_id >= self.vocabulary_size:
            raise ConfigError(
                f"BertConfig.pad_token_id is {self.pad_token_id}; it must be below "
                f"vocabulary_size, which is {self.vocabulary_size}."
            )

    def _check_heads_by_layer(self) -> None:
        if self.heads_by_layer is None:
            return
        # JSON has lists
        heads = tuple(self.heads_by_layer)
        object.__setattr__(self, "heads_by_layer", heads)
        shared = [heads[owner] for owner in self.attention_owners if owner < len(heads)]
        for is_wrong, expected in (
            (len(heads) != self.num_layers, f"have {self.num_layers} values, one for each layer"),
            (max(heads) > self.num_heads, f"be at most num_heads, which is {self.num_heads}"),
            (shared != list(heads), "be equal for layers that share their attention"),
        ):
            if is_wrong:
                raise ConfigError(f"BertConfig.heads_by_layer is {heads!r}; it must {expected}.")

    @property
    def head_dim(self) -> int:
        """The dimension of an attention head."""
        return self.hidden_dim // self.num_heads

    @property
    def effective_heads_by_layer(self) -> tuple[int, ...]:
        """The number of heads of each layer: `heads_by_layer`, or `num_heads` for all."""
        return self.heads_by_layer or (self.num_heads,) * self.num_layers

    @property
    def embedding_width(self) -> int:
        """The dimension of the embeddings: `embedding_dim`, or `hidden_dim` if it is `None`."""
        return self.hidden_dim if self.embedding_dim is None else self.embedding_dim

    @property
    def attention_owners(self) -> tuple[int, ...]:
        """The index of the block whose attention weights each block uses, which may be its own."""
        return self._owners("attention")

    @property
    def feed_forward_owners(self) -> tuple[int, ...]:
        """The index of the block whose feed-forward weights each block uses."""
        return self._owners("feed_forward")

    def _owners(self, part: str) -> tuple[int, ...]:
        num_groups = self.num_layers
        if self.layer_sharing in ("all", part):
            num_groups = self.num_layer_groups
        groups = [index * num_groups // self.num_layers for index in range(self.num_layers)]
        first: dict[int, int] = {}
        return tuple(first.setdefault(group, index) for index, group in enumerate(groups))

    @property
    def effective_masked_lm_activation(self) -> str:
        """The activation of the masked LM head: `masked_lm_activation`, or `activation`."""
        return self.masked_lm_activation or self.activation

    @property
    def effective_classifier_dropout(self) -> float:
        """The dropout rate before a classification head: `classifier_dropout`, or `dropout`."""
        return self.dropout if self.classifier_dropout is None else self.classifier_dropout

    @property
    def effective_token_dropout(self) -> float:
        """The dropout rate before a token classification head.

        It is that of other classification heads, but `dropout` in DistilBERT, whose
        `classifier_dropout` is only for those with its own pooler.
        """
        is_distilbert = not self.pooler and self.pooler_activation == "relu"
        return self.dropout if is_distilbert else self.effective_classifier_dropout

    def replace(self, **changes: Any) -> BertConfig:
        """Returns a copy with some fields changed.

        Raises:
            ConfigError: If a field is unknown, or its value is not allowed.
        """
        _reject_unknown_fields(changes)
        return dataclasses.replace(self, **changes)

    def to_dict(self) -> dict[str, Any]:
        """Returns all fields as a dict of plain values."""
        heads = self.heads_by_layer
        return {
            **dataclasses.asdict(self),
            "heads_by_layer": None if heads is None else list(heads),
        }

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> BertConfig:
        """Creates a config from a dict of fields; missing fields have their defaults.

        Raises:
            ConfigError: If a field is unknown, or its value is not allowed.
        """
        _reject_unknown_fields(fields)
        return cls(**fields)

    def to_json(self) -> str:
        """Returns all fields as a string, an indented JSON object."""
        return json.dumps(self.to_dict(), indent=2) + "\n"

    @classmethod
    def from_json(cls, text: str) -> BertConfig:
        """Creates a config from the string that `to_json` returned.

        Raises:
            ConfigError: If the string is not a JSON object, a field is unknown, or its value is not
                allowed.
        """
        try:
            fields = json.loads(text)
        except (json.JSONDecodeError, RecursionError) as error:
            raise ConfigError(f"The JSON of a BertConfig cannot be parsed: {error}.") from error
        if not isinstance(fields, dict):
            raise ConfigError(
                f"The JSON of a BertConfig must be an object, received {type(fields).__name__}."
            )
        return cls.from_dict(fields)

    @classmethod
    def from_json_file(cls, path: str | os.PathLike[str]) -> BertConfig:
        """Creates a config from a JSON file.

        Raises:
            ConfigError: See `from_json`; the message names the file.
        """
        try:
            with open(path, encoding="utf-8") as file:
                text = file.read()
            return cls.from_json(text)
        except (ConfigError, UnicodeDecodeError) as error:
            raise ConfigError(f"{os.fspath(path)}: {error}") from error

    @classmethod
    def from_name(cls, name: str) -> BertConfig:
        """Returns the configuration of a released model.

        Args:
            name: One of `names()`, such as `"bert_base_uncased"`, or the name of a KerasHub preset.

        Raises:
            ConfigError: If the name is unknown; the message lists all names.
        """
        canonical = named_sizes.KERAS_HUB_ALIASES.get(name, name)
        if canonical not in named_sizes.SIZES:
            raise ConfigError(
                f"There is no configuration named {name!r}. The names are: "
                f"{', '.join(cls.names())}."
            )
        return cls(**named_sizes.SIZES[canonical])

    @classmethod
    def names(cls) -> tuple[str, ...]:
        """Returns the names of all released models, without the aliases of KerasHub."""
        return tuple(named_sizes.SIZES)


def _is_positive_ints(value: Any) -> bool:
    return isinstance(value, (tuple, list)) and bool(value) and all(map(_POSITIVE_INT[0], value))


def _is_one_of(*choices: str) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, str) and value in choices


_Rule = tuple[Callable[[Any], bool], str]


def _or_none(rule: _Rule) -> _Rule:
    is_allowed, allowed = rule
    return (lambda value: value is None or is_allowed(value)), f"None or {allowed}"


def _plain(allowed: checks.Numbers) -> _Rule:
    """Returns the rule for numbers of Python, which JSON takes, and not those of NumPy."""
    return (lambda value: isinstance(value, (int, float)) and allowed.allows(value)), str(allowed)


_POSITIVE_INT = _plain(checks.POSITIVE_INT)
_NON_NEGATIVE_INT = _plain(checks.NON_NEGATIVE_INT)
_RATE = _plain(checks.PROPER_FRACTION)
_POSITIVE = _plain(checks.POSITIVE)
_ACTIVATION: _Rule = (_is_one_of(*ACTIVATIONS), f"one of {', '.join(ACTIVATIONS)}")
_BOOL: _Rule = (lambda value: isinstance(value, bool), "True or False")

_RULES: dict[str, _Rule] = {
    "vocabulary_size": _POSITIVE_INT,
    "num_layers": _POSITIVE_INT,
    "num_heads": _POSITIVE_INT,
    "hidden_dim": _POSITIVE_INT,
    "intermediate_dim": _POSITIVE_INT,
    "embedding_dim": _or_none(_POSITIVE_INT),
    "layer_sharing": (_is_one_of(*LAYER_SHARING), f"one of {', '.join(LAYER_SHARING)}"),
    "num_layer_groups": _POSITIVE_INT,
    "max_sequence_length": _POSITIVE_INT,
    "num_segments": _NON_NEGATIVE_INT,
    "position_offset": _NON_NEGATIVE_INT,
    "activation": _ACTIVATION,
    "masked_lm_activation": _or_none(_ACTIVATION),
    "pooler": _BOOL,
    "pooler_activation": _ACTIVATION,
    "pooler_dropout": _RATE,
    "dropout": _RATE,
    "attention_dropout": _RATE,
    "classifier_dropout": _or_none(_RATE),
    "answer_dropout": _RATE,
    "layer_norm_epsilon": _POSITIVE,
    "initializer_range": _POSITIVE,
    "pad_token_id": _NON_NEGATIVE_INT,
    "tokenizer": (_is_one_of(*TOKENIZERS), f"one of {', '.join(TOKENIZERS)}"),
    "causal": _BOOL,
    "output_hidden_states": _BOOL,
    "output_attention_scores": _BOOL,
    "heads_by_layer": _or_none((_is_positive_ints, "a tuple of integers above 0")),
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
