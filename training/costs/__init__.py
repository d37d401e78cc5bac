# SPDX-License-Identifier: Apache-2.0
"""What a run costs: operations, energy, emissions and money."""
