# SPDX-License-Identifier: Apache-2.0
"""Layer-wise learning rate decay: the closer a layer is to the input, the smaller its rate."""

from __future__ import annotations

import re
from collections.abc import Iterable

_LAYER = re.compile(r"layer_(\d+)")


def layer_depth(path: str, num_layers: int) -> int:
    """Returns the depth of a variable for layer-wise learning rate decay.

    | part of the path | depth |
    |---|---|
    | a layer with `embedding` in its name (tables, their LayerNorm, their projection) | 0 |
    | `layer_i` | i + 1 |
    | `pooler` of the encoder | `num_layers` + 1 |
    | anything else: the head of a task, including its own pooler | `num_layers` + 2 |

    The optimizers multiply the learning rate by `layer_decay ** (num_layers + 2 - depth)`: 1 for
    the head, `layer_decay ** 2` for the last encoder layer. This is exactly ELECTRA's rule, which
    leaves a depth unused; BERT's pooler, which ELECTRA does not have, is assigned this depth.

    Args:
        path: The `path` of a variable, such as `"layer_3/attention/query_key_value/kernel"`.
        num_layers: Number of encoder layers of the model.

    Returns:
        An integer from 0 to `num_layers + 2`.

    Raises:
        ValueError: If the path contains a layer that a model of `num_layers` layers does not have.

    Example:

    >>> [keras_bert.optimizers.layer_depth(path, num_layers=12) for path in (
    ...     "token_embedding/embeddings", "layer_0/intermediate/kernel", "pooler/dense/bias")]
    [0, 1, 13]

    Reference:
        [ELECTRA](https://arxiv.org/abs/2003.10555), appendix B, and its released code.
    """
    layers = path.split("/")[:-1]
    index = _layer_index(layers)
    if index is not None:
        if index >= num_layers:
            raise ValueError(
                f"A model of num_layers={num_layers} layers has layer_0 to "
                f"layer_{num_layers - 1}. Received the variable path: {path!r}"
            )
        return index + 1
    if any("embedding" in layer for layer in layers):
        return 0
    return num_layers + 1 if "pooler" in layers else num_layers + 2


def count_layers(paths: Iterable[str]) -> int:
    """Returns the number of encoder layers, counted in the paths of a model's variables."""
    indices = [_layer_index(path.split("/")[:-1]) for path in paths]
    return max((index + 1 for index in indices if index is not None), default=0)


def _layer_index(layers: list[str]) -> int | None:
    matches = (_LAYER.fullmatch(layer) for layer in layers)
    return next((int(match[1]) for match in matches if match), None)
