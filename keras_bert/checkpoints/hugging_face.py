# SPDX-License-Identifier: Apache-2.0
"""Hugging Face's layout: config.json, model.safetensors (one or sharded), vocab.txt."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from keras_bert.checkpoints.bert_json import config_from_json
from keras_bert.checkpoints.checkpoint import Checkpoint
from keras_bert.checkpoints.errors import CheckpointError
from keras_bert.checkpoints.folders import read_json
from keras_bert.checkpoints.hugging_face_families import BERT, CLASSIFIERS, FAMILIES, Family
from keras_bert.checkpoints.layouts import Layout, Stored
from keras_bert.checkpoints.tensors import (
    Location,
    SafetensorsFiles,
    open_safetensors,
)
from keras_bert.checkpoints.tokenizer_files import read_tokenizer
from keras_bert.checkpoints.weights import POOLER_WEIGHTS

CONFIG_FILE = "config.json"
WEIGHTS_FILE = "model.safetensors"
INDEX_FILE = "model.safetensors.index.json"

_ACTIVATIONS = {
    "gelu": "gelu_erf",
    "gelu_python": "gelu_erf",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_python_tanh": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu_accurate": "gelu_tanh",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
    "tanh": "tanh",
}

# They stand on the pooled output: of the first token there, which sees no other in a causal model.
ON_POOLED_OUTPUT = ("next_sentence", "classifier", "multiple_choice")
# Where that makes it another pooler: one that is stored is then not loaded, but named as unused.
_POOLER = {name: Stored((f"{name} (of the last token)",)) for name in POOLER_WEIGHTS}
_PLACEHOLDER = re.compile(r"LABEL_\d+")
# The families that have a class with a causal mask
CAUSAL_FAMILIES = ("bert", "roberta", "electra")


def open_folder(folder: Path) -> Checkpoint:
    """A checkpoint in Hugging Face's layout."""
    path = folder / CONFIG_FILE
    fields = read_json(path)
    family = _family(fields, path)
    _reject_unsupported(fields, path, family)
    config = config_from_json(fields, path, _ACTIVATIONS, family.json)
    if fields.get("is_decoder"):
        config = config.replace(causal=True)
    layout = family.backbone_layout(config)
    return Checkpoint(
        format="hugging_face",
        folder=folder,
        config=config,
        backbone_layout=layout | (_POOLER if config.causal and config.pooler else {}),
        head_layouts=_head_layouts(fields, family, config.causal),
        open_tensors=lambda: SafetensorsFiles(_locations(folder, family.scope)),
        open_tokenizer=lambda: read_tokenizer(folder),
        unsupported_heads=_unsupported_heads(fields),
        class_names=_class_names(fields, path),
    )


def _family(fields: Mapping[str, Any], path: Path) -> Family:
    # The miniatures of the TF1 release were published without a model_type.
    model_type = fields.get("model_type") or BERT.model_type
    if model_type not in FAMILIES:
        raise CheckpointError(
            f"{path}: model_type is {model_type!r}, which is not supported; it must be "
            f"{' or '.join(map(repr, FAMILIES))}."
        )
    return FAMILIES[model_type]


def _reject_unsupported(fields: Mapping[str, Any], path: Path, family: Family) -> None:
    may_be_causal = family.model_type in CAUSAL_FAMILIES
    allowed: dict[str, tuple[Any, ...]] = {
        "position_embedding_type": ("absolute", None),
        "is_decoder": (False, True, None) if may_be_causal else (False, None),
        "add_cross_attention": (False, None),
        "pruned_heads": ({}, None),
        "quantization_config": (None,),
        "inner_group_num": (1, None),
        "summary_type": ("first", None),
        "summary_use_proj": (True, None),
        "summary_activation": ("gelu", None),
    }
    for key, values in allowed.items():
        if fields.get(key) not in values:
            expected = " or ".join("absent" if value is None else repr(value) for value in values)
            raise CheckpointError(
                f"{path}: {key} is {fields[key]!r}, which is not supported; it must be {expected}."
            )


def _head_layouts(fields: Mapping[str, Any], family: Family, causal: bool) -> dict[str, Layout]:
    architectures = fields.get("architectures")
    names = map(str, architectures) if isinstance(architectures, list) else ()
    # Three classes call their head "classifier", so the class decides whose it is.
    named: tuple[str, ...] = next(filter(None, map(family.class_heads, names)), ())
    absent = set(CLASSIFIERS) - set(named)
    if absent == set(CLASSIFIERS):
        absent.remove("classifier")
    if fields.get("tie_word_embeddings") is False:
        absent.add("masked_lm")  # its decoder is a table of its own, which our head has not
    if causal:
        absent |= set(ON_POOLED_OUTPUT)
    return {name: layout for name, layout in family.heads.items() if name not in absent}


def _unsupported_heads(fields: Mapping[str, Any]) -> dict[str, str]:
    problem = fields.get("problem_type")
    if problem != "multi_label_classification":
        return {}
    return {
        "classifier": f"{CONFIG_FILE} says problem_type {problem!r}: each output of the classifier "
        "is a yes or no of its own (a sigmoid), where those of a TextClassifier exclude one "
        "another (a softmax). Load the encoder alone with `Backbone.from_preset`, or give another "
        "number of classes for a fresh head."
    }


def _class_names(fields: Mapping[str, Any], path: Path) -> tuple[str, ...] | None:
    names = fields.get("id2label")
    if not names:
        return None
    ids = [str(index) for index in range(len(names))] if isinstance(names, dict) else []
    if not ids or set(names) != set(ids):
        raise CheckpointError(
            f"{path}: id2label is {names!r}; it must name the classes '0', '1', '2' …"
        )
    ordered = tuple(str(names[index]) for index in ids)
    return None if all(map(_PLACEHOLDER.fullmatch, ordered)) else ordered


def _locations(folder: Path, scope: str) -> dict[str, Location]:
    """Where each tensor lies, by its name without prefix and with today's LayerNorm words."""
    locations: dict[str, Location] = {}
    for path, promised in _weight_files(folder).items():
        with open_safetensors(path) as file:
            stored_names = list(file.keys())
        absent = sorted(promised - set(stored_names))
        if absent:
            raise CheckpointError(
                f"{folder / INDEX_FILE}: weight_map says that {path.name} holds the tensor "
                f"{absent[0]!r}, which is not in it"
                + (f" (nor are {len(absent) - 1} more)." if absent[1:] else ".")
            )
        for stored in stored_names:
            name = stored.removeprefix(scope)
            name = re.sub(r"LayerNorm\.gamma$", "LayerNorm.weight", name)
            name = re.sub(r"LayerNorm\.beta$", "LayerNorm.bias", name)
            if name in locations:
                raise CheckpointError(
                    f"{path}: tensor {stored!r} is the same weight as {locations[name].name!r} "
                    f"in {locations[name].path}; expected one of them."
                )
            # A buffer that counts 0, 1, 2 …
            if name != "embeddings.position_ids":
                locations[name] = Location(path, stored)
    return locations


def _weight_files(folder: Path) -> dict[Path, set[str]]:
    """The files of weights, each with the tensors that an index says it holds."""
    if (folder / WEIGHTS_FILE).exists():
        return {folder / WEIGHTS_FILE: set()}
    if not (folder / INDEX_FILE).exists():
        raise CheckpointError(_no_weights(folder))
    index = folder / INDEX_FILE
    shards = read_json(index).get("weight_map")
    if not isinstance(shards, dict) or not shards:
        raise CheckpointError(f"{index}: weight_map must give the file of each tensor.")
    tensors: dict[str, set[str]] = {}
    for tensor, shard in shards.items():
        tensors.setdefault(str(shard), set()).add(tensor)
    for name in sorted(tensors):
        if name != os.path.basename(name) or not name.endswith(".safetensors"):
            raise CheckpointError(
                f"{index}: weight_map names the file {name!r}; it must be the plain name of a "
                ".safetensors file in the same folder."
            )
    return {folder / name: tensors[name] for name in sorted(tensors)}


def _no_weights(folder: Path) -> str:
    message = f"{folder} holds neither {WEIGHTS_FILE} nor {INDEX_FILE}."
    others = sorted(
        path.name
        for path in folder.iterdir()
        if path.suffix in (".bin", ".pt", ".pth", ".h5", ".msgpack")
    )
    found = f" Found {', '.join(others)}." if others else ""
    return (
        f"{message}{found} Only safetensors are opened: the pickles of PyTorch can execute code "
        "when they are loaded. Convert a model that you trust once, with the transformers "
        "library: `AutoModel.from_pretrained(...).save_pretrained(folder)`."
    )
