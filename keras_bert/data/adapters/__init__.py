# SPDX-License-Identifier: Apache-2.0
"""The kinds of input of `fit`, `evaluate` and `predict`, an adapter for each."""
