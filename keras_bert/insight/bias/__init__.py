# SPDX-License-Identifier: Apache-2.0
"""Measures a model's stereotypes, and its errors on texts about different people."""
