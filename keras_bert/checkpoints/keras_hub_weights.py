# SPDX-License-Identifier: Apache-2.0
"""The weights of KerasHub's presets of BERT, through KerasHub's own model."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Mapping
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np

from keras_bert.checkpoints.errors import CheckpointError, CheckpointWarning
from keras_bert.checkpoints.folders import read_json
from keras_bert.checkpoints.layouts import Layout, Stored
from keras_bert.checkpoints.weights import to_numpy
from keras_bert.config import BertConfig

WEIGHTS_FILE = "model.weights.h5"
TASK_FILE = "task.json"
TASK_WEIGHTS_FILE = "task.weights.h5"

# The arguments of KerasHub's encoder, which are fields of ours too.
FIELDS = (
    "vocabulary_size",
    "num_layers",
    "num_heads",
    "hidden_dim",
    "intermediate_dim",
    "dropout",
    "max_sequence_length",
    "num_segments",
)
# KerasNLP is the name it had before.
_PACKAGES = ("keras_hub", "keras_nlp")

_ATTENTION = "_self_attention_layer"
_BLOCK = {
    "attention.query_key_value.kernel": tuple(
        f"{_ATTENTION}.{part}_dense.kernel" for part in ("query", "key", "value")
    ),
    "attention.query_key_value.bias": tuple(
        f"{_ATTENTION}.{part}_dense.bias" for part in ("query", "key", "value")
    ),
    "attention_output.kernel": (f"{_ATTENTION}.output_dense.kernel",),
    "attention_norm.bias": (f"{_ATTENTION}.output_dense.bias",),
    "attention_norm.gamma": ("_self_attention_layer_norm.gamma",),
    "attention_norm.beta": ("_self_attention_layer_norm.beta",),
    "intermediate.kernel": ("_feedforward_intermediate_dense.kernel",),
    "intermediate_activation.bias": ("_feedforward_intermediate_dense.bias",),
    "feed_forward_output.kernel": ("_feedforward_output_dense.kernel",),
    "feed_forward_norm.bias": ("_feedforward_output_dense.bias",),
    "feed_forward_norm.gamma": ("_feedforward_layer_norm.gamma",),
    "feed_forward_norm.beta": ("_feedforward_layer_norm.beta",),
}
_REST = {
    "token_embedding.embeddings": "token_embedding.embeddings",
    "embeddings.position_embeddings": "position_embedding.position_embeddings",
    "embeddings.segment_embeddings": "segment_embedding.embeddings",
    "embeddings.gamma": "embeddings_layer_norm.gamma",
    "embeddings.beta": "embeddings_layer_norm.beta",
    "pooler.dense.kernel": "pooled_dense.kernel",
    "pooler.dense.bias": "pooled_dense.bias",
}
_CLASSIFIER = {"kernel": "output_dense.kernel", "bias": "output_dense.bias"}


def _block_name(index: int, name: str) -> str:
    return f"transformer_layers.{index}.{name}"


def backbone_layout(num_layers: int) -> Layout:
    """The encoder's weights, named by the attributes that lead to them in KerasHub's model."""
    layout = {ours: Stored((theirs,)) for ours, theirs in _REST.items()}
    for index in range(num_layers):
        for ours, theirs in _BLOCK.items():
            names = tuple(_block_name(index, name) for name in theirs)
            layout[f"blocks.{index}.{ours}"] = Stored(names)
    return layout


HEAD_LAYOUTS: dict[str, Layout] = {
    "classifier": {ours: Stored((theirs,)) for ours, theirs in _CLASSIFIER.items()}
}


def check_class(fields: Mapping[str, Any], expected: str, path: Path) -> dict[str, Any]:
    """The constructor's arguments of a serialized object of an expected class."""
    arguments = fields.get("config")
    if fields.get("registered_name") not in [f"{package}>{expected}" for package in _PACKAGES]:
        raise CheckpointError(
            f"{path}: registered_name is {fields.get('registered_name')!r}; it must be "
            f"'keras_hub>{expected}'."
        )
    if not isinstance(arguments, dict):
        raise CheckpointError(f"{path}: config is {arguments!r}; it must be an object.")
    return arguments


class KerasHubWeights:
    """The weights of a KerasHub preset, through KerasHub's own model and Keras' own reader.

    Keras' reader follows no link out of the file and executes nothing.

    Args:
        folder: The preset.
        config: The architecture that it describes.

    Raises:
        CheckpointError: If a file is missing or does not fit.
    """

    def __init__(self, folder: Path, config: BertConfig) -> None:
        self._path = folder / WEIGHTS_FILE
        self._hidden_dim = config.hidden_dim
        arguments = {name: getattr(config, name) for name in FIELDS}
        backbone = import_keras_hub().models.BertBackbone(**arguments, dtype="float32")
        _read(backbone.load_weights, self._path)
        self._weights = {name: attrgetter(name)(backbone) for name in _REST.values()}
        for index, block in enumerate(backbone.transformer_layers):
            for name in (name for names in _BLOCK.values() for name in names):
                self._weights[_block_name(index, name)] = attrgetter(name)(block)
        self._weights |= _classifier_weights(backbone, folder)

    def names(self) -> Collection[str]:
        return self._weights.keys()

    def shape(self, name: str) -> tuple[int, ...]:
        shape = tuple(self._weights[name].shape)
        return _flat(shape, self._hidden_dim) if _ATTENTION in name else shape

    def read(self, name: str) -> np.ndarray[Any, Any]:
        # (hidden, heads, head_dim) or (heads, head_dim, hidden) -> (hidden, hidden)
        return to_numpy(self._weights[name]).reshape(self.shape(name))

    def label(self, name: str) -> str:
        return name

    def file(self, name: str) -> str:
        return str(self._path)


def _flat(shape: tuple[int, ...], hidden_dim: int) -> tuple[int, ...]:
    return (hidden_dim, hidden_dim) if len(shape) == 3 else (hidden_dim,)


def _classifier_weights(backbone: Any, folder: Path) -> dict[str, Any]:
    path, weights = folder / TASK_FILE, folder / TASK_WEIGHTS_FILE
    if not path.exists() or not weights.exists():
        return {}
    fields = read_json(path)
    if not str(fields.get("registered_name")).endswith(">BertTextClassifier"):
        warnings.warn(
            f"{weights}: the head of {fields.get('registered_name')} was not used.",
            CheckpointWarning,
            stacklevel=2,
        )
        return {}
    num_classes = check_class(fields, "BertTextClassifier", path).get("num_classes")
    if not isinstance(num_classes, int) or num_classes < 1:
        raise CheckpointError(
            f"{path}: num_classes is {num_classes!r}; it must be an integer above 0."
        )
    task = import_keras_hub().models.BertTextClassifier(backbone, num_classes=num_classes)
    _read(task.load_task_weights, weights)
    return {name: attrgetter(name)(task) for name in _CLASSIFIER.values()}


def _read(load: Callable[[str], None], path: Path) -> None:
    if not path.exists():
        raise CheckpointError(f"{path}: the file is missing.")
    try:
        with warnings.catch_warnings():
            # Keras warns of what its older versions did not write, and of nothing that is lost:
            # a weight that is missing is an error.
            warnings.filterwarnings("ignore", "Skipping nested container", UserWarning)
            load(str(path))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"{path}: the weights cannot be read: {error}") from error


def import_keras_hub() -> Any:
    """The library, or a `CheckpointError` that says what is missing."""
    try:
        import keras_hub
    except ImportError as error:
        raise CheckpointError(
            f"Presets of KerasHub are read through keras_hub, which cannot be imported: {error}. "
            "Install it with `pip install keras-hub`."
        ) from error
    return keras_hub
