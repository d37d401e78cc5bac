# SPDX-License-Identifier: Apache-2.0
"""Compares byte-level BPE with the tokenizers library on real text."""

import pytest

tf = pytest.importorskip("tensorflow")
pytest.importorskip("tokenizers")

from keras_bert.text import BytePairTokenizer, train_byte_pair_vocabulary  # noqa: E402
from tests.text import real_text  # noqa: E402
from tests.text.reference_byte_pair import find_mismatches, make_reference  # noqa: E402

pytestmark = [pytest.mark.needs_tensorflow, pytest.mark.backend_independent]


@pytest.mark.release
@real_text.requires_data
def test_byte_pairs_match_tokenizers_on_real_text():
    corpus = sorted((real_text.data_directory() / "pretraining").glob("wikitext-2.*.tokens"))
    trained = train_byte_pair_vocabulary(corpus, 30_000, progress=False)
    assert len(trained.vocabulary) == 30_000
    pair = BytePairTokenizer(*trained), make_reference(*trained)
    mismatches, count = [], 0
    for lines in real_text.batches(1024, every=20):
        count += len(lines)
        mismatches += find_mismatches(lines, *pair)
    assert count > 10_000
    assert mismatches == []
