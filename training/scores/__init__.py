# SPDX-License-Identifier: Apache-2.0
"""The official metrics of each task, and baselines."""
