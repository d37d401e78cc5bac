# SPDX-License-Identifier: Apache-2.0
"""Measurements of speed and memory."""
