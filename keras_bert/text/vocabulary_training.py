# SPDX-License-Identifier: Apache-2.0
"""Making a WordPiece vocabulary from a corpus."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable

from keras_bert.text.letter_case import chosen_lowercase
from keras_bert.text.normalization import MAX_WORD_LENGTH, split_words
from keras_bert.text.pieces import SUFFIX
from keras_bert.text.special_tokens import SPECIAL_TOKENS
from keras_bert.text.training_corpus import (
    Corpus,
    Report,
    corpus_texts,
    count_words,
    import_trainer,
    spelled_out,
)


def train_vocabulary(
    corpus: Corpus,
    vocabulary_size: int,
    lowercase: bool | None = True,
    alphabet_size: int | None = None,
    min_frequency: int = 2,
    max_distinct_words: int = 2_000_000,
    progress: bool = True,
) -> tuple[str, ...]:
    """Makes a vocabulary of word pieces from a corpus, which may be larger than the memory.

    The corpus is read once, normalized and split as the tokenizer does it; only the distinct words
    and their counts are held. The pieces are then learned by the trainer of the `tokenizers`
    library: it takes seconds where TF Text's learner, in plain Python, takes minutes or hours, and
    it makes the size asked for. By itself it numbers the letters inside words in an order that
    changes from run to run, and breaks ties by number; here it gets them in a fixed order, so that
    the same corpus makes the same vocabulary.

    Args:
        corpus: The path of a text file; or an iterable of texts, of `pathlib.Path`s of text files,
            or of both. Files are UTF-8 and read by the line.
        vocabulary_size: How many tokens to make: `[PAD]`, `[UNK]`, `[CLS]`, `[SEP]`, `[MASK]`, the
            alphabet, then the pieces. They are fewer where the corpus has no more.
        lowercase: As it will be for the tokenizer. `None` takes what `choose_lowercase` says of the
            corpus, which must not be an iterator then; give the tokenizer the same.
        alphabet_size: How many characters to keep, the most frequent first; words with others will
            be unknown. `None` keeps as many as fit in half of the vocabulary.
        min_frequency: How often two pieces must meet to become one.
        max_distinct_words: Where there are more, the rarest are forgotten.
        progress: Whether to report to standard error.

    Returns:
        The tokens.

    Raises:
        ImportError: If `tokenizers` is not installed.
        ValueError: If the corpus has no words, or the alphabet is larger than the vocabulary.

    Example:

    >>> from keras_bert.text import train_vocabulary
    >>> vocabulary = train_vocabulary(["low lower", "lower, lowest"], 40, progress=False)
    >>> vocabulary[5:13]
    (',', 'e', 'l', 'o', 'r', 's', 't', 'w')
    >>> vocabulary[13:]
    ('##e', '##l', '##o', '##r', '##s', '##t', '##w', '##ow', 'low', 'lowe', 'lower')
    """
    tokenizers = import_trainer("tokenizers")
    if lowercase is None:
        lowercase = chosen_lowercase(corpus, progress)
    counts = _counts(corpus_texts(corpus), lowercase, max_distinct_words, Report(progress))
    if not counts:
        raise ValueError(f"The corpus has no words: {corpus!r}.")
    letters, inside = _alphabet(counts, alphabet_size, vocabulary_size)
    size = len(SPECIAL_TOKENS) + len(letters) + len(inside)
    if size > vocabulary_size:
        raise ValueError(
            f"vocabulary_size is {vocabulary_size}, but the special tokens and the {len(letters)} "
            f"characters of the alphabet take {size}; raise it or lower alphabet_size."
        )
    # What is a "special token" to this trainer keeps its place in the list.
    first = [*SPECIAL_TOKENS, *(SUFFIX + letter for letter in inside)]
    trainer = tokenizers.trainers.WordPieceTrainer(
        vocab_size=vocabulary_size,
        min_frequency=min_frequency,
        special_tokens=first,
        initial_alphabet=letters,
        continuing_subword_prefix=SUFFIX,
        # Where there is no terminal it prints empty lines.
        show_progress=progress and sys.stderr.isatty(),
    )
    learner = tokenizers.Tokenizer(tokenizers.models.WordPiece(unk_token=SPECIAL_TOKENS[1]))
    learner.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    known = set(letters)
    learned = (
        (word, count) for word, count in counts.items() if len(word) > 1 and known.issuperset(word)
    )
    learner.train_from_iterator(spelled_out(learned), trainer)
    ids = learner.get_vocab()
    pieces = sorted(ids, key=ids.__getitem__)[size:]
    return (*SPECIAL_TOKENS, *letters, *first[len(SPECIAL_TOKENS) :], *pieces)


def _counts(
    texts: Iterable[bytes], lowercase: bool, max_distinct_words: int, report: Report
) -> dict[str, int]:
    counts = count_words(
        texts,
        lambda batch: split_words(batch, lowercase).flat_values,
        max_distinct_words,
        report,
    )
    decoded = ((word.decode("utf-8"), count) for word, count in counts.items())
    return {word: count for word, count in decoded if len(word) <= MAX_WORD_LENGTH}


def _alphabet(
    counts: dict[str, int], alphabet_size: int | None, vocabulary_size: int
) -> tuple[list[str], list[str]]:
    """The characters to keep, and those of them that need a token inside a word, both sorted."""
    frequencies: Counter[str] = Counter()
    inside: set[str] = set()
    for word, count in counts.items():
        for letter in word:
            frequencies[letter] += count
        if len(word) > 1:
            inside.update(word)
    # A character that is always a word of its own, as CJK and punctuation are, takes one token.
    ordered = sorted(frequencies, key=lambda letter: (-frequencies[letter], letter))
    room = (vocabulary_size - len(SPECIAL_TOKENS)) // 2
    kept = set()
    for letter in ordered if alphabet_size is None else ordered[:alphabet_size]:
        room -= 2 if letter in inside else 1
        if room < 0 and alphabet_size is None:
            break
        kept.add(letter)
    return sorted(kept), sorted(kept & inside)
