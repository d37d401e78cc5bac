# SPDX-License-Identifier: Apache-2.0
"""Writing the layout of the original TF1 release."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from keras_bert.checkpoints import weights
from keras_bert.checkpoints.bert_json import config_to_json
from keras_bert.checkpoints.errors import CheckpointError
from keras_bert.checkpoints.folders import replaced_files, write_json
from keras_bert.checkpoints.google_tf1 import (
    ACTIVATIONS,
    CONFIG_FILE,
    HEAD_LAYOUTS,
    LAYER_NORM_EPSILON,
    PREFIX,
    backbone_layout,
    import_tensorflow,
)
from keras_bert.checkpoints.layouts import disassemble
from keras_bert.checkpoints.tokenizer_files import VOCABULARY_FILE, write_vocabulary
from keras_bert.config import BertConfig
from keras_bert.models import Backbone

_WORDS = {ours: word for word, ours in ACTIVATIONS.items()}
_UNKNOWN_TO_TF1 = ("layer_norm_eps", "classifier_dropout", "pad_token_id")


def save_google_tf1(
    backbone: Backbone,
    folder: str | os.PathLike[str],
    *,
    heads: Mapping[str, weights.Head] | None = None,
    vocabulary: Sequence[str] | None = None,
) -> None:
    """Writes the layout of the original TF1 release, which its code then reads.

    The layout has no place for whether the tokenizer lowercases.

    Args:
        backbone: The encoder; its weights are written in float32.
        folder: Where to write; files of the same names are replaced.
        heads: Heads to write too: `masked_lm`, `next_sentence`, `classifier`,
            `question_answerer`, each with its layer or layers.
        vocabulary: The word pieces, for `vocab.txt`.

    Raises:
        CheckpointError: If TensorFlow is missing, or the released code could not compute this
            model: it knows GELU in its tanh form only, an epsilon of 1e-12, and no causal
            attention.
    """
    tf = import_tensorflow()
    config = _config_to_json(backbone.config)
    tensors = _tensors_of(backbone, heads)
    files = (f"{PREFIX}.index", f"{PREFIX}.data-00000-of-00001", CONFIG_FILE, VOCABULARY_FILE)
    with replaced_files(folder, owned=files, last=CONFIG_FILE) as temporary:
        tf.raw_ops.SaveV2(
            prefix=str(temporary / PREFIX),
            tensor_names=list(tensors),
            shape_and_slices=[""] * len(tensors),
            tensors=list(tensors.values()),
        )
        write_json(temporary / CONFIG_FILE, config)
        if vocabulary is not None:
            write_vocabulary(temporary / VOCABULARY_FILE, vocabulary)


def _tensors_of(
    backbone: Backbone, heads: Mapping[str, weights.Head] | None
) -> dict[str, np.ndarray[Any, Any]]:
    unknown = sorted(set(heads or {}) - set(HEAD_LAYOUTS))
    if unknown:
        raise CheckpointError(
            f"The TF1 release has no head named {', '.join(unknown)}; "
            f"it has {', '.join(HEAD_LAYOUTS)}."
        )
    parts = [(backbone_layout(backbone.config.num_layers), weights.backbone_weights(backbone))]
    parts += [(HEAD_LAYOUTS[name], w) for name, w in weights.all_head_weights(heads).items()]
    return {
        name: value
        for layout, values in parts
        for ours, weight in values.items()
        for name, value in disassemble(
            layout[ours], weights.to_numpy(weight).astype(np.float32, copy=False)
        )
    }


def _config_to_json(config: BertConfig) -> dict[str, Any]:
    if config.layer_norm_epsilon != LAYER_NORM_EPSILON:
        raise CheckpointError(
            f"layer_norm_epsilon is {config.layer_norm_epsilon}; the released TF1 code has "
            f"{LAYER_NORM_EPSILON} written into it, so it would compute something else."
        )
    if config.causal:
        raise CheckpointError(
            "causal is True; in the released TF1 code every token sees all others, so it would "
            "compute something else."
        )
    fields = config_to_json(config, _WORDS)
    return {key: fields[key] for key in fields if key not in _UNKNOWN_TO_TF1}
