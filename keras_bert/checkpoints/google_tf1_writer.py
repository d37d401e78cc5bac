# SPDX-License-Identifier: Apache-2.0
"""Writing the layout of the original TF1 release."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from keras_bert.checkpoints import sentence_piece_files, weights
from keras_bert.checkpoints.bert_json import config_to_json, misfits
from keras_bert.checkpoints.errors import CheckpointError
from keras_bert.checkpoints.folders import replaced_files, write_json
from keras_bert.checkpoints.google_tf1 import LAYER_NORM_EPSILON, import_tensorflow
from keras_bert.checkpoints.google_tf1_families import (
    CONFIG_FILES,
    RELEASES,
    Release,
    electra_heads,
)
from keras_bert.checkpoints.layouts import Layout, disassemble
from keras_bert.checkpoints.tokenizer_files import WORDPIECE
from keras_bert.checkpoints.wordpiece_files import VOCABULARY_FILE, write_vocabulary
from keras_bert.config import BertConfig

_TOKENIZER_FILES = (VOCABULARY_FILE, sentence_piece_files.RELEASED_FILE)

_UNKNOWN_TO_TF1 = (
    "layer_norm_eps",
    "classifier_dropout",
    "classifier_dropout_prob",
    "pad_token_id",
)


def save_google_tf1(
    model: Any,
    folder: str | os.PathLike[str],
    *,
    heads: Mapping[str, weights.Head] | None = None,
    tokenizer: Mapping[str, Any] | None = None,
) -> None:
    """Writes the layout of the TF1 release of BERT, ALBERT or ELECTRA, which its code then reads.

    The layout has no place for whether the tokenizer lowercases, and ELECTRA's, which is written
    for an encoder of its form, none for anything that is not a variable's shape.

    Args:
        model: The encoder, or a task, whose heads and tokenizer are then written too. Weights are
            written in float32.
        folder: Where to write; files of the same names are replaced.
        heads: Heads to write too: `masked_lm`, `next_sentence`, `classifier`,
            `question_answerer`, or ELECTRA's `replaced_token`, each with its layer or layers.
        tokenizer: The tokenizer's config: WordPiece's vocabulary becomes `vocab.txt`, a
            SentencePiece model `30k-clean.model`.

    Raises:
        CheckpointError: If TensorFlow is missing, or the released code could not compute this
            model: it knows GELU in one form (by tanh; ELECTRA's the exact one), an epsilon of
            1e-12, and no causal attention. Or if the tokenizer is of a kind that no release has,
            or the folder holds another family's release.
    """
    tf = import_tensorflow()
    backbone, heads, tokenizer, _ = weights.parts_of(model, heads, tokenizer)
    release = _release_of(backbone.config, "masked_lm" in (heads or {}))
    config = _config_to_json(backbone.config, release)
    tensors = _tensors_of(release, backbone, heads)
    write_tokenizer = None if tokenizer is None else _tokenizer_writer(tokenizer)
    _check_no_other(Path(folder), release)
    prefix, config_file = release.prefix, release.config_file
    checkpoint_files = (f"{prefix}.index", f"{prefix}.data-00000-of-00001")
    files = (*checkpoint_files, *_TOKENIZER_FILES)
    with replaced_files(folder, owned=files, last=config_file or files[0]) as temporary:
        tf.raw_ops.SaveV2(
            prefix=str(temporary / prefix),
            tensor_names=list(tensors),
            shape_and_slices=[""] * len(tensors),
            tensors=list(tensors.values()),
        )
        if config_file:
            write_json(temporary / config_file, config)
        if write_tokenizer and tokenizer:
            write_tokenizer(temporary, tokenizer)


def _write_word_pieces(folder: Path, tokenizer: Mapping[str, Any]) -> None:
    write_vocabulary(folder / VOCABULARY_FILE, tokenizer["vocabulary"])


def _write_sentence_pieces(folder: Path, tokenizer: Mapping[str, Any]) -> None:
    path = folder / sentence_piece_files.RELEASED_FILE
    path.write_bytes(sentence_piece_files.model_of(tokenizer))


_TOKENIZER_WRITERS = {
    WORDPIECE: _write_word_pieces,
    sentence_piece_files.KIND: _write_sentence_pieces,
}


def _tokenizer_writer(
    tokenizer: Mapping[str, Any],
) -> Callable[[Path, Mapping[str, Any]], None]:
    kind = tokenizer.get("kind", WORDPIECE)
    if kind not in _TOKENIZER_WRITERS:
        raise CheckpointError(
            f"kind of the tokenizer is {kind!r}; the TF1 releases have "
            f"{' and '.join(_TOKENIZER_WRITERS)}."
        )
    return _TOKENIZER_WRITERS[kind]


def _release_of(config: BertConfig, masked_lm: bool) -> Release:
    needs = [misfits(config, release.json, masked_lm) for release in RELEASES]
    for release, needed in zip(RELEASES, needs, strict=True):
        if not needed:
            return release
    wanted = "; ".join(
        f"{release.config_file or release.prefix} needs {', '.join(needed)}"
        for release, needed in zip(RELEASES, needs, strict=True)
    )
    raise CheckpointError(f"No TF1 release that is written has this architecture: {wanted}.")


def _check_no_other(folder: Path, release: Release) -> None:
    for name in CONFIG_FILES:
        if name != release.config_file and (folder / name).exists():
            raise CheckpointError(
                f"{folder} holds {name}, of another family's release; choose another folder."
            )


def _tensors_of(
    release: Release, backbone: weights.Encoder, heads: Mapping[str, weights.Head] | None
) -> dict[str, np.ndarray[Any, Any]]:
    unknown = sorted(set(heads or {}) - set(release.heads))
    if unknown:
        raise CheckpointError(
            f"The TF1 release has no head named {', '.join(unknown)}; "
            f"it has {', '.join(release.heads)}."
        )
    parts: list[tuple[Layout, dict[str, Any]]] = [
        (release.backbone_layout(backbone.config), weights.backbone_weights(backbone))
    ]
    parts += [(release.heads[name], w) for name, w in weights.all_head_weights(heads).items()]
    return {
        name: value
        for layout, values in parts
        for ours, weight in values.items()
        for name, value in disassemble(
            layout[ours], weights.to_numpy(weight).astype(np.float32, copy=False)
        )
    }


def _config_to_json(config: BertConfig, release: Release) -> dict[str, Any]:
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
    if release.config_file is None and config.num_heads != electra_heads(config.hidden_dim):
        raise CheckpointError(
            f"num_heads is {config.num_heads}; ELECTRA's release does not say it, and is read "
            f"with heads of 64, {electra_heads(config.hidden_dim)} for this width."
        )
    words = {ours: word for word, ours in release.activations.items()}
    fields = config_to_json(config, words, release.json)
    return {key: fields[key] for key in fields if key not in _UNKNOWN_TO_TF1}
