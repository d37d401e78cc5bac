# SPDX-License-Identifier: Apache-2.0
"""Estimates of the energy that a run uses, and of its CO2 emissions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def energy_meter(country: str) -> Iterator[Callable[[], tuple[float, float]]]:
    """Measures energy with `codecarbon`, offline.

    Args:
        country: ISO code of the country, three letters, for the CO2 of its electricity.

    Yields:
        A function that returns the energy in kWh and the CO2 in kg since its last call.

    Raises:
        ImportError: If codecarbon is not installed.
        ValueError: If the country is unknown.
    """
    try:
        from codecarbon import OfflineEmissionsTracker
    except ImportError as error:
        raise ImportError(
            "--measure_energy requires codecarbon: install the extra `energy`, or codecarbon itself"
        ) from error
    tracker = OfflineEmissionsTracker(
        country_iso_code=country, output_methods=[], log_level="error", allow_multiple_runs=True
    )
    tracker.start_task()
    if not tracker.stop_task().country_name:
        raise ValueError(
            f"--country is {country!r}, expected an ISO code of three letters, such as FRA"
        )
    tracker.start_task()

    def since_last_call() -> tuple[float, float]:
        measured = tracker.stop_task()
        tracker.start_task()
        return measured.energy_consumed, measured.emissions

    try:
        yield since_last_call
    finally:
        tracker.stop()
