# SPDX-License-Identifier: Apache-2.0
"""SentencePiece against the library on real text: the ids of many lines."""

import pytest

tf = pytest.importorskip("tensorflow")
pytest.importorskip("sentencepiece")

from keras_bert.text import SentencePieceTokenizer, train_sentence_piece_model  # noqa: E402
from tests.text import real_text  # noqa: E402
from tests.text.executors import InGraph  # noqa: E402
from tests.text.reference_sentence_piece import ReferenceTokenizer  # noqa: E402

pytestmark = [pytest.mark.needs_tensorflow, pytest.mark.backend_independent]


@pytest.mark.release
@real_text.needed
def test_real_text():
    path = real_text.folder() / "pretraining" / "wikitext-2.valid.tokens"
    model = train_sentence_piece_model(path, 8000, progress=False)
    tokenizer, reference = SentencePieceTokenizer(model), ReferenceTokenizer(model)
    ties, wrong, count = [], [], 0
    for lines in real_text.batches(1024, every=8):
        count += len(lines)
        rows = zip(lines, tokenizer(lines), InGraph(tokenizer)(lines), strict=True)
        for line, ids, in_graph in rows:
            expected = reference(line)
            if ids != expected:
                wrong.append(line)
            if in_graph != expected:
                (ties if reference.is_best(line, in_graph) else wrong).append(line)
    assert count > 25_000
    assert wrong == []
    # Of segmentations with equal scores, versions of the library choose different ones.
    assert len(ties) < count / 300
