# SPDX-License-Identifier: Apache-2.0
"""Names encoder and head weights, independently of Keras' variable paths.

A name is the attribute path to the weight. So layers can be renamed, wrapped or reordered in the
graph without changing the checkpoint format.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Any, Protocol, TypeAlias, runtime_checkable

import keras
import numpy as np

from keras_bert.checkpoints.errors import CheckpointError
from keras_bert.config import BertConfig

# A head's layer or layers
Head: TypeAlias = "keras.layers.Layer | Sequence[keras.layers.Layer]"


@runtime_checkable
class Encoder(Protocol):
    """The encoder attributes that checkpoints require. `keras_bert.Backbone` has them."""

    @property
    def config(self) -> BertConfig: ...

    @property
    def blocks(self) -> Sequence[Any]: ...

    @property
    def pooler(self) -> Any: ...


PROJECTION_WEIGHTS = ("embedding_projection.kernel", "embedding_projection.bias")
POOLER_WEIGHTS = ("pooler.dense.kernel", "pooler.dense.bias")

# The weight names and attribute paths for each registered layer class in heads. The attribute is
# `None` if a layer does not have the weight.
_HEAD_WEIGHTS = {
    "keras_bert>ClassificationHead": {"kernel": "dense.kernel", "bias": "dense.bias"},
    "keras_bert>Pooler": {
        "kernel": "dense.kernel",
        "bias": "dense.bias",
        "gamma": "output_norm.gamma",
        "beta": "output_norm.beta",
    },
    "keras_bert>ReplacedTokenHead": {
        "dense.kernel": "dense.kernel",
        "dense.bias": "dense.bias",
        "kernel": "prediction.kernel",
        "bias": "prediction.bias",
    },
    "keras_bert>MaskedLMTransform": {
        "dense.kernel": "dense.kernel",
        "dense.bias": "dense.bias",
        "gamma": "gamma",
        "beta": "beta",
    },
    "keras_bert>Dense": {"decoder.kernel": "kernel"},
    "keras_bert>VocabularyBias": {"output_bias": "bias"},
    "keras_bert>SentencePooling": {},
    "keras_bert>TokenProjection": {"kernel": "dense.kernel", "bias": "dense.bias"},
    "keras_bert>ConditionalRandomField": {
        name: name for name in ("start_transitions", "transitions", "end_transitions")
    },
    "Bidirectional": {
        f"{direction}.{name}": f"{direction}_layer.cell.{name}"
        for direction in ("forward", "backward")
        for name in ("kernel", "recurrent_kernel", "bias")
    },
}


def backbone_weight_shapes(config: BertConfig) -> dict[str, tuple[int, ...]]:
    """Returns an encoder's weight shapes by name, without creating the encoder.

    Weights shared by multiple layers are named after the first layer.
    """
    width, hidden = config.embedding_width, config.hidden_dim
    shapes: dict[str, tuple[int, ...]] = {
        "token_embedding.embeddings": (config.vocabulary_size, width)
    }
    if config.positions == "learned":
        rows = config.max_sequence_length + config.position_offset
        shapes["embeddings.position_embeddings"] = (rows, width)
    if config.num_segments:
        shapes["embeddings.segment_embeddings"] = (config.num_segments, width)
    if config.embedding_norm:
        shapes |= _norm_shapes(config, "embeddings", width)
    if config.relative_positions == "bucketed":
        shapes["relative_embeddings.embeddings"] = (config.relative_buckets, config.num_heads)
    elif config.relative_positions is not None:
        shapes["relative_embeddings.embeddings"] = (2 * config.relative_buckets, hidden)
        shapes |= {f"relative_embeddings.{name}": (hidden,) for name in ("gamma", "beta")}
    if config.embedding_dim is not None:
        shapes |= zip(PROJECTION_WEIGHTS, [(width, hidden), (hidden,)], strict=True)
    for index in range(config.num_layers):
        block_shapes: dict[str, tuple[int, ...]] = {}
        if config.attention_owners[index] == index:
            block_shapes |= attention_weight_shapes(config, index)
        if config.feed_forward_owners[index] == index:
            block_shapes |= feed_forward_weight_shapes(config)
        shapes |= {f"blocks.{index}.{name}": shape for name, shape in block_shapes.items()}
    if config.norm_placement == "pre":
        shapes |= _norm_shapes(config, "final_norm", hidden)
    if config.pooler:
        kernel, bias = POOLER_WEIGHTS
        shapes[kernel] = (hidden, hidden)
        if config.head_bias:
            shapes[bias] = (hidden,)
        if config.pooler_norm:
            shapes |= _norm_shapes(config, "pooler.output_norm", hidden)
    return shapes


def attention_weight_shapes(config: BertConfig, index: int) -> dict[str, tuple[int, ...]]:
    """Returns weight shapes by name for a layer's attention and its norm."""
    hidden, heads = config.hidden_dim, config.effective_heads_by_layer[index]
    key_value_heads = config.num_key_value_heads or heads
    projected = (heads + 2 * key_value_heads) * config.head_dim
    shapes: dict[str, tuple[int, ...]] = {
        "attention.query_key_value.kernel": (hidden, projected),
        "attention.output_projection.kernel": (heads * config.head_dim, hidden),
    }
    if config.attention_bias:
        shapes["attention.query_key_value.bias"] = (projected,)
        shapes["attention.output_bias"] = (hidden,)
    if config.attention_norms[index]:
        shapes |= _norm_shapes(config, "attention_norm", hidden)
    return shapes


def feed_forward_weight_shapes(config: BertConfig) -> dict[str, tuple[int, ...]]:
    """Returns weight shapes by name for a feed-forward network and its norm."""
    hidden, inner = config.hidden_dim, config.intermediate_dim
    width = 2 * inner if config.feed_forward == "gated" else inner
    shapes: dict[str, tuple[int, ...]] = {
        "feed_forward.intermediate.kernel": (hidden, width),
        "feed_forward.output_projection.kernel": (inner, hidden),
    }
    if config.effective_intermediate_bias:
        shapes["feed_forward.intermediate_bias"] = (width,)
    if config.feed_forward_bias:
        shapes["feed_forward.output_bias"] = (hidden,)
    return shapes | _norm_shapes(config, "feed_forward_norm", hidden)


def _norm_shapes(config: BertConfig, name: str, dim: int) -> dict[str, tuple[int, ...]]:
    has_beta = config.norm == "layer_norm" and config.norm_bias
    names = ("gamma", "beta") if has_beta else ("gamma",)
    return {f"{name}.{weight}": (dim,) for weight in names}


def check_file_size(config: BertConfig, num_bytes: int, file: object) -> None:
    """Checks that a file is large enough for an encoder's weights, before memory is allocated.

    The minimum is half a byte per parameter, the size of int4.
    """
    count = sum(map(math.prod, backbone_weight_shapes(config).values()))
    if count > 2 * num_bytes:
        raise CheckpointError(
            f"{file} must contain the architecture's {count:,} parameters. Received: "
            f"{num_bytes:,} bytes. Either the file is truncated, or the configuration belongs to "
            "a different model."
        )


def backbone_weights(backbone: Encoder) -> dict[str, Any]:
    """Returns an encoder's weights by name. A kernel with LoRA includes the update."""
    _reject_quantized(backbone._flatten_layers(include_self=False))  # type: ignore[attr-defined]
    return {
        name: backbone_weight(backbone, name) for name in backbone_weight_shapes(backbone.config)
    }


def backbone_weight(backbone: Encoder, name: str) -> Any:
    """Returns an encoder's weight by name. Multiple layers may share it."""
    index, rest = split_block(name)
    return attrgetter(rest)(backbone if index is None else backbone.blocks[index])


def split_block(name: str) -> tuple[int | None, str]:
    """Splits a weight's name into the index of its layer, or `None`, and the rest of the name."""
    if not name.startswith("blocks."):
        return None, name
    _, index, rest = name.split(".", 2)
    return int(index), rest


def head_weights(head: Head) -> dict[str, Any]:
    """Returns a built head's weights by name, for example `kernel` or `dense.bias`."""
    weights: dict[str, Any] = {}
    for layer in head if isinstance(head, Sequence) else (head,):
        names = _HEAD_WEIGHTS.get(keras.saving.get_registered_name(type(layer)))
        if names is None:
            raise TypeError(
                "A head's layers must be among "
                f"{', '.join(name.split('>')[-1] for name in _HEAD_WEIGHTS)}. "
                f"Received: {type(layer).__name__}"
            )
        layer_weights = {name: _attribute(layer, path) for name, path in names.items()}
        weights |= {name: weight for name, weight in layer_weights.items() if weight is not None}
    return weights


def _attribute(layer: Any, path: str) -> Any:
    """Follows an attribute path. Returns `None` if an intermediate attribute is `None`."""
    for name in path.split("."):
        layer = None if layer is None else getattr(layer, name)
    return layer


def all_head_weights(heads: Mapping[str, Head] | None) -> dict[str, dict[str, Any]]:
    """Returns the `head_weights` of each head by its name."""
    for head in (heads or {}).values():
        for layer in head if isinstance(head, Sequence) else (head,):
            _reject_quantized(layer._flatten_layers())
    return {name: head_weights(head) for name, head in (heads or {}).items()}


def split_model(
    model: Any,
    heads: Mapping[str, Head] | None,
    tokenizer: Mapping[str, Any] | None,
    class_names: Sequence[str] | None = None,
) -> tuple[Encoder, Mapping[str, Head], Mapping[str, Any] | None, Sequence[str] | None]:
    """Splits an encoder or a task to save into its encoder, heads, tokenizer and class names.

    A distiller is replaced by its student. Arguments other than `None` override the task's values.
    """
    if isinstance(model, Encoder):
        return model, heads or {}, tokenizer, class_names
    task = getattr(model, "student_task", model)
    if not isinstance(getattr(task, "backbone", None), Encoder):
        raise TypeError(f"model must be a Backbone or a task. Received: {type(model).__name__}")
    return (
        task.backbone,
        getattr(task, "heads", {}) if heads is None else heads,
        task.tokenizer_config if tokenizer is None else tokenizer,
        getattr(task, "class_names", None) if class_names is None else class_names,
    )


def to_numpy(weight: Any) -> np.ndarray[Any, Any]:
    """Converts a weight to a NumPy array of the same dtype."""
    value = weight.value if isinstance(weight, keras.Variable) else weight
    array: np.ndarray[Any, Any] = keras.ops.convert_to_numpy(value)
    return array


def assign(name: str, weight: Any, value: np.ndarray[Any, Any]) -> None:
    """Assigns a weight's value, cast to its dtype. Each device only receives its own shard.

    A computed weight, such as a kernel with LoRA, raises an error.
    """
    if not isinstance(weight, keras.Variable):
        raise CheckpointError(
            f"The weight {name} must be a variable. Load the checkpoint before `enable_lora`."
        )
    distribution = keras.distribution.distribution()
    if distribution is not None:
        # Keras would copy the whole array to the first device before it splits the array.
        layout = distribution.get_variable_layout(weight)
        value = keras.distribution.distribute_tensor(np.asarray(value, weight.dtype), layout)
    weight.assign(value)


def _reject_quantized(layers: Iterable[Any]) -> None:
    quantized = [layer.path for layer in layers if getattr(layer, "quantization_mode", None)]
    if quantized:
        raise CheckpointError(
            "Checkpoints must have floating-point weights. Received: quantized layers "
            f"{', '.join(quantized)}. Save the model before quantizing it."
        )
