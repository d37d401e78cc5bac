# SPDX-License-Identifier: Apache-2.0
"""Searches one's own documents by words and by meaning."""

from keras_bert.search.documents import Document, read_documents
from keras_bert.search.index import SearchIndex, SearchIndexError, embed_document
from keras_bert.search.searching import Hit, Searcher

__all__ = [
    "Document",
    "Hit",
    "SearchIndex",
    "SearchIndexError",
    "Searcher",
    "embed_document",
    "read_documents",
]
