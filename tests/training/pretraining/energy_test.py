# SPDX-License-Identifier: Apache-2.0

import pytest

from training.pretraining.energy import energy_meter

pytestmark = pytest.mark.backend_independent


def test_energy_since_the_last_call():
    with energy_meter("FRA") as since_last_call:
        sum(number * number for number in range(100_000))
        energy, co2 = since_last_call()
        assert 0 < co2 < energy < 1
        assert since_last_call()[0] < 1


def test_an_unknown_country():
    with pytest.raises(ValueError, match="--country is 'Atlantis'"), energy_meter("Atlantis"):
        pass
