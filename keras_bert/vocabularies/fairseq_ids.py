# SPDX-License-Identifier: Apache-2.0
"""Converts between SentencePiece ids and the ids of XLM-RoBERTa and CamemBERT.

These encoders were trained with fairseq. It puts its own tokens before a SentencePiece model's
pieces, and the mask token after them. A model that contains these tokens as pieces has the same
ids.

Reference:
    [fairseq](https://github.com/facebookresearch/fairseq), `Dictionary`;
    [transformers](https://github.com/huggingface/transformers), `convert_slow_tokenizer.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from keras_bert.vocabularies.sentence_piece_model import (
    Piece,
    PieceType,
    read_pieces,
    replace_pieces,
)

MODEL_FILE = "sentencepiece.bpe.model"
"""The file name in released checkpoints. The model's ids differ from the vocabulary's ids."""


class FairseqIds(NamedTuple):
    """The first pieces in a vocabulary.

    Args:
        first: The pieces before the pieces of the released model.
        replaced: The pieces at the start of the released model that `first` replaces.
    """

    first: tuple[Piece, ...]
    replaced: tuple[Piece, ...]


def _control(text: str, score: float = 0.0) -> Piece:
    return Piece(text, score, PieceType.CONTROL)


_UNKNOWN = Piece("<unk>", 0.0, PieceType.UNKNOWN)
_MASK = _control("<mask>")

XLM_ROBERTA = FairseqIds(
    first=(_control("<s>"), _control("<pad>"), _control("</s>"), _UNKNOWN),
    replaced=(_UNKNOWN, _control("<s>"), _control("</s>")),
)
CAMEMBERT = FairseqIds(
    first=(
        *(_control("<s>NOTUSED"), _control("<pad>"), _control("</s>NOTUSED")),
        *(_UNKNOWN, _control("<unk>NOTUSED", -100.0)),
    ),
    replaced=(_UNKNOWN,),
)


def with_fairseq_ids(model: bytes, ids: FairseqIds) -> bytes:
    """Converts a serialized released model to a model with the vocabulary's ids."""
    pieces = read_pieces(model)
    count = len(ids.replaced)
    if _texts(pieces[:count]) != _texts(ids.replaced):
        raise ValueError(
            f"a SentencePiece model whose first pieces must be {', '.join(_texts(ids.replaced))}. "
            f"Received: {', '.join(_texts(pieces[:count]))}"
        )
    return replace_pieces(model, [*ids.first, *pieces[count:], _MASK])


def released_model(model: bytes) -> tuple[bytes, FairseqIds] | None:
    """Restores a released model and its ids. Returns `None` if the pieces do not match."""
    pieces = read_pieces(model)
    for ids in (XLM_ROBERTA, CAMEMBERT):
        count = len(ids.first)
        if _texts(pieces[:count]) == _texts(ids.first) and pieces[-1].text == _MASK.text:
            return replace_pieces(model, [*ids.replaced, *pieces[count:-1]]), ids
    return None


def _texts(pieces: Sequence[Piece]) -> list[str]:
    return [piece.text for piece in pieces]
