# SPDX-License-Identifier: Apache-2.0
"""Records and formats a run's cost in time, FLOPs, energy, emissions and money."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from .energy import Energy

_SECONDS_PER_HOUR = 3600
_UNITS = ((1e18, "EFLOP"), (1e15, "PFLOP"), (1e12, "TFLOP"), (1e9, "GFLOP"))


def cost_record(
    seconds: float,
    flops: float | None,
    energy: Energy | None,
    country: str,
    cost_per_hour: float,
) -> dict[str, Any]:
    """Returns the entries in `results.json` about a run's cost.

    Args:
        seconds: The run's duration in seconds.
        flops: The floating-point operations in the matmuls of training, or `None` if unknown.
        energy: The energy, or `None` if it was not measured.
        country: The ISO code (three letters) of the country whose electricity determines the CO2.
        cost_per_hour: The machine's cost per hour in any currency, or 0 if unknown.
    """
    record: dict[str, Any] = {"hours": seconds / _SECONDS_PER_HOUR}
    if flops is not None:
        record["training_flops"] = flops
    if energy is not None:
        record |= {
            "energy_kwh": energy.kwh,
            "energy_is": "measured" if energy.is_measured else "estimated",
            "co2_kg": energy.co2_kg,
            "country": country,
        }
    if cost_per_hour:
        record["cost"] = cost_per_hour * record["hours"]
    return record


def describe(record: Mapping[str, Any], points: float | None = None) -> str:
    """Describes a run's cost on one line.

    Args:
        record: The result of `cost_record`.
        points: How many points the score is above the best baseline, or `None` if unknown.

    Example:

    >>> describe({"hours": 0.5, "training_flops": 3e15, "cost": 0.75}, points=10.0)
    'Cost: 3 PFLOP in training, cost 0.75; per point above the best baseline: 3 min, cost 0.075'
    """
    parts = []
    if "training_flops" in record:
        parts.append(f"{format_flops(record['training_flops'])} in training")
    if "energy_kwh" in record:
        parts.append(
            f"{kilowatt_hours(record['energy_kwh'])} ({record['energy_is']}), "
            f"{format_mass(record['co2_kg'])} of CO2 ({record['country']})"
        )
    if "cost" in record:
        parts.append(f"cost {record['cost']:.3g}")
    if not parts:
        return ""
    line = f"Cost: {', '.join(parts)}"
    if points is not None and points > 0:
        cost_per_point = [f"{60 * record['hours'] / points:.2g} min"]
        if "energy_kwh" in record:
            cost_per_point.append(kilowatt_hours(record["energy_kwh"] / points))
        if "cost" in record:
            cost_per_point.append(f"cost {record['cost'] / points:.3g}")
        line += f"; per point above the best baseline: {', '.join(cost_per_point)}"
    return line


def process_peak_bytes() -> int:
    """Returns the peak memory of this process in bytes, or 0 on Windows."""
    try:
        import resource
    except ImportError:
        return 0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak


def format_flops(flops: float) -> str:
    """Formats a number of floating-point operations.

    Example:

    >>> format_flops(2.4e15)
    '2.4 PFLOP'
    """
    size, unit = next(((size, unit) for size, unit in _UNITS if flops >= size), _UNITS[-1])
    return f"{flops / size:.3g} {unit}"


def kilowatt_hours(kwh: float) -> str:
    """Formats energy in kWh or Wh."""
    return f"{kwh:.3g} kWh" if kwh >= 0.1 else f"{1000 * kwh:.3g} Wh"


def format_mass(kg: float) -> str:
    """Formats a mass in kg or g."""
    return f"{kg:.3g} kg" if kg >= 0.1 else f"{1000 * kg:.3g} g"
