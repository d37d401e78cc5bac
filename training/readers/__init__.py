# SPDX-License-Identifier: Apache-2.0
"""Readers of data files, which validate them before anything is trained."""
