# SPDX-License-Identifier: Apache-2.0
"""The weights of encoders and heads by name, independent of the paths of Keras' variables.

A name is the path of attributes that leads to the weight, so a layer may be renamed, wrapped or
reordered in the graph without a change of the checkpoint.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import Any, Protocol, TypeAlias, runtime_checkable

import keras
import numpy as np

from keras_bert.checkpoints.errors import CheckpointError
from keras_bert.config import BertConfig

# One layer, or the layers that make a head up.
Head: TypeAlias = "keras.layers.Layer | Sequence[keras.layers.Layer]"


@runtime_checkable
class Encoder(Protocol):
    """What checkpoints need of an encoder; `keras_bert.Backbone` has it."""

    @property
    def config(self) -> BertConfig: ...

    @property
    def blocks(self) -> Sequence[Any]: ...

    @property
    def pooler(self) -> Any: ...


_EMBEDDING_WEIGHTS = (
    "token_embedding.embeddings",
    "embeddings.position_embeddings",
    "embeddings.segment_embeddings",
    "embeddings.gamma",
    "embeddings.beta",
)
PROJECTION_WEIGHTS = ("embedding_projection.kernel", "embedding_projection.bias")
ATTENTION_WEIGHTS = (
    "attention.query_key_value.kernel",
    "attention.query_key_value.bias",
    "attention_output.kernel",
    "attention_norm.bias",
    "attention_norm.gamma",
    "attention_norm.beta",
)
FEED_FORWARD_WEIGHTS = (
    "intermediate.kernel",
    "intermediate_activation.bias",
    "feed_forward_output.kernel",
    "feed_forward_norm.bias",
    "feed_forward_norm.gamma",
    "feed_forward_norm.beta",
)
POOLER_WEIGHTS = ("pooler.dense.kernel", "pooler.dense.bias")

# Of each layer that heads are made of, by its name in Keras' registry: the name of a weight, and
# the attributes that lead to it.
_HEAD_WEIGHTS = {
    "keras_bert>ClassificationHead": {"kernel": "dense.kernel", "bias": "dense.bias"},
    "keras_bert>Pooler": {"kernel": "dense.kernel", "bias": "dense.bias"},
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
    "keras_bert>VocabularyBias": {"output_bias": "bias"},
    "Bidirectional": {
        f"{direction}.{name}": f"{direction}_layer.cell.{name}"
        for direction in ("forward", "backward")
        for name in ("kernel", "recurrent_kernel", "bias")
    },
}


def backbone_weight_names(config: BertConfig) -> list[str]:
    """The names of an encoder's weights; shared weights have the name of the first block."""
    embeddings = [
        name for name in _EMBEDDING_WEIGHTS if config.num_segments or "segment" not in name
    ]
    projection = PROJECTION_WEIGHTS if config.embedding_dim is not None else ()
    blocks = [f"blocks.{i}.{name}" for i, name in block_weight_names(config)]
    return [*embeddings, *projection, *blocks, *(POOLER_WEIGHTS if config.pooler else ())]


def backbone_weight_shapes(config: BertConfig) -> dict[str, tuple[int, ...]]:
    """The shapes of an encoder's weights by name, without making one."""
    width, hidden, inner = config.embedding_width, config.hidden_dim, config.intermediate_dim
    shapes = {
        "token_embedding.embeddings": (config.vocabulary_size, width),
        "embeddings.position_embeddings": (
            config.max_sequence_length + config.position_offset,
            width,
        ),
        "embeddings.segment_embeddings": (config.num_segments, width),
        "embeddings.gamma": (width,),
        "embeddings.beta": (width,),
        "embedding_projection.kernel": (width, hidden),
        "pooler.dense.kernel": (hidden, hidden),
        "attention.query_key_value.kernel": (hidden, 3 * hidden),
        "attention.query_key_value.bias": (3 * hidden,),
        "attention_output.kernel": (hidden, hidden),
        "intermediate.kernel": (hidden, inner),
        "intermediate_activation.bias": (inner,),
        "feed_forward_output.kernel": (inner, hidden),
    }
    return {
        # `blocks.3.attention_norm.bias` has the shape of `attention_norm.bias`.
        name: shapes.get(re.sub(r"^blocks\.\d+\.", "", name), (hidden,))
        for name in backbone_weight_names(config)
    }


def block_weight_names(config: BertConfig) -> list[tuple[int, str]]:
    """The names of the weights that each block owns, each with the block's index."""
    parts = (
        (config.attention_owners, ATTENTION_WEIGHTS),
        (config.feed_forward_owners, FEED_FORWARD_WEIGHTS),
    )
    return [
        (index, name)
        for index in range(config.num_layers)
        for owners, names in parts
        if owners[index] == index
        for name in names
    ]


def backbone_weights(backbone: Encoder) -> dict[str, Any]:
    """An encoder's weights by name.

    With LoRA, the kernel of a product is the tensor with its update added.

    Raises:
        CheckpointError: If the encoder is quantized: its kernels are integers without scales.
    """
    _refuse_quantized(backbone)
    return {name: _find(backbone, name) for name in backbone_weight_names(backbone.config)}


def _find(backbone: Encoder, name: str) -> Any:
    if not name.startswith("blocks."):
        return attrgetter(name)(backbone)
    _, index, rest = name.split(".", 2)
    return attrgetter(rest)(backbone.blocks[int(index)])


def head_weights(head: Head) -> dict[str, Any]:
    """A head's weights by name.

    Args:
        head: A built `ClassificationHead` or `Pooler` (which have `kernel` and `bias`), a
            `ReplacedTokenHead` (`dense.kernel`, `dense.bias`, `kernel`, `bias`), a
            `MaskedLMTransform` with its `VocabularyBias` (`dense.kernel`, `dense.bias`,
            `gamma`, `beta`, `output_bias`), or a bidirectional LSTM (`forward.kernel`, …).

    Raises:
        TypeError: If a layer is of another kind.
    """
    weights: dict[str, Any] = {}
    for layer in head if isinstance(head, Sequence) else (head,):
        names = _HEAD_WEIGHTS.get(keras.saving.get_registered_name(type(layer)))
        if names is None:
            raise TypeError(
                f"A head is made of {', '.join(name.split('>')[-1] for name in _HEAD_WEIGHTS)}; "
                f"received {type(layer).__name__}."
            )
        weights |= {name: attrgetter(path)(layer) for name, path in names.items()}
    return weights


def all_head_weights(heads: Mapping[str, Head] | None) -> dict[str, dict[str, Any]]:
    """`head_weights` of every head, by the head's name."""
    return {name: head_weights(head) for name, head in (heads or {}).items()}


def parts_of(
    model: Any,
    heads: Mapping[str, Head] | None,
    tokenizer: Mapping[str, Any] | None,
    class_names: Sequence[str] | None = None,
) -> tuple[Encoder, Mapping[str, Head], Mapping[str, Any] | None, Sequence[str] | None]:
    """The parts of a model to write: its encoder, heads, tokenizer and class names.

    Args:
        model: An encoder, or a task, which knows the rest; of a distiller, its student.
        heads, tokenizer, class_names: Given ones take precedence over the task's.

    Raises:
        TypeError: If the model is neither.
    """
    if isinstance(model, Encoder):
        return model, heads or {}, tokenizer, class_names
    task = getattr(model, "student_task", model)
    if not isinstance(getattr(task, "backbone", None), Encoder):
        raise TypeError(f"Expected a Backbone or a task, received {type(model).__name__}.")
    return (
        task.backbone,
        getattr(task, "heads", {}) if heads is None else heads,
        task.tokenizer_config if tokenizer is None else tokenizer,
        getattr(task, "class_names", None) if class_names is None else class_names,
    )


def to_numpy(weight: Any) -> np.ndarray[Any, Any]:
    """A weight's values, in its own dtype."""
    value = weight.value if isinstance(weight, keras.Variable) else weight
    array: np.ndarray[Any, Any] = keras.ops.convert_to_numpy(value)
    return array


def assign(name: str, weight: Any, value: np.ndarray[Any, Any]) -> None:
    """Sets a weight; the values are cast to its dtype.

    Raises:
        CheckpointError: If the weight is computed, as the kernels under LoRA are.
    """
    if not isinstance(weight, keras.Variable):
        raise CheckpointError(
            f"The weight {name} is no variable that can be set; load before `enable_lora`."
        )
    weight.assign(value)


def _refuse_quantized(backbone: Encoder) -> None:
    layers: list[Any] = backbone._flatten_layers(include_self=False)  # type: ignore[attr-defined]
    quantized = [layer.path for layer in layers if getattr(layer, "quantization_mode", None)]
    if quantized:
        raise CheckpointError(
            "Checkpoints hold floating-point weights; these layers are quantized: "
            f"{', '.join(quantized)}. Save before quantizing."
        )
