# SPDX-License-Identifier: Apache-2.0
"""Serves models over HTTP, with dynamic batching and multiple protocols."""
