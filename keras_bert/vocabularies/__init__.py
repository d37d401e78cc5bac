# SPDX-License-Identifier: Apache-2.0
"""The files that vocabularies are kept in: one reader and one writer for each format."""
