# SPDX-License-Identifier: Apache-2.0
"""Names that are imported on first use."""

import os
import py_compile
import subprocess
import sys

import pytest

from tests.source_imports import ROOT

pytestmark = pytest.mark.backend_independent


def test_lazy_names_work_without_source_files(tmp_path):
    package = ROOT / "keras_bert"
    names = ("__init__", "lazy", "checks", "config")
    for path in [*(package / f"{name}.py" for name in names), *package.glob("families/*.py")]:
        compiled = tmp_path / path.relative_to(ROOT).with_suffix(".pyc")
        py_compile.compile(str(path), str(compiled), doraise=True)
    code = (
        "import keras_bert; print('BertConfig' in dir(keras_bert), keras_bert.BertConfig.__name__)"
    )
    process = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert process.stdout == "True BertConfig\n", process.stderr
