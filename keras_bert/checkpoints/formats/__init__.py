# SPDX-License-Identifier: Apache-2.0
"""Checkpoint formats. Each module loads one format and, except for KerasHub, saves it."""
