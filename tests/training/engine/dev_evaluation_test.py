# SPDX-License-Identifier: Apache-2.0
"""Checkpoints include the energy used before the run was resumed."""

import pytest

from training.costs.energy import Energy
from training.engine.dev_evaluation import DevEvaluation

pytestmark = pytest.mark.backend_independent


def test_energy_is_none_unless_always_metered():
    def meter():
        return Energy(2.0, 1.0, True)

    first = DevEvaluation(None, None, meter)
    state = first.state()
    assert state["energy"] == (2.0, 1.0, True)
    resumed = DevEvaluation(None, None, meter)
    resumed.restore(state)
    assert resumed.energy_so_far() == (4.0, 2.0, True)
    for before, after in ((meter, None), (None, meter)):
        resumed = DevEvaluation(None, None, after)
        resumed.restore(DevEvaluation(None, None, before).state())
        assert resumed.energy_so_far() is None
