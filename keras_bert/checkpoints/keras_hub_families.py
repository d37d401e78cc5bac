# SPDX-License-Identifier: Apache-2.0
"""What KerasHub's presets of each family hold, and where in KerasHub's own models it lies."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from keras_bert.checkpoints.layouts import Layout, Stored
from keras_bert.checkpoints.weights import POOLER_WEIGHTS, block_weight_names
from keras_bert.config import BertConfig

ATTENTION = "_self_attention_layer"
_BLOCK = {
    "attention.query_key_value.kernel": tuple(
        f"{ATTENTION}.{part}_dense.kernel" for part in ("query", "key", "value")
    ),
    "attention.query_key_value.bias": tuple(
        f"{ATTENTION}.{part}_dense.bias" for part in ("query", "key", "value")
    ),
    "attention_output.kernel": (f"{ATTENTION}.output_dense.kernel",),
    "attention_norm.bias": (f"{ATTENTION}.output_dense.bias",),
    "attention_norm.gamma": ("_self_attention_layer_norm.gamma",),
    "attention_norm.beta": ("_self_attention_layer_norm.beta",),
    "intermediate.kernel": ("_feedforward_intermediate_dense.kernel",),
    "intermediate_activation.bias": ("_feedforward_intermediate_dense.bias",),
    "feed_forward_output.kernel": ("_feedforward_output_dense.kernel",),
    "feed_forward_norm.bias": ("_feedforward_output_dense.bias",),
    "feed_forward_norm.gamma": ("_feedforward_layer_norm.gamma",),
    "feed_forward_norm.beta": ("_feedforward_layer_norm.beta",),
}
_FIELDS = {
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
_SEGMENTS = {"num_segments": "num_segments"}
_NORM = {
    "embeddings.gamma": "embeddings_layer_norm.gamma",
    "embeddings.beta": "embeddings_layer_norm.beta",
}
_TABLES = {
    "token_embedding.embeddings": "token_embedding.embeddings",
    "embeddings.position_embeddings": "position_embedding.position_embeddings",
    "embeddings.segment_embeddings": "segment_embedding.embeddings",
    **_NORM,
}
_TABLES_WITHOUT_SEGMENTS = {
    "token_embedding.embeddings": "token_embedding.embeddings",
    "embeddings.position_embeddings": "embeddings.position_embedding.position_embeddings",
    **_NORM,
}
_PROJECTION = {
    "embedding_projection.kernel": "embeddings_projection.kernel",
    "embedding_projection.bias": "embeddings_projection.bias",
}
_MASKED_LM = {
    "dense.kernel": "masked_lm_head._intermediate_dense.kernel",
    "dense.bias": "masked_lm_head._intermediate_dense.bias",
    "gamma": "masked_lm_head._intermediate_layer_norm.gamma",
    "beta": "masked_lm_head._intermediate_layer_norm.beta",
    "output_bias": "masked_lm_head._bias",
}


def _dense(name: str, prefix: str = "") -> dict[str, str]:
    return {f"{prefix}{kind}": f"{name}.{kind}" for kind in ("kernel", "bias")}


def _layer(index: int, config: BertConfig) -> str:
    return f"transformer_layers.{index}."


def _group(index: int, config: BertConfig) -> str:
    group = sorted(set(config.attention_owners)).index(index)
    return f"transformer_layers.{group}.0."


@dataclasses.dataclass(frozen=True)
class HubFamily:
    """One family's presets.

    Args:
        prefix: What the names of its classes begin with.
        fields: Our field -> the argument of its encoder.
        fixed: What is written into its encoder, and not into its files.
        weights: Our weight outside the blocks -> the attributes that lead to it in its encoder.
        pooled: Our pooler's weights -> the attributes that lead to them in its classifier, where
            the encoder has none.
        masked_lm_activation: The activation of its masked-LM head, `None` where it has no such
            class.
        block_scope: From the index of a block's owner to the attributes that lead to it.
    """

    prefix: str
    fields: Mapping[str, str]
    fixed: Mapping[str, Any]
    weights: Mapping[str, str]
    pooled: Mapping[str, str] = dataclasses.field(default_factory=dict)
    masked_lm_activation: str | None = "gelu_erf"
    block_scope: Callable[[int, BertConfig], str] = _layer

    @property
    def backbone_class(self) -> str:
        """The name of its encoder's class."""
        return f"{self.prefix}Backbone"

    def backbone_layout(self, config: BertConfig) -> dict[str, Stored]:
        """The encoder's weights, named by the attributes that lead to them."""
        has_projection = config.embedding_dim is not None
        layout = {
            ours: Stored((theirs,))
            for ours, theirs in self.weights.items()
            if has_projection or not ours.startswith("embedding_projection")
        }
        for index, ours in block_weight_names(config):
            scope = self.block_scope(index, config)
            names = tuple(scope + name for name in _BLOCK[ours])
            layout[f"blocks.{index}.{ours}"] = Stored(names)
        if config.pooler:
            layout |= {ours: Stored((self.pooled[ours],)) for ours in POOLER_WEIGHTS if self.pooled}
        return layout

    @property
    def tasks(self) -> dict[str, dict[str, dict[str, str]]]:
        """The heads of each class of a task: their weights, and where they lie in it."""
        classifier = {"classifier": _dense("output_dense")}
        if self.pooled:
            classifier["pooler"] = _dense("pooled_dense")
        return {
            f"{self.prefix}TextClassifier": classifier,
            f"{self.prefix}MaskedLM": {"masked_lm": _MASKED_LM},
        }

    @property
    def head_layouts(self) -> dict[str, Layout]:
        """The weights of every head."""
        return {
            head: {ours: Stored((theirs,)) for ours, theirs in names.items()}
            for heads in self.tasks.values()
            for head, names in heads.items()
        }


_POOLED = _dense("pooled_dense", "pooler.dense.")
_TANH_GELU = {"activation": "gelu_tanh", "layer_norm_epsilon": 1e-12}

FAMILIES = {
    family.backbone_class: family
    for family in (
        HubFamily("Bert", {**_FIELDS, **_SEGMENTS}, _TANH_GELU, {**_TABLES, **_POOLED}),
        HubFamily(
            "Roberta",
            _FIELDS,
            # Its positions count padding too, and its segment's vector is in theirs.
            {
                "num_segments": 0,
                "pad_token_id": 1,
                "layer_norm_epsilon": 1e-5,
                "pooler_dropout": 0.1,
                "tokenizer": "byte_pair",
            },
            _TABLES_WITHOUT_SEGMENTS,
            pooled=_POOLED,
        ),
        HubFamily(
            "Albert",
            {
                **_FIELDS,
                **_SEGMENTS,
                "embedding_dim": "embedding_dim",
                "num_layer_groups": "num_groups",
            },
            {
                **_TANH_GELU,
                "layer_sharing": "all",
                "classifier_dropout": 0.1,
                "tokenizer": "sentence_piece",
            },
            {**_TABLES, **_PROJECTION, **_POOLED},
            masked_lm_activation="gelu_tanh",
            block_scope=_group,
        ),
        # Its pooler, which the original has not, is the encoder's.
        HubFamily(
            "Electra",
            {
                **_FIELDS,
                **_SEGMENTS,
                "vocabulary_size": "vocab_size",
                "embedding_dim": "embedding_dim",
            },
            _TANH_GELU,
            {**_TABLES, **_PROJECTION, **_POOLED},
            masked_lm_activation=None,
        ),
        HubFamily(
            "DistilBert",
            _FIELDS,
            {
                "num_segments": 0,
                "pooler": False,
                "pooler_activation": "relu",
                "layer_norm_epsilon": 1e-12,
                "classifier_dropout": 0.2,
                "answer_dropout": 0.1,
            },
            _TABLES_WITHOUT_SEGMENTS,
            pooled=_POOLED,
        ),
    )
}
