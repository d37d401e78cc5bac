# SPDX-License-Identifier: Apache-2.0
"""Rows of whole consecutive sentences, within a document or across several."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from keras_bert.data.token_store import Ids, Sentences


def full_sentences(
    documents: Iterable[Sentences], max_tokens: int, separator: int
) -> Iterator[Ids]:
    """Rows filled with consecutive sentences, going on with the next document after a separator.

    A sentence that does not fit opens the next row; one longer than a row is cut into rows. No
    token is lost and none comes twice.

    Args:
        documents: The documents, in the order in which they are to be joined.
        max_tokens: The longest row, separators between documents counted.
        separator: The id that stands between two documents of a row.

    Yields:
        int32 ids `(length,)`.

    Reference:
        [RoBERTa](https://arxiv.org/abs/1907.11692), section 4.2, FULL-SENTENCES.
    """
    between = np.array([separator], np.int32)
    row: list[Ids] = []
    length = 0
    for document in documents:
        is_new_document = True
        for sentence in _cut_to(document, max_tokens):
            glue = [between] if is_new_document and row else []
            if length + len(glue) + len(sentence) > max_tokens:
                yield np.concatenate(row)
                row, length, glue = [], 0, []
            row += [*glue, sentence]
            length += len(glue) + len(sentence)
            is_new_document = False
    if row:
        yield np.concatenate(row)


def document_sentences(document: Sentences, max_tokens: int) -> Iterator[Ids]:
    """Rows filled with consecutive sentences of one document; its last row may be short.

    Args:
        document: Its sentences.
        max_tokens: The longest row.

    Yields:
        int32 ids `(length,)`.

    Reference:
        [RoBERTa](https://arxiv.org/abs/1907.11692), section 4.2, DOC-SENTENCES.
    """
    return full_sentences([document], max_tokens, separator=-1)


def _cut_to(sentences: Iterable[Ids], max_tokens: int) -> Iterator[Ids]:
    for sentence in sentences:
        for start in range(0, len(sentence), max_tokens):
            yield sentence[start : start + max_tokens]
