# SPDX-License-Identifier: Apache-2.0
"""Makes TensorFlow appear not to be installed, as on many GPU machines."""

import sys
from importlib.machinery import ModuleSpec, PathFinder

BLOCKED = {"tensorflow", "tensorflow_text"}


class PathFinderWithoutTensorFlow(PathFinder):
    """Finds the same modules as `PathFinder`, except for TensorFlow.

    If a finder raised an error, `importlib.util.find_spec` would also raise it. Without
    TensorFlow, it returns `None`.
    """

    @classmethod
    def find_spec(cls, fullname, path=None, target=None) -> ModuleSpec | None:  # type: ignore[no-untyped-def,override]
        if fullname.partition(".")[0] in BLOCKED:
            return None
        return super().find_spec(fullname, path, target)


def install() -> None:
    """Blocks TensorFlow in this process.

    Raises:
        RuntimeError: If TensorFlow is already imported.
    """
    imported = sorted(BLOCKED & sys.modules.keys())
    if imported:
        raise RuntimeError(f"Block TensorFlow before anything imports it; found {imported}.")
    sys.meta_path[sys.meta_path.index(PathFinder)] = PathFinderWithoutTensorFlow
