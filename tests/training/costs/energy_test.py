# SPDX-License-Identifier: Apache-2.0

import pytest

from training.costs.energy import Energy, energy_meter, grams_per_kwh

pytestmark = pytest.mark.backend_independent

COUNTRY_ERROR = "--country must be an ISO code of three letters, such as FRA. Received: 'Atlantis'"


def test_meter_returns_energy_since_last_call():
    with energy_meter("FRA") as since_last_call:
        sum(number * number for number in range(100_000))
        energy = since_last_call()
        assert 0 < energy.co2_kg < energy.kwh < 1
        assert since_last_call().kwh < 1


def test_energy_meter_rejects_unknown_country():
    with pytest.raises(ValueError, match=COUNTRY_ERROR), energy_meter("Atlantis"):
        pass


def test_sum_is_measured_if_all_parts_are():
    measured, estimated = Energy(1.0, 0.5, True), Energy(2.0, 0.25, False)
    assert Energy() + measured == measured
    assert measured + estimated == Energy(3.0, 0.75, False)
    assert estimated + measured == Energy(3.0, 0.75, False)


def test_grams_per_kwh_depend_on_country():
    assert 0 < grams_per_kwh("NOR") < grams_per_kwh("POL") < 1500
    with pytest.raises(ValueError, match=COUNTRY_ERROR):
        grams_per_kwh("Atlantis")
