# SPDX-License-Identifier: Apache-2.0
"""The terms of a text for word search: words, or pairs of characters in some scripts."""

from __future__ import annotations

import re
from collections.abc import Iterator

from keras_bert.text.characters import UNSPACED

# Words of at least two letters or digits. In scripts without spaces, and in Korean because words
# have particles, runs of characters
_PAIRED = rf"\uac00-\ud7a3{UNSPACED}"
_WORDS = re.compile(rf"(?P<characters>[{_PAIRED}]+)|[^\W{_PAIRED}]{{2,}}")


def terms(text: str) -> Iterator[str]:
    """Yields the terms of a text in lower case.

    Terms are words of at least two letters or digits. In Chinese, Japanese, Korean and Thai, they
    are pairs of adjacent characters, or a single character between other scripts.

    Example:

    >>> list(terms("BERT 모델을"))
    ['bert', '모델', '델을']
    """
    return (term for term, _, _ in term_spans(text))


def term_spans(text: str) -> Iterator[tuple[str, int, int]]:
    """Yields the terms of a text with their start and end in it."""
    for match in _WORDS.finditer(text):
        word, begin, end = match[0].lower(), match.start(), match.end()
        if match["characters"]:
            # As in Lucene's CJKAnalyzer, a single character is also a term.
            for start in range(max(1, len(word) - 1)):
                yield word[start : start + 2], begin + start, min(begin + start + 2, end)
        else:
            yield word, begin, end
