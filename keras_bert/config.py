# SPDX-License-Identifier: Apache-2.0
"""Defines `BertConfig`, an encoder's architecture, and the configurations of released models."""

from __future__ import annotations

import dataclasses
import functools
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any

from keras_bert import checks
from keras_bert.families import KERAS_HUB_NAMES, SIZES

ACTIVATIONS = ("gelu_erf", "gelu_tanh", "relu", "silu", "tanh")
LAYER_SHARING = ("none", "all", "attention", "feed_forward")
POSITIONS = ("learned", "rotary", "none")
FEED_FORWARDS = ("plain", "gated")
MASKED_LM_HEADS = ("tied", "linear")
NORMS = ("layer_norm", "rms_norm")
NORM_PLACEMENTS = ("post", "pre")
RELATIVE_POSITIONS = ("bucketed", "disentangled")
POOLINGS = ("first", "last", "mean", "late")
TOKENIZERS = ("wordpiece", "byte_pair", "sentence_piece")


class ConfigError(ValueError):
    """Raised if a config field is unknown or has an invalid value."""


# === The allowed values of each field, and their description for error messages ===

_Rule = Mapping[str, Any]


def _rule(allows: Callable[[Any], bool], allowed: str) -> _Rule:
    return {"allows": allows, "allowed": allowed}


def _one_of(choices: Sequence[str]) -> _Rule:
    return _rule(
        lambda value: isinstance(value, str) and value in choices, f"one of {', '.join(choices)}"
    )


def _number(numbers: checks.NumberRange) -> _Rule:
    """Returns the rule for numbers that JSON can represent."""
    return _rule(
        lambda value: isinstance(value, (int, float)) and numbers.allows(value), str(numbers)
    )


def _is_positive_ints(value: Any) -> bool:
    is_sequence = isinstance(value, (tuple, list)) and bool(value)
    return is_sequence and all(map(_POSITIVE_INT["allows"], value))


_POSITIVE_INT = _number(checks.POSITIVE_INT)
_NON_NEGATIVE_INT = _number(checks.NON_NEGATIVE_INT)
# No model has nearly this many layers. The limit prevents a corrupt file from exhausting the memory
# before its tensors are checked.
_LAYERS = _number(checks.NumberRange(at_least=1, at_most=10_000, integer=True))
_TABLE_SIZE = _number(checks.NumberRange(at_least=1, at_most=2**20, integer=True))
_RATE = _number(checks.PROPER_FRACTION)
_POSITIVE = _number(checks.POSITIVE)
_ACTIVATION = _one_of(ACTIVATIONS)
_BOOL = _rule(lambda value: isinstance(value, bool), "True or False")
_POSITIVE_INTS = _rule(_is_positive_ints, "a tuple of integers above 0")


@dataclasses.dataclass(frozen=True)
class BertConfig:
    """The architecture of a BERT-style encoder.

    BERT and its descendants differ only in the values of these fields. With few exceptions, the
    fields can be combined freely. The defaults are BERT-base.

    Args:
        vocabulary_size: Number of token IDs.
        num_layers: Number of transformer layers (L in the BERT paper).
        num_heads: Number of attention heads in each layer (A). Must divide `hidden_dim`.
        num_key_value_heads: Number of key and value heads for grouped-query attention. Must divide
            `num_heads`. `None` for `num_heads`.
        hidden_dim: Dimension of the hidden states (H).
        intermediate_dim: Inner dimension of the feed-forward networks (4H in the BERT paper).
        embedding_dim: Dimension of the embeddings before a projection to `hidden_dim` (ALBERT,
            ELECTRA-small). `None` for `hidden_dim`, without a projection.
        layer_sharing: Which weights the layers share: `"none"`, `"all"` (ALBERT), `"attention"` or
            `"feed_forward"` (only this sublayer, including its LayerNorm).
        num_layer_groups: Number of groups of consecutive layers that share weights.
        max_sequence_length: Maximum sequence length in tokens.
        num_segments: Number of segments: 2 for sentences A and B, 1 for a single segment, 0 for no
            segment embeddings.
        positions: `"learned"` for a table of position embeddings, `"rotary"` for the rotation of
            queries and keys in every layer (RoPE), or `"none"`. `"rotary"` requires an even head
            dimension.
        position_offset: Row of the position table for position 0. If it is above 0 (2 in RoBERTa),
            positions count only non-padding tokens, and padding uses the row before position 0.
        relative_positions: Relative position bias of the attention scores: `"bucketed"` for a
            learned bias per head and distance bucket (MPNet), or `"disentangled"` for products of
            contents and positions (DeBERTa). `None` for no bias.
        relative_buckets: Number of distance buckets, in total (MPNet) or for each sign (DeBERTa).
        relative_distance: Minimum distance in the last bucket.
        rotary_base: Base of RoPE's frequencies.
        rotary_scale: Factor of RoPE's frequencies. Below 1, it extends the encoder to longer texts
            than it was trained on (position interpolation).
        local_rotary_base: `rotary_base` of the layers with an attention window. `None` for
            `rotary_base`.
        attention_window: Maximum distance between tokens that attend to each other (sliding
            window), except in layers with global attention. `None` for no limit.
        global_attention_every: Interval between layers without an attention window, starting with
            the first layer. For example, 3 for every third layer. `None` for no such layers.
        attention_bias: Whether the attention projections have biases.
        feed_forward: `"plain"` for two dense layers, or `"gated"` with a gate that multiplies the
            inner layer (GLU).
        feed_forward_bias: Whether the feed-forward networks' dense layers have biases.
        intermediate_bias: Whether the feed-forward networks' first dense layer has a bias. `None`
            for `feed_forward_bias`.
        norm: `"layer_norm"` or `"rms_norm"`.
        norm_bias: Whether every LayerNorm has a bias.
        norm_placement: `"post"` for a norm after each residual connection, or `"pre"` for a norm
            before each sublayer and after the last layer.
        first_attention_norm: With `norm_placement="pre"`, whether the first layer has a norm before
            its attention.
        embedding_norm: Whether a norm follows the embeddings.
        activation: `"gelu_erf"` (the exact GELU), `"gelu_tanh"` (its tanh approximation, as in the
            original BERT code), `"relu"`, `"silu"` or `"tanh"`. `"gelu"` raises an error because
            its meaning differs between libraries.
        masked_lm_head: `"tied"` for a dense layer, an activation, a norm and a matmul with the
            token embeddings, or `"linear"` for one separate matrix (EuroBERT).
        masked_lm_bias: Whether the masked LM head has a bias for each token in the vocabulary.
        masked_lm_activation: Activation of the masked LM head. `None` for `activation`.
        pooler: Whether the encoder has a pooler. If not (DistilBERT, ELECTRA), tasks with a pooled
            output add one.
        pooler_activation: Activation of the encoder's or task's pooler.
        pooler_dropout: Dropout rate before the pooler's dense layer.
        pooler_norm: Whether a norm follows the pooler's activation.
        pooling: Input of the pooler: `"first"` for the first token, `"last"` for the last
            non-padding token, `"mean"` for the mean of the non-padding tokens, or `"late"` to apply
            the pooler to every non-padding token and average its outputs. With a linear head,
            `"late"` is the mean of all tokens' logits. It requires `pooler=False`. `None` for
            `"last"` if the encoder is causal, otherwise `"first"`.
        token_pooler: Whether token classification and question answering apply the pooler's dense
            layer to every token before their head.
        head_bias: Whether the dense layers in the pooler and the masked LM head have biases.
        dropout: Dropout rate after the embeddings and after each sublayer.
        embedding_dropout: Dropout rate after the embeddings. `None` for `dropout`.
        attention_dropout: Dropout rate on the attention probabilities.
        classifier_dropout: Dropout rate before a classification head. `None` for `dropout`.
        token_dropout: Dropout rate before a token classification head. `None` for the same rate as
            before other classification heads.
        answer_dropout: Dropout rate before a question answering head.
        layer_norm_epsilon: Added to the variance (with RMSNorm, to the mean square) in every norm.
        initializer_range: Standard deviation of the initializer for kernels and embeddings, a
            normal distribution truncated at two standard deviations.
        scaled_initializer: Whether to divide `initializer_range` by `sqrt(2 num_layers)` for the
            output projections of both sublayers and the dense layers of the pooler and the masked
            LM head, and to replace it with `hidden_dim ** -0.5` for classification heads
            (Megatron-LM, ModernBERT).
        pad_token_id: ID of the padding token.
        tokenizer: Type of the tokenizer: `"wordpiece"`, `"byte_pair"` or `"sentence_piece"`.
        causal: Whether tokens attend only to themselves and the tokens before them, as in the
            left-to-right model of the BERT paper's ablation study (section 5.1).
        output_hidden_states: Whether a backbone also returns every layer's hidden states.
        output_attention_scores: Whether a backbone also returns every layer's attention
            probabilities.
        heads_by_layer: Number of attention heads in each layer after pruning, from 1 to
            `num_heads`. Layers that share their attention have the same number. `None` for
            `num_heads` in all layers. The head dimension does not change.

    Raises:
        ConfigError: If a field has an invalid type or value. The message includes the field, the
            value and the allowed values.

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
        [ELECTRA](https://arxiv.org/abs/2003.10555), section 3;
        [EuroBERT](https://arxiv.org/abs/2503.05500), section 2.1;
        [ModernBERT](https://arxiv.org/abs/2412.13663), sections 2.1 and 2.2.2, and
        [Megatron-LM](https://arxiv.org/abs/1909.08053), section 4.2, for its initial weights;
        [RoFormer](https://arxiv.org/abs/2104.09864), section 3.2, for rotary positions, and
        [position interpolation](https://arxiv.org/abs/2306.15595), section 3, for their scale;
        [MPNet](https://arxiv.org/abs/2004.09297), section 4.1, and
        [DeBERTa](https://arxiv.org/abs/2006.03654), section 3.1, for relative positions;
        [GQA](https://arxiv.org/abs/2305.13245), section 2.2, for grouped queries;
        [GLU variants](https://arxiv.org/abs/2002.05202), section 2, for gates;
        [RMSNorm](https://arxiv.org/abs/1910.07467), section 4.
    """

    vocabulary_size: int = field(default=30522, metadata=_POSITIVE_INT)
    num_layers: int = field(default=12, metadata=_LAYERS)
    num_heads: int = field(default=12, metadata=_POSITIVE_INT)
    num_key_value_heads: int | None = field(default=None, metadata=_POSITIVE_INT)
    hidden_dim: int = field(default=768, metadata=_POSITIVE_INT)
    intermediate_dim: int = field(default=3072, metadata=_POSITIVE_INT)
    embedding_dim: int | None = field(default=None, metadata=_POSITIVE_INT)
    layer_sharing: str = field(default="none", metadata=_one_of(LAYER_SHARING))
    num_layer_groups: int = field(default=1, metadata=_POSITIVE_INT)
    max_sequence_length: int = field(default=512, metadata=_POSITIVE_INT)
    num_segments: int = field(default=2, metadata=_NON_NEGATIVE_INT)
    positions: str = field(default="learned", metadata=_one_of(POSITIONS))
    position_offset: int = field(default=0, metadata=_NON_NEGATIVE_INT)
    relative_positions: str | None = field(default=None, metadata=_one_of(RELATIVE_POSITIONS))
    relative_buckets: int = field(default=32, metadata=_POSITIVE_INT)
    relative_distance: int = field(default=128, metadata=_TABLE_SIZE)
    rotary_base: float = field(default=10000.0, metadata=_POSITIVE)
    rotary_scale: float = field(default=1.0, metadata=_POSITIVE)
    local_rotary_base: float | None = field(default=None, metadata=_POSITIVE)
    attention_window: int | None = field(default=None, metadata=_POSITIVE_INT)
    global_attention_every: int | None = field(default=None, metadata=_POSITIVE_INT)
    attention_bias: bool = field(default=True, metadata=_BOOL)
    feed_forward: str = field(default="plain", metadata=_one_of(FEED_FORWARDS))
    feed_forward_bias: bool = field(default=True, metadata=_BOOL)
    intermediate_bias: bool | None = field(default=None, metadata=_BOOL)
    norm: str = field(default="layer_norm", metadata=_one_of(NORMS))
    norm_bias: bool = field(default=True, metadata=_BOOL)
    norm_placement: str = field(default="post", metadata=_one_of(NORM_PLACEMENTS))
    first_attention_norm: bool = field(default=True, metadata=_BOOL)
    embedding_norm: bool = field(default=True, metadata=_BOOL)
    activation: str = field(default="gelu_erf", metadata=_ACTIVATION)
    masked_lm_head: str = field(default="tied", metadata=_one_of(MASKED_LM_HEADS))
    masked_lm_bias: bool = field(default=True, metadata=_BOOL)
    masked_lm_activation: str | None = field(default=None, metadata=_ACTIVATION)
    pooler: bool = field(default=True, metadata=_BOOL)
    pooler_activation: str = field(default="tanh", metadata=_ACTIVATION)
    pooler_dropout: float = field(default=0.0, metadata=_RATE)
    pooler_norm: bool = field(default=False, metadata=_BOOL)
    pooling: str | None = field(default=None, metadata=_one_of(POOLINGS))
    token_pooler: bool = field(default=False, metadata=_BOOL)
    head_bias: bool = field(default=True, metadata=_BOOL)
    dropout: float = field(default=0.1, metadata=_RATE)
    embedding_dropout: float | None = field(default=None, metadata=_RATE)
    attention_dropout: float = field(default=0.1, metadata=_RATE)
    classifier_dropout: float | None = field(default=None, metadata=_RATE)
    token_dropout: float | None = field(default=None, metadata=_RATE)
    answer_dropout: float = field(default=0.0, metadata=_RATE)
    layer_norm_epsilon: float = field(default=1e-12, metadata=_POSITIVE)
    initializer_range: float = field(default=0.02, metadata=_POSITIVE)
    scaled_initializer: bool = field(default=False, metadata=_BOOL)
    pad_token_id: int = field(default=0, metadata=_NON_NEGATIVE_INT)
    tokenizer: str = field(default="wordpiece", metadata=_one_of(TOKENIZERS))
    causal: bool = field(default=False, metadata=_BOOL)
    output_hidden_states: bool = field(default=False, metadata=_BOOL)
    output_attention_scores: bool = field(default=False, metadata=_BOOL)
    heads_by_layer: tuple[int, ...] | None = field(default=None, metadata=_POSITIVE_INTS)

    def __post_init__(self) -> None:
        for own in dataclasses.fields(self):
            value, is_optional = checks.plain(getattr(self, own.name)), own.default is None
            object.__setattr__(self, own.name, value)
            if not (is_optional and value is None) and not own.metadata["allows"](value):
                allowed = "None or " * is_optional + own.metadata["allowed"]
                raise ConfigError(f"BertConfig.{own.name} must be {allowed}. Received: {value!r}")
        if self.hidden_dim % self.num_heads:
            raise ConfigError(
                f"BertConfig.num_heads must divide hidden_dim ({self.hidden_dim}). "
                f"Received: {self.num_heads}"
            )
        if self.num_heads % self.effective_num_key_value_heads:
            raise ConfigError(
                "BertConfig.num_key_value_heads must divide num_heads "
                f"({self.num_heads}). Received: {self.num_key_value_heads}"
            )
        if self.positions == "rotary" and self.head_dim % 2:
            raise ConfigError(
                "With BertConfig.positions='rotary', the head dimension must be even. Received: "
                f"{self.head_dim}"
            )
        if self.relative_positions is not None:
            self._check_relative_positions()
        if self.pooling == "late" and self.pooler:
            raise ConfigError(
                "With BertConfig.pooling='late', BertConfig.pooler must be False, because "
                "classifiers apply the pooler. Received: True"
            )
        if self.num_layer_groups > self.num_layers:
            raise ConfigError(
                "BertConfig.num_layer_groups must be at most num_layers "
                f"({self.num_layers}). Received: {self.num_layer_groups}"
            )
        self._check_heads_by_layer()
        if self.pad_token_id >= self.vocabulary_size:
            raise ConfigError(
                "BertConfig.pad_token_id must be below vocabulary_size "
                f"({self.vocabulary_size}). Received: {self.pad_token_id}"
            )

    def _check_relative_positions(self) -> None:
        for name in ("attention_window", "num_key_value_heads", "heads_by_layer"):
            value = getattr(self, name)
            if value is not None:
                raise ConfigError(
                    f"BertConfig.{name} must be None with relative_positions. Received: {value!r}"
                )
        # The first half of each sign's buckets contains one distance per bucket. It must not be
        # empty.
        if self.relative_buckets < 4 or self.relative_distance <= self.relative_buckets:
            raise ConfigError(
                "BertConfig.relative_buckets must be at least 4 and below relative_distance. "
                f"Received: {self.relative_buckets} with relative_distance={self.relative_distance}"
            )

    def _check_heads_by_layer(self) -> None:
        if self.heads_by_layer is None:
            return
        # JSON has lists instead of tuples.
        heads = tuple(self.heads_by_layer)
        object.__setattr__(self, "heads_by_layer", heads)
        shared = [heads[owner] for owner in self.attention_owners if owner < len(heads)]
        for is_wrong, expected in (
            (self.num_key_value_heads is not None, "be None with num_key_value_heads"),
            (len(heads) != self.num_layers, f"have {self.num_layers} values, one per layer"),
            (max(heads) > self.num_heads, f"be at most num_heads ({self.num_heads})"),
            (shared != list(heads), "be equal for layers that share their attention"),
        ):
            if is_wrong:
                raise ConfigError(f"BertConfig.heads_by_layer must {expected}. Received: {heads!r}")

    @property
    def head_dim(self) -> int:
        """The dimension of each attention head."""
        return self.hidden_dim // self.num_heads

    @functools.cached_property
    def effective_heads_by_layer(self) -> tuple[int, ...]:
        """The number of heads in each layer: `heads_by_layer`, or `num_heads` for all."""
        return self.heads_by_layer or (self.num_heads,) * self.num_layers

    @property
    def effective_num_key_value_heads(self) -> int:
        """The number of key and value heads: `num_key_value_heads`, or `num_heads`."""
        return self.num_key_value_heads or self.num_heads

    @functools.cached_property
    def attention_windows(self) -> tuple[int | None, ...]:
        """The attention window of each layer, or `None` for global attention."""
        every = self.global_attention_every
        return tuple(
            None if every is not None and index % every == 0 else self.attention_window
            for index in range(self.num_layers)
        )

    @functools.cached_property
    def rotary_bases(self) -> tuple[float, ...]:
        """RoPE's base in each layer. Empty without rotary positions."""
        if self.positions != "rotary":
            return ()
        local = self.local_rotary_base or self.rotary_base
        windows = self.attention_windows
        return tuple(self.rotary_base if window is None else local for window in windows)

    @functools.cached_property
    def attention_norms(self) -> tuple[bool, ...]:
        """Whether each layer has an attention norm."""
        first = self.norm_placement == "post" or self.first_attention_norm
        return (first, *(True,) * (self.num_layers - 1))

    @property
    def embedding_width(self) -> int:
        """The dimension of the embeddings: `embedding_dim`, or `hidden_dim` if it is `None`."""
        return self.hidden_dim if self.embedding_dim is None else self.embedding_dim

    @functools.cached_property
    def attention_owners(self) -> tuple[int, ...]:
        """For each layer, the index of the layer that owns its attention weights."""
        return self._owners("attention")

    @functools.cached_property
    def feed_forward_owners(self) -> tuple[int, ...]:
        """For each layer, the index of the layer that owns its feed-forward weights."""
        return self._owners("feed_forward")

    def _owners(self, part: str) -> tuple[int, ...]:
        num_groups = self.num_layers
        if self.layer_sharing in ("all", part):
            num_groups = self.num_layer_groups
        groups = [index * num_groups // self.num_layers for index in range(self.num_layers)]
        first: dict[int, int] = {}
        return tuple(first.setdefault(group, index) for index, group in enumerate(groups))

    @property
    def output_initializer_range(self) -> float:
        """Initial standard deviation of output projections, the pooler and the masked LM head."""
        depth = 2 * self.num_layers if self.scaled_initializer else 1
        return float(self.initializer_range / depth**0.5)

    @property
    def classifier_initializer_range(self) -> float:
        """Initial standard deviation of the weights in classification heads."""
        return float(self.hidden_dim**-0.5 if self.scaled_initializer else self.initializer_range)

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
        """The dropout rate before a token classification head, with `token_dropout` resolved."""
        rate = self.token_dropout
        return self.effective_classifier_dropout if rate is None else rate

    @property
    def effective_embedding_dropout(self) -> float:
        """The dropout rate after the embeddings: `embedding_dropout`, or `dropout`."""
        return self.dropout if self.embedding_dropout is None else self.embedding_dropout

    @property
    def effective_intermediate_bias(self) -> bool:
        """Whether the first feed-forward layer has a bias, with `intermediate_bias` resolved."""
        has_bias = self.intermediate_bias
        return self.feed_forward_bias if has_bias is None else has_bias

    @property
    def effective_pooling(self) -> str:
        """The pooler's input: `pooling`, or `"last"` if causal, otherwise `"first"`."""
        return self.pooling or ("last" if self.causal else "first")

    def replace(self, **changes: Any) -> BertConfig:
        """Returns a copy with some fields changed.

        Raises:
            ConfigError: If a field is unknown or has an invalid value.
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
        """Creates a config from a dict of fields. Missing fields have their default values.

        Raises:
            ConfigError: If a field is unknown or has an invalid value.
        """
        _reject_unknown_fields(fields)
        return cls(**fields)

    def to_json(self) -> str:
        """Returns all fields as an indented JSON object."""
        return json.dumps(self.to_dict(), indent=2) + "\n"

    @classmethod
    def from_json(cls, text: str) -> BertConfig:
        """Creates a config from the JSON string returned by `to_json`.

        Raises:
            ConfigError: If the string is not a JSON object, or a field is unknown or has an invalid
                value.
        """
        try:
            fields = json.loads(text)
        except (json.JSONDecodeError, RecursionError) as error:
            raise ConfigError(f"A BertConfig's JSON cannot be parsed: {error}.") from error
        if not isinstance(fields, dict):
            raise ConfigError(
                f"A BertConfig's JSON must be an object. Received: {type(fields).__name__}"
            )
        return cls.from_dict(fields)

    @classmethod
    def from_json_file(cls, path: str | os.PathLike[str]) -> BertConfig:
        """Creates a config from a JSON file.

        Raises:
            ConfigError: See `from_json`. The message includes the path.
        """
        try:
            with open(path, encoding="utf-8") as file:
                text = file.read()
            return cls.from_json(text)
        except (ConfigError, UnicodeDecodeError) as error:
            raise ConfigError(f"{os.fspath(path)}: {error}") from error

    @classmethod
    def from_name(cls, name: str) -> BertConfig:
        """Returns a released model's configuration.

        Args:
            name: One of `names()`, for example `"bert_base_uncased"`, or a KerasHub preset name.

        Raises:
            ConfigError: If the name is unknown. The message lists all names.
        """
        canonical = KERAS_HUB_NAMES.get(name, name)
        if canonical not in SIZES:
            meant = checks.did_you_mean(name, cls.names())
            raise ConfigError(
                f"name must be one of {', '.join(cls.names())}. Received: {name!r}.{meant}"
            )
        return cls(**SIZES[canonical])

    @classmethod
    def names(cls) -> tuple[str, ...]:
        """Returns the names of all released models, without KerasHub's aliases."""
        return tuple(SIZES)


def _reject_unknown_fields(fields: Mapping[str, Any]) -> None:
    names = [own.name for own in dataclasses.fields(BertConfig)]
    unknown = sorted(set(fields).difference(names))
    if unknown:
        raise ConfigError(
            f"BertConfig has no field {', '.join(map(repr, unknown))}. "
            f"The fields are: {', '.join(names)}."
        )
