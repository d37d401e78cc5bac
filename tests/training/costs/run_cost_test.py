# SPDX-License-Identifier: Apache-2.0

import pytest

from training.costs.energy import Energy
from training.costs.run_cost import cost_record, describe

pytestmark = pytest.mark.backend_independent


def test_unknown_costs_are_omitted():
    assert cost_record(1800, None, None, "FRA", 0.0) == {"hours": 0.5}
    assert describe(cost_record(1800, None, None, "FRA", 0.0)) == ""
    record = cost_record(7200, 4e18, Energy(0.5, 0.02, True), "FRA", 1.5)
    assert record == {
        "hours": 2.0,
        "training_flops": 4e18,
        "energy_kwh": 0.5,
        "energy_is": "measured",
        "co2_kg": 0.02,
        "country": "FRA",
        "cost": 3.0,
    }
    assert describe(record, points=10.0) == (
        "Cost: 4 EFLOP in training, 0.5 kWh (measured), 20 g of CO2 (FRA), cost 3; "
        "per point above the best baseline: 12 min, 50 Wh, cost 0.3"
    )
    assert "per point" not in describe(record, points=-2.0)
