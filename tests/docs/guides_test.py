# SPDX-License-Identifier: Apache-2.0
"""Runs the guide scripts at a small size, and checks that pages and notebooks are current."""

import importlib.util

import keras
import nbformat
import pytest

from tests.docs import pages

pytestmark = [pytest.mark.on_torch, pytest.mark.slow]

_SPEC = importlib.util.spec_from_file_location("run_guides", pages.DOCS / "run_guides.py")
guides = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(guides)
# These guides use different parts of the library. The others run before a release, on TensorFlow,
# because their pages have outputs on TensorFlow and some use its exports.
ON_TORCH = ("guides/classify", "guides/pretrain")
ON_TENSORFLOW = [pytest.mark.needs_tensorflow, pytest.mark.on_tensorflow]
MARKS = {**dict.fromkeys(ON_TORCH, ()), "extend/new_task": ON_TENSORFLOW}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=MARKS.get(name, [*ON_TENSORFLOW, pytest.mark.release]))
        for name in guides.names()
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_guide_script_runs(name):
    policy = keras.config.dtype_policy()
    try:
        guides.run_here(name, small=True)
    finally:
        keras.config.set_dtype_policy(policy)


@pytest.mark.parametrize("name", guides.names())
def test_page_matches_guide_script(name):
    page = (guides.DOCS / f"{name}.md").read_text(encoding="utf-8")
    assert guides.without_outputs(page) == guides.without_outputs(
        guides.render_page(name, {}, guides.run_stamp(name, 0))
    )
    # The comparison ignores outputs, so check that the page has some.
    assert "```text\n" in page


@pytest.mark.parametrize("name", guides.NOTEBOOKS)
def test_notebook_matches_page(name):
    path = guides.DOCS / f"{name}.ipynb"
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    page = (guides.DOCS / f"{name}.md").read_text(encoding="utf-8")
    assert [cell.source for cell in notebook.cells] == [
        cell.source for cell in guides.read_cells(name)
    ]
    outputs = [
        output.text.rstrip() for cell in notebook.cells for output in cell.get("outputs", ())
    ]
    assert len(outputs) > 3
    assert all(f"```text\n{text}\n```" in page for text in outputs)
