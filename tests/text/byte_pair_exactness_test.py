# SPDX-License-Identifier: Apache-2.0
"""Byte-level BPE against the tokenizers library on real text: ids and offsets of many lines."""

import pytest

tf = pytest.importorskip("tensorflow")
pytest.importorskip("tokenizers")

from keras_bert.text import BytePairTokenizer, train_byte_pair_vocabulary  # noqa: E402
from tests.text import real_text  # noqa: E402
from tests.text.reference_byte_pair import differences, reference  # noqa: E402

pytestmark = [pytest.mark.needs_tensorflow, pytest.mark.backend_independent]


@pytest.mark.release
@real_text.needed
def test_real_text():
    corpus = sorted((real_text.folder() / "pretraining").glob("wikitext-2.*.tokens"))
    made = train_byte_pair_vocabulary(corpus, 30_000, progress=False)
    assert len(made.vocabulary) == 30_000
    pair = BytePairTokenizer(*made), reference(*made)
    wrong, count = [], 0
    for lines in real_text.batches(1024, every=20):
        count += len(lines)
        wrong += differences(lines, *pair)
    assert count > 10_000
    assert wrong == []
