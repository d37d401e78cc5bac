# SPDX-License-Identifier: Apache-2.0
"""Checks the dependency rules of the packages, by reading the imports of every file."""

import re
import sys

import pytest

from tests.source_imports import imports_of, source_files

pytestmark = pytest.mark.backend_independent

# A package -> the packages it may import from.
PACKAGES = {
    "__main__": set(),
    "atomic": set(),
    "checks": set(),
    "minilm": set(),
    "migration_hints": set(),
    "tables": set(),
    "intervals": set(),
    "lazy": {"checks"},
    "progress": set(),
    "families": {"checks"},
    "config": {"checks", "families"},
    "ops": set(),
    "losses": {"checks", "ops"},
    "metrics": {"ops"},
    "optimizers": {"checks", "ops"},
    "vocabularies": {"atomic", "checks", "families"},
    "text": {"atomic", "checks", "checkpoints", "families", "progress", "vocabularies"},
    "data": {"atomic", "checks", "text"},
    "layers": {"checks", "config", "ops"},
    "checkpoints": {
        "atomic", "checks", "config", "families", "minilm", "tables", "vocabularies",
    },
    "models": {"atomic", "checks", "config", "ops", "migration_hints", "layers", "checkpoints"},
    "export": {
        "atomic", "checks", "config", "lazy", "ops", "layers", "models", "data", "text",
        "vocabularies",
    },
    "tasks": {
        "checks", "config", "ops", "layers", "models", "checkpoints", "export",
        "text", "data", "losses", "metrics", "optimizers", "migration_hints", "vocabularies",
    },
    "insight": {
        "checks", "config", "intervals", "ops", "layers", "models", "data", "tables", "tasks",
    },
}  # fmt: skip

# A package -> what it may import that is neither the project's nor Python's own.
LIBRARIES = {
    "__main__": set(),
    "atomic": set(),
    "checks": set(),
    "minilm": set(),
    "migration_hints": set(),
    "tables": set(),
    "intervals": {"numpy", "scipy"},
    "lazy": set(),
    "progress": {"tqdm"},
    "families": set(),
    "config": set(),
    "ops": {"keras", "numpy", "tensorflow", "jax", "torch"},
    "losses": {"keras"},
    "metrics": {"keras"},
    "optimizers": {"keras"},
    "vocabularies": set(),
    "text": {"numpy", "sentencepiece", "tensorflow", "tensorflow_text", "tokenizers"},
    # fsspec for URLs, pandas for answers in its frames, pyarrow to decompress and for Parquet
    "data": {
        "charset_normalizer", "fsspec", "numpy", "pandas", "pyarrow", "sentencex", "tensorflow",
    },
    "layers": {"keras"},
    "models": {"keras", "numpy"},  # NumPy to look into ids that come as arrays
    "checkpoints": {"keras", "keras_hub", "huggingface_hub", "numpy", "safetensors", "tensorflow"},
    "export": {
        "keras", "numpy", "tensorflow", "tensorflow_text",
        "nncf", "onnx", "onnxruntime", "openvino", "openvino_tokenizers", "sentencepiece",
        "tensorflow_serving", "tf2onnx",
    },
    "tasks": {"keras", "numpy"},
    "insight": {"keras", "matplotlib", "numpy", "scipy"},
}  # fmt: skip

# What a package may import inside functions alone: tokenizers are used without Keras, which
# checkpoints need.
DEFERRED = {("text", "checkpoints")}

# Importing these must not import TensorFlow: there, it stands inside the function that needs it.
WITHOUT_TENSORFLOW = {
    "atomic", "checks", "families", "config", "vocabularies", "losses", "metrics", "optimizers",
    "layers", "models", "checkpoints", "tasks", "insight",
}  # fmt: skip
# Of these, one package each imports it: the operations of tokenizers, and what `tf.data` needs.
TENSORFLOW_PACKAGES = {"text": "keras_bert.text.graph", "data": "keras_bert.data.tfdata"}


# A folder of `training` -> the folders that it may import from. Modules without a folder are
# programs, which only benchmarks import. Two modules have a place of their own: the base
# of configs, which readers know too, and the loader of recipes, which finds them by name.
FOLDERS = {
    "options": set(),
    "loader": set(),
    "costs": set(),
    "readers": {"options"},
    "scores": {"readers"},
    "plots": {"readers", "scores"},
    "engine": {"options", "loader", "costs", "plots", "readers", "scores"},
    "serving": {"engine", "readers"},
    "jobs": {"options", "loader", "engine", "plots", "readers", "scores"},
    "pretraining": {"options", "costs", "engine", "plots"},
    "programs": {
        "options", "costs", "engine", "jobs", "plots", "pretraining", "readers", "scores",
        "serving",
    },
    "paper": {"options", "costs", "engine", "jobs", "plots", "pretraining", "readers", "scores"},
    "benchmarks": {
        "options", "costs", "engine", "plots", "programs", "readers", "scores", "serving",
    },
}  # fmt: skip
PLACES = {"training.engine.options": "options", "training.paper.recipes": "loader"}


def folder_of(module: str) -> str:
    """The folder of a module of `training`; "programs" for a module without one."""
    folder, _, name = module.removeprefix("training.").partition(".")
    is_package = module in source_files() and source_files()[module].name == "__init__.py"
    return PLACES.get(module, folder if name or is_package else "programs")


def folder_violations(module: str, source: str) -> list[str]:
    """What one file of `training` imports against the rule, as lines to read."""
    own = folder_of(module)
    return [
        f"{module}:{one.line} imports {one.module}: {own} may import {sorted(FOLDERS[own])}"
        for one in imports_of(source, module)
        if one.module.startswith("training.") and folder_of(one.module) not in {own, *FOLDERS[own]}
    ]


def package_of(module: str) -> str | None:
    """The part of `keras_bert` a module lies in; None for the package itself and for others."""
    root, _, rest = module.partition(".")
    return rest.partition(".")[0] if root == "keras_bert" and rest else None


def violations(module: str, source: str) -> list[str]:
    """What one file imports against the rule, as lines to read."""
    package = package_of(module)
    messages = []
    for imported in imports_of(source, module):
        complaint = _complaint(module, package, imported.module, imported.deferred)
        if complaint:
            messages.append(f"{module}:{imported.line} imports {imported.module}: {complaint}")
    return messages


def _complaint(module: str, package: str | None, imported: str, deferred: bool) -> str | None:
    library = imported.partition(".")[0]
    if library in ("training", "tests"):
        return f"keras_bert must not import {library}"
    if library in sys.stdlib_module_names:
        return "pickle executes what it loads" if library in ("pickle", "shelve") else None
    if package is None:
        return None if library == "keras_bert" else "keras_bert/__init__.py holds names alone"
    if library == "keras_bert":
        return _package_complaint(package, package_of(imported), deferred)
    if library not in LIBRARIES[package]:
        return f"{package} may import {sorted(LIBRARIES[package])} of other libraries"
    own = TENSORFLOW_PACKAGES.get(package, "")
    if library.startswith("tensorflow") and not module.startswith(own):
        return f"text is Python and NumPy; TensorFlow is for {own} alone"
    if library.startswith("tensorflow") and package in WITHOUT_TENSORFLOW and not deferred:
        return f"{package} is imported where TensorFlow is missing; import it inside a function"
    return None


def _package_complaint(package: str, other: str | None, deferred: bool) -> str | None:
    if (package, other) in DEFERRED and not deferred:
        return f"{package} is used without {other}; import it inside a function"
    if other == package or other in PACKAGES[package]:
        return None
    return f"{package} may import {sorted(PACKAGES[package])} of the project"


# The private parts of a library are named only in one module of `ops`.
_PRIVATE = re.compile(r"\b(keras|tensorflow|jax|torch)(\.src|\.python|\._[a-z])")


def private_parts(module: str, source: str) -> list[str]:
    """The lines of a file that name a private part outside the module for it, as lines to read."""
    return [
        f"{module}:{number} names a private part of {found[1]}: only keras_bert.ops."
        f"{found[1]}_private does"
        for number, line in enumerate(source.splitlines(), 1)
        for found in _PRIVATE.finditer(line)
        if module != f"keras_bert.ops.{found[1]}_private"
    ]


PACKAGE_FILES = {
    module: path for module, path in source_files().items() if module.startswith("keras_bert")
}
PROGRAM_FILES = {
    module: path for module, path in source_files().items() if module.startswith("training")
}


@pytest.mark.parametrize("module", PACKAGE_FILES)
def test_imports_keep_the_rule(module):
    assert violations(module, PACKAGE_FILES[module].read_text()) == []


def test_private_parts_of_libraries_are_behind_one_module():
    files = (PACKAGE_FILES | PROGRAM_FILES).items()
    found = [line for module, path in files for line in private_parts(module, path.read_text())]
    assert found == []
    source = "from keras.src import losses\ntorch._foreach_norm(x)\nimport jax._src.lib"
    assert len(private_parts("keras_bert.ops.keras_private", source)) == 2


def test_every_package_of_the_tree_has_a_rule():
    packages = {package_of(module) for module in PACKAGE_FILES} - {None}
    assert packages <= PACKAGES.keys()
    assert PACKAGES.keys() == LIBRARIES.keys()


def test_programs_name_one_another_relatively():
    """In a wheel their package is `keras_bert_training`: `training` is there for others."""
    for module, path in PROGRAM_FILES.items():
        imports = re.findall(r"^\s*(?:from|import) training\b.*", path.read_text(), re.M)
        assert imports == [], module


def test_folders_of_programs_keep_the_rule():
    messages = [
        line
        for module, path in PROGRAM_FILES.items()
        if module != "training"
        for line in folder_violations(module, path.read_text())
    ]
    assert messages == []


def cycle_in(graph: dict[str, set[str]]) -> set[str]:
    """The nodes of a graph that lie on a cycle or between two; none if it has no cycle."""
    remaining = {node: set(others) & graph.keys() - {node} for node, others in graph.items()}
    while True:
        others = set().union(*remaining.values())
        # What imports nothing that is left, and what nothing that is left imports
        free = [node for node in remaining if not remaining[node] or node not in others]
        if not free:
            return set(remaining)
        remaining = {
            node: targets - set(free) for node, targets in remaining.items() if node not in free
        }


def test_the_rule_has_no_cycle():
    assert cycle_in(PACKAGES) == set()
    assert cycle_in(FOLDERS) == set()


def test_no_modules_import_each_other():
    # At import time, inside functions and under TYPE_CHECKING
    graph = {
        module: {imported.module for imported in imports_of(path.read_text(), module)}
        for module, path in (PACKAGE_FILES | PROGRAM_FILES).items()
    }
    assert sorted(cycle_in(graph)) == []


@pytest.mark.parametrize(
    ("module", "source", "complaint"),
    [
        (
            "keras_bert.models.spy",
            "from keras_bert.data import batching",
            "models may import",
        ),
        (
            "keras_bert.checkpoints.spy",
            "def f():\n    from ..models import x",
            "checkpoints may import",
        ),
        ("keras_bert.layers.spy", "def f():\n    import tensorflow as tf", "layers may import"),
        ("keras_bert.text.spy", "import keras", "text may import"),
        ("keras_bert.text.spy", "from keras_bert import checkpoints", "inside a function"),
        ("keras_bert.checkpoints.spy", "import tensorflow", "inside a function"),
        ("keras_bert.tasks.spy", "def f():\n    import training", "must not import training"),
        (
            "keras_bert.tasks.spy",
            "import importlib\nimportlib.import_module('jax')",
            "tasks may import",
        ),
        ("keras_bert.checkpoints.spy", "import pickle", "executes"),
        ("keras_bert", "import keras", "names alone"),
    ],
)
def test_a_violation_is_found(module, source, complaint):
    messages = violations(module, source)
    assert len(messages) == 1
    assert complaint in messages[0]
