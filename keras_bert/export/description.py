# SPDX-License-Identifier: Apache-2.0
"""Describes an export with its task, its input fields, and how to send examples to it."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import Any, Self

from keras_bert.data.late_interaction import LateInteractionPreprocessor
from keras_bert.data.packing import num_special_tokens
from keras_bert.data.prompts import Prompts
from keras_bert.export.options import ExportOptions, Servable

# Path in a SavedModel's directory, and in a LiteRT model's zip archive
DESCRIPTION_FILE, PACKED_FILE = "assets.extra/task.json", "task.json"
# Path of the tokenizer config in a SavedModel's directory
TOKENIZER_FILE = "assets.extra/tokenizer.json"
# Metadata name in ONNX and OpenVINO models
METADATA_NAME = "keras_bert"


@dataclasses.dataclass(frozen=True)
class RowRequest:
    """Specifies how to send examples to a SavedModel signature and how to read its predictions.

    Args:
        signature: Name of the signature.
        inputs: Maps an input to the field with its values. By default, an input gets the field with
            its own name, and `num_words` is the number of `words` in each example.
        items: If a prediction is a list of dicts, maps each key to the output or input with its
            values. Empty if a prediction is a dict of the outputs.
        keys: Output with the keys, if a prediction is a dict with a dict for each of `items`.
            Elements without a key are left out.
        count: Output or input with the number of elements in each example. Without `items`, all
            other outputs are cut to this number.
    """

    signature: str = "serving_default"
    inputs: Mapping[str, str] = dataclasses.field(default_factory=dict)
    items: Mapping[str, str] = dataclasses.field(default_factory=dict)
    keys: str = ""
    count: str = ""


@dataclasses.dataclass(frozen=True)
class ExportDescription:
    """Describes an export. The description is stored as JSON in the exported model.

    The JSON is in `assets.extra/task.json` (SavedModel), in the metadata property `keras_bert`
    (ONNX), in the runtime information `keras_bert` (OpenVINO), or in `task.json` in the appended
    zip archive (LiteRT and MediaPipe).

    Args:
        task: Class name of the task.
        predict_method: The task's prediction method with the same results, for example `classify`.
        fields: Names of the text fields.
        list_fields: Fields with lists of strings, or with either a string or a list.
        requests: Ways to send examples to a SavedModel, tried in this order.
        class_names: Labels in the order of the class ids. Empty for tasks without classes.
        sequence_length: A SavedModel's maximum sequence length in tokens, including special tokens
            but not a late-interaction embedder's marker. `None` if it splits long texts into
            windows.
        query_length: The same for queries, if a late-interaction embedder distinguishes them.
        max_text_bytes: Number of bytes read from each text. `None` for no limit.
        dtype: Precision of the encoder's weights and matmuls.
        embedding_kind: The kind of an embedder's embeddings, see `Task.embedding_kind`. Empty for
            other tasks.
        pooling: How an embedder pools token embeddings. Empty for other tasks.
        normalize: Whether an embedder scales its embeddings to unit norm.
        word_unit: How a tagger splits texts into words. Empty for other tasks.
        prompts: An embedder's prompts by name. Models that accept token ids do not add them.
        default_prompt_name: The name of the prompt that models with text inputs add by default.
    """

    task: str
    predict_method: str
    fields: tuple[str, ...]
    list_fields: tuple[str, ...] = ()
    requests: tuple[RowRequest, ...] = (RowRequest(),)
    class_names: tuple[str, ...] = ()
    sequence_length: int | None = None
    query_length: int | None = None
    max_text_bytes: int | None = None
    dtype: str = "float32"
    embedding_kind: str = ""
    pooling: str = ""
    normalize: bool = False
    word_unit: str = ""
    prompts: Mapping[str, str] = dataclasses.field(default_factory=dict)
    default_prompt_name: str | None = None

    @classmethod
    def from_task(cls, task: Servable, options: ExportOptions) -> Self:
        """Creates an export's description."""
        is_saved_model = options.format == "tf_saved_model"
        prompts = Prompts.from_task(task)
        lengths = text_lengths(task.preprocessor) if is_saved_model else (None, None)
        return cls(
            type(task).__name__,
            task.predict_method,
            (*task.fields, *(task.optional_fields if options.pair else ())),
            task.list_fields,
            (task.serving_requests() if is_saved_model else ()),
            options.class_names or (),
            *lengths,
            options.max_text_bytes,
            options.dtype,
            task.embedding_kind,
            getattr(task, "pooling", ""),
            getattr(task, "normalize", False),
            getattr(task, "word_unit", None) or "",
            prompts.texts,
            prompts.default_name,
        )

    def to_json(self) -> str:
        """Returns the description as JSON."""
        return json.dumps(dataclasses.asdict(self), indent=2)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Creates a description from the output of `to_json`."""
        values: dict[str, Any] = json.loads(text)
        requests = tuple(RowRequest(**request) for request in values.pop("requests"))
        lists = {name: tuple(value) for name, value in values.items() if isinstance(value, list)}
        return cls(**{**values, **lists}, requests=requests)


def text_lengths(preprocessor: Any) -> tuple[int | None, int | None]:
    """Returns the `sequence_length` and the `query_length` of an `ExportDescription`."""
    if preprocessor.splits_texts:
        return None, None
    if isinstance(preprocessor, LateInteractionPreprocessor):
        special = num_special_tokens(preprocessor.tokenizer)
        return preprocessor.max_tokens(False) + special, preprocessor.max_tokens(True) + special
    return preprocessor.sequence_length, None
