# SPDX-License-Identifier: Apache-2.0
"""Tokenizes text, decodes token ids and trains vocabularies."""

from keras_bert.text.byte_pair import BytePairTokenizer
from keras_bert.text.from_config import tokenizer_from_config
from keras_bert.text.sentence_piece import SentencePieceTokenizer
from keras_bert.text.tokenizer import Tokenizer
from keras_bert.text.training_corpus import choose_lowercase
from keras_bert.text.vocabulary_training import (
    train_byte_pair_vocabulary,
    train_sentence_piece_model,
    train_vocabulary,
)
from keras_bert.text.wordpiece import WordPieceTokenizer
from keras_bert.vocabularies.vocab_txt import load_vocabulary, save_vocabulary

__all__ = [
    "BytePairTokenizer",
    "SentencePieceTokenizer",
    "Tokenizer",
    "WordPieceTokenizer",
    "choose_lowercase",
    "load_vocabulary",
    "save_vocabulary",
    "tokenizer_from_config",
    "train_byte_pair_vocabulary",
    "train_sentence_piece_model",
    "train_vocabulary",
]
