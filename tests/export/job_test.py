# SPDX-License-Identifier: Apache-2.0
"""The child process that exports for JAX and PyTorch."""

import pytest

from keras_bert.export import ExportError
from keras_bert.export.job import run_job_in_child_process

pytestmark = [pytest.mark.needs_tensorflow, pytest.mark.backend_independent]


def test_child_process_error_is_raised(tmp_path, monkeypatch):
    # XLA flags for another backend make TensorFlow exit the process silently.
    monkeypatch.setenv("XLA_FLAGS", "--xla_no_such_flag=1")
    with pytest.raises(ExportError, match=r"FileNotFoundError.*job\.json"):
        run_job_in_child_process(tmp_path)
