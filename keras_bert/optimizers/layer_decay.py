# SPDX-License-Identifier: Apache-2.0
"""Layer-wise learning rate decay, with a lower learning rate in layers closer to the input."""

from __future__ import annotations

import re
from collections.abc import Iterable

_LAYER = re.compile(r"layer_(\d+)")


def layer_depth(path: str, num_layers: int) -> int:
    """Returns a variable's depth for layer-wise learning rate decay.

    | layer in the path | depth |
    |---|---|
    | name contains `embedding` (tables, their LayerNorm and projection) | 0 |
    | `layer_i` | i + 1 |
    | `pooler` (the encoder's) | `num_layers` + 1 |
    | any other layer: the task's head, including its own pooler | `num_layers` + 2 |

    The optimizers multiply the learning rate by `layer_decay ** (num_layers + 2 - depth)`. For
    example, the factor is 1 for the head and `layer_decay ** 2` for the last encoder layer. This is
    ELECTRA's rule. ELECTRA has no pooler and does not use the depth `num_layers + 1`, so BERT's
    pooler gets this depth.

    Args:
        path: A variable's `path`, for example `"layer_3/attention/query_key_value/kernel"`.
        num_layers: Number of encoder layers.

    Returns:
        An integer from 0 to `num_layers + 2`.

    Raises:
        ValueError: If the layer index in the path is not below `num_layers`.

    Example:

    >>> [keras_bert.optimizers.layer_depth(path, num_layers=12) for path in (
    ...     "token_embedding/embeddings", "layer_0/intermediate/kernel", "pooler/dense/bias")]
    [0, 1, 13]

    Reference:
        [ELECTRA](https://arxiv.org/abs/2003.10555), appendix B, and the original code.
    """
    layers = path.split("/")[:-1]
    index = _layer_index(layers)
    if index is not None:
        if index >= num_layers:
            raise ValueError(
                f"With num_layers={num_layers}, layers must be layer_0 to layer_{num_layers - 1}. "
                f"Received: path={path!r}"
            )
        return index + 1
    if any("embedding" in layer for layer in layers):
        return 0
    return num_layers + 1 if "pooler" in layers else num_layers + 2


def count_layers(paths: Iterable[str]) -> int:
    """Counts the encoder layers in a model's variable paths."""
    indices = [_layer_index(path.split("/")[:-1]) for path in paths]
    return max((index + 1 for index in indices if index is not None), default=0)


def _layer_index(layers: list[str]) -> int | None:
    matches = (_LAYER.fullmatch(layer) for layer in layers)
    return next((int(match[1]) for match in matches if match), None)
