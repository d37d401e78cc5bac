# SPDX-License-Identifier: Apache-2.0
"""Loads and saves the Hugging Face format (config.json, model.safetensors, tokenizer files)."""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from keras_bert.checkpoints import late_interaction, sentence_transformers, weights
from keras_bert.checkpoints.checkpoint import Checkpoint
from keras_bert.checkpoints.config_fields import (
    compatible_families,
    needs_zero_segments,
    read_config,
    unsupported_fields,
    with_zero_segments,
    write_config,
)
from keras_bert.checkpoints.directories import checkpoint_errors, read_json, replaced_files
from keras_bert.checkpoints.errors import CheckpointError, check_same
from keras_bert.checkpoints.layouts import backbone_layout, disassemble, zero_segments
from keras_bert.checkpoints.model_card import CARD_FILE, model_card
from keras_bert.checkpoints.tensors import (
    Location,
    SafetensorsFiles,
    open_safetensors,
    write_safetensors,
)
from keras_bert.checkpoints.tokenizer_check import check_tokenizer_json
from keras_bert.checkpoints.weights import POOLER_WEIGHTS
from keras_bert.checks import FRACTION
from keras_bert.config import BertConfig
from keras_bert.families import FAMILIES
from keras_bert.families.bert import BERT
from keras_bert.families.records import Family, Layout, StoredTensor
from keras_bert.families.shared import ACTIVATIONS
from keras_bert.families.weight_names import CLASSIFIERS, hf_dense
from keras_bert.vocabularies.files import write_json
from keras_bert.vocabularies.tokenizer_config import list_tokens
from keras_bert.vocabularies.tokenizer_reader import read_tokenizer
from keras_bert.vocabularies.tokenizer_settings import ALL_FILES
from keras_bert.vocabularies.tokenizer_writer import write_tokenizer

CONFIG_FILE = "config.json"
WEIGHTS_FILE = "model.safetensors"
INDEX_FILE = "model.safetensors.index.json"

# Heads on the pooled output. `transformers` pools the first token. In a causal model, the first
# token attends to no other token, so this package pools the last token.
_ON_POOLED_OUTPUT = ("next_sentence", "classifier", "multiple_choice")
# Heads whose outputs have names
_NAMED_OUTPUTS = (*CLASSIFIERS[:2], "next_sentence")
# In causal models, the pooler's tensor names occur in no file. So a stored pooler is never loaded,
# and is reported as unused.
_POOLER = {name: StoredTensor((f"{name} (of the last token)",)) for name in POOLER_WEIGHTS}
_SINGLE_LABEL, _MULTI_LABEL = "single_label_classification", "multi_label_classification"
# A field in config.json that only this package reads
_OWN_FIELD = "keras_bert"
# The options in this field: of multi-label classifiers, of other classifiers, and of taggers
_OWN_OPTIONS = ("thresholds", "min_score", "word_unit", "scheme")
# The options of the preprocessor in this field, if it splits long texts into windows
_WINDOW_OPTIONS = ("long_texts", "overlap", "sequence_length")
# Without these fields, the pipeline and the cross-encoder apply a sigmoid to a single output.
_REGRESSION = {
    "problem_type": "regression",
    "sentence_transformers": {sentence_transformers.ACTIVATION: "torch.nn.modules.linear.Identity"},
}
# Names in WordPiece or SentencePiece vocabularies, and in byte-level BPE vocabularies
_SPECIAL_TOKENS = {
    "cls": ("[CLS]", "<s>"),
    "sep": ("[SEP]", "</s>"),
    "mask": ("[MASK]", "<mask>"),
}
# Suffixes of the classes without a pooler
_WITHOUT_POOLER = (
    "ForMaskedLM",
    "LMHeadModel",
    "ForCausalLM",
    "ForTokenClassification",
    "ForQuestionAnswering",
)


def open_directory(directory: Path) -> Checkpoint:
    """Opens a checkpoint in the Hugging Face format."""
    path = directory / CONFIG_FILE
    fields = read_json(path)
    family = _family(fields, path)
    config = read_config(family.config, fields, path, ACTIVATIONS)
    if fields.get("is_decoder"):
        config = config.replace(causal=True)
    layout = backbone_layout(family.hugging_face, config)
    head_layouts = _head_layouts(fields, family, config.causal)
    head_layouts[late_interaction.HEAD] = late_interaction.HEAD_LAYOUT
    class_names = _class_names(fields, path)
    num_outputs = len(class_names) if class_names else fields.get("num_labels", 2)
    activation, unsupported = _activation(fields, num_outputs, directory)
    is_multi_label = fields.get("problem_type") == _MULTI_LABEL or num_outputs != 1
    is_multi_label &= activation == "Sigmoid"
    is_second_class = num_outputs == 1 and activation == "Sigmoid" and not is_multi_label
    if is_second_class and "classifier" in head_layouts:
        class_names = None  # The file only has a name for the second class.
        head_layouts["classifier"] = {
            weight_name: dataclasses.replace(stored, second_of_two=True)
            for weight_name, stored in head_layouts["classifier"].items()
        }
    return Checkpoint(
        format="hugging_face",
        directory=directory,
        config=config,
        backbone_layout=layout | (_POOLER if config.causal and config.pooler else {}),
        head_layouts=head_layouts,
        open_tensors=lambda: SafetensorsFiles(_locations(directory, family.scopes, fields)),
        open_tokenizer=lambda: read_tokenizer(directory),
        unsupported_heads={"classifier": unsupported} if unsupported else {},
        class_names=None if class_names == _placeholders(len(class_names or ())) else class_names,
        task=_task_options(fields, path, is_multi_label) or None,
        decoder_is_tied=fields.get("tie_word_embeddings") is not False,
    )


def _family(fields: Mapping[str, Any], path: Path) -> Family:
    # The miniature BERT models were published without a model_type.
    model_type = fields.get("model_type") or BERT.name
    families = [
        family for family in FAMILIES.values() if model_type in (family.name, family.released_name)
    ]
    if not families:
        raise CheckpointError(
            f"{path}: model_type must be {' or '.join(map(repr, FAMILIES))}. Received: "
            f"{model_type!r}"
        )
    return families[0]


def _head_layouts(fields: Mapping[str, Any], family: Family, causal: bool) -> dict[str, Layout]:
    architectures = fields.get("architectures")
    names = map(str, architectures) if isinstance(architectures, list) else ()
    # Only the suffixes of class names matter, because the prefix may come from the original code.
    suffixes = sorted(filter(family.classes.get, family.classes), key=len, reverse=True)
    ending = next((each for name in names for each in suffixes if name.endswith(each)), "")
    # Multiple classes call their head "classifier".
    layouts = family.hugging_face.heads
    classifiers = {name for name in layouts if layouts[name] == layouts.get("token_classifier")}
    classifiers |= set(CLASSIFIERS)
    absent = classifiers - set(family.classes.get(ending, ()))
    if absent == classifiers:
        absent.remove("classifier")
    if causal:
        absent |= set(_ON_POOLED_OUTPUT)
    heads = {name: layout for name, layout in layouts.items() if name not in absent}
    if "pooler" in heads and ending in family.poolers:
        # Tensor names are read without the encoder's scope.
        heads["pooler"] = hf_dense(family.poolers[ending].removeprefix(family.scope))
    return heads


def _activation(fields: Mapping[str, Any], num_outputs: Any, directory: Path) -> tuple[str, str]:
    """Returns the PyTorch activation for a classifier's outputs, and an error message.

    The activation is specified by the files for sentence-transformers, and otherwise is the default
    of the `transformers` pipeline. The message is empty if a task supports the activation.
    """
    problem = fields.get("problem_type")
    if problem not in (None, "regression", _SINGLE_LABEL, _MULTI_LABEL) or (
        problem == _SINGLE_LABEL and num_outputs == 1
    ):
        raise CheckpointError(
            f"{directory / CONFIG_FILE}: problem_type must be 'regression', {_SINGLE_LABEL!r} (for "
            "2 "
            f"outputs or more), {_MULTI_LABEL!r} or absent. Received: {problem!r} for "
            f"{num_outputs} outputs"
        )
    activation = sentence_transformers.output_activation(directory, fields)
    if num_outputs == 1:
        activation = activation or ("Identity" if problem == "regression" else "Sigmoid")
        is_supported = activation in ("Identity", "Sigmoid")
    else:
        default = "Sigmoid" if problem == _MULTI_LABEL else "Softmax"
        activation = activation or default
        is_supported = activation == "Sigmoid" or (
            problem in (None, _SINGLE_LABEL) and activation in ("Identity", "Softmax")
        )
    message = (
        "A TextClassifier's outputs must be mutually exclusive classes (softmax), independent "
        f"classes (sigmoid), or a single score. Received: {CONFIG_FILE} with problem_type "
        f"{problem!r}, {num_outputs} outputs and the activation {activation}. Pass a different "
        "number of classes for a TextClassifier with a new head."
    )
    return activation, "" if is_supported else message


def _task_options(fields: Mapping[str, Any], path: Path, is_multi_label: bool) -> dict[str, Any]:
    """Returns the options of a task and its preprocessor that only this package reads."""
    own = fields.get(_OWN_FIELD) or {}
    names = (*_OWN_OPTIONS[1:], *_WINDOW_OPTIONS)
    options = {name: own[name] for name in names if name in own} if isinstance(own, dict) else {}
    if not is_multi_label:
        return options
    thresholds = own.get("thresholds") if isinstance(own, dict) else own
    if thresholds is not None and not (
        isinstance(thresholds, list) and all(map(FRACTION.allows, thresholds))
    ):
        raise CheckpointError(
            f"{path}: {_OWN_FIELD}.thresholds must be a list of numbers from 0 to 1. Received: "
            f"{thresholds!r}"
        )
    return {**options, "multi_label": True, "thresholds": thresholds}


def _class_names(fields: Mapping[str, Any], path: Path) -> tuple[str, ...] | None:
    names = fields.get("id2label")
    if not names:
        return None
    ids = [str(index) for index in range(len(names))] if isinstance(names, dict) else []
    if not ids or set(names) != set(ids):
        raise CheckpointError(
            f"{path}: id2label must have a name for each class '0', '1', '2' …. Received: {names!r}"
        )
    return tuple(str(names[index]) for index in ids)


def _placeholders(num_classes: int) -> tuple[str, ...]:
    """Returns the transformers library's names for unnamed classes."""
    return tuple(f"LABEL_{index}" for index in range(num_classes))


def _locations(
    directory: Path, scopes: Sequence[str], fields: Mapping[str, Any]
) -> dict[str, Location]:
    """Locates the tensors by name, without scopes and with the current LayerNorm names."""
    locations: dict[str, Location] = {}
    files = _weight_files(directory)
    if late_interaction.detect_layout(directory, fields) not in ("", "colbert"):
        files |= _weight_files(late_interaction.projection_directory(directory))
    for path, expected_names in files.items():
        with open_safetensors(path) as file:
            stored_names = list(file.keys())
        absent = sorted(expected_names - set(stored_names))
        if absent:
            raise CheckpointError(
                f"{directory / INDEX_FILE}: weight_map must assign each tensor to the file that "
                f"contains it. Received: {absent[0]!r} for {path.name}"
                + (f" and {len(absent) - 1} more" if absent[1:] else "")
            )
        for stored_name in stored_names:
            scope = next(filter(stored_name.startswith, scopes), "")
            name = stored_name.removeprefix(scope)
            name = re.sub(r"LayerNorm\.gamma$", "LayerNorm.weight", name)
            name = re.sub(r"LayerNorm\.beta$", "LayerNorm.bias", name)
            if name in locations:
                raise CheckpointError(
                    f"{path}: each weight must be stored once. Received: {stored_name!r}, and "
                    f"{locations[name].name!r} in {locations[name].path}"
                )
            # position_ids is a buffer with 0, 1, 2 …, not a weight.
            if name != "embeddings.position_ids":
                locations[name] = Location(path, stored_name)
    return locations


def _weight_files(directory: Path) -> dict[Path, set[str]]:
    """Finds the weight files and the tensors that an index assigns to each file."""
    if (directory / WEIGHTS_FILE).exists():
        return {directory / WEIGHTS_FILE: set()}
    if not (directory / INDEX_FILE).exists():
        raise CheckpointError(_no_weights(directory))
    index = directory / INDEX_FILE
    shards = read_json(index).get("weight_map")
    if not isinstance(shards, dict) or not shards:
        raise CheckpointError(f"{index}: weight_map must map each tensor to its file.")
    tensors: dict[str, set[str]] = {}
    for tensor, shard in shards.items():
        tensors.setdefault(str(shard), set()).add(tensor)
    for name in sorted(tensors):
        if name != os.path.basename(name) or not name.endswith(".safetensors"):
            raise CheckpointError(
                f"{index}: weight_map must only contain names of .safetensors files in the same "
                f"directory. Received: {name!r}"
            )
    return {directory / name: tensors[name] for name in sorted(tensors)}


def _no_weights(directory: Path) -> str:
    message = f"{directory} has neither {WEIGHTS_FILE} nor {INDEX_FILE}."
    others = sorted(
        path.name
        for path in directory.iterdir()
        if path.suffix in (".bin", ".pt", ".pth", ".h5", ".msgpack")
    )
    hint = f" Found {', '.join(others)}." if others else ""
    return (
        f"{message}{hint} Only safetensors files are loaded, because PyTorch's pickles can execute "
        "code. If you trust the model, convert it with the transformers library: "
        "`AutoModel.from_pretrained(...).save_pretrained(directory)`."
    )


def save_hugging_face(
    model: Any,
    preset_dir: str | os.PathLike[str],
    *,
    heads: Mapping[str, weights.Head] | None = None,
    tokenizer: Mapping[str, Any] | None = None,
    class_names: Sequence[str] | None = None,
    card: Mapping[str, Any] | None = None,
    layout: late_interaction.WrittenLayout = "pylate",
) -> None:
    """Saves a model in the Hugging Face format, for example for the `transformers` library.

    The model is saved as the first family in `FAMILIES` that can represent its architecture and has
    its type of tokenizer. The heads determine the class. For example, BERT is saved as:

    - `BertModel` without heads
    - `BertForPreTraining` with `masked_lm` and `next_sentence`
    - `BertForSequenceClassification` with `classifier`
    - `BertLMHeadModel` with `masked_lm`, if it is causal

    As in `transformers`, the classes for masked LM and for token-level tasks have no pooler. A
    causal encoder is saved with `is_decoder` and without a pooler, because `transformers` would
    pool a different token. If a family requires segment embeddings, as BERT does, an encoder
    without segments is saved with two zero embeddings. A `TextEmbedder` or `SparseEmbedder` is
    saved with its pooling mode for `sentence-transformers`, and a `LateInteractionEmbedder` with
    its options for PyLate or `sentence-transformers` 6.

    Args:
        model: Encoder, or task with its heads, tokenizer and class names. For a distiller, the
            student is saved. Weights are saved in their own dtype.
        preset_dir: Directory to write to. Existing files are replaced.
        heads: Layer or layers of each head by name. Defaults to the task's heads.
        tokenizer: Tokenizer config. Defaults to the task's tokenizer.
        class_names: A classifier's class names in the order of its outputs. Defaults to the task's
            class names.
        card: Arguments of `model_card`. Defaults to no model card.
        layout: Layout of a `LateInteractionEmbedder`: `"pylate"`, which `sentence-transformers` 6
            also reads, or `"sentence_transformers"`.

    Raises:
        TypeError: If the model is neither an encoder nor a task.
        CheckpointError: If no family can represent the architecture, no class has these heads, a
            head is on a causal encoder's pooled output, or the files would not be read as the same
            model. The message contains the field, and no file is replaced.
    """
    backbone, heads, tokenizer, class_names = weights.split_model(
        model, heads, tokenizer, class_names
    )
    causal = backbone.config.causal
    task = getattr(model, "student_task", model)
    late = None
    if late_interaction.HEAD in heads:
        late = late_interaction.written_options(task, layout)
        tokenizer = late_interaction.written_tokenizer(task, tokenizer, layout)
    has_own = tokenizer is not None and tokenizer == getattr(task, "tokenizer_config", None)
    own_tokenizer = task.preprocessor.tokenizer if has_own else None
    own = {
        name: list(value) if isinstance(value, tuple) else value
        for name in _OWN_OPTIONS
        if (value := getattr(task, name, None)) is not None
    }
    # The config is used because the preprocessor itself requires TensorFlow.
    preprocessor = (task.get_config() if has_own else {}).get("preprocessor") or {}
    if preprocessor.get("long_texts", "truncate") != "truncate":
        own |= {name: preprocessor[name] for name in _WINDOW_OPTIONS}
    family = _matching_family(backbone.config, "masked_lm" in heads)
    ending = _architecture_name(family, heads, causal)
    tensors = _collect_tensors(family, backbone, heads, ending)
    config = {
        "architectures": [family.class_prefix + ending],
        "model_type": family.name,
        **write_config(family.config, backbone.config, ACTIVATIONS),
        **({"is_decoder": True} if causal else {}),
        **_labels(heads, class_names, "thresholds" in own),
        **({_OWN_FIELD: own} if own else {}),
        **_token_ids(family, tokenizer),
    }
    embeds = sentence_transformers.model_options(model)
    text = None if card is None else model_card(family=family.name, **card)
    owned = (
        CONFIG_FILE,
        WEIGHTS_FILE,
        INDEX_FILE,
        *ALL_FILES,
        *sentence_transformers.ALL_FILES,
        *late_interaction.ALL_FILES,
    )
    with replaced_files(preset_dir, owned=owned) as temporary:
        write_json(temporary / CONFIG_FILE, config)
        write_safetensors(temporary / WEIGHTS_FILE, tensors)
        length = backbone.config.max_sequence_length
        with checkpoint_errors():
            write_tokenizer(temporary, tokenizer, length)
        if own_tokenizer is not None:
            check_tokenizer_json(temporary, own_tokenizer)
        if embeds:
            sentence_transformers.write_options(temporary, embeds, backbone.config.hidden_dim)
        if late is not None:
            head = weights.head_weights(heads[late_interaction.HEAD])
            late_interaction.write_options(
                temporary, late, head, backbone.config.hidden_dim, layout
            )
        if text is not None:
            (temporary / CARD_FILE).write_text(text, "utf-8", "backslashreplace")
        written = open_directory(temporary)
        names = tuple(class_names or ())
        written.check_written(
            with_zero_segments(family.config, backbone.config),
            heads,
            tokenizer,
            None if names == _placeholders(len(names)) else names,
        )
        for name in (*_OWN_OPTIONS, *_WINDOW_OPTIONS):
            check_same(name, own.get(name), (written.task or {}).get(name))
        if embeds:
            is_sparse = "activation" in embeds
            read = sentence_transformers.read_options(temporary, length, sparse=is_sparse)
            check_same("the sentence embedding options", embeds, read)
        if late is not None:
            check_same("the options", late, late_interaction.read_options(written))


def _token_ids(family: Family, tokenizer: Mapping[str, Any] | None) -> dict[str, int | None]:
    """Returns the special tokens' ids, because the class would otherwise use its defaults."""
    tokens = list_tokens(tokenizer) if tokenizer else []
    custom_tokens = (tokenizer or {}).get("special_tokens") or {}
    ids: dict[str, int | None] = {}
    for field, role in family.config.token_ids.items():
        names = [
            name for name in (custom_tokens.get(role), *_SPECIAL_TOKENS[role]) if name in tokens
        ]
        if names or role != "mask":  # The mask token's id must be an integer.
            ids[field] = tokens.index(names[0]) if names else None
    return ids


def _matching_family(config: BertConfig, masked_lm: bool) -> Family:
    fitting = compatible_families(config, masked_lm)
    if fitting:
        return fitting[0]
    requirements = "; ".join(
        f"{name} requires "
        f"{unsupported_fields(family.config, config, ACTIVATIONS, masked_lm) or 'causal=False'}"
        for name, family in FAMILIES.items()
    )
    raise CheckpointError(
        f"No family in the transformers library can represent this architecture: {requirements}. "
        "Save it with `save_preset`."
    )


def _architecture_name(family: Family, heads: Mapping[str, Any], causal: bool) -> str:
    if causal and set(heads) & set(_ON_POOLED_OUTPUT):
        raise CheckpointError(
            "A causal encoder cannot be saved with heads on its pooled output, because the "
            "transformers library pools the first token instead of the last. Received: "
            f"{', '.join(heads)}. Save it with `save_preset`."
        )
    head_names = set(heads) - {"pooler", late_interaction.HEAD}
    endings = [ending for ending, names in family.classes.items() if set(names) == head_names]
    if not endings:
        choices = "; ".join(", ".join(names) for names in family.classes.values() if names)
        raise CheckpointError(
            f"A {family.name} model's heads in the transformers library must be one of: "
            f"{choices}. Received: {', '.join(heads)}. Save it with `save_preset`."
        )
    # If two classes have the same heads, the second class is causal.
    return endings[-1 if causal else 0]


def _collect_tensors(
    family: Family,
    backbone: weights.Encoder,
    heads: Mapping[str, weights.Head] | None,
    ending: str,
) -> dict[str, np.ndarray[Any, Any]]:
    scope = family.scope if family.classes[ending] else ""
    layout = backbone_layout(family.hugging_face, backbone.config)
    tensors: dict[str, np.ndarray[Any, Any]] = {}
    for weight_name, weight in weights.backbone_weights(backbone).items():
        is_pooler = weight_name in POOLER_WEIGHTS
        if is_pooler and (ending in _WITHOUT_POOLER or backbone.config.causal):
            continue
        if is_pooler and ending in family.poolers:
            tensors |= _pooler_tensors(family, ending, {weight_name.rpartition(".")[2]: weight})
            continue
        for name, value in disassemble(layout[weight_name], weights.to_numpy(weight)):
            tensors[scope + name] = value
    if needs_zero_segments(family.config, backbone.config):
        for name, value in zero_segments(family.hugging_face, backbone.config).items():
            tensors[scope + name] = value
    for head, values in weights.all_head_weights(heads).items():
        if head == late_interaction.HEAD:
            continue
        if head == "pooler":
            tensors |= _pooler_tensors(family, ending, values)
            continue
        for weight_name, weight in values.items():
            tensors |= disassemble(
                family.hugging_face.heads[head][weight_name], weights.to_numpy(weight)
            )
    return tensors


def _pooler_tensors(
    family: Family, ending: str, values: Mapping[str, Any]
) -> dict[str, np.ndarray[Any, Any]]:
    """Returns a pooler's tensors for classes in `transformers` with the pooler in the head."""
    layout: Layout = family.hugging_face.heads.get("pooler", {})
    if ending in family.poolers:
        layout = hf_dense(family.poolers[ending])
    return {
        name: value
        for weight_name, weight in values.items()
        for name, value in disassemble(layout[weight_name], weights.to_numpy(weight))
    }


def _labels(
    heads: Mapping[str, weights.Head],
    class_names: Sequence[str] | None,
    is_multi_label: bool,
) -> dict[str, Any]:
    classifier = next((heads[name] for name in _NAMED_OUTPUTS if name in heads), None)
    if classifier is None:
        return {}
    num_classes = weights.head_weights(classifier)["kernel"].shape[-1]
    names = list(class_names or _placeholders(num_classes))
    if len(names) != num_classes:
        raise CheckpointError(
            f"class_names must have {num_classes} names, one per output. Received: {len(names)}"
        )
    kind: dict[str, Any] = _REGRESSION if num_classes == 1 else {}
    if is_multi_label:
        kind = {"problem_type": _MULTI_LABEL}
    return {
        "id2label": {str(index): name for index, name in enumerate(names)},
        "label2id": {name: index for index, name in enumerate(names)},
        **kind,
    }
