# SPDX-License-Identifier: Apache-2.0
"""The sizes of the released models of every family, as values of the fields of `BertConfig`."""

from __future__ import annotations

from typing import Any

# "gelu" is the tanh approximation in the released TF1 code.
_TANH_GELU = {"activation": "gelu_tanh"}
_CASED, _MULTILINGUAL_CASED, _CHINESE = 28996, 119547, 21128


def _size(num_layers: int, hidden_dim: int, **fields: Any) -> dict[str, Any]:
    return {
        "num_layers": num_layers,
        "hidden_dim": hidden_dim,
        # The rules of the paper, with exceptions in a few releases
        "num_heads": hidden_dim // 64,
        "intermediate_dim": 4 * hidden_dim,
        "vocabulary_size": 30522,
        **fields,
    }


def _bert(num_layers: int, hidden_dim: int, vocabulary_size: int = 30522) -> dict[str, Any]:
    return _size(num_layers, hidden_dim, vocabulary_size=vocabulary_size, **_TANH_GELU)


def _minilm(num_layers: int) -> dict[str, Any]:
    # Twelve narrow heads as its teacher; released for code with the exact GELU
    return _size(num_layers, 384, num_heads=12, activation="gelu_erf")


def _roberta(
    num_layers: int,
    hidden_dim: int,
    vocabulary_size: int = 50265,
    tokenizer: str = "byte_pair",
) -> dict[str, Any]:
    return _size(
        num_layers,
        hidden_dim,
        vocabulary_size=vocabulary_size,
        num_segments=1,
        position_offset=2,
        pad_token_id=1,
        layer_norm_epsilon=1e-5,
        pooler_dropout=0.1,
        tokenizer=tokenizer,
    )


def _albert(num_layers: int, hidden_dim: int, dropout: float, **fields: Any) -> dict[str, Any]:
    return _size(
        num_layers,
        hidden_dim,
        vocabulary_size=30000,
        embedding_dim=128,
        layer_sharing="all",
        dropout=dropout,
        attention_dropout=dropout,
        classifier_dropout=0.1,
        tokenizer="sentence_piece",
        **_TANH_GELU,
        **fields,
    )


def _alberts(version: str, dropout: float) -> dict[str, dict[str, Any]]:
    return {
        f"albert_base_{version}": _albert(12, 768, dropout),
        f"albert_large_{version}": _albert(24, 1024, dropout),
        f"albert_xlarge_{version}": _albert(24, 2048, dropout, num_heads=16),
        # No dropout in either version
        f"albert_xxlarge_{version}": _albert(12, 4096, 0.0),
    }


def _distilbert(vocabulary_size: int = 30522) -> dict[str, Any]:
    return _size(
        6,
        768,
        vocabulary_size=vocabulary_size,
        num_segments=0,
        pooler=False,
        pooler_activation="relu",
        classifier_dropout=0.2,
        token_dropout=0.1,
        answer_dropout=0.1,
    )


def _electra(num_layers: int, hidden_dim: int, **fields: Any) -> dict[str, Any]:
    return _size(
        num_layers,
        hidden_dim,
        pooler=False,
        pooler_activation="gelu_erf",
        pooler_dropout=0.1,
        **fields,
    )


# What ModernBERT and EuroBERT have in common
_MODERN = {
    "max_sequence_length": 8192,
    "num_segments": 0,
    "positions": "rotary",
    "attention_bias": False,
    "feed_forward": "gated",
    "feed_forward_bias": False,
    "norm_placement": "pre",
    "pooler": False,
    "pooler_activation": "gelu_erf",
    "dropout": 0.0,
    "attention_dropout": 0.0,
    "layer_norm_epsilon": 1e-5,
    "tokenizer": "byte_pair",
}


def _modernbert(
    num_layers: int, hidden_dim: int, intermediate_dim: int, **fields: Any
) -> dict[str, Any]:
    return {
        **_size(num_layers, hidden_dim, intermediate_dim=intermediate_dim, **_MODERN),
        "vocabulary_size": 50368,
        "rotary_base": 160_000.0,
        "local_rotary_base": 10_000.0,
        "attention_window": 64,
        "global_attention_every": 3,
        "norm_bias": False,
        "first_attention_norm": False,
        "pooler_norm": True,
        "pooling": "first",
        "token_pooler": True,
        "head_bias": False,
        "scaled_initializer": True,
        "embedding_dropout": 0.0,
        "classifier_dropout": 0.0,
        "pad_token_id": 50283,
        **fields,
    }


def _eurobert(
    num_layers: int, hidden_dim: int, intermediate_dim: int, num_heads: int, key_heads: int | None
) -> dict[str, Any]:
    return _size(
        num_layers,
        hidden_dim,
        intermediate_dim=intermediate_dim,
        num_heads=num_heads,
        num_key_value_heads=key_heads,
        vocabulary_size=128_256,
        rotary_base=250_000.0,
        activation="silu",
        norm="rms_norm",
        embedding_norm=False,
        pooling="late",
        masked_lm_head="linear",
        masked_lm_bias=False,
        pad_token_id=128_001,
        **_MODERN,
    )


def _deberta_v3(num_layers: int, hidden_dim: int, vocabulary_size: int = 128_100) -> dict[str, Any]:
    return _size(
        num_layers,
        hidden_dim,
        vocabulary_size=vocabulary_size,
        positions="none",
        num_segments=0,
        relative_positions="disentangled",
        relative_buckets=256,
        relative_distance=512,
        pooler=False,
        pooler_activation="gelu_erf",
        layer_norm_epsilon=1e-7,
        tokenizer="sentence_piece",
    )


def _mmbert(hidden_dim: int) -> dict[str, Any]:
    fields = {"vocabulary_size": 256_000, "pad_token_id": 0, "local_rotary_base": 160_000.0}
    return _modernbert(22, hidden_dim, 1152, **fields)


SIZES: dict[str, dict[str, Any]] = {
    "bert_tiny_uncased": _bert(2, 128),
    "bert_mini_uncased": _bert(4, 256),
    "bert_small_uncased": _bert(4, 512),
    "bert_medium_uncased": _bert(8, 512),
    "bert_base_uncased": _bert(12, 768),
    "bert_large_uncased": _bert(24, 1024),
    "bert_base_cased": _bert(12, 768, _CASED),
    "bert_large_cased": _bert(24, 1024, _CASED),
    "bert_base_multilingual_cased": _bert(12, 768, _MULTILINGUAL_CASED),
    "bert_base_chinese": _bert(12, 768, _CHINESE),
    "bert_large_uncased_whole_word": _bert(24, 1024),
    "bert_large_cased_whole_word": _bert(24, 1024, _CASED),
    **{
        f"bert_l{num_layers}_h{hidden_dim}_uncased": _bert(num_layers, hidden_dim)
        for num_layers in (2, 4, 6, 8, 10, 12)
        for hidden_dim in (128, 256, 512, 768)
    },
    "minilm_l6_h384_uncased": _minilm(6),
    "minilm_l12_h384_uncased": _minilm(12),
    "roberta_base": _roberta(12, 768),
    "roberta_large": _roberta(24, 1024),
    "distilroberta_base": _roberta(6, 768),
    **_alberts("v1", 0.1),
    **_alberts("v2", 0.0),
    "distilbert_base_uncased": _distilbert(),
    "distilbert_base_cased": _distilbert(_CASED),
    "distilbert_base_multilingual_cased": _distilbert(_MULTILINGUAL_CASED),
    "electra_small_discriminator": _electra(12, 256, embedding_dim=128),
    "electra_base_discriminator": _electra(12, 768),
    "electra_large_discriminator": _electra(24, 1024),
    # The small one has the size of its discriminator, the others a third and a quarter of it
    "electra_small_generator": _electra(12, 256, embedding_dim=128),
    "electra_base_generator": _electra(12, 256, embedding_dim=768),
    "electra_large_generator": _electra(24, 256, embedding_dim=1024),
    "xlm_roberta_base": _roberta(12, 768, 250_002, "sentence_piece"),
    "xlm_roberta_large": _roberta(24, 1024, 250_002, "sentence_piece"),
    "camembert_base": _roberta(12, 768, 32_005, "sentence_piece"),
    "nomic_bert": _size(
        12,
        768,
        vocabulary_size=30528,
        max_sequence_length=2048,
        positions="rotary",
        rotary_base=1000.0,
        feed_forward="gated",
        activation="silu",
        attention_bias=False,
        feed_forward_bias=False,
        pooler=False,
        dropout=0.0,
        attention_dropout=0.0,
    ),
    "gte_multilingual_base": _size(
        12,
        768,
        vocabulary_size=250_048,
        max_sequence_length=8192,
        num_segments=1,
        positions="rotary",
        rotary_base=160_000.0,
        feed_forward="gated",
        intermediate_bias=False,
        pooler=False,
        attention_dropout=0.0,
        pad_token_id=1,
        tokenizer="sentence_piece",
    ),
    "eurobert_210m": _eurobert(12, 768, 3072, 12, None),
    "eurobert_610m": _eurobert(26, 1152, 4096, 18, 6),
    "eurobert_2.1b": _eurobert(32, 2304, 6144, 18, 6),
    "modernbert_base": _modernbert(22, 768, 1152),
    "modernbert_large": _modernbert(28, 1024, 2624),
    "ettin_17m": _modernbert(7, 256, 384),
    "ettin_32m": _modernbert(10, 384, 576),
    "ettin_68m": _modernbert(19, 512, 768),
    "ettin_150m": _modernbert(22, 768, 1152),
    "ettin_400m": _modernbert(28, 1024, 2624),
    "ettin_1b": _modernbert(28, 1792, 3840),
    "mpnet_base": _size(
        12,
        768,
        vocabulary_size=30527,
        num_segments=0,
        position_offset=2,
        relative_positions="bucketed",
        pad_token_id=1,
        layer_norm_epsilon=1e-5,
        pooler_dropout=0.1,
    ),
    "deberta_v3_xsmall": _deberta_v3(12, 384),
    "deberta_v3_small": _deberta_v3(6, 768),
    "deberta_v3_base": _deberta_v3(12, 768),
    "deberta_v3_large": _deberta_v3(24, 1024),
    "mdeberta_v3_base": _deberta_v3(12, 768, 251_000),
    "mmbert_small": _mmbert(384),
    "mmbert_base": _mmbert(768),
}

KERAS_HUB_ALIASES = {
    "bert_tiny_en_uncased": "bert_tiny_uncased",
    "bert_small_en_uncased": "bert_small_uncased",
    "bert_medium_en_uncased": "bert_medium_uncased",
    "bert_base_en_uncased": "bert_base_uncased",
    "bert_base_en": "bert_base_cased",
    "bert_base_zh": "bert_base_chinese",
    "bert_base_multi": "bert_base_multilingual_cased",
    "bert_large_en_uncased": "bert_large_uncased",
    "bert_large_en": "bert_large_cased",
    "roberta_base_en": "roberta_base",
    "roberta_large_en": "roberta_large",
    "albert_base_en_uncased": "albert_base_v2",
    "albert_large_en_uncased": "albert_large_v2",
    "albert_extra_large_en_uncased": "albert_xlarge_v2",
    "albert_extra_extra_large_en_uncased": "albert_xxlarge_v2",
    "distil_bert_base_en_uncased": "distilbert_base_uncased",
    "distil_bert_base_en": "distilbert_base_cased",
    "distil_bert_base_multi": "distilbert_base_multilingual_cased",
    "electra_small_discriminator_uncased_en": "electra_small_discriminator",
    "electra_base_discriminator_uncased_en": "electra_base_discriminator",
    "electra_large_discriminator_uncased_en": "electra_large_discriminator",
    "electra_small_generator_uncased_en": "electra_small_generator",
    "electra_base_generator_uncased_en": "electra_base_generator",
    "electra_large_generator_uncased_en": "electra_large_generator",
}
