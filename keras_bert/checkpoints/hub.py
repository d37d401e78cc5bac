# SPDX-License-Identifier: Apache-2.0
"""Downloads from and uploads to the Hugging Face Hub, by addresses `hf://organization/model`."""

from __future__ import annotations

from pathlib import Path

from keras_bert.checkpoints.errors import CheckpointError

SCHEME = "hf://"

# Never "*.bin": those are pickles. The last two are files of KerasHub presets.
_SMALL_FILES = ("*.json", "*.txt", "*.model", "assets/tokenizer/*")
_WEIGHT_FILES = ("*.safetensors", "model.weights.h5", "task.weights.h5")
# Folders with copies in other formats.
_IGNORED = ("onnx/*", "openvino/*", "coreml/*")


def download(uri: str, *, weights: bool = True) -> Path:
    """Downloads the files of a model to Hugging Face's cache, unless they are there already.

    The address is `hf://organization/model`, or `hf://organization/model@revision`.
    """
    try:
        import huggingface_hub
        from huggingface_hub.errors import HfHubHTTPError
    except ImportError as error:
        raise CheckpointError(
            f"{uri} is downloaded by huggingface_hub, which cannot be imported: {error}."
        ) from error
    model, _, revision = uri.removeprefix(SCHEME).partition("@")
    patterns = [*_SMALL_FILES, *(_WEIGHT_FILES if weights else ())]
    try:
        folder = huggingface_hub.snapshot_download(
            model,
            revision=revision or None,
            allow_patterns=patterns,
            ignore_patterns=list(_IGNORED),
        )
    # OSError: no connection and not in the cache. ValueError: a malformed name. HfHubHTTPError: no
    # such model, or no access to it.
    except (HfHubHTTPError, OSError, ValueError) as error:
        reason = " ".join(str(error).split())
        # Not `from error`: the client's traceback is hundreds of lines.
        raise CheckpointError(f"{uri} could not be downloaded: {reason}") from None
    return Path(folder)


def upload(
    folder: Path, uri: str, *, private: bool = False, message: str = "Upload a model"
) -> str:
    """Uploads the files of a folder to a model on the Hub, which is created if it does not exist.

    The account is the one of `hf auth login`, or of the environment variable `HF_TOKEN`. Returns
    the web address of the commit.
    """
    import huggingface_hub
    from huggingface_hub.errors import HfHubHTTPError

    model = uri.removeprefix(SCHEME)
    try:
        huggingface_hub.create_repo(model, private=private, exist_ok=True)
        commit = huggingface_hub.upload_folder(
            repo_id=model, folder_path=folder, commit_message=message
        )
    # OSError: no connection. ValueError: a malformed name, or no account.
    except (HfHubHTTPError, OSError, ValueError) as error:
        reason = " ".join(str(error).split())
        # (The folder may be a temporary one.)
        raise CheckpointError(f"The model could not be uploaded to {model}: {reason}") from None
    return str(commit)
