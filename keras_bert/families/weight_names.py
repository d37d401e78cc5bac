# SPDX-License-Identifier: Apache-2.0
"""Weight names for multiple families, by checkpoint format."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping

from keras_bert.families.records import Layout, StoredTensor


def scoped(scope: str, layout: Layout) -> dict[str, StoredTensor]:
    return {f"{scope}.{weight_name}": stored for weight_name, stored in layout.items()}


def hf_dense(name: str, *copies: str, instead: str | None = None) -> dict[str, StoredTensor]:
    """Returns the mapping for a Hugging Face dense layer, with a kernel `(output, input)`."""
    return {
        weight_name: StoredTensor(
            (f"{name}.{ending}",),
            transposed=weight_name == "kernel",
            copies=tuple(f"{copy}.{ending}" for copy in copies),
            instead=instead and f"{instead}.{ending}",
        )
        for weight_name, ending in (("kernel", "weight"), ("bias", "bias"))
    }


def keras_dense(name: str, separator: str = ".") -> dict[str, StoredTensor]:
    """Returns the mapping for a KerasHub dense layer or, with separator `/`, for a TF1 release."""
    return {kind: StoredTensor((f"{name}{separator}{kind}",)) for kind in ("kernel", "bias")}


def block_layout(
    kinds: Mapping[str, str],
    projections: tuple[str, ...],
    output: str,
    norm: str,
    intermediate: str | tuple[str, ...],
    feed_forward_output: str,
    feed_forward_norm: str,
    transposed: bool = False,
) -> dict[str, StoredTensor]:
    """Returns the mapping for an encoder layer, given the names of its sublayers.

    Args:
        kinds: Suffixes of kernels, biases, gammas and betas in the format.
        projections: Projections to query, key and value, or one projection to all three.
        output: Output projection of the attention.
        norm: Norm of the attention.
        intermediate: First feed-forward layer, or the two layers whose outputs are multiplied.
        feed_forward_output: Second feed-forward layer.
        feed_forward_norm: Norm of the feed-forward network.
        transposed: Whether kernels are `(output, input)`.
    """
    layers = {
        "attention.output_projection.kernel": output,
        "attention.output_bias": output,
        "attention_norm.gamma": norm,
        "attention_norm.beta": norm,
        "feed_forward.intermediate.kernel": intermediate,
        "feed_forward.intermediate_bias": intermediate,
        "feed_forward.output_projection.kernel": feed_forward_output,
        "feed_forward.output_bias": feed_forward_output,
        "feed_forward_norm.gamma": feed_forward_norm,
        "feed_forward_norm.beta": feed_forward_norm,
    }
    names = {
        "attention.query_key_value.kernel": projections,
        "attention.query_key_value.bias": projections,
        **{weight_name: (at,) if isinstance(at, str) else at for weight_name, at in layers.items()},
    }
    layout = {}
    for weight_name, layer_names in names.items():
        kind = re.split("[._]", weight_name)[-1]
        tensor_names = tuple(layer + kinds[kind] for layer in layer_names)
        layout[weight_name] = StoredTensor(tensor_names, transposed and kind == "kernel")
    return layout


# === Hugging Face ===

CLASSIFIERS = ("classifier", "token_classifier", "multiple_choice")
"""Heads that `transformers` calls "classifier". The model class distinguishes them."""

hf_block = functools.partial(
    block_layout,
    {"kernel": ".weight", "bias": ".bias", "gamma": ".weight", "beta": ".bias"},
    transposed=True,
)
"""Returns the mapping for a Hugging Face layer, with kernels `(output, input)`."""


def hf_embeddings(decoder: str, projection: str = "") -> dict[str, StoredTensor]:
    """Returns the mapping for the embeddings, their LayerNorm and, if present, their projection.

    Some files contain the token embeddings twice, or only under the name of the tied decoder.
    """
    table = StoredTensor(("embeddings.word_embeddings.weight",), copies=(f"{decoder}.weight",))
    return {
        "token_embedding.embeddings": table,
        "embeddings.position_embeddings": StoredTensor(("embeddings.position_embeddings.weight",)),
        "embeddings.segment_embeddings": StoredTensor(("embeddings.token_type_embeddings.weight",)),
        "embeddings.gamma": StoredTensor(("embeddings.LayerNorm.weight",)),
        "embeddings.beta": StoredTensor(("embeddings.LayerNorm.bias",)),
        **(scoped("embedding_projection", hf_dense(projection)) if projection else {}),
    }


def hf_masked_lm(
    dense: str, norm: str, bias: str, decoder_bias: str | None = None
) -> dict[str, StoredTensor]:
    """Returns the mapping for a masked LM head.

    If a file contains `decoder_bias`, it is the vocabulary bias instead of `bias`.
    """
    return {
        **scoped("dense", hf_dense(dense)),
        "gamma": StoredTensor((f"{norm}.weight",)),
        "beta": StoredTensor((f"{norm}.bias",)),
        "output_bias": StoredTensor((bias,), instead=decoder_bias),
    }


def hf_task_heads(classifier: str = "classifier") -> dict[str, Layout]:
    return {
        "question_answerer": hf_dense("qa_outputs"),
        "classifier": hf_dense(classifier),
        "token_classifier": hf_dense("classifier"),
        "multiple_choice": hf_dense("classifier"),
    }


HF_BLOCK = hf_block(
    ("attention.self.query", "attention.self.key", "attention.self.value"),
    output="attention.output.dense",
    norm="attention.output.LayerNorm",
    intermediate="intermediate.dense",
    feed_forward_output="output.dense",
    feed_forward_norm="output.LayerNorm",
)

# === The TF1 releases ===

TF1_ENDINGS = {kind: f"/{kind}" for kind in ("kernel", "bias", "gamma", "beta")}


def tf1_encoder(scope: str, projection: str = "", pooler: bool = True) -> dict[str, StoredTensor]:
    embeddings = f"{scope}/embeddings"
    return {
        "token_embedding.embeddings": StoredTensor((f"{embeddings}/word_embeddings",)),
        "embeddings.position_embeddings": StoredTensor((f"{embeddings}/position_embeddings",)),
        "embeddings.segment_embeddings": StoredTensor((f"{embeddings}/token_type_embeddings",)),
        "embeddings.gamma": StoredTensor((f"{embeddings}/LayerNorm/gamma",)),
        "embeddings.beta": StoredTensor((f"{embeddings}/LayerNorm/beta",)),
        **(scoped("embedding_projection", keras_dense(projection, "/")) if projection else {}),
        **(scoped("pooler.dense", keras_dense(f"{scope}/pooler/dense", "/")) if pooler else {}),
    }


def _tf1_classifier(scope: str) -> dict[str, StoredTensor]:
    """Returns the mapping for a classifier. In TF1, only classifier kernels are transposed."""
    return {
        "kernel": StoredTensor((f"{scope}output_weights",), transposed=True),
        "bias": StoredTensor((f"{scope}output_bias",)),
    }


TF1_HEADS: dict[str, Layout] = {
    "masked_lm": {
        **scoped("dense", keras_dense("cls/predictions/transform/dense", "/")),
        "gamma": StoredTensor(("cls/predictions/transform/LayerNorm/gamma",)),
        "beta": StoredTensor(("cls/predictions/transform/LayerNorm/beta",)),
        "output_bias": StoredTensor(("cls/predictions/output_bias",)),
    },
    "next_sentence": _tf1_classifier("cls/seq_relationship/"),
    "question_answerer": _tf1_classifier("cls/squad/"),
    "classifier": _tf1_classifier(""),
}
TF1_BLOCK = block_layout(
    TF1_ENDINGS,
    ("attention/self/query", "attention/self/key", "attention/self/value"),
    output="attention/output/dense",
    norm="attention/output/LayerNorm",
    intermediate="intermediate/dense",
    feed_forward_output="output/dense",
    feed_forward_norm="output/LayerNorm",
)

# === KerasHub ===

HUB_ATTENTION = "_self_attention_layer"
"""Name of the attention layer in a KerasHub layer."""


_HUB_KINDS = {kind: f".{kind}" for kind in ("kernel", "bias", "gamma", "beta")}
HUB_BLOCK = block_layout(
    _HUB_KINDS,
    (
        f"{HUB_ATTENTION}.query_dense",
        f"{HUB_ATTENTION}.key_dense",
        f"{HUB_ATTENTION}.value_dense",
    ),
    output=f"{HUB_ATTENTION}.output_dense",
    norm="_self_attention_layer_norm",
    intermediate="_feedforward_intermediate_dense",
    feed_forward_output="_feedforward_output_dense",
    feed_forward_norm="_feedforward_layer_norm",
)
_HUB_NORM = {
    "embeddings.gamma": StoredTensor(("embeddings_layer_norm.gamma",)),
    "embeddings.beta": StoredTensor(("embeddings_layer_norm.beta",)),
}
HUB_TABLES = {
    "token_embedding.embeddings": StoredTensor(("token_embedding.embeddings",)),
    "embeddings.position_embeddings": StoredTensor(("position_embedding.position_embeddings",)),
    "embeddings.segment_embeddings": StoredTensor(("segment_embedding.embeddings",)),
    **_HUB_NORM,
}
HUB_TABLES_WITHOUT_SEGMENTS = {
    "token_embedding.embeddings": StoredTensor(("token_embedding.embeddings",)),
    "embeddings.position_embeddings": StoredTensor(
        ("embeddings.position_embedding.position_embeddings",)
    ),
    **_HUB_NORM,
}
HUB_PROJECTION = scoped("embedding_projection", keras_dense("embeddings_projection"))
HUB_POOLER = keras_dense("pooled_dense")
HUB_HEADS: dict[str, Layout] = {
    "classifier": keras_dense("output_dense"),
    "masked_lm": {
        **scoped("dense", keras_dense("masked_lm_head._intermediate_dense")),
        "gamma": StoredTensor(("masked_lm_head._intermediate_layer_norm.gamma",)),
        "beta": StoredTensor(("masked_lm_head._intermediate_layer_norm.beta",)),
        "output_bias": StoredTensor(("masked_lm_head._bias",)),
    },
}
