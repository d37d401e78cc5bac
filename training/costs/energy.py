# SPDX-License-Identifier: Apache-2.0
"""Measures a run's energy and CO2 emissions with `codecarbon`."""

from __future__ import annotations

import contextlib
import importlib.util
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from keras_bert.checks import importing

_RAPL = "/sys/class/powercap"


class Energy(NamedTuple):
    """Energy and emissions.

    Args:
        kwh: The whole machine's energy in kWh.
        co2_kg: Emissions in kg of CO2.
        is_measured: Whether the energy of the processor and the GPUs was read from their counters
            (RAPL and NVML). Otherwise, it is estimated from the load and the nominal power.
    """

    kwh: float = 0.0
    co2_kg: float = 0.0
    is_measured: bool = False

    def __add__(self, other: Energy) -> Energy:
        """Returns the sum. It is only measured if both are."""
        return Energy(
            self.kwh + other.kwh,
            self.co2_kg + other.co2_kg,
            (self.is_measured or not self.kwh) and other.is_measured,
        )


Meter = Callable[[], Energy]


def is_installed() -> bool:
    """Returns whether `codecarbon` is installed. It is in the extra `energy`."""
    return importlib.util.find_spec("codecarbon") is not None


@contextmanager
def energy_meter(country: str) -> Iterator[Meter]:
    """Measures energy with `codecarbon`, without network access.

    Yields:
        A function that returns the energy and the emissions since its last call.

    Raises:
        ImportError: If codecarbon is not installed.
        ValueError: If the country is unknown.
    """
    with importing("energy", "--measure_energy"):
        from codecarbon import OfflineEmissionsTracker
    # codecarbon warns if a process has two trackers, even with `allow_multiple_runs`.
    logging.getLogger("codecarbon").setLevel(logging.ERROR)
    tracker = OfflineEmissionsTracker(
        country_iso_code=country, output_methods=[], log_level="error", allow_multiple_runs=True
    )
    _check_country(country)
    tracker.start_task()

    def since_last_call() -> Energy:
        reading = tracker.stop_task()
        tracker.start_task()
        return Energy(reading.energy_consumed, reading.emissions, _reads_counters())

    try:
        yield since_last_call
    finally:
        tracker.stop()


def grams_per_kwh(country: str) -> float:
    """Returns the CO2 in g per kWh for a country's electricity, from `codecarbon`'s table.

    Raises:
        ImportError: If codecarbon is not installed.
        ValueError: If the country is unknown.
    """
    _check_country(country)
    from codecarbon.core.emissions import Emissions
    from codecarbon.core.units import Energy as CodeCarbonEnergy
    from codecarbon.external.geography import GeoMetadata
    from codecarbon.input import DataSource

    kwh = CodeCarbonEnergy.from_energy(kWh=1)
    geography = GeoMetadata(country_iso_code=country)
    return 1000 * float(Emissions(DataSource()).get_country_emissions(kwh, geography))


def _check_country(country: str) -> None:
    from codecarbon.input import DataSource

    if country not in DataSource().get_global_energy_mix_data():
        raise ValueError(
            f"--country must be an ISO code of three letters, such as FRA. Received: {country!r}"
        )


def _reads_counters() -> bool:
    """Returns whether the processor's energy counters can be read."""
    for counter in Path(_RAPL).glob("intel-rapl*/energy_uj"):
        with contextlib.suppress(OSError):
            counter.read_bytes()
            return True
    return False
