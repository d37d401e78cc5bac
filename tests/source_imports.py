# SPDX-License-Identifier: Apache-2.0
"""Finds the modules that a source file imports, without importing it."""

import ast
import functools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE_DIRECTORIES = ("keras_bert", "training", "docs", "tests")
# Scripts of pages, which are not imported
PAGE_DIRECTORIES = ("docs/guides", "docs/extend", "docs/measurements")
IMPORTING_CALLS = ("import_module", "importorskip")


@dataclass(frozen=True)
class Import:
    """An import.

    Attributes:
        module: Absolute dotted name. For modules of this project, the name of the file.
        line: The line number.
        deferred: Whether importing the file skips it, because it is inside a function, under
            `TYPE_CHECKING` or with `lazy_imports`.
    """

    module: str
    line: int
    deferred: bool


@functools.cache
def source_files() -> dict[str, Path]:
    """Returns all Python files of the project by their dotted module names."""
    paths = [ROOT / "conftest.py", ROOT / "noxfile.py"]
    for directory in SOURCE_DIRECTORIES:
        paths += sorted((ROOT / directory).rglob("*.py"))
    pages = {path for directory in PAGE_DIRECTORIES for path in (ROOT / directory).glob("*.py")}
    paths = [path for path in paths if path not in pages]
    return {module_name(path.relative_to(ROOT)): path for path in paths}


def module_name(path: Path) -> str:
    """Converts a path to a name, such as `keras_bert/text/__init__.py` to `keras_bert.text`."""
    parts = path.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@functools.cache
def find_imports(source: str, module: str) -> list[Import]:
    """Returns the imports in a file, including imports inside functions.

    Args:
        source: The file's text.
        module: The file's dotted name, for relative imports.
    """
    # The known modules distinguish `from package import module` from `from module import name`.
    modules = source_files()
    is_package = module in modules and modules[module].name == "__init__.py"
    package = module if is_package else module.rpartition(".")[0]
    tree = ast.parse(source)
    return [
        Import(name, node.lineno, deferred)
        for node, deferred in _walk(tree, deferred=False)
        for name in _imported_names(node, package, modules)
    ]


def _walk(node: ast.AST, deferred: bool) -> Iterator[tuple[ast.AST, bool]]:
    for child in ast.iter_child_nodes(node):
        yield child, deferred
        yield from _walk(child, deferred or _defers(child))


def _defers(node: ast.AST) -> bool:
    if isinstance(node, ast.If):
        return ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING")
    if isinstance(node, ast.With):
        return "lazy_imports" in ast.unparse(node.items[0])
    return isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)


def _imported_names(node: ast.AST, package: str, modules: dict[str, Path]) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        base = _absolute(node, package)
        submodules = [f"{base}.{alias.name}" for alias in node.names]
        return sorted({name if name in modules else base for name in submodules})
    if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(IMPORTING_CALLS):
        return [arg.value for arg in node.args[:1] if isinstance(arg, ast.Constant)]
    return []


def _absolute(node: ast.ImportFrom, package: str) -> str:
    if not node.level:
        return node.module or ""
    parents = package.split(".")
    base = parents[: len(parents) - node.level + 1]
    return ".".join([*base, *([node.module] if node.module else [])])
