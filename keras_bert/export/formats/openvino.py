# SPDX-License-Identifier: Apache-2.0
"""OpenVINO models. They accept token ids or, if they include the tokenizer, text."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from keras_bert.export.description import METADATA_NAME, ExportDescription
from keras_bert.export.options import ExportFormat, ExportOptions, Servable


def _write(task: Servable, path: Path, options: ExportOptions) -> None:
    import openvino

    from keras_bert.export.network import network_function

    function, _ = network_function(task, rejects_negative_ids=True)
    model = openvino.convert_model(function.get_concrete_function())
    if options.dtype == "int8":
        model = _quantize(model, task, options.calibration)
    if options.text:
        from keras_bert.export.openvino_text import connect_text

        model = connect_text(model, task, options)
    model.set_rt_info(ExportDescription.from_task(task, options).to_json(), METADATA_NAME)
    openvino.save_model(model, path, compress_to_fp16=False)


def _quantize(model: Any, task: Servable, calibration: Sequence[Sequence[str]]) -> Any:
    """Quantizes the encoder's matmuls to int8 with NNCF and returns the `openvino.Model`.

    The pooler and the head stay in float32. They take almost no time, and int8 would make
    regressions less accurate.
    """
    import nncf

    from keras_bert.export.calibration import calibration_features

    tasks = getattr(task, "members", (task,))
    heads = {member.head.name for member in tasks if hasattr(member, "head")}
    return nncf.quantize(
        model,
        nncf.Dataset(list(calibration_features(task, calibration))),
        model_type=nncf.ModelType.TRANSFORMER,
        subset_size=len(calibration),
        # 7-bit weights, because 8 bits saturate on CPUs without VNNI. See `LARGEST_IN_KERNEL`.
        advanced_parameters=nncf.AdvancedQuantizationParameters(
            overflow_fix=nncf.OverflowFix.ENABLE
        ),
        # Node names contain layer names, for example .../pooler_1/dense_1/MatMul. Some tasks have
        # no pooler, so `validate` is False.
        ignored_scope=nncf.IgnoredScope(
            patterns=[rf".*/{name}(_\d+)?/.*MatMul" for name in ("pooler", *heads)], validate=False
        ),
    )


def _is_export(path: Path) -> bool:
    with contextlib.suppress(ElementTree.ParseError):
        return ElementTree.parse(path).find(f"rt_info/{METADATA_NAME}") is not None
    return False


OPENVINO = ExportFormat(
    write=_write,
    is_export=_is_export,
    suffixes=(".xml", ".bin"),
    dtypes=("float32", "int8"),
    packages=("openvino",),
    int8_packages=("nncf",),
    text_packages=("tensorflow_text", "openvino_tokenizers", "sentencepiece"),
    is_calibrated=True,
)
