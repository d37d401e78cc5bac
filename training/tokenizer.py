# SPDX-License-Identifier: Apache-2.0
"""Trains a tokenizer's vocabulary on text files.

    python -m training.tokenizer --input_files=corpus --output_dir=tokenizer \\
        --kind=byte_pair --vocabulary_size=50265

Files written to `output_dir`: `vocab.txt` (`wordpiece`), `vocab.json` and `merges.txt`
(`byte_pair`), or `spiece.model` and `tokenizer.json` (`sentence_piece`; for XLM-RoBERTa
`sentencepiece.bpe.model`); and `tokenizer_config.json`. `keras_bert.checkpoints` and the
transformers library read them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from absl import logging

from .engine import output_folder, program
from .engine.options import PositiveInt, ProgramConfig, check_one_of
from .pretraining.config import expand_files, named_architecture

# TensorFlow is imported only where it is needed, so that `--help` works without it.
if TYPE_CHECKING:
    from keras_bert.config import BertConfig
    from keras_bert.text import BytePairTokenizer, SentencePieceTokenizer, WordPieceTokenizer

KINDS = ("wordpiece", "byte_pair", "sentence_piece")


@dataclasses.dataclass(frozen=True)
class TokenizerConfig(ProgramConfig):
    """The corpus, and the kind and size of the vocabulary.

    Args:
        input_files: Text files, folders of text files, or glob patterns; UTF-8, read line by line.
        output_dir: Folder for the files; it is created if it does not exist.
        kind: Kind of tokenizer: `wordpiece` (BERT, DistilBERT, ELECTRA), `byte_pair` (RoBERTa) or
            `sentence_piece` (ALBERT; with `--model=xlm_roberta_base`, XLM-RoBERTa).
        model: The model that the tokenizer is for, such as modernbert_base, or a JSON file of a
            config: its kind of tokenizer, with the special tokens of its family.
        vocabulary_size: Size of the vocabulary, special tokens included.
        lowercase: Whether to lower-case text and, with `wordpiece`, to strip accents; ignored by
            `byte_pair`, and for XLM-RoBERTa. By default it is chosen by the text: scripts without
            case, and those whose characters would be decomposed, such as Hangul, are not changed.
        max_sentences: Maximum number of lines that `sentence_piece` samples and holds in memory.
    """

    input_files: tuple[str, ...] = ()
    output_dir: str = ""
    kind: str = "wordpiece"
    vocabulary_size: PositiveInt = 30522
    lowercase: bool | None = None
    max_sentences: PositiveInt = 5_000_000
    model: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_one_of(self, kind=KINDS)

    def paths(self) -> list[Path]:
        """Returns the files to read, in the order of `input_files`, those of a folder by name.

        Raises:
            FileNotFoundError: If an entry matches no file.
            ValueError: If `input_files` is empty.
        """
        if not self.input_files:
            raise ValueError("--input_files is empty, expected files, patterns or folders of text")
        return [path for argument in self.input_files for path in expand_files(argument)]


def train_tokenizer(config: TokenizerConfig) -> list[Path]:
    """Trains a vocabulary and writes its files.

    Returns:
        The paths of the files.

    Raises:
        FileNotFoundError: If an entry of `input_files` matches no file.
        ValueError: If there is no text, or `output_dir` is empty.
    """
    from keras_bert.checkpoints.folders import replaced_files
    from keras_bert.checkpoints.tokenizer_files import ALL_FILES, write_tokenizer
    from keras_bert.checkpoints.tokenizer_settings import SETTINGS_FILE

    from .pretraining.tokenizer_source import NO_LIMIT

    if not config.output_dir:
        raise ValueError("--output_dir is empty, expected a folder")
    paths = config.paths()
    folder = Path(config.output_dir)
    architecture = named_architecture(config.model) if config.model else None
    tokenizer = make_tokenizer(
        architecture.tokenizer if architecture else config.kind,
        paths,
        config.vocabulary_size,
        config.lowercase,
        config.max_sentences,
        options=family_options(architecture) if architecture else None,
    )
    with replaced_files(folder, owned=ALL_FILES, last=SETTINGS_FILE) as temporary:
        write_tokenizer(temporary, tokenizer.get_config(), NO_LIMIT)
        names = sorted(path.name for path in temporary.iterdir())
    return [folder / name for name in names]


def make_tokenizer(
    kind: str,
    paths: Sequence[Path],
    vocabulary_size: int,
    lowercase: bool | None = None,
    max_sentences: int = 5_000_000,
    options: Mapping[str, Any] | None = None,
) -> WordPieceTokenizer | BytePairTokenizer | SentencePieceTokenizer:
    """Returns a tokenizer whose vocabulary is trained on text files.

    Args:
        kind: `wordpiece`, `byte_pair` or `sentence_piece`.
        paths: The text files.
        vocabulary_size: Size of the vocabulary, special tokens included.
        lowercase: Whether to lower-case text; ignored by `byte_pair`, and where `options` say it.
            `None` chooses by the text, and logs the choice and the reason.
        max_sentences: Maximum number of lines that `sentence_piece` samples.
        options: Other arguments of the tokenizer's class that a family has; see `family_options`.

    Raises:
        ValueError: If there is no text, or too little.
    """
    from keras_bert import text

    options = options or {}
    special_tokens = options.get("special_tokens")
    if kind == text.BytePairTokenizer.kind:
        of_words = {
            name: options[name]
            for name in ("special_tokens", "compose", "word_pattern")
            if name in options
        }
        made = text.train_byte_pair_vocabulary(paths, vocabulary_size, **of_words)
        return text.BytePairTokenizer(*made, **options)
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
        logging.info("the vocabulary is %s: %s", "lower-cased" if lowercase else "cased", reason)
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
    """Returns the arguments of a tokenizer's class that the family of an architecture has."""
    from keras_bert.checkpoints.families import fitting_families

    families = fitting_families(config)
    return families[0].tokenizer if families else {}


def main(config: TokenizerConfig) -> None:
    program.import_quietly()
    if not config.output_dir:
        raise ValueError("--output_dir is empty, expected a folder")
    with output_folder.locked(config.output_dir):
        paths = train_tokenizer(config)
    for path in paths:
        logging.info("wrote %s, %d bytes", path, path.stat().st_size)


if __name__ == "__main__":
    program.run(main, TokenizerConfig)
