# SPDX-License-Identifier: Apache-2.0
"""Makes TensorFlow appear not to be installed, as on many GPU machines."""

import sys
from importlib.machinery import ModuleSpec, PathFinder

BLOCKED = {"tensorflow", "tensorflow_text"}


class PathFinderWithoutTensorFlow(PathFinder):
    """Finds what `PathFinder` finds, but for TensorFlow.

    A finder that raised would answer `importlib.util.find_spec` with an error, where a machine
    without TensorFlow answers `None`.
    """

    @classmethod
    def find_spec(cls, fullname, path=None, target=None) -> ModuleSpec | None:  # type: ignore[no-untyped-def,override]
        if fullname.partition(".")[0] in BLOCKED:
            return None
        return super().find_spec(fullname, path, target)


def install() -> None:
    """Blocks TensorFlow in this process.

    Raises:
        RuntimeError: TensorFlow is already imported, and an import of it would be answered.
    """
    imported = sorted(BLOCKED & sys.modules.keys())
    if imported:
        raise RuntimeError(f"Block TensorFlow before anything imports it; found {imported}.")
    sys.meta_path[sys.meta_path.index(PathFinder)] = PathFinderWithoutTensorFlow
