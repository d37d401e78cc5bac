# SPDX-License-Identifier: Apache-2.0
"""The model server: signatures, dynamic batching and the HTTP protocols."""
