# SPDX-License-Identifier: Apache-2.0
"""Checks the dependency rules of the packages, by reading the imports of every file."""

import re
import sys

import pytest

from tests.source_imports import find_imports, source_files

pytestmark = pytest.mark.backend_independent

# For each package, the packages it may import from
PACKAGES = {
    "__main__": set(),
    "atomic": set(),
    "checks": set(),
    "minilm": set(),
    "migration_hints": set(),
    "tables": set(),
    "intervals": {"checks"},
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
        "atomic", "checks", "checkpoints", "config", "lazy", "ops", "layers", "models", "data",
        "text", "vocabularies",
    },
    "tasks": {
        "checks", "config", "ops", "layers", "models", "checkpoints", "export",
        "text", "data", "losses", "metrics", "optimizers", "migration_hints", "progress",
        "vocabularies",
    },
    "insight": {
        "checks", "config", "intervals", "ops", "layers", "models", "data", "tables", "tasks",
        "text",
    },
    "search": {"atomic", "checks", "data", "insight", "progress", "text"},
}  # fmt: skip

# For each package, the third-party libraries it may import
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
    # fsspec for URLs, pandas for predictions in data frames, pyarrow for compression and Parquet,
    # scipy for token pooling
    "data": {
        "charset_normalizer", "fsspec", "numpy", "pandas", "pyarrow", "scipy", "sentencex",
        "tensorflow",
    },
    "layers": {"keras"},
    "models": {"keras", "numpy"},  # NumPy to check ids in arrays
    "checkpoints": {
        "keras", "keras_hub", "huggingface_hub", "numpy", "safetensors", "tensorflow", "tokenizers",
    },
    "export": {
        "flatbuffers", "keras", "numpy", "tensorflow", "tensorflow_text",
        "nncf", "onnx", "onnxruntime", "openvino", "openvino_tokenizers", "sentencepiece",
        "tensorflow_serving", "tf2onnx",
    },
    "tasks": {"keras", "numpy", "scipy"},
    "insight": {"keras", "matplotlib", "numpy", "scipy"},
    "search": {
        "inscriptis", "lxml", "markdown_it", "numpy", "pypdf", "scipy", "tantivy", "usearch",
    },
}  # fmt: skip

# Imports that are allowed only inside functions. Tokenizers are used without Keras, but checkpoints
# need Keras.
DEFERRED = {("text", "checkpoints")}

# Importing these packages must not import TensorFlow. They import it inside functions.
WITHOUT_TENSORFLOW = {
    "atomic", "checks", "families", "config", "vocabularies", "losses", "metrics", "optimizers",
    "layers", "models", "checkpoints", "tasks", "insight", "search",
}  # fmt: skip
# In each of these packages, only one subpackage imports TensorFlow: for tokenizer operations, and
# for `tf.data`.
TENSORFLOW_PACKAGES = {"text": "keras_bert.text.graph", "data": "keras_bert.data.tfdata"}


# For each directory of `training`, the directories it may import from. Modules without a directory
# are commands, which only benchmarks import. Two modules have separate entries: the base of
# configs, which readers also use, and the loader of recipes, which finds them by name.
DIRECTORIES = {
    "options": set(),
    "loader": set(),
    "costs": set(),
    "readers": {"options"},
    "scores": {"readers"},
    "plots": {"readers", "scores"},
    "engine": {"options", "loader", "costs", "plots", "readers", "scores"},
    "serving": {"options", "engine", "readers"},
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


def find_directory(module: str) -> str:
    """Returns the directory of a `training` module, or "programs" for a module without one."""
    directory, _, name = module.removeprefix("training.").partition(".")
    is_package = module in source_files() and source_files()[module].name == "__init__.py"
    return PLACES.get(module, directory if name or is_package else "programs")


def find_directory_violations(module: str, source: str) -> list[str]:
    """Lists the imports in a `training` file that violate the rules."""
    own = find_directory(module)
    return [
        f"{module}:{imported.line} imports {imported.module}: "
        f"{own} may import {sorted(DIRECTORIES[own])}"
        for imported in find_imports(source, module)
        if imported.module.startswith("training.")
        and find_directory(imported.module) not in {own, *DIRECTORIES[own]}
    ]


def find_package(module: str) -> str | None:
    """Returns the part of `keras_bert` that contains a module, or `None` for other modules."""
    root, _, rest = module.partition(".")
    return rest.partition(".")[0] if root == "keras_bert" and rest else None


def find_violations(module: str, source: str) -> list[str]:
    """Lists the imports in a file that violate the rules."""
    package = find_package(module)
    messages = []
    for imported in find_imports(source, module):
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
        return None if library == "keras_bert" else "keras_bert/__init__.py may only define names"
    if library == "keras_bert":
        return _package_complaint(package, find_package(imported), deferred)
    if library not in LIBRARIES[package]:
        return f"{package} may import {sorted(LIBRARIES[package])} of other libraries"
    own = TENSORFLOW_PACKAGES.get(package, "")
    if library.startswith("tensorflow") and not module.startswith(own):
        return f"text is Python and NumPy; only {own} may import TensorFlow"
    if library.startswith("tensorflow") and package in WITHOUT_TENSORFLOW and not deferred:
        return f"{package} is imported where TensorFlow is missing; import it inside a function"
    return None


def _package_complaint(package: str, other: str | None, deferred: bool) -> str | None:
    if (package, other) in DEFERRED and not deferred:
        return f"{package} is used without {other}; import it inside a function"
    if other == package or other in PACKAGES[package]:
        return None
    return f"{package} may import {sorted(PACKAGES[package])} of the project"


# Only one module in `ops` may use the private parts of a library.
_PRIVATE = re.compile(r"\b(keras|tensorflow|jax|torch)(\.src|\.python|\._[a-z])")


def find_private_parts(module: str, source: str) -> list[str]:
    """Lists the lines in a file that use private parts outside the module for them."""
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
def test_package_imports_follow_the_rules(module):
    assert find_violations(module, PACKAGE_FILES[module].read_text()) == []


def test_private_parts_are_used_in_one_module():
    files = (PACKAGE_FILES | PROGRAM_FILES).items()
    found = [
        line for module, path in files for line in find_private_parts(module, path.read_text())
    ]
    assert found == []
    source = "from keras.src import losses\ntorch._foreach_norm(x)\nimport jax._src.lib"
    assert len(find_private_parts("keras_bert.ops.keras_private", source)) == 2


def test_every_package_has_a_rule():
    packages = {find_package(module) for module in PACKAGE_FILES} - {None}
    assert packages <= PACKAGES.keys()
    assert PACKAGES.keys() == LIBRARIES.keys()


def test_training_uses_relative_imports():
    """In a wheel, the package is `keras_bert_training`. `training` may be a different package."""
    for module, path in PROGRAM_FILES.items():
        imports = re.findall(r"^\s*(?:from|import) training\b.*", path.read_text(), re.M)
        assert imports == [], module


def test_training_imports_follow_the_rules():
    messages = [
        line
        for module, path in PROGRAM_FILES.items()
        if module != "training"
        for line in find_directory_violations(module, path.read_text())
    ]
    assert messages == []


def find_cycle(graph: dict[str, set[str]]) -> set[str]:
    """Returns the nodes on or between cycles of a graph. Without cycles, there are none."""
    remaining = {node: set(others) & graph.keys() - {node} for node, others in graph.items()}
    while True:
        others = set().union(*remaining.values())
        # Nodes without remaining imports, and nodes that no remaining node imports
        free = [node for node in remaining if not remaining[node] or node not in others]
        if not free:
            return set(remaining)
        remaining = {
            node: targets - set(free) for node, targets in remaining.items() if node not in free
        }


def test_rules_have_no_cycle():
    assert find_cycle(PACKAGES) == set()
    assert find_cycle(DIRECTORIES) == set()


def test_modules_have_no_import_cycle():
    # Including imports inside functions and under TYPE_CHECKING
    graph = {
        module: {imported.module for imported in find_imports(path.read_text(), module)}
        for module, path in (PACKAGE_FILES | PROGRAM_FILES).items()
    }
    assert sorted(find_cycle(graph)) == []


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
        ("keras_bert", "import keras", "may only define names"),
    ],
)
def test_violations_are_found(module, source, complaint):
    messages = find_violations(module, source)
    assert len(messages) == 1
    assert complaint in messages[0]
