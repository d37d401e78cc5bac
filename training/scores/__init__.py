# SPDX-License-Identifier: Apache-2.0
"""The official scores of each task, and baselines to compare them with."""
