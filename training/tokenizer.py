# SPDX-License-Identifier: Apache-2.0
"""Trains a tokenizer's vocabulary on text files.

    python -m training.tokenizer --input_files=corpus --output_dir=tokenizer \\
        --kind=byte_pair --vocabulary_size=50265

Files written to `output_dir`: `tokenizer.json`, `tokenizer_config.json`, and `vocab.txt`
(`wordpiece`), `vocab.json` and `merges.txt` (`byte_pair`), or `spiece.model` (`sentence_piece`).
For XLM-RoBERTa, the last file is `sentencepiece.bpe.model`. `keras_bert.checkpoints` and the
transformers library can read these files.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

from absl import logging

from keras_bert.vocabularies.tokenizer_settings import ALL_FILES, SETTINGS_FILE
from keras_bert.vocabularies.tokenizer_writer import write_tokenizer

from .engine import output_directory, program
from .engine.options import (
    PositiveInt,
    TextFileOptions,
    UnusedFlags,
    check_one_of,
    check_unset,
)
from .pretraining.config import named_architecture
from .pretraining.record_config import find_inputs

KINDS = ("wordpiece", "byte_pair", "sentence_piece")


@dataclasses.dataclass(frozen=True)
class TokenizerConfig(TextFileOptions):
    """The corpus, and the type and size of the vocabulary.

    Args:
        input_files: Text files, directories of text files, or glob patterns. They are read line by
            line, and may be compressed.
        output_dir: Directory for the files. It is created if it does not exist.
        kind: Type of tokenizer, one of wordpiece (BERT, DistilBERT, ELECTRA), byte_pair (RoBERTa)
            and sentence_piece (ALBERT, and XLM-RoBERTa with --model=xlm_roberta_base).
        model: The model that will use the tokenizer, such as modernbert_base, or a JSON config
            file. It determines the type of tokenizer and the special tokens.
        vocabulary_size: Size of the vocabulary, including special tokens.
        lowercase: Whether to lowercase text and, with wordpiece, to strip accents. Not supported
            with byte_pair or for XLM-RoBERTa. By default, it depends on the text: scripts without
            case, and scripts whose characters would be decomposed, such as Hangul, are not changed.
        max_sentences: Maximum number of lines that sentence_piece samples and keeps in memory.
    """

    input_files: tuple[str, ...] = ()
    output_dir: str = ""
    kind: str = "wordpiece"
    vocabulary_size: PositiveInt = 30522
    lowercase: bool | None = None
    max_sentences: PositiveInt = 5_000_000
    model: str = ""

    def unused_flags(self) -> UnusedFlags:
        if self.model:
            yield ["kind"], f"--model={self.model} determines the type of tokenizer"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_one_of(self, kind=KINDS)

    def paths(self) -> list[Path]:
        """Returns the files to read, in the order of `input_files`. Directories are sorted by name.

        Raises:
            FileNotFoundError: If an entry matches no file.
            ValueError: If `input_files` is empty.
        """
        return [Path(file.path) for file in find_inputs(self.input_files)]


def train_tokenizer(config: TokenizerConfig) -> list[Path]:
    """Trains a vocabulary and writes its files.

    Returns:
        The paths of the files.

    Raises:
        FileNotFoundError: If an entry of `input_files` matches no file.
        ValueError: If the files have no text, or `output_dir` is empty.
    """
    from keras_bert.checkpoints.directories import replaced_files

    from .pretraining.tokenizer_source import NO_LIMIT, family_options, make_tokenizer

    if not config.output_dir:
        raise ValueError("--output_dir must be a directory. Received: no --output_dir")
    paths = config.paths()
    directory = Path(config.output_dir)
    architecture = named_architecture(config.model) if config.model else None
    kind = architecture.tokenizer if architecture else config.kind
    if kind != "sentence_piece":
        check_unset(config, ["max_sentences"], f"the type of the tokenizer is {kind}")
    tokenizer = make_tokenizer(
        kind,
        paths,
        config.vocabulary_size,
        config.lowercase,
        config.max_sentences,
        options=family_options(architecture) if architecture else None,
        encoding=config.encoding,
    )
    with replaced_files(directory, owned=ALL_FILES, last=SETTINGS_FILE) as temporary:
        write_tokenizer(temporary, tokenizer.get_config(), NO_LIMIT)
        names = sorted(path.name for path in temporary.iterdir())
    return [directory / name for name in names]


def main(config: TokenizerConfig) -> None:
    program.import_quietly()
    if not config.output_dir:
        raise ValueError("--output_dir must be a directory. Received: no --output_dir")
    with output_directory.lock_output_dir(config.output_dir, command="tokenizer", once=True):
        paths = train_tokenizer(config)
    for path in paths:
        logging.info("wrote %s, %d bytes", path, path.stat().st_size)


if __name__ == "__main__":
    program.run(main, TokenizerConfig)
