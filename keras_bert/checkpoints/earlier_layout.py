# SPDX-License-Identifier: Apache-2.0
"""Files of format version 1: names and order of the weights, and a field that configs lacked."""

from __future__ import annotations

import collections
import re
from collections.abc import Sequence
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

# A layer of a block in version 1 -> the layer that has its weights now, if one has them alone, and
# the bias among them that is a weight of another layer now
_LAYERS: dict[str, tuple[str | None, str | None]] = {
    "attention": (None, None),  # with an output projection now
    "attention_output": ("attention/output_projection", None),
    "attention_norm": ("attention_norm", "attention/output_bias"),
    "intermediate": ("feed_forward/intermediate", None),
    "intermediate_activation": (None, "feed_forward/intermediate_bias"),
    "feed_forward_output": ("feed_forward/output_projection", None),
    "feed_forward_norm": ("feed_forward_norm", "feed_forward/output_bias"),
}
_IN_BLOCK = re.compile(r"(layer_\d+)/(.*)")


def name_in_version_1(name: str) -> str:
    """Returns the name that a weight of an encoder had in presets of format version 1."""
    match = _BLOCK.match(name)
    if match is None:
        return name
    rest = name[match.end() :]
    return match.group() + _NAMES.get(rest, rest)


def layer_of_version_1(path: str) -> tuple[str | None, str | None]:
    """Returns what has the weights of a layer of version 1 now.

    Args:
        path: The path of the layer, such as `"layer_0/attention_norm"`.

    Returns:
        The path of a layer, and that of a variable that another layer has; `None` for neither.
    """
    match = _IN_BLOCK.fullmatch(path)
    if match is None or match[2] not in _LAYERS:
        return path, None
    layer, bias = (name and f"{match[1]}/{name}" for name in _LAYERS[match[2]])
    return layer, bias


def variable_of_version_1(path: str) -> str:
    """Returns the path of a variable that had this path in version 1."""
    layer, _, name = path.rpartition("/")
    layer_now, bias = layer_of_version_1(layer)
    return bias if bias and name == "bias" else f"{layer_now}/{name}"


def variables_in_version_1(model: Any) -> list[Any]:
    """Returns the variables of a model in the order that `model.variables` had in version 1.

    Args:
        model: A Keras model of today's layers.

    Returns:
        A list without the seed generators that version 1 did not have: dropout after a part that
        blocks share used that of the part.
    """
    places = {id(variable): (place, 0) for place, variable in enumerate(model.variables)}
    blocks = [layer for layer in model._flatten_layers() if hasattr(layer, "feed_forward_seed")]
    # A block after those whose parts it has
    blocks.sort(key=lambda block: max(places[id(variable)] for variable in block.variables))
    earlier: set[int] = set()
    for block in blocks:
        own = [variable for variable in block.variables if id(variable) not in earlier]
        first = min(places[id(variable)][0] for variable in own)
        rank = 0
        for part in _parts_of_block(block):
            if id(part[0]) in earlier:
                del places[id(part[-1])]
                continue
            for variable in part:
                rank += 1
                places[id(variable)] = (first, rank)
        earlier |= {id(variable) for variable in own}
    variables = [variable for variable in model.variables if id(variable) in places]
    return sorted(variables, key=lambda variable: places[id(variable)])


def _parts_of_block(block: Any) -> tuple[list[Any], list[Any]]:
    """Returns the variables of both parts of a block, last the seed of the dropout after it."""
    attention, feed_forward = block.attention, block.feed_forward
    return (
        [
            attention.seed_generator.state,
            *attention.query_key_value.variables,
            *attention.output_projection.variables,
            attention.output_bias,
            *(block.attention_norm.variables if block.attention_norm is not None else ()),
            block.attention_seed.state,
        ],
        [
            *feed_forward.intermediate.variables,
            feed_forward.intermediate_bias,
            *feed_forward.output_projection.variables,
            feed_forward.output_bias,
            *block.feed_forward_norm.variables,
            block.feed_forward_seed.state,
        ],
    )


def rebuilt(optimizer: Any, variables: Sequence[Any]) -> tuple[Any, list[Any]]:
    """Returns an optimizer that is built for the same variables in another order.

    Args:
        optimizer: A built optimizer.
        variables: The variables in the other order.

    Returns:
        A new optimizer, and the variables of `optimizer` whose values are those of its variables.
    """
    other = type(optimizer).from_config(optimizer.get_config())
    other.build(list(variables))
    # Variables of two encoders have the same paths, and each encoder the same place in both orders.
    own = collections.defaultdict(list)
    for variable in optimizer.variables:
        own[variable.path].append(variable)
    return other, [own[variable.path].pop(0) for variable in other.variables]


def config_of_version_1(config: BertConfig) -> BertConfig:
    """Completes a config that was saved before `token_dropout` was a field.

    DistilBERT was recognized by its pooler: its dropout before a token classification head is not
    that of its other classification heads.
    """
    is_distilbert = not config.pooler and config.pooler_activation == "relu"
    return config.replace(token_dropout=config.dropout) if is_distilbert else config
