# SPDX-License-Identifier: Apache-2.0
"""Scripts whose measurements the documentation cites. They are no part of the wheel."""
