# SPDX-License-Identifier: Apache-2.0
"""Plots and HTML reports of results."""
