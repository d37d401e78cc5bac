# SPDX-License-Identifier: Apache-2.0
"""The checkpoint formats: one module each, which loads it and, except KerasHub's, saves it."""
