# SPDX-License-Identifier: Apache-2.0
"""Loads and saves the TF1 release format (bert_config.json, bert_model.ckpt.*, vocab.txt).

ALBERT has `albert_config.json` and a SentencePiece model. ELECTRA only has variables and a
vocabulary.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from keras_bert.checkpoints import weights
from keras_bert.checkpoints.checkpoint import Checkpoint
from keras_bert.checkpoints.config_fields import (
    needs_zero_segments,
    read_config,
    unsupported_fields,
    with_zero_segments,
    write_config,
)
from keras_bert.checkpoints.directories import checkpoint_errors, read_json, replaced_files
from keras_bert.checkpoints.errors import CheckpointError
from keras_bert.checkpoints.layouts import backbone_layout, disassemble, zero_segments
from keras_bert.checkpoints.tensors import ALL_ROWS
from keras_bert.config import BertConfig
from keras_bert.families import TF1_RELEASES
from keras_bert.families.records import Layout, TF1Release
from keras_bert.vocabularies.files import write_json
from keras_bert.vocabularies.tokenizer_config import SENTENCE_PIECE, WORDPIECE, decode_model
from keras_bert.vocabularies.tokenizer_reader import read_tokenizer
from keras_bert.vocabularies.tokenizer_settings import RELEASED_MODEL_FILE, VOCABULARY_FILE
from keras_bert.vocabularies.tokenizer_writer import check_same_tokenizer
from keras_bert.vocabularies.vocab_txt import save_vocabulary

# A constant in the original BERT code that the files do not contain
LAYER_NORM_EPSILON = 1e-12
_ELECTRA_LAYER = re.compile(r"electra/encoder/layer_(\d+)/intermediate/dense/kernel")
_OPTIMIZER_STATE = re.compile(r"(^|/)(adam_[mv]|lamb_[mv]|Adam(_1)?|global_step|beta[12]_power)$")

_OTHER_CONFIG_FILE = "config.json"  # All other formats have this file.
_CONFIG_FILES = tuple(release.config_file for release in TF1_RELEASES if release.config_file)
_ELECTRA_RELEASE = next(release for release in TF1_RELEASES if release.config_file is None)
_TOKENIZER_FILES = (VOCABULARY_FILE, RELEASED_MODEL_FILE)

# Tokenizer fields set by flags or constants in the original BERT code
_CODE_FIELDS = (
    *("lowercase", "strip_accents", "max_word_length"),
    *("special_tokens_in_text", "truncation_side"),
)
_UNKNOWN_TO_TF1 = (
    "layer_norm_eps",
    "classifier_dropout",
    "classifier_dropout_prob",
    "pad_token_id",
)


def detect_release(directory: Path) -> TF1Release | None:
    """Detects the release in a directory by its files. Returns `None` if it has no release."""
    for release in TF1_RELEASES:
        if release.config_file and (directory / release.config_file).exists():
            return release
    return _ELECTRA_RELEASE if any(directory.glob("*.index")) else None


def open_directory(directory: Path, release: TF1Release) -> Checkpoint:
    """Opens a checkpoint in a release's format. The prefix of its files may differ."""
    if release.config_file is None:
        config = _electra_config(TensorFlowCheckpoint(_find_prefix(directory, release)), directory)
    else:
        path = directory / release.config_file
        fields = {"layer_norm_eps": LAYER_NORM_EPSILON, **read_json(path)}
        config = read_config(release.config, fields, path, release.activations)
    return Checkpoint(
        format="google_tf1",
        directory=directory,
        config=config,
        backbone_layout=backbone_layout(release, config),
        head_layouts=release.heads,
        open_tensors=lambda: _open_tensors(_find_prefix(directory, release), config),
        open_tokenizer=lambda: read_tokenizer(directory),
    )


def _open_tensors(prefix: Path, config: BertConfig) -> TensorFlowCheckpoint:
    num_bytes = sum(path.stat().st_size for path in prefix.parent.glob(f"{prefix.name}.data-*"))
    weights.check_file_size(config, num_bytes, f"{prefix}.data-…")
    return TensorFlowCheckpoint(prefix)


def _electra_config(variables: TensorFlowCheckpoint, directory: Path) -> BertConfig:
    """Infers a discriminator's architecture from the shapes of its variables."""
    layers = [match for name in variables.names() if (match := _ELECTRA_LAYER.fullmatch(name))]
    if not layers:
        raise CheckpointError(
            f"{directory} has a TensorFlow checkpoint, but neither {' nor '.join(_CONFIG_FILES)}, "
            "nor ELECTRA's variables (electra/encoder/layer_0/…)."
        )
    vocabulary_size, embedding_dim = variables.shape("electra/embeddings/word_embeddings")
    hidden_dim, intermediate_dim = variables.shape(layers[0].string)
    fields = {
        "vocab_size": vocabulary_size,
        "embedding_size": embedding_dim,
        "hidden_size": hidden_dim,
        "intermediate_size": intermediate_dim,
        "num_hidden_layers": 1 + max(int(match[1]) for match in layers),
        "num_attention_heads": _electra_heads(hidden_dim),
        "max_position_embeddings": variables.shape("electra/embeddings/position_embeddings")[0],
        "type_vocab_size": variables.shape("electra/embeddings/token_type_embeddings")[0],
        "hidden_act": "gelu",
    }
    return read_config(_ELECTRA_RELEASE.config, fields, directory, _ELECTRA_RELEASE.activations)


def _find_prefix(directory: Path, release: TF1Release) -> Path:
    prefixes = sorted(path.with_suffix("") for path in directory.glob("*.index"))
    if directory / release.prefix in prefixes:
        return directory / release.prefix
    if len(prefixes) != 1:
        names = ", ".join(prefix.name for prefix in prefixes) or "no checkpoint"
        raise CheckpointError(
            f"{directory} must contain {release.prefix}.index, or exactly one checkpoint with a "
            f"different name. Received: {names}"
        )
    return prefixes[0]


def save_google_tf1(
    model: Any,
    preset_dir: str | os.PathLike[str],
    *,
    heads: Mapping[str, weights.Head] | None = None,
    tokenizer: Mapping[str, Any] | None = None,
) -> None:
    """Saves a model in the TF1 release format of BERT, ALBERT or ELECTRA.

    The original code of these models can then load it. The format cannot represent whether the
    tokenizer lowercases text. ELECTRA has no configuration file, so its architecture is inferred
    from the shapes of the variables.

    Args:
        model: Encoder, or task with its heads and its tokenizer. Weights are saved in float32.
        preset_dir: Directory to write to. Existing files are replaced.
        heads: Layer or layers of each head by name: `"masked_lm"`, `"next_sentence"`,
            `"classifier"`, `"question_answerer"`, or ELECTRA's `"replaced_token"`. Defaults to the
            task's heads.
        tokenizer: Tokenizer config. A WordPiece vocabulary is saved as `vocab.txt`, a SentencePiece
            model as `30k-clean.model`. Defaults to the task's tokenizer.

    Raises:
        TypeError: If the model is neither an encoder nor a task.
        CheckpointError: If TensorFlow cannot be imported, or the original code does not support the
            model, its heads or its tokenizer. The original code only has one form of GELU (the tanh
            approximation, or the exact GELU in ELECTRA), an epsilon of 1e-12, and no causal
            attention. Also raised if the directory contains a checkpoint with a different format or
            family.
    """
    tf = import_tensorflow()
    backbone, heads, tokenizer, _ = weights.split_model(model, heads, tokenizer)
    release = _matching_release(backbone.config, "masked_lm" in (heads or {}))
    fields = write_config(release.config, backbone.config, release.activations)
    tensors = _collect_tensors(release, backbone, heads)
    kind = None if tokenizer is None else tokenizer.get("kind", WORDPIECE)
    if kind not in (None, WORDPIECE, SENTENCE_PIECE):
        raise CheckpointError(
            f"kind of the tokenizer must be {WORDPIECE} or {SENTENCE_PIECE} in a TF1 release. "
            f"Received: {kind!r}"
        )
    _check_no_other(Path(preset_dir), release)
    prefix, config_file = release.prefix, release.config_file
    checkpoint_files = (f"{prefix}.index", f"{prefix}.data-00000-of-00001")
    files = (*checkpoint_files, *_TOKENIZER_FILES)
    with replaced_files(preset_dir, owned=files, last=config_file or files[0]) as temporary:
        tf.raw_ops.SaveV2(
            prefix=str(temporary / prefix),
            tensor_names=list(tensors),
            shape_and_slices=[""] * len(tensors),
            tensors=list(tensors.values()),
        )
        if config_file:
            known = {key: fields[key] for key in fields if key not in _UNKNOWN_TO_TF1}
            write_json(temporary / config_file, known)
        if tokenizer is not None and kind == WORDPIECE:
            with checkpoint_errors():
                save_vocabulary(tokenizer["vocabulary"], temporary / VOCABULARY_FILE)
        elif tokenizer is not None:
            (temporary / RELEASED_MODEL_FILE).write_bytes(decode_model(tokenizer))
        written = open_directory(temporary, release)
        architecture = with_zero_segments(release.config, backbone.config)
        written.check_written(architecture, heads or {}, tokenizer)
        if tokenizer is not None:
            with checkpoint_errors():
                check_same_tokenizer(tokenizer, written.require_tokenizer(), _CODE_FIELDS)


def _matching_release(config: BertConfig, masked_lm: bool) -> TF1Release:
    needs = [
        unsupported_fields(release.config, config, release.activations, masked_lm)
        for release in TF1_RELEASES
    ]
    for release, fields in zip(TF1_RELEASES, needs, strict=True):
        if not fields:
            return release
    requirements = "; ".join(
        f"{release.config_file or release.prefix} requires {fields}"
        for release, fields in zip(TF1_RELEASES, needs, strict=True)
    )
    raise CheckpointError(f"No TF1 release can represent this architecture: {requirements}.")


def _check_no_other(directory: Path, release: TF1Release) -> None:
    for name in (*_CONFIG_FILES, _OTHER_CONFIG_FILE):
        if name != release.config_file and (directory / name).exists():
            kind = "a different format" if name == _OTHER_CONFIG_FILE else "a different family"
            raise CheckpointError(
                f"preset_dir must not contain {name} ({kind}), because it would be loaded instead. "
                f"Received: {directory}. Choose another directory."
            )


def _collect_tensors(
    release: TF1Release, backbone: weights.Encoder, heads: Mapping[str, weights.Head] | None
) -> dict[str, np.ndarray[Any, Any]]:
    unknown = sorted(set(heads or {}) - set(release.heads))
    if unknown:
        raise CheckpointError(
            f"Heads in this TF1 release must be among {', '.join(release.heads)}. Received: "
            f"{', '.join(unknown)}"
        )
    layouts: list[tuple[Layout, dict[str, Any]]] = [
        (backbone_layout(release, backbone.config), weights.backbone_weights(backbone))
    ]
    layouts += [(release.heads[name], w) for name, w in weights.all_head_weights(heads).items()]
    tensors = {
        name: value
        for layout, values in layouts
        for weight_name, weight in values.items()
        for name, value in disassemble(
            layout[weight_name], weights.to_numpy(weight).astype(np.float32, copy=False)
        )
    }
    if needs_zero_segments(release.config, backbone.config):
        tensors |= zero_segments(release, backbone.config)
    return tensors


def _electra_heads(hidden_dim: int) -> int:
    """Computes ELECTRA's number of attention heads of width 64, because no file contains it."""
    return max(1, hidden_dim // 64)


class TensorFlowCheckpoint:
    """A TensorFlow checkpoint's variables, without optimizer variables.

    Args:
        prefix: Path of the `.index` file without its suffix.
    """

    def __init__(self, prefix: Path) -> None:
        tf = import_tensorflow()
        self._prefix = prefix
        # TensorFlow's reader raises these errors for invalid files.
        self._errors: tuple[type[Exception], ...] = (
            tf.errors.OpError,
            IndexError,
            RuntimeError,
            ValueError,
        )
        try:
            self._reader = tf.train.load_checkpoint(str(prefix))
        except self._errors as error:
            raise CheckpointError(f"{prefix}.index cannot be read: {error}.") from error
        self._shapes = {
            name: tuple(shape)
            for name, shape in self._reader.get_variable_to_shape_map().items()
            if not _OPTIMIZER_STATE.search(name)
        }

    def names(self) -> Collection[str]:
        return self._shapes.keys()

    def shape(self, name: str) -> tuple[int, ...]:
        return self._shapes[name]

    def read(self, name: str, rows: slice = ALL_ROWS) -> np.ndarray[Any, Any]:
        try:
            tensor = np.asarray(self._reader.get_tensor(name))
            return tensor if rows == ALL_ROWS else tensor[rows]
        except self._errors as error:
            raise CheckpointError(
                f"{self._prefix}: variable {name!r} cannot be read: {error}."
            ) from error

    def label(self, name: str) -> str:
        return name

    def file(self, name: str) -> str:
        return str(self._prefix)


def import_tensorflow() -> Any:
    """Imports TensorFlow. Raises `CheckpointError` if it cannot be imported."""
    try:
        import tensorflow as tf
    except ImportError as error:
        raise CheckpointError(
            f"TF1 checkpoints require TensorFlow, but importing it failed ({error}). Install it, "
            "or convert the checkpoint on a different machine."
        ) from error
    return tf
