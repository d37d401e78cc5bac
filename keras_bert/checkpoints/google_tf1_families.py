# SPDX-License-Identifier: Apache-2.0
"""What the TF1 releases of BERT, ALBERT and ELECTRA hold: the names of their variables."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping

from keras_bert.checkpoints import bert_json
from keras_bert.checkpoints.bert_json import JsonFields
from keras_bert.checkpoints.layouts import Layout, Stored
from keras_bert.checkpoints.weights import POOLER_WEIGHTS, block_weight_names
from keras_bert.config import BertConfig


@dataclasses.dataclass(frozen=True)
class Release:
    """One family's release.

    Args:
        config_file: What describes the architecture; `None` where nothing but the variables does.
        prefix: What the checkpoint's files begin with.
        scope: What the encoder's variables begin with.
        json: The fields of the config file.
        activations: The release's words for activations, and ours for them.
        block: Of a block's weights of ours, the variables, without the block's scope.
        block_scope: From the index of a block's owner to what its variables begin with, without
            the encoder's scope.
        projection: The product behind the embeddings.
        heads: The variables of each head.
    """

    config_file: str | None
    prefix: str
    scope: str
    json: JsonFields
    activations: Mapping[str, str]
    block: Mapping[str, tuple[str, ...]]
    block_scope: Callable[[int, BertConfig], str]
    projection: str
    heads: Mapping[str, Layout]

    def backbone_layout(self, config: BertConfig) -> dict[str, Stored]:
        """The encoder's variables."""
        names: dict[str, tuple[str, ...]] = {
            "token_embedding.embeddings": ("embeddings/word_embeddings",),
            "embeddings.position_embeddings": ("embeddings/position_embeddings",),
            "embeddings.segment_embeddings": ("embeddings/token_type_embeddings",),
            "embeddings.gamma": ("embeddings/LayerNorm/gamma",),
            "embeddings.beta": ("embeddings/LayerNorm/beta",),
        }
        if config.embedding_dim is not None:
            for kind in ("kernel", "bias"):
                names[f"embedding_projection.{kind}"] = (f"{self.projection}/{kind}",)
        for index, ours in block_weight_names(config):
            scope = self.block_scope(index, config)
            names[f"blocks.{index}.{ours}"] = tuple(scope + name for name in self.block[ours])
        if config.pooler:
            for ours in POOLER_WEIGHTS:
                names[ours] = (f"pooler/dense/{ours.rpartition('.')[2]}",)
        return {
            ours: Stored(tuple(f"{self.scope}/{name}" for name in theirs))
            for ours, theirs in names.items()
        }


def _parts(scope: str, kind: str) -> tuple[str, ...]:
    return tuple(f"{scope}/self/{part}/{kind}" for part in ("query", "key", "value"))


def _block(
    attention: str, attention_norm: str, intermediate: str, output: str, output_norm: str
) -> dict[str, tuple[str, ...]]:
    return {
        "attention.query_key_value.kernel": _parts(attention, "kernel"),
        "attention.query_key_value.bias": _parts(attention, "bias"),
        "attention_output.kernel": (f"{attention}/output/dense/kernel",),
        "attention_norm.bias": (f"{attention}/output/dense/bias",),
        "attention_norm.gamma": (f"{attention_norm}/gamma",),
        "attention_norm.beta": (f"{attention_norm}/beta",),
        "intermediate.kernel": (f"{intermediate}/kernel",),
        "intermediate_activation.bias": (f"{intermediate}/bias",),
        "feed_forward_output.kernel": (f"{output}/kernel",),
        "feed_forward_norm.bias": (f"{output}/bias",),
        "feed_forward_norm.gamma": (f"{output_norm}/gamma",),
        "feed_forward_norm.beta": (f"{output_norm}/beta",),
    }


_BERT_BLOCK = _block(
    "attention",
    "attention/output/LayerNorm",
    "intermediate/dense",
    "output/dense",
    "output/LayerNorm",
)


def _classification(scope: str) -> Layout:
    # The one place where the releases keep (output, input).
    return {
        "kernel": Stored((f"{scope}output_weights",), transposed=True),
        "bias": Stored((f"{scope}output_bias",)),
    }


def _dense(name: str, prefix: str = "") -> dict[str, Stored]:
    return {f"{prefix}{kind}": Stored((f"{name}/{kind}",)) for kind in ("kernel", "bias")}


def _masked_lm(dense: str, norm: str, bias: str) -> Layout:
    return {
        **_dense(dense, "dense."),
        "gamma": Stored((f"{norm}/gamma",)),
        "beta": Stored((f"{norm}/beta",)),
        "output_bias": Stored((bias,)),
    }


_BERT_HEADS = {
    "masked_lm": _masked_lm(
        "cls/predictions/transform/dense",
        "cls/predictions/transform/LayerNorm",
        "cls/predictions/output_bias",
    ),
    "next_sentence": _classification("cls/seq_relationship/"),
    "question_answerer": _classification("cls/squad/"),
    "classifier": _classification(""),
}


def _layer(index: int, config: BertConfig) -> str:
    return f"encoder/layer_{index}/"


def _group(index: int, config: BertConfig) -> str:
    group = sorted(set(config.attention_owners)).index(index)
    return f"encoder/transformer/group_{group}/inner_group_0/"


# Their code computes "gelu" by its tanh form and has no word for the exact one.
_TANH_GELU = {"gelu": "gelu_tanh", "relu": "relu", "tanh": "tanh"}

BERT = Release(
    config_file="bert_config.json",
    prefix="bert_model.ckpt",
    scope="bert",
    json=bert_json.BERT,
    activations=_TANH_GELU,
    block=_BERT_BLOCK,
    block_scope=_layer,
    projection="",
    heads=_BERT_HEADS,
)
ALBERT = Release(
    config_file="albert_config.json",
    prefix="model.ckpt-best",
    scope="bert",
    json=bert_json.ALBERT,
    activations=_TANH_GELU,
    block=_block(
        "attention_1",
        "LayerNorm",
        "ffn_1/intermediate/dense",
        "ffn_1/intermediate/output/dense",
        "LayerNorm_1",
    ),
    block_scope=_group,
    projection="encoder/embedding_hidden_mapping_in",
    heads=_BERT_HEADS,
)
ELECTRA = Release(
    config_file=None,
    prefix="electra",
    scope="electra",
    json=bert_json.ELECTRA,
    activations={"gelu": "gelu_erf"},
    block=_BERT_BLOCK,
    block_scope=_layer,
    projection="embeddings_project",
    heads={
        "replaced_token": {
            **_dense("discriminator_predictions/dense", "dense."),
            **_dense("discriminator_predictions/dense_1"),
        },
    },
)
RELEASES = (BERT, ALBERT, ELECTRA)  # the last is known by its variables alone
CONFIG_FILES = tuple(release.config_file for release in RELEASES if release.config_file)


def electra_heads(hidden_dim: int) -> int:
    """How many heads ELECTRA's blocks have: 64 wide in every released size; no file says it."""
    return max(1, hidden_dim // 64)
