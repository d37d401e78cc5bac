# SPDX-License-Identifier: Apache-2.0
"""How the weights of an encoder and its heads are divided between devices."""

from __future__ import annotations

from typing import Any

import keras

# For the paths of weights, as regular expressions, the axis that is divided. Of two products in a
# row the first is divided by its outputs and the second by its inputs, so that each device computes
# its part of both, and the results are summed once. All of these axes are as wide as the hidden
# states, or as the intermediate ones. Vocabularies are not divided: their sizes are often odd.
_DIVIDED_AXES = {
    r".*query_key_value/kernel": 1,
    r".*query_key_value/bias": 0,
    r".*attention/output_projection/kernel": 0,
    r".*feed_forward/intermediate/kernel": 1,
    r".*feed_forward/intermediate_bias": 0,
    r".*feed_forward/output_projection/kernel": 0,
    r".*token_embedding/embeddings": 1,
    r".*(position|segment)_embeddings": 1,
    r".*embedding_projection/kernel": 1,
    r".*(pooler|masked_lm_transform|replaced_token)/dense/kernel": 1,
    r".*(pooler|masked_lm_transform|replaced_token)/dense/bias": 0,
}
_RANKS = {"kernel": 2, "embeddings": 2, "bias": 1}


def layout_map(device_mesh: Any, model_parallel_dim_name: str) -> Any:
    """Returns the `keras.distribution.LayoutMap` of `Backbone.get_layout_map`.

    Raises:
        ValueError: If the mesh does not have the axis.
    """
    if model_parallel_dim_name not in device_mesh.axis_names:
        raise ValueError(
            f"model_parallel_dim_name is {model_parallel_dim_name!r}; expected an axis of the "
            f"device mesh, one of {', '.join(map(repr, device_mesh.axis_names))}."
        )
    layouts = keras.distribution.LayoutMap(device_mesh)
    for path, axis in _DIVIDED_AXES.items():
        kind = next(kind for kind in _RANKS if path.endswith(kind))
        axes: list[str | None] = [None] * _RANKS[kind]
        axes[axis] = model_parallel_dim_name
        layouts[path] = tuple(axes)
    return layouts
