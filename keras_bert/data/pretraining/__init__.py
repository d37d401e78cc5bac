# SPDX-License-Identifier: Apache-2.0
"""Reads corpora and creates pre-training data (segment pairs, records, masks and batches)."""
