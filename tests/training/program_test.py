# SPDX-License-Identifier: Apache-2.0
"""How programs meet their users."""

import subprocess
import sys

import pytest
from absl import app

from training import program

pytestmark = pytest.mark.backend_independent


def test_what_is_no_flag_is_refused_by_name():
    program.refuse_arguments(["finetune.py"])
    with pytest.raises(app.UsageError, match=r"received \['reviews.tsv'\]"):
        program.refuse_arguments(["finetune.py", "reviews.tsv"])


@pytest.mark.parametrize(
    "error", [FileNotFoundError("no dev.tsv"), ValueError("no dev.tsv"), ImportError("no dev.tsv")]
)
def test_what_a_user_can_mend_ends_in_a_line(error):
    with pytest.raises(SystemExit, match=r"^error: no dev\.tsv$"), program.plain_errors():
        raise error


def test_a_program_that_failed_within_is_named():
    command = [sys.executable, "-c", "1/0"]
    with pytest.raises(SystemExit, match=r"^error: -c 1/0 failed"), program.plain_errors():
        subprocess.run(command, check=True, stderr=subprocess.DEVNULL)


def test_an_error_of_the_code_keeps_its_traceback():
    with pytest.raises(ZeroDivisionError), program.plain_errors():
        raise ZeroDivisionError
