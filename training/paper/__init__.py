# SPDX-License-Identifier: Apache-2.0
"""Reproduces papers' results, with recipes, a GLUE grid, ablations and feature-based tagging."""
