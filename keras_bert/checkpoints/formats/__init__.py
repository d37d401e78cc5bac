# SPDX-License-Identifier: Apache-2.0
"""The checkpoint formats: one module each, which reads it and, but for KerasHub's, writes it."""
