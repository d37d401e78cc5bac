# SPDX-License-Identifier: Apache-2.0
"""Writing Hugging Face's layout."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from keras_bert.checkpoints import weights
from keras_bert.checkpoints.bert_json import config_to_json, misfits
from keras_bert.checkpoints.errors import CheckpointError
from keras_bert.checkpoints.folders import replaced_files, write_json
from keras_bert.checkpoints.hugging_face import (
    CAUSAL_FAMILIES,
    CONFIG_FILE,
    INDEX_FILE,
    ON_POOLED_OUTPUT,
    WEIGHTS_FILE,
)
from keras_bert.checkpoints.hugging_face_families import CLASSIFIERS, FAMILIES, Family
from keras_bert.checkpoints.layouts import Stored, disassemble
from keras_bert.checkpoints.tensors import write_safetensors
from keras_bert.checkpoints.tokenizer_files import ALL_FILES, write_tokenizer
from keras_bert.config import BertConfig

_WORDS = {
    "gelu_erf": "gelu",
    "gelu_tanh": "gelu_new",
    "relu": "relu",
    "silu": "silu",
    "tanh": "tanh",
}
# As ours, by what the name of a class ends in
_WITHOUT_POOLER = (
    "ForMaskedLM",
    "LMHeadModel",
    "ForCausalLM",
    "ForTokenClassification",
    "ForQuestionAnswering",
)


def save_hugging_face(
    model: Any,
    folder: str | os.PathLike[str],
    *,
    heads: Mapping[str, weights.Head] | None = None,
    tokenizer: Mapping[str, Any] | None = None,
    class_names: Sequence[str] | None = None,
) -> None:
    """Writes a folder that the `transformers` library reads, names and all.

    The architecture decides the family, of BERT, RoBERTa, ALBERT, ELECTRA and DistilBERT the first
    that can say it. The heads decide the class: on a BERT none is `BertModel`, `masked_lm` and
    `next_sentence` are `BertForPreTraining`, `classifier` is `BertForSequenceClassification`. As
    there, the masked-LM and token classes have no pooler. A causal encoder has `is_decoder`, no
    pooler in any class (it would look at another token there), and with `masked_lm` it is
    `BertLMHeadModel`.

    Args:
        model: The encoder, or a task, whose heads, tokenizer and class names are then written too;
            of a distiller, its student. Weights are written in the dtype that they have.
        folder: Where to write; files of the same names are replaced.
        heads: The heads to write too, each with its layer or layers; `None` takes the task's.
        tokenizer: The tokenizer's config; `None` takes the task's, if it has a preprocessor.
        class_names: What a classifier's outputs mean, in their order; `None` takes the task's.

    Raises:
        TypeError: If the model is neither an encoder nor a task.
        CheckpointError: If no family has this architecture or no class these heads, or one stands
            on the pooled output of a causal encoder.
    """
    backbone, heads, tokenizer, class_names = weights.parts_of(model, heads, tokenizer, class_names)
    causal = backbone.config.causal
    family = _family_of(backbone.config, "masked_lm" in heads)
    ending = _class_of(family, heads, causal)
    tensors = _tensors_of(family, backbone, heads, ending)
    config = {
        "architectures": [family.class_prefix + ending],
        "model_type": family.model_type,
        **config_to_json(backbone.config, _WORDS, family.json),
        **({"is_decoder": True} if causal else {}),
        **_labels(heads, class_names),
    }
    owned = (CONFIG_FILE, WEIGHTS_FILE, INDEX_FILE, *ALL_FILES)
    with replaced_files(folder, owned=owned) as temporary:
        write_json(temporary / CONFIG_FILE, config)
        write_safetensors(temporary / WEIGHTS_FILE, tensors)
        length = backbone.config.max_sequence_length
        write_tokenizer(temporary, tokenizer, length)


def _family_of(config: BertConfig, masked_lm: bool) -> Family:
    needs = {name: misfits(config, family.json, masked_lm) for name, family in FAMILIES.items()}
    for name, needed in needs.items():
        if not needed and (not config.causal or name in CAUSAL_FAMILIES):
            return FAMILIES[name]
    wanted = "; ".join(f"{name} needs {', '.join(needed)}" for name, needed in needs.items())
    raise CheckpointError(
        f"No family of the transformers library has this architecture: {wanted}. Save it with "
        "`save_preset`."
    )


def _class_of(family: Family, heads: Mapping[str, Any], causal: bool) -> str:
    if causal and set(heads) & set(ON_POOLED_OUTPUT):
        raise CheckpointError(
            f"The heads are {', '.join(heads)} and the encoder is causal: its pooled output is of "
            "the last token, and that of the transformers library of the first. Save it with "
            "`save_preset`."
        )
    named = set(heads) - {"pooler"}
    endings = [ending for ending, names in family.classes.items() if set(names) == named]
    if not endings:
        known = "; ".join(", ".join(names) for names in family.classes.values() if names)
        raise CheckpointError(
            f"No class of the transformers library has the heads {', '.join(heads)} on a "
            f"{family.model_type}; there are: {known}."
        )
    # Of two that differ in nothing else, the second one is the causal one's.
    return endings[-1 if causal else 0]


def _tensors_of(
    family: Family,
    backbone: weights.Encoder,
    heads: Mapping[str, weights.Head] | None,
    ending: str,
) -> dict[str, np.ndarray[Any, Any]]:
    scope = "" if ending == "Model" else family.scope
    layout = family.backbone_layout(backbone.config)
    tensors: dict[str, np.ndarray[Any, Any]] = {}
    for ours, weight in weights.backbone_weights(backbone).items():
        is_pooler = ours in weights.POOLER_WEIGHTS
        if is_pooler and (ending in _WITHOUT_POOLER or backbone.config.causal):
            continue
        if is_pooler and ending in family.poolers:
            tensors |= _pooler_tensors(family, ending, {ours.rpartition(".")[2]: weight})
            continue
        for name, value in disassemble(layout[ours], weights.to_numpy(weight)):
            tensors[scope + name] = value
    for head, values in weights.all_head_weights(heads).items():
        if head == "pooler":
            tensors |= _pooler_tensors(family, ending, values)
            continue
        for ours, weight in values.items():
            tensors |= disassemble(family.heads[head][ours], weights.to_numpy(weight))
    return tensors


def _pooler_tensors(
    family: Family, ending: str, values: Mapping[str, Any]
) -> dict[str, np.ndarray[Any, Any]]:
    """A pooler where the class keeps it: in its head."""
    kinds = {"kernel": "weight", "bias": "bias"}
    return {
        name: value
        for kind, weight in values.items()
        for name, value in disassemble(
            Stored((f"{family.poolers[ending]}.{kinds[kind]}",), transposed=kind == "kernel"),
            weights.to_numpy(weight),
        )
    }


def _labels(
    heads: Mapping[str, weights.Head], class_names: Sequence[str] | None
) -> dict[str, dict[str, Any]]:
    classifier = next((heads[name] for name in CLASSIFIERS[:2] if name in heads), None)
    if classifier is None:
        return {}
    num_classes = weights.head_weights(classifier)["kernel"].shape[-1]
    names = list(class_names or (f"LABEL_{index}" for index in range(num_classes)))
    if len(names) != num_classes:
        raise CheckpointError(
            f"class_names has {len(names)} names; the classifier has {num_classes} outputs."
        )
    return {
        "id2label": {str(index): name for index, name in enumerate(names)},
        "label2id": {name: index for index, name in enumerate(names)},
    }
