# SPDX-License-Identifier: Apache-2.0
"""The command `keras-bert`, also `python -m keras_bert`: hands over to the programs.

They are no part of the library: in a checkout they are the folder `training` beside it, and where
this is installed the package `keras_bert_training`.
"""

import importlib
from pathlib import Path


def main() -> None:
    """Runs the command that the first argument names."""
    root = Path(__file__).parent.parent
    is_checkout = (root / "pyproject.toml").exists() and (root / "training").is_dir()
    package = "training" if is_checkout else "keras_bert_training"
    importlib.import_module(f"{package}.command_line").main()


if __name__ == "__main__":
    main()
