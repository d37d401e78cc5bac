# SPDX-License-Identifier: Apache-2.0
"""Loads KerasHub presets from a directory, or downloads them by name.

The weights are loaded with KerasHub's own models.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from keras_bert.checkpoints.checkpoint import Checkpoint
from keras_bert.checkpoints.directories import read_json
from keras_bert.checkpoints.errors import CheckpointError, warn
from keras_bert.checkpoints.layouts import backbone_layout
from keras_bert.checkpoints.tensors import ALL_ROWS
from keras_bert.checkpoints.weights import check_file_size, to_numpy
from keras_bert.checks import POSITIVE_INT
from keras_bert.config import BertConfig, ConfigError
from keras_bert.families import FAMILIES
from keras_bert.families.records import Family, KerasHubModels
from keras_bert.families.weight_names import HUB_ATTENTION
from keras_bert.vocabularies.byte_pair_reader import read_byte_pair
from keras_bert.vocabularies.sentence_piece_reader import read_sentence_piece
from keras_bert.vocabularies.vocab_txt import load_vocabulary

CONFIG_FILE = "config.json"
# A constant in KerasHub's masked LM head
MASKED_LM_EPSILON = 1e-5
WEIGHTS_FILE = "model.weights.h5"
TASK_FILE = "task.json"
TASK_WEIGHTS_FILE = "task.weights.h5"

# KerasNLP is the former name of KerasHub.
_PACKAGES = ("keras_hub", "keras_nlp")
TOKENIZER_FILE = "tokenizer.json"
_DIRECTORY = "assets/tokenizer"
_WORDS, _PIECES = f"{_DIRECTORY}/vocabulary.txt", f"{_DIRECTORY}/vocabulary.spm"
_TOKENS, _MERGES = f"{_DIRECTORY}/vocabulary.json", f"{_DIRECTORY}/merges.txt"
ASSETS = (_WORDS, _PIECES, _TOKENS, _MERGES)
"""The files that tokenizers in KerasHub presets may have."""

_WORDPIECE_CLASSES = ("BertTokenizer", "DistilBertTokenizer", "ElectraTokenizer")

_FAMILIES = tuple(family for family in FAMILIES.values() if family.keras_hub is not None)


def _hub_models(family: Family) -> KerasHubModels:
    assert family.keras_hub is not None  # This is true for all `_FAMILIES`.
    return family.keras_hub


def is_keras_hub(fields: Mapping[str, Any]) -> bool:
    """Returns whether a config.json describes a serialized Keras object, as in KerasHub."""
    return "registered_name" in fields and "config" in fields


def open_directory(directory: Path) -> Checkpoint:
    """Opens a preset saved by KerasHub.

    The class name is only compared with the expected name, and never used to look up a class.
    """
    path = directory / CONFIG_FILE
    fields = read_json(path)
    family = _family(fields, path)
    config = _config(family, fields, path)
    if task_class(directory) == f"{family.class_prefix}MaskedLM":
        config = config.replace(masked_lm_activation=_hub_models(family).masked_lm_activation)
        _warn_about_epsilon(config, directory)
    return Checkpoint(
        format="keras_hub",
        directory=directory,
        config=config,
        backbone_layout=backbone_layout(_hub_models(family), config),
        head_layouts=_hub_models(family).heads,
        open_tensors=lambda: KerasHubWeights(directory, family, config),
        open_tokenizer=lambda: read_tokenizer(directory),
    )


def _family(fields: Mapping[str, Any], path: Path) -> Family:
    name = str(fields.get("registered_name"))
    families = {f"{family.class_prefix}Backbone": family for family in _FAMILIES}
    family = families.get(name.rpartition(">")[2])
    if family is None:
        raise CheckpointError(
            f"{path}: registered_name must be "
            f"{' or '.join(repr(f'keras_hub>{backbone}') for backbone in families)}. Received: "
            f"{name!r}"
        )
    return family


def _config(family: Family, fields: Mapping[str, Any], path: Path) -> BertConfig:
    arguments = check_class(fields, f"{family.class_prefix}Backbone", path)
    words = _hub_models(family).config
    absent_fields = [name for name in words.required.values() if name not in arguments]
    if absent_fields:
        raise CheckpointError(f"{path}: config must contain the fields {', '.join(absent_fields)}.")
    if arguments.get("num_inner_repetitions", 1) != 1:
        raise CheckpointError(
            f"{path}: num_inner_repetitions must be 1. Received: "
            f"{arguments['num_inner_repetitions']!r}"
        )
    values = {name: arguments[key] for name, key in words.required.items()}
    if values.get("embedding_dim") == values["hidden_dim"] and "layer_sharing" not in words.fixed:
        values["embedding_dim"] = None
    try:
        return BertConfig(**values, attention_dropout=values["dropout"], **words.fixed)
    except ConfigError as error:
        raise CheckpointError(f"{path}: {error}") from error


def _warn_about_epsilon(config: BertConfig, directory: Path) -> None:
    if config.layer_norm_epsilon != MASKED_LM_EPSILON:
        warn(
            f"{directory}: KerasHub's masked LM head has a LayerNorm epsilon of "
            f"{MASKED_LM_EPSILON}, "
            f"but keras_bert uses the encoder's epsilon, {config.layer_norm_epsilon}. Logits "
            "differ slightly.",
        )


def known_names() -> tuple[str, ...]:
    """Returns the names of supported presets in the installed version of KerasHub."""
    models = import_keras_hub().models
    return tuple(
        name
        for family in _FAMILIES
        for name in getattr(models, f"{family.class_prefix}Backbone").presets
    )


def download(name: str, *, weights: bool = True) -> Path:
    """Downloads a preset's files to KerasHub's cache, unless they are already there."""
    import_keras_hub()
    from keras_hub.src.utils.preset_utils import get_file

    try:
        config = Path(get_file(name, CONFIG_FILE))
        if weights:
            get_file(name, WEIGHTS_FILE)
    except (OSError, ValueError) as error:
        raise CheckpointError(f"KerasHub cannot download the preset {name!r}: {error}") from error
    optional = [TOKENIZER_FILE, *ASSETS]
    for file in [*optional, TASK_FILE, TASK_WEIGHTS_FILE] if weights else optional:
        # Not every preset has these files. Without a connection, only cached files are used.
        with contextlib.suppress(OSError, ValueError):
            get_file(name, file)
    return config.parent


def check_class(fields: Mapping[str, Any], expected: str, path: Path) -> dict[str, Any]:
    """Checks a serialized object's class and returns its constructor arguments."""
    arguments = fields.get("config")
    if fields.get("registered_name") not in [f"{package}>{expected}" for package in _PACKAGES]:
        raise CheckpointError(
            f"{path}: registered_name must be 'keras_hub>{expected}'. Received: "
            f"{fields.get('registered_name')!r}"
        )
    if not isinstance(arguments, dict):
        raise CheckpointError(f"{path}: config must be an object. Received: {arguments!r}")
    return arguments


class KerasHubWeights:
    """A KerasHub preset's weights, loaded by KerasHub's own model and Keras' own reader.

    Keras' reader neither follows links out of the file nor executes code. A missing file, or a file
    that does not match the architecture, raises `CheckpointError`.
    """

    def __init__(self, directory: Path, family: Family, config: BertConfig) -> None:
        self._path = directory / WEIGHTS_FILE
        self._hidden_dim = config.hidden_dim
        if self._path.exists():
            check_file_size(config, self._path.stat().st_size, self._path)
        backbone = make_backbone(family, config, dtype="float32")
        _read(backbone.load_weights, self._path)
        # For some families, KerasHub's pooler is part of the classifier, not of the encoder.
        pooler = _hub_models(family).heads.get("pooler", {})
        elsewhere = {name for stored in pooler.values() for name in stored.names}
        self._weights = {
            name: _find(backbone, name)
            for stored in backbone_layout(_hub_models(family), config).values()
            for name in stored.names
            if name not in elsewhere
        }
        self._weights |= _task_weights(family, backbone, directory)

    def names(self) -> Collection[str]:
        return self._weights.keys()

    def shape(self, name: str) -> tuple[int, ...]:
        shape = tuple(self._weights[name].shape)
        # Kernels are (hidden, heads, head_dim) or (heads, head_dim, hidden), biases are
        # (heads, head_dim).
        if HUB_ATTENTION in name:
            return (self._hidden_dim,) * (2 if len(shape) == 3 else 1)
        return shape

    def read(self, name: str, rows: slice = ALL_ROWS) -> np.ndarray[Any, Any]:
        tensor = to_numpy(self._weights[name]).reshape(self.shape(name))
        return tensor if rows == ALL_ROWS else tensor[rows]

    def label(self, name: str) -> str:
        return name

    def file(self, name: str) -> str:
        return str(self._path)


def make_backbone(family: Family, config: BertConfig, dtype: str | None = None) -> Any:
    """Creates a randomly initialized KerasHub encoder."""
    words = _hub_models(family).config.required
    arguments = {key: getattr(config, name) for name, key in words.items()}
    if "embedding_dim" in arguments:
        arguments["embedding_dim"] = config.embedding_width
    return getattr(import_keras_hub().models, f"{family.class_prefix}Backbone")(
        **arguments, dtype=dtype
    )


def _find(model: Any, name: str) -> Any:
    """Returns an attribute by its dotted path. Numbers in the path are list indices."""
    for key in name.split("."):
        model = model[int(key)] if key.isdigit() else getattr(model, key)
    return model


def task_class(directory: Path) -> str | None:
    """Returns the class name of the task in a preset, or `None` if it has only an encoder."""
    path = directory / TASK_FILE
    if not path.exists() or not (directory / TASK_WEIGHTS_FILE).exists():
        return None
    return str(read_json(path).get("registered_name")).rpartition(">")[2]


def _task_weights(family: Family, backbone: Any, directory: Path) -> dict[str, Any]:
    name = task_class(directory)
    if name is None:
        return {}
    path, weights = directory / TASK_FILE, directory / TASK_WEIGHTS_FILE
    heads = {
        f"{family.class_prefix}TextClassifier": ("classifier", "pooler"),
        f"{family.class_prefix}MaskedLM": ("masked_lm",),
    }
    if name not in heads:
        warn(
            f"{weights}: the head for {read_json(path).get('registered_name')} was not used.",
        )
        return {}
    arguments = _task_arguments(check_class(read_json(path), name, path), path)
    task = getattr(import_keras_hub().models, name)(backbone, **arguments)
    _read(task.load_task_weights, weights)
    return {
        name: _find(task, name)
        for head in heads[name]
        for stored in _hub_models(family).heads.get(head, {}).values()
        for name in stored.names
    }


def _task_arguments(fields: Mapping[str, Any], path: Path) -> dict[str, int]:
    """Returns the head sizes in a task's file."""
    sizes = {name: fields[name] for name in ("num_classes", "hidden_dim") if name in fields}
    for name, size in sizes.items():
        if not POSITIVE_INT.allows(size):
            raise CheckpointError(f"{path}: {name} must be {POSITIVE_INT}. Received: {size!r}")
    return sizes


def _read(load: Callable[[str], None], path: Path) -> None:
    if not path.exists():
        raise CheckpointError(f"{path}: the file is missing.")
    try:
        with warnings.catch_warnings():
            # Keras warns about containers that older versions did not write. This is harmless,
            # because a missing weight raises an error.
            warnings.filterwarnings("ignore", "Skipping nested container", UserWarning)
            load(str(path))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"{path}: the weights cannot be read: {error}") from error


def import_keras_hub() -> Any:
    """Imports KerasHub. Raises `CheckpointError` if it cannot be imported."""
    try:
        import keras_hub
    except ImportError as error:
        raise CheckpointError(
            f"KerasHub presets require keras_hub, but importing it failed: {error}. "
            "Install it with `pip install keras-hub`."
        ) from error
    return keras_hub


def read_tokenizer(directory: Path) -> dict[str, Any] | None:
    """Reads a preset's tokenizer config. Returns `None` if it has no tokenizer."""
    path = directory / TOKENIZER_FILE
    if not path.exists() or not any((directory / name).exists() for name in ASSETS):
        return None
    fields = read_json(path)
    name = str(fields.get("registered_name")).rpartition(">")[2]
    if name == "RobertaTokenizer":
        arguments = check_class(fields, name, path)
        prefix = bool(arguments.get("add_prefix_space", False))
        return read_byte_pair(directory / _TOKENS, directory / _MERGES, prefix)
    if name == "AlbertTokenizer":
        check_class(fields, name, path)
        # KerasHub does not normalize text before the SentencePiece model.
        return read_sentence_piece(directory / _PIECES)
    if name in _WORDPIECE_CLASSES:
        return _wordpiece(check_class(fields, name, path), path, directory)
    choices = ", ".join((*_WORDPIECE_CLASSES, "RobertaTokenizer", "AlbertTokenizer"))
    raise CheckpointError(f"{path}: registered_name must be one of {choices}. Received: {name!r}")


def _wordpiece(arguments: Mapping[str, Any], path: Path, directory: Path) -> dict[str, Any]:
    lowercase = arguments.get("lowercase")
    if not isinstance(lowercase, bool):
        raise CheckpointError(f"{path}: lowercase must be true or false. Received: {lowercase!r}")
    for name, expected in (("split", True), ("suffix_indicator", "##"), ("oov_token", "[UNK]")):
        if arguments.get(name, expected) != expected:
            raise CheckpointError(
                f"{path}: {name} must be {expected!r} or absent. Received: {arguments[name]!r}"
            )
    strips = bool(arguments.get("strip_accents")) and not lowercase
    in_text = bool(arguments.get("special_tokens_in_strings"))
    return {
        "vocabulary": list(load_vocabulary(directory / _WORDS)),
        "lowercase": lowercase,
        **({"strip_accents": True} if strips else {}),
        **({"special_tokens_in_text": True} if in_text else {}),
    }
