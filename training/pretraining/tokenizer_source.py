# SPDX-License-Identifier: Apache-2.0
"""Opens, saves and trains tokenizers for commands."""

from __future__ import annotations

import collections
import contextlib
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from absl import logging

from keras_bert import text
from keras_bert.atomic import atomic_path, make_directory
from keras_bert.config import BertConfig
from keras_bert.data.text_files import UTF_8, is_plain, read_lines
from keras_bert.text.tokenizer import Tokenizer
from keras_bert.vocabularies.tokenizer_reader import read_tokenizer
from keras_bert.vocabularies.tokenizer_writer import write_tokenizer
from keras_bert.vocabularies.vocab_txt import looks_uncased

# The maximum sequence length saved with a tokenizer that does not belong to an encoder yet
NO_LIMIT = 1_000_000


def open_tokenizer(path: str | os.PathLike[str], lowercase: bool | None = None) -> Tokenizer:
    """Opens the tokenizer in a directory, or a WordPiece tokenizer for vocab.txt.

    Args:
        path: The file or directory.
        lowercase: For a file, whether to lowercase text. `None` infers it from the tokens. A
            directory specifies it.

    Raises:
        FileNotFoundError: If the file does not exist.
        ValueError: If a file is invalid, or if the directory does not contain a tokenizer.
    """
    if not os.path.isdir(path):
        if lowercase is None:
            lowercase = looks_uncased(text.load_vocabulary(path))
        return text.WordPieceTokenizer(path, lowercase=lowercase)
    config = read_tokenizer(Path(path))
    if config is None:
        raise ValueError(
            "a tokenizer directory must contain vocab.txt, vocab.json and merges.txt, "
            "spiece.model or tokenizer.json, as `keras-bert tokenizer` writes them. Received: "
            f"{path}"
        )
    return text.tokenizer_from_config(config)


def save_tokenizer(tokenizer: dict[str, Any], directory: Path) -> None:
    """Writes a tokenizer to a directory atomically."""
    make_directory(directory.parent)
    with atomic_path(directory) as temporary:
        temporary.mkdir()
        write_tokenizer(temporary, tokenizer, NO_LIMIT)


def make_tokenizer(
    kind: str,
    paths: Sequence[Path],
    vocabulary_size: int,
    lowercase: bool | None = None,
    max_sentences: int = 5_000_000,
    options: Mapping[str, Any] | None = None,
    encoding: str = UTF_8,
) -> text.WordPieceTokenizer | text.BytePairTokenizer | text.SentencePieceTokenizer:
    """Trains a tokenizer's vocabulary on text files.

    Args:
        kind: `wordpiece`, `byte_pair` or `sentence_piece`.
        paths: The text files.
        vocabulary_size: Size of the vocabulary, including special tokens.
        lowercase: Whether to lowercase text. Not supported by `byte_pair`, or if `options` specify
            it. `None` chooses based on the text, and logs the choice and the reason.
        max_sentences: Maximum number of lines that `sentence_piece` samples.
        options: Other arguments of the tokenizer's class, from `compatible_families`; see
            `family_options`.
        encoding: The encoding of files without a byte order mark.

    Raises:
        ValueError: If the files contain too little text or are in a different encoding, or if
            `lowercase` has no effect.
    """
    with _utf_8_files(paths, encoding) as files:
        return _make_tokenizer(kind, files, vocabulary_size, lowercase, max_sentences, options)


@contextlib.contextmanager
def _utf_8_files(paths: Sequence[Path], encoding: str) -> Iterator[list[Path]]:
    """Yields the paths of files in UTF-8, after checking all lines.

    Files in a different encoding, with a byte order mark and compressed files are copied to a
    temporary directory.
    """
    files = []
    with tempfile.TemporaryDirectory() as directory:
        for path in paths:
            lines = read_lines(path, encoding)
            if encoding == UTF_8 and is_plain(path):
                collections.deque(lines, maxlen=0)
            else:
                path = Path(directory, str(len(files)))
                with open(path, "w", encoding=UTF_8, newline="") as file:
                    file.writelines(lines)
            files.append(path)
        yield files


def _make_tokenizer(
    kind: str,
    paths: Sequence[Path],
    vocabulary_size: int,
    lowercase: bool | None,
    max_sentences: int,
    options: Mapping[str, Any] | None,
) -> text.WordPieceTokenizer | text.BytePairTokenizer | text.SentencePieceTokenizer:
    options = options or {}
    its_own = options.get("lowercase", False if kind == text.BytePairTokenizer.kind else lowercase)
    if lowercase not in (None, its_own):
        raise ValueError(
            f"--lowercase must be {its_own} for this {kind} tokenizer. Received: {lowercase}. "
            "Remove the flag"
        )
    special_tokens = options.get("special_tokens")
    if kind == text.BytePairTokenizer.kind:
        word_options = {
            name: options[name]
            for name in ("special_tokens", "compose", "word_pattern")
            if name in options
        }
        vocabulary = text.train_byte_pair_vocabulary(paths, vocabulary_size, **word_options)
        return text.BytePairTokenizer(*vocabulary, **options)
    if kind == text.SentencePieceTokenizer.kind and special_tokens:
        model = text.train_sentence_piece_model(
            paths,
            vocabulary_size,
            options["lowercase"],
            options["keep_accents"],
            max_sentences=max_sentences,
            special_tokens=special_tokens,
        )
        return text.SentencePieceTokenizer(model, **options)
    keep_accents = False
    if lowercase is None:
        lowercase, reason = text.choose_lowercase(paths)
        keep_accents = not lowercase
        logging.info("the vocabulary is %s: %s", "lowercase" if lowercase else "cased", reason)
    if kind == text.SentencePieceTokenizer.kind:
        model = text.train_sentence_piece_model(
            paths, vocabulary_size, lowercase, keep_accents, max_sentences=max_sentences
        )
        return text.SentencePieceTokenizer(model, lowercase, keep_accents)
    tokens = text.train_vocabulary(
        paths, vocabulary_size, lowercase=lowercase, special_tokens=special_tokens
    )
    return text.WordPieceTokenizer(tokens, lowercase=lowercase, **options)


def family_options(config: BertConfig) -> Mapping[str, Any]:
    """Returns the tokenizer arguments that an architecture's family requires."""
    # Importing checkpoints imports Keras. This takes as long as tokenizing a million tokens.
    from keras_bert.checkpoints.config_fields import compatible_families

    families = compatible_families(config)
    return families[0].tokenizer if families else {}
