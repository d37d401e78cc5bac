# SPDX-License-Identifier: Apache-2.0
"""Entry point of `keras-bert` and `python -m keras_bert`. It calls the command line in `training`.

The commands are not part of the library. A checkout has them in the directory `training`, and an
installation in the package `keras_bert_training`.
"""

import importlib
from pathlib import Path


def main() -> None:
    """Runs the command in the first argument."""
    root = Path(__file__).parent.parent
    is_checkout = (root / "pyproject.toml").exists() and (root / "training").is_dir()
    package = "training" if is_checkout else "keras_bert_training"
    importlib.import_module(f"{package}.command_line").main()


if __name__ == "__main__":
    main()
