# SPDX-License-Identifier: Apache-2.0

import pytest

from keras_bert.text import word_cache
from keras_bert.text.word_cache import END, WordCache

pytestmark = pytest.mark.backend_independent


def test_word_cache_is_bounded(monkeypatch):
    monkeypatch.setattr(word_cache, "_MAX_WORDS", 10)
    computed = []

    def tokens(word):
        computed.append(word)
        return [len(word)]

    cache = WordCache(tokens, width=1)
    words = [word for index in range(1, 40) for word in ("often", "x" * index)]
    ids, lengths = cache.ids([*words, END])
    assert ids.tolist() == list(map(len, words))
    assert lengths.tolist() == [len(words)]
    assert computed.count("often") == 1
    assert len(cache) <= 10
