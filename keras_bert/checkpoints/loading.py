# SPDX-License-Identifier: Apache-2.0
"""Finding a checkpoint by folder, address or name; its files decide the format."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from keras_bert.checkpoints import hub
from keras_bert.checkpoints.checkpoint import Checkpoint, EncoderT, registered_backbone
from keras_bert.checkpoints.errors import CheckpointError
from keras_bert.checkpoints.folders import read_json
from keras_bert.checkpoints.formats import google_tf1, hugging_face, keras_hub, preset


def open_checkpoint(source: str | os.PathLike[str], *, weights: bool = True) -> Checkpoint:
    """Finds a checkpoint and reads its configuration.

    Looked for in this order: a folder (a preset of ours, KerasHub's, Hugging Face's layout, the
    TF1 release's, told by its files), `hf://organisation/model` (followed by `@revision` for
    another than the newest), a name that KerasHub knows.

    Args:
        source: The folder, address or name.
        weights: Whether the weights are wanted; without them less is downloaded.

    Raises:
        CheckpointError: If nothing is found, or what is found is malformed or not supported.
    """
    source = os.fspath(source)
    if os.path.isdir(source):
        return open_folder(Path(source))
    if os.path.exists(source):
        raise CheckpointError(f"{source} is a file; give the folder it lies in.")
    if source.startswith(hub.SCHEME):
        return open_folder(hub.download(source, weights=weights))
    # Only then KerasHub is imported, which takes seconds.
    names = keras_hub.known_names() if re.fullmatch(r"[A-Za-z0-9_.]+", source) else ()
    if source in names:
        return open_folder(keras_hub.download(source, weights=weights))
    raise CheckpointError(
        f"There is no checkpoint {source!r}: it is no folder, no address "
        f"{hub.SCHEME}organisation/model, and no name of a preset that KerasHub knows"
        + (f" ({', '.join(names)})." if names else ".")
    )


def open_folder(folder: Path) -> Checkpoint:
    """The checkpoint in a folder, whichever of the formats it has."""
    config = folder / hugging_face.CONFIG_FILE
    if config.exists():
        fields = read_json(config)
        if preset.is_ours(fields):
            return preset.open_folder(folder)
        if keras_hub.is_keras_hub(fields):
            return keras_hub.open_folder(folder)
        return hugging_face.open_folder(folder)
    release = google_tf1.release_of(folder)
    if release is not None:
        return google_tf1.open_folder(folder, release)
    found = sorted(path.name for path in folder.iterdir())
    raise CheckpointError(
        f"{folder} holds no checkpoint: looked for {hugging_face.CONFIG_FILE} (our own, Hugging "
        "Face's or KerasHub's), bert_config.json, albert_config.json and *.index (the TF1 "
        "releases'); "
        f"found {', '.join(found[:20]) or 'nothing'}."
    )


def load_backbone(
    source: str | os.PathLike[str],
    cls: Callable[..., EncoderT] = registered_backbone,
    load_weights: bool = True,
    packed: bool = False,
    dtype: Any = None,
    **arguments: Any,
) -> EncoderT:
    """An encoder with the weights of a checkpoint.

    Warns with the names of weights that were not found (a pooler) or not used (heads).

    Args:
        source: What `open_checkpoint` takes.
        cls: The encoder's class, by default `keras_bert.Backbone`.
        load_weights: `False` gives the architecture with fresh weights.
        packed: Whether the encoder also takes packed rows.
        dtype: A Keras dtype policy or its name.
        **arguments: Other arguments of `cls`.

    Raises:
        CheckpointError: As `open_checkpoint`, and if the encoder's weights are not all there,
            with the shapes they need.
    """
    checkpoint = open_checkpoint(source, weights=load_weights)
    backbone = checkpoint.new_backbone(
        cls=cls, weights_fit=load_weights, packed=packed, dtype=dtype, **arguments
    )
    if load_weights:
        checkpoint.load_into(backbone)
        checkpoint.warn_unused()
    return backbone
