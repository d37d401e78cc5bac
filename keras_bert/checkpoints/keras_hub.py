# SPDX-License-Identifier: Apache-2.0
"""KerasHub's presets: a folder, or a name that KerasHub downloads."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from keras_bert.checkpoints.checkpoint import Checkpoint
from keras_bert.checkpoints.errors import CheckpointError, CheckpointWarning
from keras_bert.checkpoints.folders import read_json
from keras_bert.checkpoints.keras_hub_families import FAMILIES, HubFamily
from keras_bert.checkpoints.keras_hub_tokenizers import ASSETS, TOKENIZER_FILE, read_tokenizer
from keras_bert.checkpoints.keras_hub_weights import (
    TASK_FILE,
    TASK_WEIGHTS_FILE,
    WEIGHTS_FILE,
    KerasHubWeights,
    check_class,
    import_keras_hub,
    task_class,
)
from keras_bert.config import BertConfig, ConfigError

CONFIG_FILE = "config.json"
# Written into KerasHub's masked-LM head
MASKED_LM_EPSILON = 1e-5


def is_keras_hub(fields: Mapping[str, Any]) -> bool:
    """Whether a config.json is that of a serialized Keras object, as KerasHub's is."""
    return "registered_name" in fields and "config" in fields


def open_folder(folder: Path) -> Checkpoint:
    """A preset that KerasHub has saved.

    Its files are read as data: the class that they name must be the one we expect, and is never
    looked up by that name.
    """
    path = folder / CONFIG_FILE
    fields = read_json(path)
    family = _family(fields, path)
    config = _config(family, fields, path)
    if task_class(folder) == f"{family.prefix}MaskedLM":
        config = config.replace(masked_lm_activation=family.masked_lm_activation)
        _warn_of_epsilon(config, folder)
    return Checkpoint(
        format="keras_hub",
        folder=folder,
        config=config,
        backbone_layout=family.backbone_layout(config),
        head_layouts=family.head_layouts,
        open_tensors=lambda: KerasHubWeights(folder, family, config),
        open_tokenizer=lambda: read_tokenizer(folder),
    )


def _family(fields: Mapping[str, Any], path: Path) -> HubFamily:
    name = str(fields.get("registered_name"))
    backbone = name.rpartition(">")[2]
    if backbone not in FAMILIES:
        raise CheckpointError(
            f"{path}: registered_name is {name!r}; it must be "
            f"{' or '.join(repr(f'keras_hub>{known}') for known in FAMILIES)}."
        )
    return FAMILIES[backbone]


def _config(family: HubFamily, fields: Mapping[str, Any], path: Path) -> BertConfig:
    arguments = check_class(fields, family.backbone_class, path)
    missing = [name for name in family.fields.values() if name not in arguments]
    if missing:
        raise CheckpointError(f"{path}: the fields {', '.join(missing)} of config are missing.")
    if arguments.get("num_inner_repetitions", 1) != 1:
        raise CheckpointError(
            f"{path}: num_inner_repetitions is {arguments['num_inner_repetitions']!r}, which is "
            "not supported; it must be 1."
        )
    values = {ours: arguments[theirs] for ours, theirs in family.fields.items()}
    if values.get("embedding_dim") == values["hidden_dim"] and "layer_sharing" not in family.fixed:
        values["embedding_dim"] = None
    try:
        return BertConfig(**values, attention_dropout=values["dropout"], **family.fixed)
    except ConfigError as error:
        raise CheckpointError(f"{path}: {error}") from error


def _warn_of_epsilon(config: BertConfig, folder: Path) -> None:
    if config.layer_norm_epsilon != MASKED_LM_EPSILON:
        warnings.warn(
            f"{folder}: KerasHub's masked-LM head has a LayerNorm epsilon of {MASKED_LM_EPSILON}, "
            f"ours that of the encoder, {config.layer_norm_epsilon}: logits differ a little.",
            CheckpointWarning,
            stacklevel=4,
        )


def known_names() -> tuple[str, ...]:
    """The presets of these families that the installed KerasHub knows by name."""
    models = import_keras_hub().models
    return tuple(
        name
        for family in FAMILIES.values()
        for name in getattr(models, family.backbone_class).presets
    )


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
    optional = [TOKENIZER_FILE, *ASSETS]
    for file in [*optional, TASK_FILE, TASK_WEIGHTS_FILE] if weights else optional:
        # Not every preset has them; without a connection, what the cache holds is all there is.
        with contextlib.suppress(OSError, ValueError):
            get_file(name, file)
    return config.parent
