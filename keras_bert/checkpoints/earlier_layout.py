# SPDX-License-Identifier: Apache-2.0
"""Files of format version 1: names and order of the weights, and a field that configs lacked."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable
from typing import Any

from keras_bert.config import BertConfig

# The name of a weight in a block -> that in version 1, in which biases of products were weights of
# the layers that followed.
_NAMES = {
    "attention.output_projection.kernel": "attention_output.kernel",
    "attention.output_bias": "attention_norm.bias",
    "feed_forward.intermediate.kernel": "intermediate.kernel",
    "feed_forward.intermediate_bias": "intermediate_activation.bias",
    "feed_forward.output_projection.kernel": "feed_forward_output.kernel",
    "feed_forward.output_bias": "feed_forward_norm.bias",
}
_BLOCK = re.compile(r"blocks\.\d+\.")
# The order of the trainable variables of a block, by the ends of their paths
_ORDER = (
    "attention/query_key_value/",
    "attention/output_projection/",
    "attention/output_bias",
    "attention_norm/",
    "feed_forward/intermediate/",
    "feed_forward/intermediate_bias",
    "feed_forward/output_projection/",
    "feed_forward/output_bias",
    "feed_forward_norm/",
)
_BLOCK_PATH = re.compile(r"(.*?\blayer_\d+/)(.*)")


def name_in_version_1(name: str) -> str:
    """Returns the name that a weight of an encoder had in presets of format version 1."""
    match = _BLOCK.match(name)
    if match is None:
        return name
    rest = name[match.end() :]
    return match.group() + _NAMES.get(rest, rest)


def in_order_of_version_1(variables: Iterable[Any]) -> list[Any]:
    """Returns trainable variables in the order that they had when biases were in other layers."""

    def block(variable: Any) -> str:
        match = _BLOCK_PATH.match(variable.path)
        return "" if match is None else match.group(1)

    def place(variable: Any) -> int:
        rest = variable.path.removeprefix(block(variable))
        places = [place for place, start in enumerate(_ORDER) if rest.startswith(start)]
        return places[0] if places else len(_ORDER)

    groups = itertools.groupby(variables, block)
    return [
        variable
        for path, members in groups
        for variable in (sorted(members, key=place) if path else members)
    ]


def config_of_version_1(config: BertConfig) -> BertConfig:
    """Completes a config that was saved before `token_dropout` was a field.

    DistilBERT was recognized by its pooler: its dropout before a token classification head is not
    that of its other classification heads.
    """
    is_distilbert = not config.pooler and config.pooler_activation == "relu"
    return config.replace(token_dropout=config.dropout) if is_distilbert else config
