# SPDX-License-Identifier: Apache-2.0
"""Runs exports in their runtimes, each with one thread."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

Arrays = dict[str, np.ndarray[Any, Any]]
# Maps token id features to the task's outputs by name.
Network = Callable[[Arrays], Arrays]

THREADS = 1


def _load_saved_model(path: Path, dtype: str, outputs: Sequence[str]) -> Network:
    import tensorflow as tf
    import tensorflow_text  # noqa: F401  # registers the tokenizer's operations

    model = tf.saved_model.load(str(path))
    signature = model.signatures["serve_ids"]
    # Signatures for single texts have no segment ids, and infer padding from the ids.
    inputs = signature.structured_input_signature[1]

    def run(features: Arrays, model: Any = model) -> Arrays:
        tensors = signature(**{key: tf.constant(features[key]) for key in inputs})
        return {key: tensors[key].numpy() for key in outputs}

    return run


def _load_onnx(path: Path, dtype: str, outputs: Sequence[str]) -> Network:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = THREADS
    session = onnxruntime.InferenceSession(path, options)
    return lambda features: dict(zip(outputs, session.run(outputs, features), strict=True))


def _load_openvino(path: Path, dtype: str, outputs: Sequence[str]) -> Network:
    import openvino

    settings: dict[str, int | str] = {"INFERENCE_NUM_THREADS": THREADS}
    if dtype != "int8":
        settings["INFERENCE_PRECISION_HINT"] = {"float32": "f32", "bfloat16": "bf16"}[dtype]
    request = openvino.compile_model(path, "CPU", settings).create_infer_request()

    def run(features: Arrays) -> Arrays:
        # With one thread, `model(features)` does not raise errors.
        request.start_async(features)
        request.wait()
        return {key: request.get_tensor(key).data.copy() for key in outputs}

    return run


def _load_litert(path: Path, dtype: str, outputs: Sequence[str]) -> Network:
    import tensorflow as tf

    runner = tf.lite.Interpreter(str(path), num_threads=THREADS).get_signature_runner()
    length = runner.get_input_details()["token_ids"]["shape_signature"][1]

    def run(features: Arrays) -> Arrays:
        rows: Arrays = runner(
            **{
                key: np.pad(value, ((0, 0), (0, length - value.shape[1])))
                for key, value in features.items()
            }
        )
        return rows

    return run


RUNTIMES: dict[str, Callable[[Path, str, Sequence[str]], Network]] = {
    "tf_saved_model": _load_saved_model,
    "onnx": _load_onnx,
    "openvino": _load_openvino,
    "litert": _load_litert,
}
"""Loads an export by format. Raises `ImportError` if the format's runtime is not installed."""
