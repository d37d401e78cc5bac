# SPDX-License-Identifier: Apache-2.0
"""The ids of XLM-RoBERTa and CamemBERT, made of released models and made back to them."""

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

FIRST = [
    Piece("<unk>", 0.0, PieceType.UNKNOWN),
    Piece("<s>", 0.0, PieceType.CONTROL),
    Piece("</s>", 0.0, PieceType.CONTROL),
]
REST = [Piece("▁", -1.0, PieceType.NORMAL), Piece("a", -2.5, PieceType.NORMAL)]
MODEL = write_model([*FIRST, *REST], b"map")


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
def test_pieces_have_the_ids_of_the_vocabulary(ids, expected):
    model = with_fairseq_ids(MODEL, ids)
    pieces = read_pieces(model)
    assert [piece.text for piece in pieces] == expected
    assert pieces[3].type == PieceType.UNKNOWN
    assert all(
        piece.type == (PieceType.NORMAL if piece in REST else PieceType.CONTROL)
        for piece in (*pieces[:3], *pieces[4:])
    )
    assert [piece for piece in pieces if piece in REST] == REST
    assert read_characters_map(model) == b"map"
    assert released_model(model) == (MODEL, ids)


def test_released_model_rejects_other_models():
    assert released_model(MODEL) is None
    for first in ([], FIRST[1:], [FIRST[1], FIRST[0], FIRST[2]]):
        with pytest.raises(ValueError, match=r"model whose first pieces must be <unk>, <s>"):
            with_fairseq_ids(write_model([*first, *REST], b""), XLM_ROBERTA)
    with pytest.raises(ValueError, match="not a SentencePiece model"):
        with_fairseq_ids(b"text", CAMEMBERT)
