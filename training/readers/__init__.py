# SPDX-License-Identifier: Apache-2.0
"""Reads and validates data files before training starts."""
