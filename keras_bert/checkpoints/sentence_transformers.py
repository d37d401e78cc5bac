# SPDX-License-Identifier: Apache-2.0
"""The pooling options in checkpoint folders of sentence-transformers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from keras_bert.checkpoints.errors import CheckpointError
from keras_bert.checkpoints.folders import read_json

POOLING_FILE = "1_Pooling/config.json"
LENGTH_FILE = "sentence_bert_config.json"
NORMALIZE_FOLDER = "2_Normalize"
_MODES = {"pooling_mode_mean_tokens": "mean", "pooling_mode_cls_token": "cls"}


def read_options(folder: Path) -> dict[str, Any]:
    """Reads the options of sentence embeddings from a checkpoint folder.

    Args:
        folder: The folder of a checkpoint in any format.

    Returns:
        A dict of those of `pooling` (`"mean"` or `"cls"`), `normalize` and `sequence_length` that
        the folder specifies; empty if it is not a sentence-transformers model.

    Raises:
        CheckpointError: If the pooling is not supported.
    """
    options: dict[str, Any] = {}
    if (folder / POOLING_FILE).exists():
        options["pooling"] = _pooling(folder / POOLING_FILE)
        options["normalize"] = _normalizes(folder)
    if (folder / LENGTH_FILE).exists():
        length = read_json(folder / LENGTH_FILE).get("max_seq_length")
        if isinstance(length, int) and length > 0:
            options["sequence_length"] = length
    return options


def _pooling(path: Path) -> str:
    fields = read_json(path)
    modes = [name for name, value in fields.items() if "_mode_" in name and value is True]
    if len(modes) != 1 or modes[0] not in _MODES:
        raise CheckpointError(
            f"{path}: the modes are {', '.join(modes) or 'none'}; expected one of "
            f"{', '.join(_MODES)}."
        )
    return _MODES[modes[0]]


def _normalizes(folder: Path) -> bool:
    # The module has no weights, so that copies of the model often lack its folder.
    modules = folder / "modules.json"
    return NORMALIZE_FOLDER in modules.read_text("utf-8") if modules.exists() else False
