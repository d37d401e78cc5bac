# SPDX-License-Identifier: Apache-2.0
"""Defines how the weights of encoders and heads are sharded over devices."""

from __future__ import annotations

from typing import Any

import keras

# Maps regular expressions for weight paths to whether each axis is sharded. In two consecutive
# matmuls, the first is sharded by its outputs and the second by its inputs. So each device computes
# its part of both, and the results are summed once. All of these axes have the hidden or the
# intermediate dimension. Vocabularies are not sharded, because their sizes are often odd.
_INPUTS, _OUTPUTS, _BIAS = (True, False), (False, True), (True,)
_DIVIDED_AXES = {
    r".*query_key_value/kernel": _OUTPUTS,
    r".*query_key_value/bias": _BIAS,
    r".*attention/output_projection/kernel": _INPUTS,
    r".*feed_forward/intermediate/kernel": _OUTPUTS,
    r".*feed_forward/intermediate_bias": _BIAS,
    r".*feed_forward/output_projection/kernel": _INPUTS,
    r".*token_embedding/embeddings": _OUTPUTS,
    r".*(position|segment)_embeddings": _OUTPUTS,
    r".*embedding_projection/kernel": _OUTPUTS,
    r".*(pooler|masked_lm_transform|replaced_token)/dense/kernel": _OUTPUTS,
    r".*(pooler|masked_lm_transform|replaced_token)/dense/bias": _BIAS,
}


def layout_map(device_mesh: Any, model_parallel_dim_name: str) -> Any:
    """Returns the result of `Backbone.get_layout_map`.

    Raises:
        ValueError: If the mesh does not have this axis.
    """
    if model_parallel_dim_name not in device_mesh.axis_names:
        raise ValueError(
            "model_parallel_dim_name must be an axis of the device mesh, one of "
            f"{', '.join(map(repr, device_mesh.axis_names))}. Received: "
            f"{model_parallel_dim_name!r}"
        )
    layouts = keras.distribution.LayoutMap(device_mesh)
    for path, axes in _DIVIDED_AXES.items():
        layouts[path] = tuple(model_parallel_dim_name if axis else None for axis in axes)
    return layouts
