# SPDX-License-Identifier: Apache-2.0
"""Input adapters of `fit`, `evaluate` and `predict`, one for each type of input."""
