# SPDX-License-Identifier: Apache-2.0
"""Counts and measures a run's FLOPs, energy, emissions and cost."""
