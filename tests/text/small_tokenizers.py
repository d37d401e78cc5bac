# SPDX-License-Identifier: Apache-2.0
"""Small tokenizers of every kind, trained on the same text and shared by tests."""

import functools
import inspect
import string
import unittest

from keras_bert.text import (
    BytePairTokenizer,
    SentencePieceTokenizer,
    WordPieceTokenizer,
    tokenizer_from_config,
    train_byte_pair_vocabulary,
    train_sentence_piece_model,
    train_vocabulary,
)

# Text whose words or characters are in the vocabularies
OTHER_TEXT = (
    "Größe «été» naïve 中国 漢字 ガギ Ελλάδα, in 1990, and 2,000; it's, they'll 1990, 1991,"
)
_LETTERS = string.ascii_lowercase
# Each letter is a token, so every English word is known.
LETTER_TOKENS = (
    *("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"),
    *_LETTERS,
    *(f"##{letter}" for letter in _LETTERS),
)


@functools.cache
def texts():
    """Returns English text with identifiers, from Python's unittest, and lines in other scripts."""
    return [*inspect.getsource(unittest.case).splitlines()[:600], *[OTHER_TEXT] * 4]


@functools.cache
def byte_pair_vocabulary():
    return train_byte_pair_vocabulary(texts(), 700, progress=False)


@functools.cache
def sentence_piece_model():
    return train_sentence_piece_model(texts(), 500, character_coverage=1.0, progress=False)


@functools.cache
def wordpiece_vocabulary():
    return train_vocabulary(texts(), 700, progress=False)


MAKERS = {
    "wordpiece": lambda **options: WordPieceTokenizer(wordpiece_vocabulary(), **options),
    "byte_pair": lambda **options: BytePairTokenizer(*byte_pair_vocabulary(), **options),
    "sentence_piece": lambda **options: SentencePieceTokenizer(sentence_piece_model(), **options),
}


MPNET = {
    "special_tokens": {"pad": "<pad>", "cls": "<s>", "sep": "</s>", "mask": "<mask>"},
    "pair_separators": 2,
    "num_segments": 1,
}


def mpnet_config():
    """Returns a small MPNet tokenizer's config. Its vocabulary also has BERT's special tokens."""
    tokens = ["<s>", "<pad>", "</s>", "<unk>", *wordpiece_vocabulary(), "<mask>"]
    return WordPieceTokenizer(tokens, **MPNET, max_word_length=100).get_config()


def wordpiece_config(**options):
    """Returns a small WordPiece tokenizer's config, as read from `transformers` files."""
    return make("wordpiece", **options, max_word_length=100).get_config()


@functools.cache
def make_tokenizer(*tokens, **options):
    """Returns a WordPiece tokenizer that all tests with these tokens share.

    Tasks loaded with its config also share it, so its graphs are traced only once.
    """
    return tokenizer_from_config(WordPieceTokenizer(tokens, **options).get_config())


@functools.cache
def make(kind, **options):
    """Returns a tokenizer of a kind. Tasks loaded with its config share it."""
    return tokenizer_from_config(MAKERS[kind](**options).get_config())
