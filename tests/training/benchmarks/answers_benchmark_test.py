# SPDX-License-Identifier: Apache-2.0
import pytest

pytest.importorskip("tensorflow")

from training.benchmarks import answers

pytestmark = [pytest.mark.needs_tensorflow, pytest.mark.backend_independent]


def test_every_question_has_spans():
    results = answers.run(rounds=2, num_questions=50)
    assert 50 <= results["windows"] < 60
    assert results["spans"] > 20 * 50
    assert 0 < results["slowest"] <= results["questions_per_second"] <= results["fastest"]
