# SPDX-License-Identifier: Apache-2.0
"""The description in an export: its task, the fields of a row, and how rows are sent to it."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import Any, Self

from keras_bert.export.options import ExportOptions, Servable

# In the folder of a SavedModel, and in a LiteRT model
DESCRIPTION_FILE, PACKED_FILE = "assets.extra/task.json", "task.json"
# The config of its tokenizer, in the folder of a SavedModel
TOKENIZER_FILE = "assets.extra/tokenizer.json"
# The name in the metadata of ONNX and OpenVINO models
METADATA_NAME = "keras_bert"


@dataclasses.dataclass(frozen=True)
class RowRequest:
    """How rows are sent to a signature of a SavedModel, and how its outputs are read as answers.

    Args:
        signature: The name of the signature.
        inputs: The field with the values of an input, by the name of the input. Other inputs
            have the values of the field of their own name, and `num_words` the number of `words` of
            each row.
        items: If the answer is a list of dicts, the output that each key is an element of, by the
            key; an output that there is not is an input. Empty if the answer is a dict of the
            outputs.
        count: The output or input that has the number of elements of each row.
    """

    signature: str = "serving_default"
    inputs: Mapping[str, str] = dataclasses.field(default_factory=dict)
    items: Mapping[str, str] = dataclasses.field(default_factory=dict)
    count: str = ""


@dataclasses.dataclass(frozen=True)
class ExportDescription:
    """The description of an export, as JSON.

    A SavedModel has it in `assets.extra/task.json`, an ONNX model in the metadata property
    `keras_bert`, an OpenVINO model in the runtime information of that name, and a LiteRT model in
    `task.json`, packed into it as metadata of LiteRT are (as a zip archive).

    Args:
        task: The name of the class of the task.
        predict_method: The method of the task that answers as the export does, such as `classify`.
        fields: The names of the fields of a row of text.
        list_fields: The fields that are, or may be, lists of strings.
        requests: How rows are sent to a SavedModel, in the order in which they are tried.
        class_names: The labels in the order of their ids; empty without classes.
        sequence_length: Maximum length of a row in tokens, including the special tokens, of a
            SavedModel.
        max_text_bytes: The number of bytes read of each text; `None` for no limit.
        dtype: The precision of the encoder's weights and products.
        pooling: How an embedder combines the vectors of the tokens; empty for other tasks.
    """

    task: str
    predict_method: str
    fields: tuple[str, ...]
    list_fields: tuple[str, ...] = ()
    requests: tuple[RowRequest, ...] = (RowRequest(),)
    class_names: tuple[str, ...] = ()
    sequence_length: int | None = None
    max_text_bytes: int | None = None
    dtype: str = "float32"
    pooling: str = ""

    @classmethod
    def from_task(cls, task: Servable, options: ExportOptions) -> Self:
        """Returns the description of an export of a task."""
        is_saved_model = options.format == "tf_saved_model"
        return cls(
            type(task).__name__,
            task.predict_method,
            (*task.fields, *(task.optional_fields if options.pair else ())),
            task.list_fields,
            (task.serving_requests() if is_saved_model else ()),
            options.class_names or (),
            task.preprocessor.sequence_length if is_saved_model else None,
            options.max_text_bytes,
            options.dtype,
            getattr(task, "pooling", ""),
        )

    def to_json(self) -> str:
        """Returns the description as JSON."""
        return json.dumps(dataclasses.asdict(self), indent=2)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Creates a description from the value of `to_json`."""
        values: dict[str, Any] = json.loads(text)
        requests = tuple(RowRequest(**request) for request in values.pop("requests"))
        lists = {name: tuple(value) for name, value in values.items() if isinstance(value, list)}
        return cls(**{**values, **lists}, requests=requests)
