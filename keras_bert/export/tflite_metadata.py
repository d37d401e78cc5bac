# SPDX-License-Identifier: Apache-2.0
"""Adds TFLite metadata to LiteRT models: their tokenizer, and the labels of their output.

The metadata is a FlatBuffer in one of the model's own buffers. It names files in a zip archive at
the end of the model. The tables below are from version 1.5 of TFLite's `metadata_schema.fbs`, with
only the fields up to the last field that this module writes.
"""

from __future__ import annotations

import copy
from typing import Any

import flatbuffers

from keras_bert.ops import tflite_private

_METADATA_NAME = "TFLITE_METADATA"
_IDENTIFIER = b"M001"
_AXIS_LABELS, _VOCABULARY = 2, 5  # AssociatedFileType
_BERT_TOKENIZER = 4  # ProcessUnitOptions
_OFFSET_BYTES = 4

_FIELDS = {
    "AssociatedFile": ("name", "description", "type"),
    "BertTokenizerOptions": ("vocab_file",),
    "ProcessUnit": ("options_type", "options"),
    "TensorMetadata": (
        "name", "description", "dimension_names", "content", "process_units", "stats",
        "associated_files",
    ),
    "SubGraphMetadata": (
        "name", "description", "input_tensor_metadata", "output_tensor_metadata",
        "associated_files", "input_process_units",
    ),
    "ModelMetadata": ("name", "description", "version", "subgraph_metadata"),
}  # fmt: skip

# A table's values by the index of their field
_Table = dict[int, Any]


def add_metadata(
    model: bytes,
    name: str,
    input_names: dict[str, str],
    output_name: str,
    vocabulary_file: str,
    labels_file: str | None,
) -> bytes:
    """Returns a LiteRT model with metadata. The named files have to be appended to it.

    Args:
        model: A LiteRT model with one signature, one output and inputs of token ids.
        name: The model's name.
        input_names: Maps each input of the signature to its name in the metadata.
        output_name: The output's name in the metadata.
        vocabulary_file: File with the tokens of a WordPiece tokenizer, one per line.
        labels_file: File with the labels of the output's last axis, one per line.
    """
    content = tflite_private.read_model_from_bytearray(bytearray(model))
    (signature,), (graph,) = content.signatureDefs, content.subgraphs
    inputs = {each.tensorIndex: each.name.decode() for each in signature.inputs}
    vocabulary = _table("AssociatedFile", name=vocabulary_file, type=_VOCABULARY)
    tokenizer = _table("BertTokenizerOptions", vocab_file=[vocabulary])
    output = _table("TensorMetadata", name=output_name)
    if labels_file:
        labels = _table("AssociatedFile", name=labels_file, type=_AXIS_LABELS)
        output |= _table("TensorMetadata", associated_files=[labels])
    metadata = _table(
        "ModelMetadata",
        name=name,
        subgraph_metadata=[
            _table(
                "SubGraphMetadata",
                # In the order of the model's inputs, which the converter chooses
                input_tensor_metadata=[
                    _table("TensorMetadata", name=input_names[inputs[index]])
                    for index in graph.inputs
                ],
                output_tensor_metadata=[output],
                input_process_units=[
                    _table("ProcessUnit", options_type=_BERT_TOKENIZER, options=tokenizer)
                ],
            )
        ],
    )
    builder = flatbuffers.Builder()
    builder.Finish(_write(builder, metadata), file_identifier=_IDENTIFIER)
    # The converter has written metadata of its own.
    entry, buffer = copy.copy(content.metadata[0]), copy.copy(content.buffers[0])
    entry.name, entry.buffer = _METADATA_NAME, len(content.buffers)
    buffer.data = builder.Output()
    content.metadata.append(entry)
    content.buffers.append(buffer)
    return bytes(tflite_private.convert_object_to_bytearray(content))


def _table(kind: str, **values: Any) -> _Table:
    return {_FIELDS[kind].index(name): value for name, value in values.items()}


def _write(builder: Any, value: str | list[_Table] | _Table) -> int:
    """Writes a string, a vector of tables or a table, and returns its offset."""
    if isinstance(value, str):
        return int(builder.CreateString(value))
    if isinstance(value, list):
        offsets = [_write(builder, table) for table in value]
        builder.StartVector(_OFFSET_BYTES, len(offsets), _OFFSET_BYTES)
        for offset in reversed(offsets):  # A FlatBuffer is written from its end.
            builder.PrependUOffsetTRelative(offset)
        return int(builder.EndVector())
    # A table is written after the values that it refers to. Integers are stored inside it.
    fields = {
        slot: field if isinstance(field, int) else _write(builder, field)
        for slot, field in value.items()
    }
    builder.StartObject(max(fields) + 1)
    for slot, field in fields.items():
        if isinstance(value[slot], int):
            builder.PrependInt8Slot(slot, field, 0)
        else:
            builder.PrependUOffsetTRelativeSlot(slot, field, 0)
    return int(builder.EndObject())
