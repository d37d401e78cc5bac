# SPDX-License-Identifier: Apache-2.0
"""ModernBERT, and Ettin and mmBERT with the same architecture.

Its config.json has two forms. Version 4 of `transformers` stores the interval between global layers
and one RoPE base for each type of layer. Version 5 stores the type of every layer, and RoPE
parameters for each type. Both forms can be read, and saved files contain both.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from keras_bert.checks import POSITIVE_INT
from keras_bert.families import rotary, shared
from keras_bert.families import weight_names as names
from keras_bert.families.records import ConfigFields, Family, StoredTensor, WeightNames

_GLOBAL, _LOCAL = "full_attention", "sliding_attention"
_BASES = {_GLOBAL: "global_rope_theta", _LOCAL: "local_rope_theta"}
_DEFAULT_BASES = {_GLOBAL: 160_000.0, _LOCAL: 10_000.0}
_POOLINGS = {"cls": "first", "mean": "mean"}
_EVERY = "global_attn_every_n_layers"


def _to_flat(fields: Mapping[str, Any], activations: Mapping[str, str]) -> dict[str, Any]:
    """Returns the fields in a file, with one value per `BertConfig` field."""
    every = _global_every(fields)
    return {
        **fields,
        _EVERY: every,
        "attention_window": None if every == 1 else _window(fields),
        **_rope_fields(fields),
        "classifier_activation": shared.map_value(
            fields, "classifier_activation", activations, "gelu"
        ),
        "classifier_pooling": shared.map_value(fields, "classifier_pooling", _POOLINGS, "cls"),
    }


def _window(fields: Mapping[str, Any]) -> int:
    """Returns the maximum distance between tokens, called `sliding_window` in the reference."""
    name, divisor = "sliding_window", 1
    if fields.get(name) is None:
        name, divisor = "local_attention", 2
    window = fields.get(name, 128)
    if not POSITIVE_INT.allows(window) or window < divisor:
        raise ValueError(f"{name} must be an integer of at least {divisor}. Received: {window!r}")
    return int(window // divisor)


def _global_every(fields: Mapping[str, Any]) -> Any:
    """Returns the interval between global layers, from either field in a file."""
    types = fields.get("layer_types")
    if types is None:
        return fields.get(_EVERY, 3)
    layers = fields.get("num_hidden_layers")
    is_list = isinstance(types, list) and len(types) == layers
    if not is_list or not all(name in (_GLOBAL, _LOCAL) for name in types):
        raise ValueError(
            f"layer_types must be a list of {_GLOBAL} and {_LOCAL}, one per layer "
            f"(num_hidden_layers). Received: {types!r}"
        )
    global_layers = [index for index, name in enumerate(types) if name == _GLOBAL]
    # With a single global layer, any interval not below the number of layers is correct.
    every = global_layers[1] if global_layers[1:] else len(types)
    if global_layers != list(range(0, len(types), every)):
        raise ValueError(
            f"layer_types must have {_GLOBAL} at the first layer and at every n-th layer after it. "
            f"Received: {_GLOBAL} at {global_layers}"
        )
    return every


def _rope_fields(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Returns both layer types' RoPE bases, and their frequency factor."""
    rope_parameters = fields.get("rope_parameters")
    rope_parameters = (
        {kind: {"rope_type": "default"} for kind in _BASES}
        if rope_parameters is None
        else rope_parameters
    )
    scaling = fields.get("rope_scaling") or {}
    if (
        not isinstance(rope_parameters, dict)
        or rope_parameters.keys() - _BASES
        or not isinstance(scaling, dict)
    ):
        raise ValueError(
            f"rope_parameters must be an object with {_GLOBAL} and {_LOCAL}, and rope_scaling an "
            f"object. Received: {rope_parameters!r} and {scaling!r}"
        )
    bases: dict[str, Any] = {}
    scales = set()
    for kind, name in _BASES.items():
        kind_parameters = rope_parameters.get(kind) or {}
        # The reference merges `rope_scaling`, the older field, into the parameters of each type.
        parameters = (
            {**kind_parameters, **scaling} if isinstance(kind_parameters, dict) else kind_parameters
        )
        default = _DEFAULT_BASES[kind] if fields.get(name) is None else fields[name]
        base, scale = rotary.rope_base_and_scale(parameters, fields, default)
        bases[name] = float(base)
        scales.add(scale)
    if len(scales) > 1:
        raise ValueError(
            f"rope_parameters must have the same scaling for {_GLOBAL} and {_LOCAL}. Received: "
            f"{rope_parameters!r}"
        )
    return {**bases, rotary.SCALE: scales.pop()}


def _from_flat(fields: dict[str, Any], activations: Mapping[str, str]) -> dict[str, Any]:
    """Returns the fields to write, in both forms. The inverse of `_to_flat`."""
    every = fields[_EVERY] or 1
    local = fields.pop("attention_window")
    fields[_EVERY] = every if local else 1
    layers = range(fields["num_hidden_layers"])
    kind_of_scale = rotary.scaling_parameters(fields.pop(rotary.SCALE))
    bases = {name: fields[name] or fields[_BASES[_GLOBAL]] for name in _BASES.values()}
    return {
        **fields,
        **bases,
        "layer_types": [_LOCAL if index % fields[_EVERY] else _GLOBAL for index in layers],
        "local_attention": 2 * (local or 64),
        "rope_parameters": {
            kind: {**kind_of_scale, rotary.BASE: bases[name]} for kind, name in _BASES.items()
        },
        "classifier_activation": shared.word_of(
            fields["classifier_activation"], "pooler_activation", activations
        ),
        "classifier_pooling": shared.word_of(
            fields["classifier_pooling"] or "first", "pooling", _POOLINGS
        ),
        "tie_word_embeddings": True,
    }


def _size(num_layers: int, hidden_dim: int, intermediate_dim: int, **fields: Any) -> dict[str, Any]:
    return {
        **shared.size(num_layers, hidden_dim, intermediate_dim=intermediate_dim),
        "vocabulary_size": 50368,
        "max_sequence_length": 8192,
        "rotary_base": 160_000.0,
        "local_rotary_base": 10_000.0,
        "attention_window": 64,
        "global_attention_every": 3,
        "pooler_activation": "gelu_erf",
        "pooling": "first",
        **fields,
    }


def _mmbert(hidden_dim: int) -> dict[str, Any]:
    fields = {"vocabulary_size": 256_000, "pad_token_id": 0, "local_rotary_base": 160_000.0}
    return _size(22, hidden_dim, 1152, **fields)


_HEAD = {
    **names.scoped("dense", names.hf_dense("head.dense")),
    "gamma": StoredTensor(("head.norm.weight",)),
    "beta": StoredTensor(("head.norm.bias",)),
}
MODERNBERT = Family(
    name="modernbert",
    class_prefix="ModernBert",
    config=ConfigFields(
        shared.REQUIRED_WITHOUT_SEGMENTS,
        {
            "layer_norm_epsilon": "norm_eps",
            "norm_bias": "norm_bias",
            "attention_bias": "attention_bias",
            "feed_forward_bias": "mlp_bias",
            "head_bias": "classifier_bias",
            "rotary_base": _BASES[_GLOBAL],
            "local_rotary_base": _BASES[_LOCAL],
            "rotary_scale": rotary.SCALE,
            "attention_window": "attention_window",
            "global_attention_every": _EVERY,
            "masked_lm_activation": "classifier_activation",
            "pooler_activation": "classifier_activation",
            "pooling": "classifier_pooling",
            # The reference applies dropout before a sublayer's last matmul. Here, it comes after.
            "dropout": "mlp_dropout",
            "attention_dropout": "attention_dropout",
            "embedding_dropout": "embedding_dropout",
            "classifier_dropout": "classifier_dropout",
            "initializer_range": "initializer_range",
            "pad_token_id": "pad_token_id",
        },
        defaults={
            "layer_norm_epsilon": 1e-5,
            "norm_bias": False,
            "attention_bias": False,
            "feed_forward_bias": False,
            "head_bias": False,
            "dropout": 0.0,
            "attention_dropout": 0.0,
            "embedding_dropout": 0.0,
            "classifier_dropout": 0.0,
            "pad_token_id": 50283,
        },
        needed={
            "decoder_bias": (True,),
            # Released files have one of these values, but the positions are always rotary.
            "position_embedding_type": ("absolute", "rope", "sans_pos"),
        },
        token_ids={
            **dict.fromkeys(("bos_token_id", "cls_token_id"), "cls"),
            **dict.fromkeys(("eos_token_id", "sep_token_id"), "sep"),
        },
        fixed={
            "num_segments": 0,
            "positions": "rotary",
            "feed_forward": "gated",
            "norm_placement": "pre",
            "first_attention_norm": False,
            "pooler": False,
            "pooler_norm": True,
            "token_pooler": True,
            "scaled_initializer": True,
            "tokenizer": "byte_pair",
        },
        activation="hidden_activation",
        to_flat=_to_flat,
        from_flat=_from_flat,
    ),
    hugging_face=WeightNames(
        {
            "token_embedding.embeddings": StoredTensor(
                ("embeddings.tok_embeddings.weight",), copies=("decoder.weight",)
            ),
            "embeddings.gamma": StoredTensor(("embeddings.norm.weight",)),
            "embeddings.beta": StoredTensor(("embeddings.norm.bias",)),
            "final_norm.gamma": StoredTensor(("final_norm.weight",)),
            "final_norm.beta": StoredTensor(("final_norm.bias",)),
        },
        names.hf_block(
            ("attn.Wqkv",),
            output="attn.Wo",
            norm="attn_norm",
            intermediate="mlp.Wi",
            feed_forward_output="mlp.Wo",
            feed_forward_norm="mlp_norm",
        ),
        "layers.{layer}.",
        {
            "masked_lm": {**_HEAD, "output_bias": StoredTensor(("decoder.bias",))},
            "pooler": {weight_name.removeprefix("dense."): at for weight_name, at in _HEAD.items()},
            **dict.fromkeys(
                (*names.CLASSIFIERS, "question_answerer"), names.hf_dense("classifier")
            ),
        },
    ),
    classes={**shared.MASKED_LM_CLASSES, **shared.HF_TASK_CLASSES},
    sizes={
        "modernbert_base": _size(22, 768, 1152),
        "modernbert_large": _size(28, 1024, 2624),
        "ettin_17m": _size(7, 256, 384),
        "ettin_32m": _size(10, 384, 576),
        "ettin_68m": _size(19, 512, 768),
        "ettin_150m": _size(22, 768, 1152),
        "ettin_400m": _size(28, 1024, 2624),
        "ettin_1b": _size(28, 1792, 3840),
        "mmbert_small": _mmbert(384),
        "mmbert_base": _mmbert(768),
    },
    tokenizer_class="TokenizersBackend",
    encoder_scope="model",
    tokenizer={
        "special_tokens": shared.WORDPIECE_TOKENS,
        "pair_separators": 1,
        "compose": True,
        "space_before_first_word": False,
    },
)
