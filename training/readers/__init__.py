# SPDX-License-Identifier: Apache-2.0
"""Files of data, read and checked before anything is trained."""
