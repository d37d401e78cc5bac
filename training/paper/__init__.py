# SPDX-License-Identifier: Apache-2.0
"""Reproduces papers' results: recipes, the GLUE grid, ablations, feature-based tagging."""
