# SPDX-License-Identifier: Apache-2.0
"""Writing Hugging Face's layout."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from keras_bert.checkpoints import weights
from keras_bert.checkpoints.bert_json import config_to_json
from keras_bert.checkpoints.errors import CheckpointError
from keras_bert.checkpoints.folders import replaced_files, write_json
from keras_bert.checkpoints.hugging_face import (
    ARCHITECTURES,
    CLASSIFIERS,
    CONFIG_FILE,
    HEAD_LAYOUTS,
    INDEX_FILE,
    ON_POOLED_OUTPUT,
    WEIGHTS_FILE,
    backbone_layout,
)
from keras_bert.checkpoints.layouts import disassemble
from keras_bert.checkpoints.tensors import write_safetensors
from keras_bert.checkpoints.tokenizer_files import (
    SETTINGS_FILE,
    VOCABULARY_FILE,
    write_tokenizer,
)
from keras_bert.models import Backbone

_WORDS = {
    "gelu_erf": "gelu",
    "gelu_tanh": "gelu_new",
    "relu": "relu",
    "silu": "silu",
    "tanh": "tanh",
}
_WITHOUT_POOLER = (
    "BertForMaskedLM",
    "BertLMHeadModel",
    "BertForTokenClassification",
    "BertForQuestionAnswering",
)


def save_hugging_face(
    backbone: Backbone,
    folder: str | os.PathLike[str],
    *,
    heads: Mapping[str, weights.Head] | None = None,
    vocabulary: Sequence[str] | None = None,
    lowercase: bool = True,
    class_names: Sequence[str] | None = None,
) -> None:
    """Writes a folder that the `transformers` library reads, names and all.

    The heads decide the class: none is `BertModel`, `masked_lm` and `next_sentence` are
    `BertForPreTraining`, `classifier` is `BertForSequenceClassification`. As there, the masked-LM
    and token classes have no pooler. A causal encoder has `is_decoder`, no pooler in any class (it
    would look at another token there), and with `masked_lm` it is `BertLMHeadModel`.

    Args:
        backbone: The encoder; its weights are written in the dtype that they have.
        folder: Where to write; files of the same names are replaced.
        heads: The heads to write too, each with its layer or layers.
        vocabulary: The word pieces.
        lowercase: Whether text is lowercased for them.
        class_names: What a classifier's outputs mean, in their order.

    Raises:
        CheckpointError: If no class has these heads, or one stands on the pooled output of a
            causal encoder.
    """
    causal = backbone.config.causal
    architecture = _architecture_of(heads or {}, causal)
    tensors = _tensors_of(backbone, heads, architecture)
    config = {
        "architectures": [architecture],
        "model_type": "bert",
        **config_to_json(backbone.config, _WORDS),
        **({"is_decoder": True} if causal else {}),
        **_labels(heads or {}, class_names),
    }
    owned = (CONFIG_FILE, WEIGHTS_FILE, INDEX_FILE, VOCABULARY_FILE, SETTINGS_FILE)
    with replaced_files(folder, owned=owned) as temporary:
        write_json(temporary / CONFIG_FILE, config)
        write_safetensors(temporary / WEIGHTS_FILE, tensors)
        length = backbone.config.max_sequence_length
        write_tokenizer(temporary, vocabulary, lowercase, length)


def _architecture_of(heads: Mapping[str, Any], causal: bool) -> str:
    if causal and set(heads) & set(ON_POOLED_OUTPUT):
        raise CheckpointError(
            f"The heads are {', '.join(heads)} and the encoder is causal: its pooled output is of "
            "the last token, and that of the transformers library of the first. Save it with "
            "`save_preset`."
        )
    if causal and set(heads) == {"masked_lm"}:
        return "BertLMHeadModel"
    for architecture, names in ARCHITECTURES.items():
        if set(names) == set(heads):
            return architecture
    known = "; ".join(", ".join(names) for names in ARCHITECTURES.values() if names)
    raise CheckpointError(
        f"No class of the transformers library has the heads {', '.join(heads)}; "
        f"there are: {known}."
    )


def _tensors_of(
    backbone: Backbone, heads: Mapping[str, weights.Head] | None, architecture: str
) -> dict[str, np.ndarray[Any, Any]]:
    layout = backbone_layout(backbone.config.num_layers)
    prefix = "" if architecture == "BertModel" else "bert."
    has_pooler = architecture not in _WITHOUT_POOLER and not backbone.config.causal
    dropped = () if has_pooler else weights.POOLER_WEIGHTS
    tensors = {
        prefix + name: value
        for ours, weight in weights.backbone_weights(backbone).items()
        if ours not in dropped
        for name, value in disassemble(layout[ours], weights.to_numpy(weight))
    }
    for head, values in weights.all_head_weights(heads).items():
        for ours, weight in values.items():
            tensors |= disassemble(HEAD_LAYOUTS[head][ours], weights.to_numpy(weight))
    return tensors


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
