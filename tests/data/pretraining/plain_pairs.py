# SPDX-License-Identifier: Apache-2.0
"""A plain implementation of the original BERT sentence pairs, and corpora for tests.

It works token by token and sentence by sentence, with Python's random numbers.
"""

import numpy as np

TOKENS_PER_DOCUMENT = 10_000


def make_corpus(num_documents, seed=0, max_sentences=20, max_length=25):
    """Returns documents of unique tokens. `document_index` infers the document from a token."""
    rng = np.random.default_rng(seed)
    documents = []
    for index in range(num_documents):
        lengths = rng.integers(1, max_length, size=rng.integers(1, max_sentences), endpoint=True)
        tokens = np.arange(lengths.sum(), dtype=np.int32) + TOKENS_PER_DOCUMENT * index
        documents.append(np.split(tokens, np.cumsum(lengths)[:-1]))
    return documents


def document_index(token):
    return token // TOKENS_PER_DOCUMENT


def next_sentence_pairs(documents, index, random, max_tokens, short_seq_probability):
    target = max_tokens
    if random.random() < short_seq_probability:
        target = random.randint(2, max_tokens)
    unused = [list(sentence) for sentence in documents[index]]
    while unused:
        chunk = []
        while unused and sum(map(len, chunk)) < target:
            chunk.append(unused.pop(0))
        num_first = random.randint(1, len(chunk) - 1) if len(chunk) > 1 else 1
        first, remaining = chunk[:num_first], chunk[num_first:]
        first_tokens = [token for sentence in first for token in sentence]
        is_random = len(chunk) == 1 or random.random() < 0.5
        if is_random:
            unused = remaining + unused
            second_tokens = _random_segment(documents, index, random, target - len(first_tokens))
        else:
            second_tokens = [token for sentence in remaining for token in sentence]
        truncate(first_tokens, second_tokens, max_tokens, random)
        yield first_tokens, second_tokens, int(is_random)


def _random_segment(documents, index, random, length):
    for _ in range(10):
        other_index = random.randint(0, len(documents) - 1)
        if other_index != index:
            break
    tokens = []
    for sentence in documents[other_index][random.randint(0, len(documents[other_index]) - 1) :]:
        tokens += list(sentence)
        if len(tokens) >= length:
            break
    return tokens


def truncate(first, second, max_tokens, random):
    while len(first) + len(second) > max_tokens:
        longer = first if len(first) > len(second) else second
        longer.pop(0 if random.random() < 0.5 else -1)
