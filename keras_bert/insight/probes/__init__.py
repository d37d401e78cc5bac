# SPDX-License-Identifier: Apache-2.0
"""Probes: small models that predict properties of words from hidden states."""
