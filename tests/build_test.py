# SPDX-License-Identifier: Apache-2.0
"""Compares BUILD with the source tree: every file is in a target, and `deps` match the imports."""

import functools
from collections import Counter

import pytest

import noxfile
from tests import build_file
from tests.build_file import BUILD, ROOT, libraries, read_targets
from tests.source_imports import source_files

pytestmark = pytest.mark.backend_independent

# Declared in pyproject.toml but not imported: commands, and dependencies of libraries.
NOT_IMPORTED = {
    "accelerate",  # transformers imports it
    "hatchling",  # a test runs it
    "babel",  # in docs/guides
    "mkdocs-material",  # named in mkdocs.yml
    "mkdocstrings-python",
    "mypy",
    "pytest-xdist",
    "ruff",
    "tensorboard",  # keras.callbacks.TensorBoard on every backend
}


@pytest.fixture(scope="module")
def targets():
    return read_targets(BUILD.read_text())


def test_each_file_is_in_exactly_one_target(targets):
    source_counts = Counter(
        source for target in targets if target.rule != "py_binary" for source in target.srcs
    )
    files = {str(path.relative_to(ROOT)) for path in source_files().values()}
    assert sorted(files ^ source_counts.keys()) == []
    assert [source for source, times in source_counts.items() if times > 1] == []


def test_library_deps_match_imports(targets):
    deps = build_file.expected_deps(targets)
    assert {target.name: target.deps for target in libraries(targets)} == {
        target.name: deps[target.name] for target in libraries(targets)
    }, "`python -m tests.build_file` writes them."


def test_test_and_binary_deps_cover_imports(targets):
    deps_by_label = {f":{target.name}": set(target.deps) for target in targets}
    deps = build_file.expected_deps(targets)

    @functools.cache
    def collect_deps(label):
        return {label}.union(*(collect_deps(dep) for dep in deps_by_label.get(label, ())))

    for target in targets:
        if target.rule != "py_library":
            lacking = set(deps[target.name]) - collect_deps(f":{target.name}")
            assert not lacking, f"{target.name} lacks {sorted(lacking)}"


def test_libraries_match_pyproject(targets):
    declared = build_file.declared_distributions() - NOT_IMPORTED
    used = build_file.used_distributions(targets)
    differences = {"undeclared": sorted(used - declared), "unused": sorted(declared - used)}
    assert differences == {"undeclared": [], "unused": []}


def test_declared_libraries_are_pinned_for_tests():
    lines = (ROOT / "requirements-test.txt").read_text().splitlines()
    pinned = {line.split("==")[0] for line in [*lines, noxfile.BEAM] if "==" in line}
    assert sorted(build_file.declared_distributions() - pinned) == []


def test_release_installs_each_extra_separately():
    extras = {extra for names in noxfile.INSTALLED for extra in names.split(",") if extra}
    # The test suite runs with `test` installed.
    assert extras == build_file.declared_extras() - {"test"}
