# SPDX-License-Identifier: Apache-2.0
"""Downloads from the Hugging Face Hub, by the address `hf://organisation/model`."""

from __future__ import annotations

from pathlib import Path

from keras_bert.checkpoints.errors import CheckpointError

SCHEME = "hf://"

# Never "*.bin": those are pickles. The last two are the files of KerasHub's presets.
_SMALL_FILES = ("*.json", "*.txt", "spiece.model", "assets/tokenizer/*")
_WEIGHT_FILES = ("*.safetensors", "model.weights.h5", "task.weights.h5")
# Copies in other formats, which lie in folders.
_IGNORED = ("onnx/*", "openvino/*", "coreml/*")


def download(address: str, *, weights: bool = True) -> Path:
    """Fetches a model's files into Hugging Face's cache, or finds them there.

    Args:
        address: `hf://organisation/model`, or `hf://organisation/model@revision`.
        weights: Whether the weights are wanted too.

    Returns:
        The folder that they lie in.

    Raises:
        CheckpointError: If the files cannot be fetched.
    """
    try:
        import huggingface_hub
        from huggingface_hub.errors import HfHubHTTPError
    except ImportError as error:
        raise CheckpointError(
            f"{address} is fetched by huggingface_hub, which cannot be imported: {error}."
        ) from error
    model, _, revision = address.removeprefix(SCHEME).partition("@")
    patterns = [*_SMALL_FILES, *(_WEIGHT_FILES if weights else ())]
    try:
        folder = huggingface_hub.snapshot_download(
            model,
            revision=revision or None,
            allow_patterns=patterns,
            ignore_patterns=list(_IGNORED),
        )
    # Its errors are OSErrors (no connection, not in the cache), ValueErrors (a malformed name)
    # and this one (no such model, or no access to it).
    except (HfHubHTTPError, OSError, ValueError) as error:
        raise CheckpointError(f"{address} could not be fetched: {error}") from error
    return Path(folder)
