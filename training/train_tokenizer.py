# SPDX-License-Identifier: Apache-2.0
"""Makes a tokenizer's vocabulary from text files.

    python -m training.train_tokenizer --input_files=corpus --output_dir=tokenizer \
        --kind=byte_pair --vocabulary_size=50265

The folder then holds `vocab.txt` (`wordpiece`), `vocab.json` and `merges.txt` (`byte_pair`), or
`spiece.model` (`sentence_piece`), as `keras_bert.checkpoints` and the transformers library read
them.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

from absl import app, logging

from keras_bert.text import (
    BytePairTokenizer,
    SentencePieceTokenizer,
    save_vocabulary,
    train_byte_pair_vocabulary,
    train_sentence_piece_model,
    train_vocabulary,
)
from training.config_flags import define_flags, read_flags
from training.pretraining_data_config import files_of

KINDS = ("wordpiece", "byte_pair", "sentence_piece")


@dataclasses.dataclass(frozen=True)
class TokenizerConfig:
    """What to make a vocabulary of, and how.

    Args:
        input_files: text files, folders of them, or patterns; UTF-8, read by the line.
        output_dir: the folder to write; it is made if need be.
        kind: `wordpiece` (BERT, DistilBERT, ELECTRA), `byte_pair` (RoBERTa) or `sentence_piece`
            (ALBERT).
        vocabulary_size: tokens, special ones counted.
        lowercase: whether text is lower-cased (not looked at by `byte_pair`, which has no case).
        max_sentences: lines that `sentence_piece` draws to learn from and holds in memory.
    """

    input_files: tuple[str, ...] = ()
    output_dir: str = ""
    kind: str = "wordpiece"
    vocabulary_size: int = 30522
    lowercase: bool = True
    max_sentences: int = 5_000_000

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"kind is {self.kind!r}, expected one of {', '.join(KINDS)}")

    def paths(self) -> list[Path]:
        """The files to read, in the order of the arguments, those of a folder by name.

        Raises:
            FileNotFoundError: if an argument stands for no file.
            ValueError: if there is no argument.
        """
        if not self.input_files:
            raise ValueError("input_files is empty, expected files, patterns or folders of text")
        return [path for argument in self.input_files for path in files_of(argument)]


def train_tokenizer(config: TokenizerConfig) -> list[Path]:
    """Makes a vocabulary and writes its files.

    Returns:
        The files.

    Raises:
        FileNotFoundError: if an argument stands for no file.
        ValueError: if there is no text, or `output_dir` is empty.
    """
    if not config.output_dir:
        raise ValueError("output_dir is empty, expected a folder")
    paths = config.paths()
    folder = Path(config.output_dir)
    folder.mkdir(parents=True, exist_ok=True)
    if config.kind == "byte_pair":
        vocabulary, merges = train_byte_pair_vocabulary(paths, config.vocabulary_size)
        BytePairTokenizer(vocabulary, merges).save_vocabulary(folder)
        return [folder / "vocab.json", folder / "merges.txt"]
    if config.kind == "sentence_piece":
        model = train_sentence_piece_model(
            paths,
            config.vocabulary_size,
            lowercase=config.lowercase,
            max_sentences=config.max_sentences,
        )
        SentencePieceTokenizer(model).save_vocabulary(folder / "spiece.model")
        return [folder / "spiece.model"]
    tokens = train_vocabulary(paths, config.vocabulary_size, lowercase=config.lowercase)
    save_vocabulary(tokens, folder / "vocab.txt")
    return [folder / "vocab.txt"]


def main(argv: list[str]) -> None:
    if len(argv) > 1:
        raise app.UsageError(f"unknown arguments: {argv[1:]}")
    for path in train_tokenizer(read_flags(TokenizerConfig)):
        logging.info("wrote %s, %d bytes", path, path.stat().st_size)


if __name__ == "__main__":
    define_flags(TokenizerConfig())
    app.run(main)
