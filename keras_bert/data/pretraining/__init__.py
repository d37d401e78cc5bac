# SPDX-License-Identifier: Apache-2.0
"""Pre-training data: corpora, segment pairs, records, masks and batches."""
