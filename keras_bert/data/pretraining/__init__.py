# SPDX-License-Identifier: Apache-2.0
"""Pre-training data: corpora, pairs of segments, records, masks and batches."""
