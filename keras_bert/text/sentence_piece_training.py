# SPDX-License-Identifier: Apache-2.0
"""Making a SentencePiece model from a corpus."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator

import tensorflow as tf

from keras_bert.text.letter_case import chosen_lowercase
from keras_bert.text.normalization import drop_invalid
from keras_bert.text.sentence_cleaning import SentenceCleaner
from keras_bert.text.training_corpus import (
    Corpus,
    Report,
    corpus_batches,
    corpus_texts,
    import_trainer,
)

# Always pieces of their own, as in ALBERT's vocabulary
_SYMBOLS = ("(", ")", '"', "-", ".", "–", "£", "€")


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
) -> bytes:
    """Makes a unigram model from a corpus, which may be larger than the memory.

    The corpus is read once, and cleaned up as the tokenizer does it; the trainer of the
    `sentencepiece` library learns from a sample of its lines. Settings are ALBERT's.

    Args:
        corpus: The path of a text file; or an iterable of texts, of `pathlib.Path`s of text files,
            or of both. Files are UTF-8 and read by the line.
        vocabulary_size: How many pieces to make, `<pad>`, `<unk>`, `[CLS]`, `[SEP]` and `[MASK]`
            first. They are fewer where the corpus has no more.
        lowercase: As it will be for the tokenizer. `None` takes what `choose_lowercase` says of the
            corpus, which must not be an iterator then, and keeps accents where it is `False`; give
            the tokenizer the same.
        keep_accents: As it will be for the tokenizer.
        character_coverage: The share of all characters that pieces shall spell; the rarest rest
            will be unknown.
        max_sentences: How many texts or lines are drawn to learn from; they are held in memory.
        max_sentence_bytes: Longer texts or lines are left out.
        num_threads: With more than one, the same corpus may not make the same model.
        seed: Of the draw.
        progress: Whether to report to standard error.

    Returns:
        The model, as `SentencePieceTokenizer` takes it.

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
    sentencepiece = import_trainer("sentencepiece")
    if lowercase is None:
        lowercase = chosen_lowercase(corpus, progress)
        keep_accents = keep_accents or not lowercase
    model = io.BytesIO()
    clean = SentenceCleaner(lowercase, keep_accents, collapse=True)
    sentencepiece.set_random_generator_seed(seed)
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=_sentences(corpus_texts(corpus), clean, Report(progress)),
            model_writer=model,
            model_type="unigram",
            vocab_size=vocabulary_size,
            hard_vocab_limit=False,
            character_coverage=character_coverage,
            input_sentence_size=max_sentences,
            shuffle_input_sentence=True,
            max_sentence_length=max_sentence_bytes,
            num_threads=num_threads,
            pad_id=0,
            unk_id=1,
            bos_id=-1,
            eos_id=-1,
            control_symbols=["[CLS]", "[SEP]", "[MASK]"],
            user_defined_symbols=list(_SYMBOLS),
            minloglevel=2,
        )
    except RuntimeError as error:
        raise ValueError(
            f"The sentencepiece library could make no vocabulary of {vocabulary_size} pieces of "
            f"the corpus {corpus!r}: {error}"
        ) from error
    return model.getvalue()


def _sentences(texts: Iterable[bytes], clean: SentenceCleaner, report: Report) -> Iterator[str]:
    function = tf.function(
        lambda batch: clean(drop_invalid(batch)),
        input_signature=[tf.TensorSpec([None], tf.string)],
    )
    total = 0
    for batch, total in corpus_batches(texts):
        report(total)
        for text in function(tf.constant(batch)).numpy().tolist():
            if text:
                yield text.decode("utf-8")
    report(total, done=True)
