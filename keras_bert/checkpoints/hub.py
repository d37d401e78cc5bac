# SPDX-License-Identifier: Apache-2.0
"""Downloads from and uploads to the Hugging Face Hub, by Hub ID (`hf://organization/model`)."""

from __future__ import annotations

from pathlib import Path

from keras_bert.checkpoints.errors import CheckpointError

SCHEME = "hf://"

# "*.bin" is not included, because these files are pickles. The .h5 files are in KerasHub presets.
_SMALL_FILES = ("*.json", "*.txt", "*.model", "assets/tokenizer/*")
_WEIGHT_FILES = ("*.safetensors", "model.weights.h5", "task.weights.h5")
# Directories with copies in other formats
_IGNORED = ("onnx/*", "openvino/*", "coreml/*")


def download(uri: str, *, weights: bool = True) -> Path:
    """Downloads a model's files to Hugging Face's cache, unless they are already there.

    The Hub ID is `hf://organization/model`, or `hf://organization/model@revision`.
    """
    try:
        import huggingface_hub
        from huggingface_hub.errors import HfHubHTTPError
    except ImportError as error:
        raise CheckpointError(
            f"Downloading {uri} requires huggingface_hub, but importing it failed: {error}."
        ) from error
    model, _, revision = uri.removeprefix(SCHEME).partition("@")
    patterns = [*_SMALL_FILES, *(_WEIGHT_FILES if weights else ())]
    try:
        directory = huggingface_hub.snapshot_download(
            model,
            revision=revision or None,
            allow_patterns=patterns,
            ignore_patterns=list(_IGNORED),
        )
    # An OSError means that there is no connection and the model is not cached, a ValueError that
    # the name is invalid, and an HfHubHTTPError that the model does not exist or is not accessible.
    except (HfHubHTTPError, OSError, ValueError) as error:
        reason = " ".join(str(error).split())
        # `from error` would show hundreds of lines of the client's traceback.
        raise CheckpointError(f"{uri} could not be downloaded: {reason}") from None
    return Path(directory)


def upload(
    directory: Path, uri: str, *, private: bool = False, message: str = "Upload a model"
) -> str:
    """Uploads the files in a directory to a model on the Hub. A new model is created if needed.

    The account is taken from `hf auth login` or from the environment variable `HF_TOKEN`. Returns
    the commit's URL.
    """
    import huggingface_hub
    from huggingface_hub.errors import HfHubHTTPError

    model = uri.removeprefix(SCHEME)
    try:
        huggingface_hub.create_repo(model, private=private, exist_ok=True)
        commit = huggingface_hub.upload_folder(
            repo_id=model, folder_path=directory, commit_message=message
        )
    # An OSError means that there is no connection, and a ValueError that the name is invalid or
    # there is no account.
    except (HfHubHTTPError, OSError, ValueError) as error:
        reason = " ".join(str(error).split())
        # The message does not contain the directory, because it may be a temporary directory.
        raise CheckpointError(f"The model could not be uploaded to {model}: {reason}") from None
    return str(commit)
