# SPDX-License-Identifier: Apache-2.0
"""Trains vocabularies on a corpus: WordPiece, byte-level BPE and SentencePiece models."""

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

# RoBERTa's special tokens by role, in the order of their ids
_BYTE_PAIR_TOKENS = {
    "cls": "<s>",
    "pad": "<pad>",
    "sep": "</s>",
    "unk": "<unk>",
    "mask": "<mask>",
}
# Without `special_tokens`, these are separate pieces, as in ALBERT's vocabulary.
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
    """Trains a WordPiece vocabulary on a corpus that may be larger than the memory.

    The corpus is read once, and normalized and split into words like in the tokenizer. Only the
    distinct words and their counts are in memory. The `tokenizers` library then learns the
    vocabulary. This takes seconds, whereas TF Text's learner is written in Python and takes minutes
    or hours. By default, the library breaks ties by character numbers that differ between runs.
    Here the order is fixed, so training is deterministic.

    Args:
        corpus: The path to a text file, or an iterable of texts and `pathlib.Path`s of text files.
            Files must be UTF-8 and are read line by line.
        vocabulary_size: Number of tokens: the special tokens, the alphabet, then the learned
            tokens. A small corpus may result in fewer tokens.
        lowercase: Whether to lowercase text and strip accents. Pass the same value to the
            tokenizer. `None` calls `choose_lowercase`, so the corpus must not be an iterator.
            Defaults to `True`.
        alphabet_size: Number of most frequent characters to keep. Words with other characters
            become unknown. By default, the alphabet may fill half of the vocabulary.
        min_frequency: Minimum frequency for merging a token pair. Defaults to 2.
        max_distinct_words: Maximum number of distinct words in memory. Beyond it, the rarest words
            are dropped. Defaults to 2,000,000.
        progress: Whether to report the progress on standard error. Defaults to `True`.
        special_tokens: The special tokens by role, in the order of their ids. Pass the same value
            to the tokenizer. Defaults to the special tokens of BERT: `[PAD]`, `[UNK]`, `[CLS]`,
            `[SEP]` and `[MASK]`.

    Returns:
        A tuple of the tokens in the order of their ids.

    Raises:
        ImportError: If `tokenizers` is not installed.
        ValueError: If a file is not UTF-8, if the corpus has no words, or if the alphabet does not
            fit into the vocabulary.

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
        raise ValueError(f"The corpus must contain words. Received: {corpus!r}")
    letters, inside = _alphabet(counts, alphabet_size, vocabulary_size)
    special = tuple(special_tokens.values()) if special_tokens else SPECIAL_TOKENS
    size = len(special) + len(letters) + len(inside)
    if size > vocabulary_size:
        raise ValueError(
            f"vocabulary_size must be at least {size}, for the special tokens and the "
            f"{len(letters)} characters of the alphabet. Received: {vocabulary_size}. Increase it "
            "or decrease alphabet_size."
        )
    # The trainer keeps the order of its "special tokens".
    first = [*special, *(SUFFIX + letter for letter in inside)]
    trainer = tokenizers.trainers.WordPieceTrainer(
        vocab_size=vocabulary_size,
        min_frequency=min_frequency,
        special_tokens=first,
        initial_alphabet=letters,
        continuing_subword_prefix=SUFFIX,
        # If the output is not a terminal, it prints empty lines.
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
        merges: The token pairs to merge, in the order they were learned.
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
    """Trains a byte-level BPE vocabulary on a corpus that may be larger than the memory.

    The corpus is read once and split into words like in the tokenizer. Only the distinct words and
    their counts are in memory. The `tokenizers` library then learns the merges.

    Args:
        corpus: The path to a text file, or an iterable of texts and `pathlib.Path`s of text files.
            Files must be UTF-8 and are read line by line, without line breaks.
        vocabulary_size: Number of tokens: the special tokens, the 256 bytes, then the merged
            tokens. A small corpus may result in fewer tokens.
        min_frequency: Minimum frequency for merging a token pair. Defaults to 2.
        max_distinct_words: Maximum number of distinct words in memory. Beyond it, the rarest words
            are dropped. Defaults to 2,000,000.
        progress: Whether to report the progress on standard error. Defaults to `True`.
        special_tokens: The special tokens by role. Pass the same value to the tokenizer. Defaults
            to RoBERTa's special tokens: `<s>`, `<pad>`, `</s>`, `<unk>` and `<mask>`.
        compose: Whether to compose characters (NFC) first. Pass the same value to the tokenizer.
            Defaults to `False`.
        word_pattern: How text is split into words, `"gpt2"` or `"llama3"`. Pass the same value to
            the tokenizer. Defaults to `"gpt2"`.

    Returns:
        A named tuple of the `vocabulary` and `merges`, the arguments of `BytePairTokenizer`.

    Raises:
        ImportError: If `tokenizers` is not installed.
        ValueError: If the corpus has no words, if `vocabulary_size` is below 261, or if
            `word_pattern` has an unsupported value.

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
            f"vocabulary_size must be at least {smallest}, for the special tokens and bytes. "
            f"Received: {vocabulary_size}"
        )
    texts = (text.rstrip(b"\r\n") for text in read_corpus(corpus, progress))

    words_of = byte_word_splitter(word_pattern)

    def split(text: str) -> list[str]:
        return words_of(compose_text(text) if compose else text)

    counts = count_words(texts, split, max_distinct_words, progress)
    if not counts:
        raise ValueError(f"The corpus must contain words. Received: {corpus!r}")
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
        # If the output is not a terminal, it prints empty lines.
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
    """Trains a SentencePiece unigram model on a corpus that may be larger than the memory.

    The corpus is read once and normalized like in the tokenizer. The `sentencepiece` library then
    learns from a sample of its lines. The settings match ALBERT or, with `special_tokens`,
    XLM-RoBERTa and DeBERTa.

    Args:
        corpus: The path to a text file, or an iterable of texts and `pathlib.Path`s of text files.
            Files must be UTF-8 and are read line by line.
        vocabulary_size: Number of pieces, including special tokens. A small corpus may result in
            fewer pieces.
        lowercase: Whether to lowercase text. Pass the same value to the tokenizer. `None` calls
            `choose_lowercase`, so the corpus must not be an iterator. If it decides against
            lowercasing, accents are also kept. Defaults to `True`.
        keep_accents: Whether to keep accents. Pass the same value to the tokenizer. Defaults to
            `False`.
        character_coverage: Fraction of all characters that the pieces must cover. The rarest other
            characters become unknown. Defaults to 0.99995.
        max_sentences: Maximum number of texts or lines in memory. A larger corpus is sampled.
            Defaults to 5,000,000.
        max_sentence_bytes: Maximum text or line length in bytes. Longer lines are skipped. Defaults
            to 16,384.
        num_threads: Number of threads. Training is only deterministic with 1. Defaults to 1.
        seed: Seed of the sample. Defaults to 0.
        progress: Whether to report the progress on standard error. Defaults to `True`.
        special_tokens: The special tokens by role, in the order of their ids. Pass the same value
            to the tokenizer. XLM-RoBERTa's special tokens get the same ids as in fairseq: `<s>`,
            `<pad>`, `</s>` and `<unk>` are first, and `<mask>` is last. Defaults to the special
            tokens of ALBERT: `<pad>`, `<unk>`, `[CLS]`, `[SEP]` and `[MASK]`. In this case,
            parentheses, double quotes, hyphens, en dashes, periods, £ and € are separate pieces.

    Returns:
        The serialized model as bytes, the argument of `SentencePieceTokenizer`.

    Raises:
        ImportError: If `sentencepiece` is not installed.
        ValueError: If the corpus has no words, or if its characters do not fit into the vocabulary.

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
        # XLM-RoBERTa's own model also has neither padding nor the mask.
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
    """Returns the characters to keep, and which of them occur inside words, both sorted."""
    frequencies: Counter[str] = Counter()
    inside: set[str] = set()
    for word, count in counts.items():
        for letter in word:
            frequencies[letter] += count
        if len(word) > 1:
            inside.update(word)
    # Characters that never occur inside words, such as CJK and punctuation, need one token.
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
