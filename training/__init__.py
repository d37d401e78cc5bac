# SPDX-License-Identifier: Apache-2.0
"""Runnable recipes: `python -m training.<program>` from a checkout.

`keras_bert` never imports from here, and the installed package leaves it out.
"""
