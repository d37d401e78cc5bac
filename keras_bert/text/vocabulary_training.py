# SPDX-License-Identifier: Apache-2.0
"""Training of vocabularies on a corpus: WordPiece, byte-level BPE and SentencePiece models."""

from __future__ import annotations

import io
import json
import sys
from collections import Counter
from collections.abc import Mapping
from typing import Any, NamedTuple

from keras_bert import checks
from keras_bert.families.shared import ROBERTA_TOKENS
from keras_bert.text.byte_pair import byte_word_splitter
from keras_bert.text.composition import compose_text
from keras_bert.text.normalization import split_words
from keras_bert.text.sentence_piece_cleaning import TextCleaner
from keras_bert.text.special_tokens import SPECIAL_TOKENS, SUFFIX
from keras_bert.text.training_corpus import (
    Corpus,
    chosen_lowercase,
    count_words,
    read_corpus,
    repeat_words,
)
from keras_bert.vocabularies import fairseq_ids
from keras_bert.vocabularies.byte_pair_files import byte_characters
from keras_bert.vocabularies.tokenizer_config import MAX_WORD_LENGTH

# RoBERTa's special tokens by their roles, in the order of their ids
_BYTE_PAIR_TOKENS = {
    "cls": "<s>",
    "pad": "<pad>",
    "sep": "</s>",
    "unk": "<unk>",
    "mask": "<mask>",
}
# Always pieces of their own, as in the vocabulary of ALBERT
_SYMBOLS = ("(", ")", '"', "-", ".", "–", "£", "€")


def train_vocabulary(
    corpus: Corpus,
    vocabulary_size: int,
    lowercase: bool | None = True,
    alphabet_size: int | None = None,
    min_frequency: int = 2,
    max_distinct_words: int = 2_000_000,
    progress: bool = True,
    special_tokens: Mapping[str, str] | None = None,
) -> tuple[str, ...]:
    """Trains a WordPiece vocabulary on a corpus, which may be larger than the memory.

    The corpus is read once, and normalized and split into words as by the tokenizer; only the
    distinct words and their counts are in memory. The vocabulary is then learned by the trainer of
    the `tokenizers` library. It takes seconds, while the learner of TF Text, which is written in
    Python, takes minutes or hours; and the vocabulary has exactly the requested size. On its own,
    the trainer numbers the letters inside words in an order that differs between runs, and breaks
    ties by number; here it is given a fixed order, so that training is deterministic.

    Args:
        corpus: The path of a text file; or an iterable of texts, of `pathlib.Path`s of text files,
            or of both. Files are UTF-8 and read line by line.
        vocabulary_size: The number of tokens: the special tokens, the alphabet, then the learned
            tokens. A small corpus may result in fewer.
        lowercase: Whether to lowercase text and strip accents; pass the same to the tokenizer.
            With `None`, `choose_lowercase` decides, for which the corpus must not be an iterator.
        alphabet_size: The number of characters to keep, the most frequent ones; words with other
            characters will be unknown. By default, as many as fit in half of the vocabulary.
        min_frequency: The minimum number of occurrences of a pair of tokens for merging it.
        max_distinct_words: The maximum number of distinct words in memory; beyond it, the rarest
            words are dropped.
        progress: Whether to report the progress on standard error.
        special_tokens: The special tokens by their roles, in the order of their ids; pass the same
            to the tokenizer. Defaults to BERT's: `[PAD]`, `[UNK]`, `[CLS]`, `[SEP]` and `[MASK]`.

    Returns:
        A tuple of the tokens in the order of their ids.

    Raises:
        ImportError: If `tokenizers` is not installed.
        ValueError: If the corpus has no words, or the alphabet does not fit into the vocabulary.

    Example:

    >>> from keras_bert.text import train_vocabulary
    >>> vocabulary = train_vocabulary(["low lower", "lower, lowest"], 40, progress=False)
    >>> vocabulary[5:13]
    (',', 'e', 'l', 'o', 'r', 's', 't', 'w')
    >>> vocabulary[13:]
    ('##e', '##l', '##o', '##r', '##s', '##t', '##w', '##ow', 'low', 'lowe', 'lower')
    """
    with checks.importing("vocabulary", "Training a vocabulary"):
        import tokenizers
    if lowercase is None:
        lowercase = chosen_lowercase(corpus, progress)
    texts = read_corpus(corpus, progress)
    counts = count_words(texts, split_words(lowercase), max_distinct_words, progress)
    counts = {word: count for word, count in counts.items() if len(word) <= MAX_WORD_LENGTH}
    if not counts:
        raise ValueError(f"The corpus has no words: {corpus!r}.")
    letters, inside = _alphabet(counts, alphabet_size, vocabulary_size)
    special = tuple(special_tokens.values()) if special_tokens else SPECIAL_TOKENS
    size = len(special) + len(letters) + len(inside)
    if size > vocabulary_size:
        raise ValueError(
            f"vocabulary_size is {vocabulary_size}, but the special tokens and the {len(letters)} "
            f"characters of the alphabet need {size}; increase it or decrease alphabet_size."
        )
    # The trainer keeps the order of its "special tokens".
    first = [*special, *(SUFFIX + letter for letter in inside)]
    trainer = tokenizers.trainers.WordPieceTrainer(
        vocab_size=vocabulary_size,
        min_frequency=min_frequency,
        special_tokens=first,
        initial_alphabet=letters,
        continuing_subword_prefix=SUFFIX,
        # Without a terminal it prints empty lines.
        show_progress=progress and sys.stderr.isatty(),
    )
    learner = tokenizers.Tokenizer(tokenizers.models.WordPiece(unk_token=special[0]))
    learner.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    alphabet = set(letters)
    word_counts = (
        (word, count)
        for word, count in counts.items()
        if len(word) > 1 and alphabet.issuperset(word)
    )
    learner.train_from_iterator(repeat_words(word_counts), trainer)
    ids = learner.get_vocab()
    pieces = sorted(ids, key=ids.__getitem__)[size:]
    return (*special, *letters, *first[len(special) :], *pieces)


class BytePairVocabulary(NamedTuple):
    """The vocabulary of a `BytePairTokenizer`.

    Args:
        vocabulary: The tokens in the order of their ids.
        merges: The pairs of tokens to merge, in the order in which they were learned.
    """

    vocabulary: tuple[str, ...]
    merges: tuple[str, ...]


def train_byte_pair_vocabulary(
    corpus: Corpus,
    vocabulary_size: int,
    min_frequency: int = 2,
    max_distinct_words: int = 2_000_000,
    progress: bool = True,
    special_tokens: Mapping[str, str] | None = None,
    compose: bool = False,
    word_pattern: str = "gpt2",
) -> BytePairVocabulary:
    """Trains a byte-level BPE vocabulary on a corpus, which may be larger than the memory.

    The corpus is read once and split into words as by the tokenizer; only the distinct words and
    their counts are in memory. The merges are then learned by the trainer of the `tokenizers`
    library.

    Args:
        corpus: The path of a text file; or an iterable of texts, of `pathlib.Path`s of text files,
            or of both. Files are UTF-8 and read line by line, without the line breaks.
        vocabulary_size: The number of tokens: the special tokens, the 256 bytes, then the merged
            tokens. A small corpus may result in fewer.
        min_frequency: The minimum number of occurrences of a pair of tokens for merging it.
        max_distinct_words: The maximum number of distinct words in memory; beyond it, the rarest
            words are dropped.
        progress: Whether to report the progress on standard error.
        special_tokens: The special tokens by their roles; pass the same to the tokenizer. Defaults
            to RoBERTa's: `<s>`, `<pad>`, `</s>`, `<unk>` and `<mask>`.
        compose: Whether to compose characters (NFC) first; pass the same to the tokenizer.
        word_pattern: How text is split into words, `"gpt2"` or `"llama3"`; pass the same to the
            tokenizer.

    Returns:
        A named tuple of the `vocabulary` and the `merges`, the arguments of `BytePairTokenizer`.

    Raises:
        ImportError: If `tokenizers` is not installed.
        ValueError: If the corpus has no words, `vocabulary_size` is below 261, or `word_pattern` is
            neither of the above.

    Example:

    >>> from keras_bert.text import BytePairTokenizer, train_byte_pair_vocabulary
    >>> made = train_byte_pair_vocabulary(["low lower", "lower, lowest"], 270, progress=False)
    >>> made.merges[:3]
    ('l o', 'lo w', 'low e')
    >>> tokenizer = BytePairTokenizer(*made)
    """
    with checks.importing("vocabulary", "Training a vocabulary"):
        import tokenizers
    first = list(dict.fromkeys((special_tokens or _BYTE_PAIR_TOKENS).values()))
    smallest = len(first) + 256
    if vocabulary_size < smallest:
        raise ValueError(
            f"vocabulary_size is {vocabulary_size}; the special tokens and the bytes need "
            f"{smallest}."
        )
    texts = (text.rstrip(b"\r\n") for text in read_corpus(corpus, progress))

    words_of = byte_word_splitter(word_pattern)

    def split(text: str) -> list[str]:
        return words_of(compose_text(text) if compose else text)

    counts = count_words(texts, split, max_distinct_words, progress)
    if not counts:
        raise ValueError(f"The corpus has no words: {corpus!r}.")
    letters = byte_characters()
    words = (
        ("".join(letters[byte] for byte in word.encode("utf-8")), count)
        for word, count in counts.items()
    )
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=vocabulary_size,
        min_frequency=min_frequency,
        special_tokens=first,
        initial_alphabet=list(letters),
        # Without a terminal it prints empty lines.
        show_progress=progress and sys.stderr.isatty(),
    )
    learner = tokenizers.Tokenizer(tokenizers.models.BPE())
    learner.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    learner.train_from_iterator(repeat_words(words), trainer)
    model = json.loads(learner.to_str())["model"]
    ids = model["vocab"]
    merges = (merge if isinstance(merge, str) else " ".join(merge) for merge in model["merges"])
    return BytePairVocabulary(tuple(sorted(ids, key=ids.__getitem__)), tuple(merges))


def train_sentence_piece_model(
    corpus: Corpus,
    vocabulary_size: int,
    lowercase: bool | None = True,
    keep_accents: bool = False,
    character_coverage: float = 0.99995,
    max_sentences: int = 5_000_000,
    max_sentence_bytes: int = 16_384,
    num_threads: int = 1,
    seed: int = 0,
    progress: bool = True,
    special_tokens: Mapping[str, str] | None = None,
) -> bytes:
    """Trains a SentencePiece unigram model on a corpus, which may be larger than the memory.

    The corpus is read once, and normalized as by the tokenizer; the trainer of the `sentencepiece`
    library learns from a sample of its lines. The settings are ALBERT's, or, with `special_tokens`,
    XLM-RoBERTa's and DeBERTa's.

    Args:
        corpus: The path of a text file; or an iterable of texts, of `pathlib.Path`s of text files,
            or of both. Files are UTF-8 and read line by line.
        vocabulary_size: The number of pieces, special tokens included. A small corpus may result in
            fewer.
        lowercase: Whether to lowercase text; pass the same to the tokenizer. With `None`,
            `choose_lowercase` decides, for which the corpus must not be an iterator; if it decides
            against it, accents are kept too.
        keep_accents: Whether to keep accents; pass the same to the tokenizer.
        character_coverage: The fraction of all characters that the pieces must cover; the rarest
            other characters will be unknown.
        max_sentences: The number of texts or lines that are sampled, and held in memory.
        max_sentence_bytes: Maximum length of a text or line in bytes; longer ones are skipped.
        num_threads: Number of threads; training is deterministic only with 1.
        seed: Seed of the sample.
        progress: Whether to report the progress on standard error.
        special_tokens: The special tokens by their roles, in the order of their ids; pass the same
            to the tokenizer. XLM-RoBERTa's have the ids of the library fairseq: `<s>`, `<pad>`,
            `</s>` and `<unk>` first, and `<mask>` last. Defaults to ALBERT's: `<pad>`, `<unk>`,
            `[CLS]`, `[SEP]` and `[MASK]`; then brackets, quotes, hyphens and periods are pieces of
            their own.

    Returns:
        The serialized model as bytes, the argument of `SentencePieceTokenizer`.

    Raises:
        ImportError: If `sentencepiece` is not installed.
        ValueError: If the corpus has no words, or its characters do not fit into the vocabulary.

    Example:

    >>> from keras_bert.text import SentencePieceTokenizer, train_sentence_piece_model
    >>> model = train_sentence_piece_model(["low lower", "lower, lowest"], 32, progress=False)
    >>> tokenizer = SentencePieceTokenizer(model)
    >>> tokenizer.vocabulary[:5]
    ('<pad>', '<unk>', '[CLS]', '[SEP]', '[MASK]')
    """
    import sentencepiece

    if lowercase is None:
        lowercase = chosen_lowercase(corpus, progress)
        keep_accents = keep_accents or not lowercase
    checks.POSITIVE_FRACTION.check(character_coverage=character_coverage)
    model = io.BytesIO()
    clean = TextCleaner(lowercase, keep_accents, collapse=special_tokens is None)
    texts = (clean(text.decode("utf-8", "ignore")) for text in read_corpus(corpus, progress))
    special: dict[str, Any] = {
        **{"pad_id": 0, "unk_id": 1, "bos_id": -1, "eos_id": -1},
        "control_symbols": ["[CLS]", "[SEP]", "[MASK]"],
        "user_defined_symbols": list(_SYMBOLS),
    }
    num_pieces = vocabulary_size
    with_fairseq_ids = special_tokens == ROBERTA_TOKENS
    if with_fairseq_ids:
        # As XLM-RoBERTa's own model, which knows neither padding nor the mask
        special = {"unk_id": 0, "bos_id": 1, "eos_id": 2}
        num_pieces -= len({"<pad>", "<mask>"})
    elif special_tokens is not None:
        roles = {"pad": "pad", "unk": "unk", "cls": "bos", "sep": "eos"}
        special = {"control_symbols": [special_tokens["mask"]]}
        ordered_roles = [role for role in special_tokens if role in roles]
        for index, role in enumerate(ordered_roles):
            special |= {
                f"{roles[role]}_id": index,
                f"{roles[role]}_piece": special_tokens[role],
            }
    sentencepiece.set_random_generator_seed(seed)
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=filter(None, texts),
            model_writer=model,
            model_type="unigram",
            vocab_size=num_pieces,
            hard_vocab_limit=False,
            character_coverage=character_coverage,
            input_sentence_size=max_sentences,
            shuffle_input_sentence=True,
            max_sentence_length=max_sentence_bytes,
            num_threads=num_threads,
            minloglevel=2,
            **special,
        )
    except RuntimeError as error:
        raise ValueError(
            f"The sentencepiece library cannot train {vocabulary_size} pieces on the corpus "
            f"{corpus!r}: {error}"
        ) from error
    serialized = model.getvalue()
    if with_fairseq_ids:
        return fairseq_ids.with_fairseq_ids(serialized, fairseq_ids.XLM_ROBERTA)
    return serialized


def _alphabet(
    counts: dict[str, int], alphabet_size: int | None, vocabulary_size: int
) -> tuple[list[str], list[str]]:
    """Returns the characters to keep, and the ones that occur inside words, both sorted."""
    frequencies: Counter[str] = Counter()
    inside: set[str] = set()
    for word, count in counts.items():
        for letter in word:
            frequencies[letter] += count
        if len(word) > 1:
            inside.update(word)
    # A character that is always a word of its own, as CJK and punctuation are, takes one token.
    letters_by_frequency = sorted(frequencies, key=lambda letter: (-frequencies[letter], letter))
    space = (vocabulary_size - len(SPECIAL_TOKENS)) // 2
    alphabet = set()
    for letter in (
        letters_by_frequency if alphabet_size is None else letters_by_frequency[:alphabet_size]
    ):
        space -= 2 if letter in inside else 1
        if space < 0 and alphabet_size is None:
            break
        alphabet.add(letter)
    return sorted(alphabet), sorted(alphabet & inside)
