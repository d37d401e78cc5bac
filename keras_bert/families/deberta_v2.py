# SPDX-License-Identifier: Apache-2.0
"""DeBERTa versions 2 and 3, with disentangled relative positions.

The original code can omit each type of relative position, and by default `transformers` omits all
of them. The released models use all types. Other models raise an error with the unsupported field.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from keras_bert.families import shared
from keras_bert.families import weight_names as names
from keras_bert.families.records import ConfigFields, Family, StoredTensor, WeightNames

_BUCKETS, _DISTANCE = "position_buckets", "max_relative_positions"
_POSITIONS = "max_position_embeddings"
# Fields that must be present with these values, because their defaults differ
_PRESENT: dict[str, Any] = {
    "relative_attention": True,
    "position_biased_input": False,
    "share_att_key": True,
    "norm_rel_ebd": "layer_norm",
}
_PRODUCTS = ["c2p", "p2c"]
# Fields that must have these values if they are present
_NEEDED: dict[str, tuple[Any, ...]] = {
    "type_vocab_size": (0,),
    "conv_kernel_size": (0,),
    "pooler_hidden_act": ("gelu",),
}


def _to_flat(fields: Mapping[str, Any], activations: Mapping[str, str]) -> dict[str, Any]:
    """Returns the fields in a file, including fields with default values.

    See `ConfigFields.to_flat`. An unsupported architecture raises a `ValueError` with the field.
    """
    expected: dict[str, Any] = {**_PRESENT, "pos_att_type": "|".join(_PRODUCTS)}
    actual = {name: fields.get(name) for name in expected}
    products = actual["pos_att_type"]
    words = products.lower().split("|") if isinstance(products, str) else products
    if isinstance(words, list):
        words = sorted(word.strip() for word in words if isinstance(word, str))
    if words == _PRODUCTS:
        actual["pos_att_type"] = expected["pos_att_type"]
    hidden_dim = fields.get("hidden_size")
    for name in ("embedding_size", "pooler_hidden_size"):
        expected[name], actual[name] = hidden_dim, fields.get(name, hidden_dim)
    if isinstance(hidden_dim, int) and isinstance(fields.get("num_attention_heads"), int):
        width = hidden_dim // max(1, fields["num_attention_heads"])
        expected["attention_head_size"] = width
        actual["attention_head_size"] = fields.get("attention_head_size", width)
    for name, value in expected.items():
        if actual[name] != value or isinstance(actual[name], bool) != isinstance(value, bool):
            raise ValueError(f"{name} must be {value!r}. Received: {fields.get(name)!r}")
    buckets, distance = fields.get(_BUCKETS), fields.get(_DISTANCE, -1)
    if not isinstance(buckets, int) or buckets < 1:
        raise ValueError(f"{_BUCKETS} must be an integer above 0. Received: {buckets!r}")
    if not isinstance(distance, int) or distance < 1:
        distance = fields.get(_POSITIONS)
    return {**fields, _BUCKETS: buckets, _DISTANCE: distance}


def _from_flat(fields: dict[str, Any], activations: Mapping[str, str]) -> dict[str, Any]:
    """Returns the fields to write. See `ConfigFields.from_flat`."""
    return {**fields, **_PRESENT, "pos_att_type": _PRODUCTS, "type_vocab_size": 0}


def _size(num_layers: int, hidden_dim: int, vocabulary_size: int = 128_100) -> dict[str, Any]:
    buckets = {"relative_buckets": 256, "relative_distance": 512}
    return shared.size(num_layers, hidden_dim, vocabulary_size=vocabulary_size, **buckets)


DEBERTA_V2 = Family(
    name="deberta-v2",
    class_prefix="DebertaV2",
    config=ConfigFields(
        {
            **shared.REQUIRED_WITHOUT_SEGMENTS,
            "relative_buckets": "position_buckets",
            "relative_distance": "max_relative_positions",
        },
        {
            "token_dropout": "hidden_dropout_prob",
            **shared.OPTIONAL,
            "classifier_dropout": "cls_dropout",
            "pooler_dropout": "pooler_dropout",
        },
        defaults={"token_dropout": 0.1, "layer_norm_epsilon": 1e-7},
        needed=_NEEDED,
        fixed={
            "positions": "none",
            "num_segments": 0,
            "relative_positions": "disentangled",
            "pooler": False,
            "pooler_activation": "gelu_erf",
            "tokenizer": "sentence_piece",
        },
        to_flat=_to_flat,
        from_flat=_from_flat,
    ),
    hugging_face=WeightNames(
        {
            **names.hf_embeddings("cls.predictions.decoder"),
            "relative_embeddings.embeddings": StoredTensor(("encoder.rel_embeddings.weight",)),
            "relative_embeddings.gamma": StoredTensor(("encoder.LayerNorm.weight",)),
            "relative_embeddings.beta": StoredTensor(("encoder.LayerNorm.bias",)),
        },
        {
            **names.HF_BLOCK,
            **{
                name: dataclasses.replace(
                    names.HF_BLOCK[name],
                    names=tuple(
                        f"attention.self.{projection}_proj.{kind}"
                        for projection in ("query", "key", "value")
                    ),
                )
                for name, kind in (
                    ("attention.query_key_value.kernel", "weight"),
                    ("attention.query_key_value.bias", "bias"),
                )
            },
        },
        "encoder.layer.{layer}.",
        {
            "masked_lm": {
                weight_name: dataclasses.replace(stored, instead=f"lm_predictions.lm_head.{ending}")
                for (weight_name, stored), ending in zip(
                    names.hf_masked_lm(
                        "cls.predictions.transform.dense",
                        "cls.predictions.transform.LayerNorm",
                        "cls.predictions.bias",
                    ).items(),
                    ("dense.weight", "dense.bias", "LayerNorm.weight", "LayerNorm.bias", "bias"),
                    strict=True,
                )
            },
            "pooler": names.hf_dense("pooler.dense"),
            **names.hf_task_heads(),
        },
    ),
    classes={**shared.MASKED_LM_CLASSES, **shared.HF_TASK_CLASSES},
    sizes={
        "deberta_v3_xsmall": _size(12, 384),
        "deberta_v3_small": _size(6, 768),
        "deberta_v3_base": _size(12, 768),
        "deberta_v3_large": _size(24, 1024),
        "mdeberta_v3_base": _size(12, 768, 251_000),
    },
    tokenizer_class="DebertaV2Tokenizer",
    poolers={"ForSequenceClassification": "pooler.dense", "ForMultipleChoice": "pooler.dense"},
    encoder_scope="deberta",
    # Only the SentencePiece model normalizes text, as in pre-training.
    tokenizer={
        "special_tokens": {
            "pad": "[PAD]",
            "cls": "[CLS]",
            "sep": "[SEP]",
            "unk": "[UNK]",
            "mask": "[MASK]",
        },
        **shared.UNCLEANED,
    },
)
