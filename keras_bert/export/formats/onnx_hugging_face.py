# SPDX-License-Identifier: Apache-2.0
"""ONNX models in the layout of the Hugging Face Hub, for transformers.js.

The directory contains `config.json`, the tokenizer files and, in `onnx`, the network in float32 and
int8. An embedder also has the files of sentence-transformers for pooling and normalization. A
sparse embedder's network returns the logits of the masked LM, which clients pool.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from keras_bert.export.description import ExportDescription
from keras_bert.export.formats import onnx
from keras_bert.export.options import (
    ExportError,
    ExportFormat,
    ExportOptions,
    ExportWarning,
    Servable,
)
from keras_bert.vocabularies.files import read_json, write_json
from keras_bert.vocabularies.tokenizer_settings import ALL_FILES, NAMES_FILE, SETTINGS_FILE

if TYPE_CHECKING:
    import tensorflow as tf

_FLOAT_FILE, _INT8_FILE = "onnx/model.onnx", "onnx/model_quantized.onnx"
_MAX_POINTS_LOST = 0.5
# The layer that clients apply to the output, by the kind of embedder
_POOLINGS = {"dense": "sentence_pooling", "sparse": "splade_pooling"}
# Names of the inputs in `transformers`
_INPUTS = {
    "input_ids": "token_ids",
    "token_type_ids": "segment_ids",
    "attention_mask": "padding_mask",
}
_OWN_FILES = re.compile(
    rf"\.|config\.json|{'|'.join(map(re.escape, ALL_FILES))}|modules\.json|"
    r"(sentence_bert_config|config_sentence_transformers)\.json|1_(Splade)?Pooling(/config\.json)?|"
    rf"onnx|{re.escape(_FLOAT_FILE)}|{re.escape(_INT8_FILE)}"
)


def _check(task: Any, options: ExportOptions) -> None:
    if task.embedding_kind == "multi_vector":
        raise ExportError(
            "format='onnx_hugging_face' does not support late interaction, because its clients do "
            f"not pack queries and documents. Received: a {type(task).__name__}. Pass "
            "format='onnx', or format='tf_saved_model' for a model that accepts text."
        )
    if task.network_inputs:
        raise ExportError(
            "format='onnx_hugging_face' only supports taggers without a CRF and without a scheme, "
            "because its clients label each token by itself. Received: a tagger with "
            f"crf={task.crf} and scheme={task.scheme!r}. Pass format='onnx', or set the tagger's "
            "scheme to None."
        )


def _write(task: Servable, path: Path, options: ExportOptions) -> None:
    from keras_bert import checkpoints

    checkpoints.save_hugging_face(task, path, class_names=options.class_names)
    (path / "model.safetensors").unlink()  # The ONNX files contain the weights.
    _write_limits(task, path)
    function, specs = _network(task)
    model = onnx.convert(function, specs, ExportDescription.from_task(task, options))
    (path / "onnx").mkdir()
    (path / _FLOAT_FILE).write_bytes(model.SerializeToString())
    onnx.write_int8(model, path / _INT8_FILE, task)
    if options.calibration:
        _check_int8(task, path, options.calibration)


def _check_int8(task: Any, path: Path, examples: Sequence[Sequence[str]]) -> None:
    """Removes the int8 file, and warns, if its predictions differ too much from float32."""
    import onnxruntime

    from keras_bert.export.calibration import calibration_features, points_lost

    features = list(calibration_features(task, examples))
    outputs: list[list[Any]] = []
    for file in (_FLOAT_FILE, _INT8_FILE):
        session = onnxruntime.InferenceSession(path / file)
        names = {tensor.name: _INPUTS[tensor.name] for tensor in session.get_inputs()}
        rows = [
            session.run(None, {name: row[own].astype("int64") for name, own in names.items()})
            for row in features
        ]
        if task.embedding_kind:  # There is no padding.
            pool = task.get_layer(_POOLINGS[task.embedding_kind])
            rows = [[pool(x).numpy() for x in row] for row in rows]
        outputs.append([output for row in rows for output in row])
    lost = points_lost(task, *outputs)
    if lost > _MAX_POINTS_LOST:
        (path / _INT8_FILE).unlink()
        warnings.warn(
            f"{_INT8_FILE} must lose at most {_MAX_POINTS_LOST} points compared with float32 on "
            f"the calibration texts. Received: {lost:.2f}. The file was not written. Use "
            f"{_FLOAT_FILE}.",
            ExportWarning,
            stacklevel=2,
        )


def _write_limits(task: Servable, directory: Path) -> None:
    """Writes the maximum sequence length, and the special tokens where fastembed reads them."""
    settings = read_json(directory / SETTINGS_FILE)
    settings["model_max_length"] = task.preprocessor.sequence_length
    write_json(directory / SETTINGS_FILE, settings)
    names = {field: token for field, token in settings.items() if field.endswith("_token")}
    write_json(directory / NAMES_FILE, names)


def _network(task: Any) -> tuple[Any, list[tf.TensorSpec]]:
    """Returns a function with the inputs and outputs of `transformers`, and its input specs."""
    import tensorflow as tf

    from keras_bert.export.network import network_function
    from keras_bert.models.pretraining import decode_masked_lm

    def encode(features: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        hidden = task.backbone(features, training=False)["sequence_output"]
        if task.embedding_kind == "dense":
            return {"last_hidden_state": hidden}
        return {"logits": decode_masked_lm(task.backbone, task.heads["masked_lm"], hidden)}

    network, specs = network_function(task, compute=encode if task.embedding_kind else None)
    shape = specs[0].shape
    has_segments = task.config.num_segments > 1
    names = [name for name in _INPUTS if has_segments or name != "token_type_ids"]

    def call(*inputs: tf.Tensor) -> dict[str, tf.Tensor]:
        features = dict(zip(map(_INPUTS.get, names), inputs, strict=True))
        features.setdefault("segment_ids", tf.zeros_like(features["token_ids"]))
        outputs: dict[str, tf.Tensor] = network(
            *(tf.cast(features[spec.name], spec.dtype) for spec in specs)
        )
        return outputs

    specs_of_names = [tf.TensorSpec(shape, tf.int64, name) for name in names]
    return tf.function(call, input_signature=specs_of_names, autograph=False), specs_of_names


def _is_export(path: Path) -> bool:
    return (path / _FLOAT_FILE).is_file() and onnx.is_export(path / _FLOAT_FILE)


ONNX_HUGGING_FACE = ExportFormat(
    write=_write,
    check=_check,
    is_export=_is_export,
    suffixes=("",),
    dtypes=("float32",),
    packages=("tf2onnx", "onnxruntime"),
    includes_int8=True,
    supports_ensembles=False,
    has_tokenizer=True,
    directory_files=_OWN_FILES,
)
