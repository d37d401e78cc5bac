# SPDX-License-Identifier: Apache-2.0
"""Compares SentencePiece with the sentencepiece library on real text."""

import pytest

tf = pytest.importorskip("tensorflow")
pytest.importorskip("sentencepiece")

from keras_bert.text import SentencePieceTokenizer, train_sentence_piece_model  # noqa: E402
from tests.text import real_text  # noqa: E402
from tests.text.executors import GraphTokenizer  # noqa: E402
from tests.text.reference_sentence_piece import ReferenceTokenizer  # noqa: E402

pytestmark = [pytest.mark.needs_tensorflow, pytest.mark.backend_independent]


@pytest.mark.release
@real_text.requires_data
def test_sentence_pieces_match_library_on_real_text():
    path = real_text.data_directory() / "pretraining" / "wikitext-2.valid.tokens"
    model = train_sentence_piece_model(path, 8000, progress=False)
    tokenizer, reference = SentencePieceTokenizer(model), ReferenceTokenizer(model)
    ties, mismatches, count = [], [], 0
    for lines in real_text.batches(1024, every=8):
        count += len(lines)
        rows = zip(lines, tokenizer(lines), GraphTokenizer(tokenizer)(lines), strict=True)
        for line, ids, graph_ids in rows:
            expected = reference(line)
            if ids != expected:
                mismatches.append(line)
            if graph_ids != expected:
                (ties if reference.is_best(line, graph_ids) else mismatches).append(line)
    assert count > 25_000
    assert mismatches == []
    # Library versions choose different segmentations with equal scores.
    assert len(ties) < count / 300
