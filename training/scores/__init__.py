# SPDX-License-Identifier: Apache-2.0
"""Official metrics and simple baselines for each task."""
