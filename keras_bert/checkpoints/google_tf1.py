# SPDX-License-Identifier: Apache-2.0
"""The layout of the original TF1 release: bert_config.json, bert_model.ckpt.*, vocab.txt."""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np

from keras_bert.checkpoints.bert_json import config_from_json
from keras_bert.checkpoints.checkpoint import Checkpoint
from keras_bert.checkpoints.errors import CheckpointError
from keras_bert.checkpoints.folders import read_json
from keras_bert.checkpoints.layouts import Layout, Stored
from keras_bert.checkpoints.tokenizer_files import read_tokenizer

CONFIG_FILE = "bert_config.json"
PREFIX = "bert_model.ckpt"

# The released code computes "gelu" by its tanh form and has no word for the exact one.
ACTIVATIONS = {"gelu": "gelu_tanh", "relu": "relu", "tanh": "tanh"}
# Written into the released code, not into its files.
LAYER_NORM_EPSILON = 1e-12

_BLOCK = {
    "attention.query_key_value.kernel": tuple(
        f"attention/self/{part}/kernel" for part in ("query", "key", "value")
    ),
    "attention.query_key_value.bias": tuple(
        f"attention/self/{part}/bias" for part in ("query", "key", "value")
    ),
    "attention_output.kernel": ("attention/output/dense/kernel",),
    "attention_norm.bias": ("attention/output/dense/bias",),
    "attention_norm.gamma": ("attention/output/LayerNorm/gamma",),
    "attention_norm.beta": ("attention/output/LayerNorm/beta",),
    "intermediate.kernel": ("intermediate/dense/kernel",),
    "intermediate_activation.bias": ("intermediate/dense/bias",),
    "feed_forward_output.kernel": ("output/dense/kernel",),
    "feed_forward_norm.bias": ("output/dense/bias",),
    "feed_forward_norm.gamma": ("output/LayerNorm/gamma",),
    "feed_forward_norm.beta": ("output/LayerNorm/beta",),
}
_OPTIMIZER_STATE = re.compile(r"(^|/)(adam_[mv]|lamb_[mv]|Adam(_1)?|global_step|beta[12]_power)$")


def backbone_layout(num_layers: int) -> Layout:
    """The encoder's variables, under the names of the release."""
    names: dict[str, tuple[str, ...]] = {
        "token_embedding.embeddings": ("bert/embeddings/word_embeddings",),
        "embeddings.position_embeddings": ("bert/embeddings/position_embeddings",),
        "embeddings.segment_embeddings": ("bert/embeddings/token_type_embeddings",),
        "embeddings.gamma": ("bert/embeddings/LayerNorm/gamma",),
        "embeddings.beta": ("bert/embeddings/LayerNorm/beta",),
        "pooler.dense.kernel": ("bert/pooler/dense/kernel",),
        "pooler.dense.bias": ("bert/pooler/dense/bias",),
    }
    for index in range(num_layers):
        for ours, theirs in _BLOCK.items():
            names[f"blocks.{index}.{ours}"] = tuple(
                f"bert/encoder/layer_{index}/{name}" for name in theirs
            )
    return {ours: Stored(theirs) for ours, theirs in names.items()}


def _classification(scope: str) -> Layout:
    # The one place where the release keeps (output, input).
    return {
        "kernel": Stored((f"{scope}output_weights",), transposed=True),
        "bias": Stored((f"{scope}output_bias",)),
    }


HEAD_LAYOUTS: dict[str, Layout] = {
    "masked_lm": {
        "dense.kernel": Stored(("cls/predictions/transform/dense/kernel",)),
        "dense.bias": Stored(("cls/predictions/transform/dense/bias",)),
        "gamma": Stored(("cls/predictions/transform/LayerNorm/gamma",)),
        "beta": Stored(("cls/predictions/transform/LayerNorm/beta",)),
        "output_bias": Stored(("cls/predictions/output_bias",)),
    },
    "next_sentence": _classification("cls/seq_relationship/"),
    "question_answerer": _classification("cls/squad/"),
    "classifier": _classification(""),
}


def open_folder(folder: Path) -> Checkpoint:
    """A checkpoint in the release's layout; the files' prefix may be another one."""
    path = folder / CONFIG_FILE
    config = config_from_json(
        {"layer_norm_eps": LAYER_NORM_EPSILON, **read_json(path)}, path, ACTIVATIONS
    )
    return Checkpoint(
        format="google_tf1",
        folder=folder,
        config=config,
        backbone_layout=backbone_layout(config.num_layers),
        head_layouts=HEAD_LAYOUTS,
        open_tensors=lambda: TensorFlowCheckpoint(_find_prefix(folder)),
        open_tokenizer=lambda: read_tokenizer(folder),
    )


def _find_prefix(folder: Path) -> Path:
    prefixes = sorted(path.with_suffix("") for path in folder.glob("*.index"))
    if folder / PREFIX in prefixes:
        return folder / PREFIX
    if len(prefixes) != 1:
        found = ", ".join(prefix.name for prefix in prefixes) or "none"
        raise CheckpointError(
            f"{folder} must hold {PREFIX}.index, or one checkpoint of another name; found {found}."
        )
    return prefixes[0]


class TensorFlowCheckpoint:
    """The variables of a TensorFlow checkpoint, without the optimizer's.

    Args:
        prefix: The path of the `.index` file, less that ending.

    Raises:
        CheckpointError: If TensorFlow is missing, or it cannot read the files.
    """

    def __init__(self, prefix: Path) -> None:
        tf = import_tensorflow()
        self._prefix = prefix
        # What TensorFlow's reader raises depends on what is wrong with the files.
        self._errors: tuple[type[Exception], ...] = (
            tf.errors.OpError,
            IndexError,
            RuntimeError,
            ValueError,
        )
        try:
            self._reader = tf.train.load_checkpoint(str(prefix))
        except self._errors as error:
            raise CheckpointError(f"{prefix}.index: unreadable checkpoint: {error}.") from error
        self._shapes = {
            name: tuple(shape)
            for name, shape in self._reader.get_variable_to_shape_map().items()
            if not _OPTIMIZER_STATE.search(name)
        }

    def names(self) -> Collection[str]:
        return self._shapes.keys()

    def shape(self, name: str) -> tuple[int, ...]:
        return self._shapes[name]

    def read(self, name: str) -> np.ndarray[Any, Any]:
        try:
            return np.asarray(self._reader.get_tensor(name))
        except self._errors as error:
            raise CheckpointError(
                f"{self._prefix}: variable {name!r} cannot be read: {error}."
            ) from error

    def label(self, name: str) -> str:
        return name

    def file(self, name: str) -> str:
        return str(self._prefix)


def import_tensorflow() -> Any:
    """The library, or a `CheckpointError` that says what is missing."""
    try:
        import tensorflow as tf
    except ImportError as error:
        raise CheckpointError(
            "TF1 checkpoints are read and written through TensorFlow, which cannot be imported "
            f"here ({error}). Install it, or convert the checkpoint where it is installed."
        ) from error
    return tf
