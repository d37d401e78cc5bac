# SPDX-License-Identifier: Apache-2.0
"""Converts released models to XLM-RoBERTa's and CamemBERT's ids and back."""

import pytest

from keras_bert.vocabularies.fairseq_ids import (
    CAMEMBERT,
    XLM_ROBERTA,
    released_model,
    with_fairseq_ids,
)
from keras_bert.vocabularies.sentence_piece_model import (
    Piece,
    PieceType,
    read_characters_map,
    read_pieces,
    write_model,
)

pytestmark = pytest.mark.backend_independent

SPECIAL_PIECES = [
    Piece("<unk>", 0.0, PieceType.UNKNOWN),
    Piece("<s>", 0.0, PieceType.CONTROL),
    Piece("</s>", 0.0, PieceType.CONTROL),
]
PIECES = [Piece("▁", -1.0, PieceType.NORMAL), Piece("a", -2.5, PieceType.NORMAL)]
MODEL = write_model([*SPECIAL_PIECES, *PIECES], b"map")


@pytest.mark.parametrize(
    ("ids", "expected"),
    [
        (XLM_ROBERTA, ["<s>", "<pad>", "</s>", "<unk>", "▁", "a", "<mask>"]),
        (
            CAMEMBERT,
            [
                *("<s>NOTUSED", "<pad>", "</s>NOTUSED", "<unk>", "<unk>NOTUSED"),
                *("<s>", "</s>", "▁", "a", "<mask>"),
            ],
        ),
    ],
)
def test_fairseq_ids_round_trip(ids, expected):
    model = with_fairseq_ids(MODEL, ids)
    pieces = read_pieces(model)
    assert [piece.text for piece in pieces] == expected
    assert pieces[3].type == PieceType.UNKNOWN
    assert all(
        piece.type == (PieceType.NORMAL if piece in PIECES else PieceType.CONTROL)
        for piece in (*pieces[:3], *pieces[4:])
    )
    assert [piece for piece in pieces if piece in PIECES] == PIECES
    assert read_characters_map(model) == b"map"
    assert released_model(model) == (MODEL, ids)


def test_released_model_rejects_other_models():
    assert released_model(MODEL) is None
    for first in (
        [],
        SPECIAL_PIECES[1:],
        [SPECIAL_PIECES[1], SPECIAL_PIECES[0], SPECIAL_PIECES[2]],
    ):
        with pytest.raises(ValueError, match=r"model whose first pieces must be <unk>, <s>"):
            with_fairseq_ids(write_model([*first, *PIECES], b""), XLM_ROBERTA)
    with pytest.raises(ValueError, match="not a SentencePiece model"):
        with_fairseq_ids(b"text", CAMEMBERT)
