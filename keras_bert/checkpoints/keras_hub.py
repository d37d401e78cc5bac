# SPDX-License-Identifier: Apache-2.0
"""KerasHub's presets of BERT: a folder, or a name that KerasHub downloads."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from keras_bert.checkpoints.checkpoint import Checkpoint
from keras_bert.checkpoints.errors import CheckpointError
from keras_bert.checkpoints.folders import read_json
from keras_bert.checkpoints.keras_hub_weights import (
    FIELDS,
    HEAD_LAYOUTS,
    TASK_FILE,
    TASK_WEIGHTS_FILE,
    WEIGHTS_FILE,
    KerasHubWeights,
    backbone_layout,
    check_class,
    import_keras_hub,
)
from keras_bert.checkpoints.tokenizer_files import TokenizerFiles, read_vocabulary
from keras_bert.config import BertConfig, ConfigError

CONFIG_FILE = "config.json"
TOKENIZER_FILE = "tokenizer.json"
VOCABULARY_FILE = "assets/tokenizer/vocabulary.txt"

# Written into KerasHub's encoder, not into its files. (Its masked-LM head has the exact GELU,
# which no head of ours has on top of an encoder with the other one: that head is not read.)
_FIXED: dict[str, Any] = {
    "activation": "gelu_tanh",
    "layer_norm_epsilon": 1e-12,
    "initializer_range": 0.02,
}


def is_keras_hub(fields: Mapping[str, Any]) -> bool:
    """Whether a config.json is that of a serialized Keras object, as KerasHub's is."""
    return "registered_name" in fields and "config" in fields


def open_folder(folder: Path) -> Checkpoint:
    """A preset that KerasHub has saved.

    Its files are read as data: the class that they name must be the one we expect, and is never
    looked up by that name.
    """
    path = folder / CONFIG_FILE
    config = _config(read_json(path), path)
    return Checkpoint(
        format="keras_hub",
        folder=folder,
        config=config,
        backbone_layout=backbone_layout(config.num_layers),
        head_layouts=HEAD_LAYOUTS,
        open_tensors=lambda: KerasHubWeights(folder, config),
        open_tokenizer=lambda: _read_tokenizer(folder),
    )


def _config(fields: Mapping[str, Any], path: Path) -> BertConfig:
    arguments = check_class(fields, "BertBackbone", path)
    missing = [name for name in FIELDS if name not in arguments]
    if missing:
        raise CheckpointError(f"{path}: the fields {', '.join(missing)} of config are missing.")
    values = {name: arguments[name] for name in FIELDS}
    try:
        return BertConfig(**values, attention_dropout=values["dropout"], **_FIXED)
    except ConfigError as error:
        raise CheckpointError(f"{path}: {error}") from error


def _read_tokenizer(folder: Path) -> TokenizerFiles | None:
    vocabulary, path = folder / VOCABULARY_FILE, folder / TOKENIZER_FILE
    if not vocabulary.exists() or not path.exists():
        return None
    lowercase = check_class(read_json(path), "BertTokenizer", path).get("lowercase")
    if not isinstance(lowercase, bool):
        raise CheckpointError(f"{path}: lowercase is {lowercase!r}; it must be true or false.")
    return TokenizerFiles(read_vocabulary(vocabulary), lowercase)


def known_names() -> tuple[str, ...]:
    """The BERT presets that the installed KerasHub knows by name."""
    return tuple(import_keras_hub().models.BertBackbone.presets)


def download(name: str, *, weights: bool = True) -> Path:
    """Fetches a preset's files, or finds them in KerasHub's cache.

    Args:
        name: One of `known_names`.
        weights: Whether the weights are wanted too.

    Returns:
        The folder that they lie in.

    Raises:
        CheckpointError: If the files cannot be fetched.
    """
    import_keras_hub()
    from keras_hub.src.utils.preset_utils import get_file

    try:
        config = Path(get_file(name, CONFIG_FILE))
        if weights:
            get_file(name, WEIGHTS_FILE)
    except (OSError, ValueError) as error:
        raise CheckpointError(f"KerasHub could not fetch the preset {name!r}: {error}") from error
    optional = [TOKENIZER_FILE, VOCABULARY_FILE]
    for file in [*optional, TASK_FILE, TASK_WEIGHTS_FILE] if weights else optional:
        # Not every preset has them; without a connection, what the cache holds is all there is.
        with contextlib.suppress(OSError, ValueError):
            get_file(name, file)
    return config.parent
