# SPDX-License-Identifier: Apache-2.0
"""The layout of the TF1 releases: bert_config.json, bert_model.ckpt.*, vocab.txt.

ALBERT's has `albert_config.json` and a SentencePiece model; ELECTRA's has variables and a
vocabulary alone.
"""

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
from keras_bert.checkpoints.google_tf1_families import (
    CONFIG_FILES,
    ELECTRA,
    RELEASES,
    Release,
    electra_heads,
)
from keras_bert.checkpoints.tokenizer_files import read_tokenizer
from keras_bert.config import BertConfig

# Written into the released code, not into its files.
LAYER_NORM_EPSILON = 1e-12
_ELECTRA_LAYER = re.compile(r"electra/encoder/layer_(\d+)/intermediate/dense/kernel")
_OPTIMIZER_STATE = re.compile(r"(^|/)(adam_[mv]|lamb_[mv]|Adam(_1)?|global_step|beta[12]_power)$")


def release_of(folder: Path) -> Release | None:
    """Whose release a folder is, by its files; `None` if it is none."""
    for release in RELEASES:
        if release.config_file and (folder / release.config_file).exists():
            return release
    return ELECTRA if any(folder.glob("*.index")) else None


def open_folder(folder: Path, release: Release) -> Checkpoint:
    """A checkpoint in a release's layout; the files' prefix may be another one."""
    if release.config_file is None:
        config = _electra_config(TensorFlowCheckpoint(_find_prefix(folder, release)), folder)
    else:
        path = folder / release.config_file
        fields = {"layer_norm_eps": LAYER_NORM_EPSILON, **read_json(path)}
        config = config_from_json(fields, path, release.activations, release.json)
    return Checkpoint(
        format="google_tf1",
        folder=folder,
        config=config,
        backbone_layout=release.backbone_layout(config),
        head_layouts=release.heads,
        open_tensors=lambda: TensorFlowCheckpoint(_find_prefix(folder, release)),
        open_tokenizer=lambda: read_tokenizer(folder),
    )


def _electra_config(variables: TensorFlowCheckpoint, folder: Path) -> BertConfig:
    """The discriminator's architecture, from the shapes of its variables."""
    layers = [match for name in variables.names() if (match := _ELECTRA_LAYER.fullmatch(name))]
    if not layers:
        raise CheckpointError(
            f"{folder} holds a TensorFlow checkpoint with neither "
            f"{' nor '.join(CONFIG_FILES)} beside it, nor "
            "ELECTRA's variables (electra/encoder/layer_0/…) in it."
        )
    vocabulary_size, embedding_dim = variables.shape("electra/embeddings/word_embeddings")
    hidden_dim, intermediate_dim = variables.shape(layers[0].string)
    fields = {
        "vocab_size": vocabulary_size,
        "embedding_size": embedding_dim,
        "hidden_size": hidden_dim,
        "intermediate_size": intermediate_dim,
        "num_hidden_layers": 1 + max(int(match[1]) for match in layers),
        "num_attention_heads": electra_heads(hidden_dim),
        "max_position_embeddings": variables.shape("electra/embeddings/position_embeddings")[0],
        "type_vocab_size": variables.shape("electra/embeddings/token_type_embeddings")[0],
        "hidden_act": "gelu",
    }
    return config_from_json(fields, folder, ELECTRA.activations, ELECTRA.json)


def _find_prefix(folder: Path, release: Release) -> Path:
    prefixes = sorted(path.with_suffix("") for path in folder.glob("*.index"))
    if folder / release.prefix in prefixes:
        return folder / release.prefix
    if len(prefixes) != 1:
        found = ", ".join(prefix.name for prefix in prefixes) or "none"
        raise CheckpointError(
            f"{folder} must hold {release.prefix}.index, or one checkpoint of another name; "
            f"found {found}."
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
