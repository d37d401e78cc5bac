# SPDX-License-Identifier: Apache-2.0
"""Holds BUILD to the tree: every file in one target, `deps` as the imports are."""

from collections import Counter

import pytest

from tests import build_file
from tests.build_file import BUILD, ROOT, Target, read_targets
from tests.source_imports import source_files

pytestmark = pytest.mark.backend_independent

# Declared in pyproject.toml, imported by no file: commands, and what a library needs beside itself.
NOT_IMPORTED = {
    "mypy",
    "ruff",
    "tensorboard",  # keras.callbacks.TensorBoard on every backend
}


@pytest.fixture(scope="module")
def targets() -> list[Target]:
    return read_targets(BUILD.read_text())


def test_every_file_is_in_exactly_one_target(targets):
    held = Counter(source for target in targets for source in target.srcs)
    files = {str(path.relative_to(ROOT)) for path in source_files().values()}
    twice = sorted(source for source, times in held.items() if times > 1)
    assert {"missing": sorted(files - held.keys()), "gone": sorted(held.keys() - files)} == {
        "missing": [],
        "gone": [],
    }
    assert twice == []


def test_no_target_is_empty_and_no_name_is_taken_twice(targets):
    assert [target.name for target in targets if not target.srcs] == []
    names = Counter(target.name for target in targets)
    assert [name for name, times in names.items() if times > 1] == []


def test_deps_are_the_imports(targets):
    stanzas = [new or f"# gone:\n{old}" for old, new in build_file.corrections(targets)]
    assert not stanzas, "BUILD should say:\n\n" + "\n\n".join(stanzas)


def test_deps_have_no_cycle(targets):
    remaining = {f":{target.name}": set(target.deps) for target in targets}
    while remaining:
        free = [label for label, deps in remaining.items() if not deps & remaining.keys()]
        assert free, f"these targets depend on each other: {sorted(remaining)}"
        for label in free:
            del remaining[label]


def test_programs_and_tests_are_declared_as_such(targets):
    rules = {target.srcs[0]: target.rule for target in targets if len(target.srcs) == 1}
    expected = {path: build_file.rule_for(path) for path in rules if (ROOT / path).exists()}
    assert {path: rules[path] for path in expected} == expected


def test_each_test_target_runs_pytest_on_its_file(targets):
    for target in targets:
        if target.rule == "py_test":
            assert len(target.srcs) == 1
            assert target.attributes["main_module"] == "pytest"
            assert tuple(target.attributes["args"]) == target.srcs


def test_library_names_are_those_of_pyproject(targets):
    declared = build_file.declared_distributions() - NOT_IMPORTED
    used = build_file.used_distributions(targets)
    differences = {"undeclared": sorted(used - declared), "unused": sorted(declared - used)}
    assert differences == {"undeclared": [], "unused": []}


def test_every_declared_library_is_pinned_for_the_tests():
    lines = (ROOT / "requirements-test.txt").read_text().splitlines()
    pinned = {line.split("==")[0] for line in lines if "==" in line}
    assert sorted(build_file.declared_distributions() - pinned) == []


def test_a_wrong_dep_is_found_and_the_stanza_mended():
    name, source = "keras_bert_named_sizes", "keras_bert/named_sizes.py"
    text = f'py_library(\n    name = "{name}",\n    srcs = ["{source}"],\n'
    (wrong,) = read_targets(f'{text}    deps = [requirement("torch")],\n)\n')
    owners = build_file.owners_of([wrong])
    mended = build_file.stanza(wrong, build_file.expected_deps(wrong, owners))
    assert mended == f"{text}    deps = [],\n)"
    assert build_file.corrections([wrong])[0] == (wrong.source, mended)


def test_a_file_left_out_gets_a_stanza():
    targets = read_targets(BUILD.read_text())
    kept = [target for target in targets if target.name != "build_test"]
    added = [stanza for old, stanza in build_file.corrections(kept) if not old]
    (target,) = [target for target in read_targets("\n".join(added)) if target.name == "build_test"]
    assert target.srcs == ("tests/build_test.py",)
    assert ":build_file" in target.deps
