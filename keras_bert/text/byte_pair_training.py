# SPDX-License-Identifier: Apache-2.0
"""Making a byte-level byte-pair vocabulary from a corpus."""

from __future__ import annotations

import json
import sys
from typing import Any, NamedTuple

import tensorflow as tf

from keras_bert.text.byte_words import split_byte_words
from keras_bert.text.normalization import drop_invalid
from keras_bert.text.training_corpus import (
    Corpus,
    Report,
    corpus_texts,
    count_words,
    import_trainer,
    spelled_out,
)
from keras_bert.vocabularies.byte_pair_files import byte_characters

_SPECIAL_TOKENS = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")


class BytePairVocabulary(NamedTuple):
    """What a `BytePairTokenizer` is made of.

    Args:
        vocabulary: The tokens, a token's id being its index.
        merges: The pairs that become one token, the first learned first.
    """

    vocabulary: tuple[str, ...]
    merges: tuple[str, ...]


def train_byte_pair_vocabulary(
    corpus: Corpus,
    vocabulary_size: int,
    min_frequency: int = 2,
    max_distinct_words: int = 2_000_000,
    progress: bool = True,
) -> BytePairVocabulary:
    """Makes a byte-level byte-pair vocabulary from a corpus, which may be larger than the memory.

    The corpus is read once and split into words as the tokenizer does it; only the distinct words
    and their counts are held. The merges are then learned by the trainer of the `tokenizers`
    library.

    Args:
        corpus: The path of a text file; or an iterable of texts, of `pathlib.Path`s of text files,
            or of both. Files are UTF-8 and read by the line, without its end.
        vocabulary_size: How many tokens to make: `<s>`, `<pad>`, `</s>`, `<unk>`, `<mask>`, the
            256 bytes, then what they are merged to. They are fewer where the corpus has no more.
        min_frequency: How often two tokens must meet to become one.
        max_distinct_words: Where there are more, the rarest are forgotten.
        progress: Whether to report to standard error.

    Returns:
        The tokens and the merges.

    Raises:
        ImportError: If `tokenizers` is not installed.
        ValueError: If the corpus has no words, or the bytes do not fit into the vocabulary.

    Example:

    >>> from keras_bert.text import BytePairTokenizer, train_byte_pair_vocabulary
    >>> made = train_byte_pair_vocabulary(["low lower", "lower, lowest"], 270, progress=False)
    >>> made.merges[:3]
    ('l o', 'lo w', 'low e')
    >>> tokenizer = BytePairTokenizer(*made)
    """
    tokenizers = import_trainer("tokenizers")
    smallest = len(_SPECIAL_TOKENS) + 256
    if vocabulary_size < smallest:
        raise ValueError(
            f"vocabulary_size is {vocabulary_size}; the special tokens and the bytes take "
            f"{smallest}."
        )
    texts = (text.rstrip(b"\r\n") for text in corpus_texts(corpus))
    counts = count_words(texts, _words, max_distinct_words, Report(progress))
    if not counts:
        raise ValueError(f"The corpus has no words: {corpus!r}.")
    letters = byte_characters()
    words = (("".join(letters[byte] for byte in word), count) for word, count in counts.items())
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=vocabulary_size,
        min_frequency=min_frequency,
        special_tokens=list(_SPECIAL_TOKENS),
        initial_alphabet=list(letters),
        # Where there is no terminal it prints empty lines.
        show_progress=progress and sys.stderr.isatty(),
    )
    learner = tokenizers.Tokenizer(tokenizers.models.BPE())
    learner.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    learner.train_from_iterator(spelled_out(words), trainer)
    return _learned(learner)


def _words(texts: tf.Tensor) -> tf.Tensor:
    return split_byte_words(drop_invalid(texts)).words.flat_values


def _learned(learner: Any) -> BytePairVocabulary:
    model = json.loads(learner.to_str())["model"]
    ids = model["vocab"]
    merges = (merge if isinstance(merge, str) else " ".join(merge) for merge in model["merges"])
    return BytePairVocabulary(tuple(sorted(ids, key=ids.__getitem__)), tuple(merges))
