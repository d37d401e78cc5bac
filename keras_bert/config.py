# SPDX-License-Identifier: Apache-2.0
"""The configuration of an encoder, a frozen dataclass, also by the name of a released model."""

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
    """Raised if a field of a configuration is unknown or has a value that is not allowed."""


# === The metadata of fields: which values are allowed, and how an error says so ===

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
# Far more than any model has, so that a corrupt file cannot allocate memory before its tensors are
# checked
_LAYERS = _number(checks.NumberRange(at_least=1, at_most=10_000, integer=True))
_TABLE_SIZE = _number(checks.NumberRange(at_least=1, at_most=2**20, integer=True))
_RATE = _number(checks.PROPER_FRACTION)
_POSITIVE = _number(checks.POSITIVE)
_ACTIVATION = _one_of(ACTIVATIONS)
_BOOL = _rule(lambda value: isinstance(value, bool), "True or False")
_POSITIVE_INTS = _rule(_is_positive_ints, "a tuple of integers above 0")


@dataclasses.dataclass(frozen=True)
class BertConfig:
    """The architecture of an encoder of the BERT family.

    The encoders of BERT and its descendants differ only in the values of these fields, which can be
    combined freely, with few exceptions. The defaults are BERT-base.

    Args:
        vocabulary_size: Number of token ids.
        num_layers: Number of transformer blocks (L in the paper).
        num_heads: Number of attention heads of a block (A); must divide `hidden_dim`.
        num_key_value_heads: Number of heads of the keys and values, which groups of query heads
            share (grouped-query attention); must divide `num_heads`. `None` for `num_heads`.
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
        positions: `"learned"`, a table of position embeddings; `"rotary"`, the rotation of queries
            and keys in every block (RoPE), for which the dimension of a head must be even; or
            `"none"`.
        position_offset: The row of the position table for position 0. If it is above 0 (2 in
            RoBERTa), positions count the tokens that are not padding, and padding has the row
            before position 0.
        relative_positions: The relative position bias that is added to the attention scores:
            `"bucketed"`, a learned number for each head and bucket of distances (MPNet); or
            `"disentangled"`, products of contents and positions (DeBERTa). `None` for no bias.
        relative_buckets: The number of buckets of distances: in total (MPNet), or for each sign
            (DeBERTa).
        relative_distance: The distance from which on all distances share the last bucket.
        rotary_base: The base of the frequencies of rotary positions.
        rotary_scale: A factor of the frequencies, below 1 for longer texts than an encoder was
            trained on (position interpolation).
        local_rotary_base: The base in blocks with an attention window. `None` for `rotary_base`.
        attention_window: The largest distance of two tokens that attend to each other (sliding
            window), except in the blocks of `global_attention_every`. `None` for no limit.
        global_attention_every: The interval of the blocks without an attention window, beginning
            with the first: 3 for every third block. `None` for no such block.
        attention_bias: Whether the projections of the attention have biases.
        feed_forward: `"plain"`, two dense layers; or `"gated"`, with a gate that multiplies the
            inner layer (GLU).
        feed_forward_bias: Whether the dense layers of the feed-forward networks have biases.
        intermediate_bias: Whether their first dense layer has a bias. `None` for
            `feed_forward_bias`.
        norm: `"layer_norm"` or `"rms_norm"`.
        norm_bias: Whether every LayerNorm has an offset.
        norm_placement: `"post"`, the norm follows the residual connection; or `"pre"`, it precedes
            each sublayer, and another one follows the last block.
        first_attention_norm: Whether there is a norm before the attention of the first block, if
            `norm_placement` is `"pre"`.
        embedding_norm: Whether there is a norm after the embeddings.
        activation: `"gelu_erf"` (the exact GELU), `"gelu_tanh"` (its tanh approximation, as in the
            released TF1 code), `"relu"`, `"silu"` or `"tanh"`. `"gelu"` is not accepted, since its
            meaning differs between releases.
        masked_lm_head: `"tied"`, a dense layer, an activation and a norm, and then a product with
            the token embeddings; or `"linear"`, a matrix of its own (EuroBERT).
        masked_lm_bias: Whether there is a bias for each token of the vocabulary.
        masked_lm_activation: The activation of the masked LM head. `None` for `activation`.
        pooler: Whether the encoder has a pooler. If not (DistilBERT, ELECTRA), tasks that need a
            pooled output have a pooler of their own.
        pooler_activation: The activation of the pooler of the encoder or task.
        pooler_dropout: Dropout rate before the dense layer of the pooler.
        pooler_norm: Whether a norm follows the pooler's activation.
        pooling: The input of the pooler: `"first"`, the first token; `"last"`, the last token that
            is not padding; `"mean"`, the mean of all tokens that are not padding; or `"late"`, each
            of these tokens, and the mean of the outputs is pooled. (With a linear head, the result
            is the mean of all tokens' logits.) `"late"` requires `pooler=False`. `None` for
            `"last"` if the encoder is causal, otherwise `"first"`.
        token_pooler: Whether token classification and question answering apply the pooler's layer
            to every token, before their head.
        head_bias: Whether the dense layers of the pooler and of the masked LM head have biases.
        dropout: Dropout rate after the embeddings and after both sublayers of a block.
        embedding_dropout: Dropout rate after the embeddings. `None` for `dropout`.
        attention_dropout: Dropout rate on the attention probabilities.
        classifier_dropout: Dropout rate before a classification head. `None` for `dropout`.
        token_dropout: Dropout rate before a token classification head. `None` for the rate of other
            classification heads.
        answer_dropout: Dropout rate before a question answering head.
        layer_norm_epsilon: Added to the variance, or to the mean square, in every norm.
        initializer_range: Standard deviation of the normal initializer of kernels and embeddings,
            which is truncated at two standard deviations.
        scaled_initializer: Whether to divide `initializer_range` by `sqrt(2 num_layers)` for the
            output projections of both sublayers and the dense layers of the pooler and the masked
            LM head, and to replace it with `hidden_dim ** -0.5` for classification heads
            (Megatron-LM, ModernBERT).
        pad_token_id: The id of the padding token.
        tokenizer: The kind of tokenizer: `"wordpiece"`, `"byte_pair"` or `"sentence_piece"`.
        causal: Whether tokens attend only to themselves and to the tokens before them, as in the
            left-to-right model of the paper's ablation study (section 5.1).
        output_hidden_states: Whether a backbone also returns the hidden states of every block.
        output_attention_scores: Whether a backbone also returns the attention probabilities of
            every block.
        heads_by_layer: The number of attention heads of each layer after pruning, from 1 to
            `num_heads`; equal for layers that share their attention. `None` for `num_heads` in all
            layers. The dimension of a head does not change.

    Raises:
        ConfigError: If the type or the value of a field is not allowed; the message names the
            field, the value and the allowed values.

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
        [ModernBERT](https://arxiv.org/abs/2412.13663), sections 2.1 and 2.2.2, whose initial
        weights are those of [Megatron-LM](https://arxiv.org/abs/1909.08053), section 4.2;
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
                f"BertConfig.num_heads must divide hidden_dim, which is {self.hidden_dim}. "
                f"Received: {self.num_heads}"
            )
        if self.num_heads % self.effective_num_key_value_heads:
            raise ConfigError(
                "BertConfig.num_key_value_heads must divide num_heads, which is "
                f"{self.num_heads}. Received: {self.num_key_value_heads}"
            )
        if self.positions == "rotary" and self.head_dim % 2:
            raise ConfigError(
                f"BertConfig.positions is 'rotary' and the dimension of a head is {self.head_dim}; "
                "it must be even."
            )
        if self.relative_positions is not None:
            self._check_relative_positions()
        if self.pooling == "late" and self.pooler:
            raise ConfigError(
                "BertConfig.pooler is True; it must be False if pooling is 'late', which "
                "classifiers do."
            )
        if self.num_layer_groups > self.num_layers:
            raise ConfigError(
                "BertConfig.num_layer_groups must be at most num_layers, which is "
                f"{self.num_layers}. Received: {self.num_layer_groups}"
            )
        self._check_heads_by_layer()
        if self.pad_token_id >= self.vocabulary_size:
            raise ConfigError(
                "BertConfig.pad_token_id must be below vocabulary_size, which is "
                f"{self.vocabulary_size}. Received: {self.pad_token_id}"
            )

    def _check_relative_positions(self) -> None:
        for name in ("attention_window", "num_key_value_heads", "heads_by_layer"):
            value = getattr(self, name)
            if value is not None:
                raise ConfigError(
                    f"BertConfig.{name} must be None with relative_positions. Received: {value!r}"
                )
        # The first half of each sign's buckets have one distance each; it must not be empty.
        if self.relative_buckets < 4 or self.relative_distance <= self.relative_buckets:
            raise ConfigError(
                f"BertConfig.relative_buckets is {self.relative_buckets} and relative_distance is "
                f"{self.relative_distance}; expected at least 4 buckets, and a larger distance."
            )

    def _check_heads_by_layer(self) -> None:
        if self.heads_by_layer is None:
            return
        # JSON has lists and no tuples.
        heads = tuple(self.heads_by_layer)
        object.__setattr__(self, "heads_by_layer", heads)
        shared = [heads[owner] for owner in self.attention_owners if owner < len(heads)]
        for is_wrong, expected in (
            (self.num_key_value_heads is not None, "be None with num_key_value_heads"),
            (len(heads) != self.num_layers, f"have {self.num_layers} values, one for each layer"),
            (max(heads) > self.num_heads, f"be at most num_heads, which is {self.num_heads}"),
            (shared != list(heads), "be equal for layers that share their attention"),
        ):
            if is_wrong:
                raise ConfigError(f"BertConfig.heads_by_layer must {expected}. Received: {heads!r}")

    @property
    def head_dim(self) -> int:
        """The dimension of an attention head."""
        return self.hidden_dim // self.num_heads

    @functools.cached_property
    def effective_heads_by_layer(self) -> tuple[int, ...]:
        """The number of heads of each layer: `heads_by_layer`, or `num_heads` for all."""
        return self.heads_by_layer or (self.num_heads,) * self.num_layers

    @property
    def effective_num_key_value_heads(self) -> int:
        """The number of heads of the keys and values: `num_key_value_heads`, or `num_heads`."""
        return self.num_key_value_heads or self.num_heads

    @functools.cached_property
    def attention_windows(self) -> tuple[int | None, ...]:
        """The attention window of each layer; `None` for global attention."""
        every = self.global_attention_every
        return tuple(
            None if every is not None and index % every == 0 else self.attention_window
            for index in range(self.num_layers)
        )

    @functools.cached_property
    def rotary_bases(self) -> tuple[float, ...]:
        """The base of the rotary positions of each layer; empty without them."""
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
        """For each block, the index of the block that owns its attention weights."""
        return self._owners("attention")

    @functools.cached_property
    def feed_forward_owners(self) -> tuple[int, ...]:
        """For each block, the index of the block that owns its feed-forward weights."""
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
        """The initial standard deviation of output projections, pooler and masked LM head."""
        depth = 2 * self.num_layers if self.scaled_initializer else 1
        return float(self.initializer_range / depth**0.5)

    @property
    def classifier_initializer_range(self) -> float:
        """The standard deviation of the initial weights of a classification head."""
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
        """The dropout rate before a token classification head: `token_dropout`, if it is given."""
        rate = self.token_dropout
        return self.effective_classifier_dropout if rate is None else rate

    @property
    def effective_embedding_dropout(self) -> float:
        """The dropout rate after the embeddings: `embedding_dropout`, or `dropout`."""
        return self.dropout if self.embedding_dropout is None else self.embedding_dropout

    @property
    def effective_intermediate_bias(self) -> bool:
        """Whether the first feed-forward layer has a bias: `intermediate_bias`, if it is given."""
        has_bias = self.intermediate_bias
        return self.feed_forward_bias if has_bias is None else has_bias

    @property
    def effective_pooling(self) -> str:
        """The input of the pooler: `pooling`, or `"last"` if causal, otherwise `"first"`."""
        return self.pooling or ("last" if self.causal else "first")

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
        canonical = KERAS_HUB_NAMES.get(name, name)
        if canonical not in SIZES:
            meant = checks.did_you_mean(name, cls.names())
            raise ConfigError(
                f"There is no configuration named {name!r}.{meant} The names are: "
                f"{', '.join(cls.names())}."
            )
        return cls(**SIZES[canonical])

    @classmethod
    def names(cls) -> tuple[str, ...]:
        """Returns the names of all released models, without the aliases of KerasHub."""
        return tuple(SIZES)


def _reject_unknown_fields(fields: Mapping[str, Any]) -> None:
    names = [own.name for own in dataclasses.fields(BertConfig)]
    unknown = sorted(set(fields).difference(names))
    if unknown:
        raise ConfigError(
            f"BertConfig has no field {', '.join(map(repr, unknown))}. "
            f"Its fields are: {', '.join(names)}."
        )
