# SPDX-License-Identifier: Apache-2.0
"""Reads a tokenizer config from the files in a directory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from keras_bert.vocabularies.byte_pair_files import MERGES_FILE, TOKENS_FILE
from keras_bert.vocabularies.byte_pair_reader import read_byte_pair_files
from keras_bert.vocabularies.sentence_piece_reader import MODEL_FILES, read_sentence_piece_files
from keras_bert.vocabularies.tokenizer_config import (
    BYTE_PAIR,
    SENTENCE_PIECE,
    WORDPIECE,
    without_defaults,
)
from keras_bert.vocabularies.tokenizer_json import TOKENIZER_FILE, TokenizerJson
from keras_bert.vocabularies.tokenizer_settings import (
    KINDS,
    SPECIAL_IN_TEXT_FIELD,
    VOCABULARY_FILE,
    TokenizerSettings,
)
from keras_bert.vocabularies.vocab_txt import has_sentence_pieces, load_vocabulary
from keras_bert.vocabularies.wordpiece_reader import read_wordpiece_files

_MODEL_KINDS = {"WordPiece": WORDPIECE, "BPE": BYTE_PAIR, "Unigram": SENTENCE_PIECE}


def read_tokenizer(directory: Path) -> dict[str, Any] | None:
    """Reads the tokenizer of a preset, Hugging Face checkpoint or TF1 release from a directory.

    The vocabulary is read from `tokenizer.json` if it exists. A SentencePiece model next to it must
    have the same pieces. The class in `tokenizer_config.json` or `config.json` determines where
    settings are read from, as in the transformers library. For the classes of BERT, MPNet, RoBERTa,
    ALBERT, XLM-RoBERTa, CamemBERT and DeBERTa, `tokenizer_config.json` takes precedence. For other
    classes or without a class, settings are read from `tokenizer.json`. Without a `tokenizer.json`,
    vocabularies are tried in this order: `vocab.txt` (WordPiece), `spiece.model`, the released
    `30k-clean.model`, XLM-RoBERTa's `sentencepiece.bpe.model` or DeBERTa's `spm.model`
    (SentencePiece), and `vocab.json` with `merges.txt` (BPE). A `vocab.txt` with SentencePiece
    pieces instead of WordPiece tokens, as in KoBERT, defines the ids of the model next to it.

    Returns the config, or `None` if the directory does not contain any of these files.

    Raises:
        OSError: If a file cannot be read.
        ValueError: If a file is invalid, or if the tokenizer is not supported.
    """
    try:
        return _read_tokenizer(directory)
    except (AttributeError, IndexError, KeyError, TypeError) as error:
        raise ValueError(f"{directory}: a tokenizer file is invalid: {error!r}.") from error


def _read_tokenizer(directory: Path) -> dict[str, Any] | None:
    path = directory / TOKENIZER_FILE
    file = TokenizerJson(path) if path.exists() else None
    kind = _detect_kind(directory, file)
    if kind is None:
        return None
    settings = TokenizerSettings(directory, file, kind)
    kind_of_class = KINDS.get(settings.tokenizer_class or "", kind)
    if kind_of_class != kind:
        raise ValueError(
            f"{directory}: the tokenizer class must have the type of the vocabulary, {kind}. "
            f"Received: {settings.tokenizer_class} ({kind_of_class})"
        )
    settings.check(kind)
    readers = {
        WORDPIECE: read_wordpiece_files,
        BYTE_PAIR: read_byte_pair_files,
        SENTENCE_PIECE: read_sentence_piece_files,
    }
    tokenizer = readers[kind](directory, settings, file)
    in_text = settings.flag(SPECIAL_IN_TEXT_FIELD)
    if in_text is not None:
        tokenizer[SPECIAL_IN_TEXT_FIELD] = in_text
    return tokenizer | without_defaults(kind, {"truncation_side": settings.side("truncation")})


def _detect_kind(directory: Path, file: TokenizerJson | None) -> str | None:
    """Returns the type of the vocabulary in a directory, or `None` without a vocabulary."""
    path = directory / VOCABULARY_FILE
    if file is not None:
        kind = _MODEL_KINDS[file.kind]
        if kind == WORDPIECE and has_sentence_pieces(file.vocabulary()):
            raise file.error(
                "a WordPiece model must have WordPiece tokens, such as '##ing'. Received: "
                "SentencePiece pieces, so every word would be unknown. Delete the file and keep "
                "the SentencePiece model"
            )
        return kind
    if path.exists():
        return SENTENCE_PIECE if has_sentence_pieces(load_vocabulary(path, ())) else WORDPIECE
    if any((directory / name).exists() for name in MODEL_FILES):
        return SENTENCE_PIECE
    has_merges = (directory / TOKENS_FILE).exists() and (directory / MERGES_FILE).exists()
    return BYTE_PAIR if has_merges else None
