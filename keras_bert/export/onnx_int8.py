# SPDX-License-Identifier: Apache-2.0
"""Quantizes ONNX models to int8 with ONNX Runtime's dynamic quantization."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import numpy_helper
from onnxruntime.quantization import QuantType, quantize_dynamic

# Outlier channels are scaled down to this multiple of the layer's median.
_MAX_MEDIAN_MULTIPLE = 2
# Matches the second matmul in a feed-forward network. Layer names may end in a number.
_FEED_FORWARD_OUTPUT = re.compile(r"/feed_forward(_\d+)?/output_projection")
# The names of these inputs, in this package and in `transformers`. The remaining input is the mask.
_IDS, _SEGMENTS = ("token_ids", "input_ids"), ("segment_ids", "token_type_ids")
# Number and length of the random sequences for finding outlier channels
_ROWS, _LENGTH = 8, 64


def write_int8(model: Any, path: Path, tokenizer: Any, max_sequence_length: int) -> None:
    """Writes an `onnx.ModelProto` with its constant matrices in int8. Modifies the model.

    Weights have one scale per channel. Activations are quantized at run time, with one scale per
    tensor.
    """
    features = _random_features(model, tokenizer, min(_LENGTH, max_sequence_length))
    scale_outlier_channels(model, features)
    with tempfile.TemporaryDirectory(dir=path.parent) as directory:
        floats = Path(directory) / path.name
        floats.write_bytes(model.SerializeToString())
        # 7-bit weights, because 8 bits saturate on CPUs without VNNI. See `LARGEST_IN_KERNEL`.
        options = {"per_channel": True, "reduce_range": True, "weight_type": QuantType.QInt8}
        quantize_dynamic(floats, path, **options)


def _random_features(model: Any, tokenizer: Any, length: int) -> dict[str, np.ndarray[Any, Any]]:
    ids = np.random.default_rng(0).integers(0, tokenizer.vocabulary_size, (_ROWS, length))
    ids[:, 0], ids[:, -1] = tokenizer.cls_token_id, tokenizer.sep_token_id
    features = {}
    for tensor in model.graph.input:
        values = {**dict.fromkeys(_IDS, ids), **dict.fromkeys(_SEGMENTS, np.zeros_like(ids))}
        kind = tensor.type.tensor_type
        # (batch, length), or (batch, choices, length) with one choice
        shape = _ROWS, *[1] * (len(kind.shape.dim) - 2), length
        features[tensor.name] = (
            values.get(tensor.name, np.ones_like(ids))
            .reshape(shape)
            .astype(onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type))
        )
    return features


def scale_outlier_channels(model: Any, features: Mapping[str, np.ndarray[Any, Any]]) -> None:
    """Scales outlier channels in feed-forward networks down, and the next matmul's weights up.

    In some layers of pretrained encoders, one channel of the first token is much larger than all
    other channels, for any text (Sun et al., 2024, "Massive Activations in Large Language Models").
    With one scale per tensor, the other channels would only use a few of the 256 levels. The
    matmul's result does not change, as in SmoothQuant (Xiao et al., 2023, equation 3).

    Args:
        model: The `onnx.ModelProto` to modify.
        features: Inputs for detecting outlier channels.
    """
    weights = {tensor.name: tensor for tensor in model.graph.initializer}
    products = [
        node
        for node in model.graph.node
        if node.op_type == "MatMul"
        and _FEED_FORWARD_OUTPUT.search(node.name)
        and node.input[1] in weights
    ]
    if not products:
        return
    # Maxima `(intermediate,)` by weight, because layers may share a weight
    largest: dict[str, np.ndarray[Any, Any]] = {}
    inputs = _values(model, [node.input[0] for node in products], features)
    for node, values in zip(products, inputs, strict=True):
        maxima = np.abs(values).reshape(-1, values.shape[-1]).max(axis=0)
        largest[node.input[1]] = np.maximum(largest.get(node.input[1], 0), maxima)
    for name, maxima in largest.items():
        typical = np.median(maxima[maxima > 0]) if maxima.any() else 1
        scale = np.maximum(1, maxima / (_MAX_MEDIAN_MULTIPLE * typical)).astype("float32")
        kernel = numpy_helper.to_array(weights[name]) * scale[:, None]
        weights[name].CopyFrom(numpy_helper.from_array(kernel, name))
        model.graph.initializer.append(numpy_helper.from_array(1 / scale, f"{name}/inverse_scale"))
    for node in products:
        factors = [node.input[0], f"{node.input[1]}/inverse_scale"]
        scaled_input = f"{node.name}/scaled_input"
        position = list(model.graph.node).index(node)
        node.input[0] = scaled_input
        model.graph.node.insert(
            position, onnx.helper.make_node("Mul", factors, [scaled_input], scaled_input)
        )


def _values(
    model: Any, names: Sequence[str], features: Mapping[str, np.ndarray[Any, Any]]
) -> list[np.ndarray[Any, Any]]:
    """Computes a model's intermediate tensors for the given features."""
    probe = onnx.ModelProto()
    probe.CopyFrom(model)
    for name in dict.fromkeys(names):
        info = onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None)
        probe.graph.output.append(info)
    session = onnxruntime.InferenceSession(probe.SerializeToString())
    inputs = {one.name: features[one.name] for one in session.get_inputs()}
    values: list[np.ndarray[Any, Any]] = session.run(names, inputs)
    return values
