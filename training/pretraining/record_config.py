# SPDX-License-Identifier: Apache-2.0
"""The config of pre-training records, and the files of text that they are created from."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from keras_bert import checks
from keras_bert.data import InstanceGenerator, file_systems
from keras_bert.data.file_systems import InputFile
from keras_bert.data.pretraining.corpus import DOCUMENT_ENDS, FORMATS

from ..engine.options import (
    CommandConfig,
    Fraction,
    NonNegativeInt,
    PositiveInt,
    Seed,
    UnusedFlags,
    check_one_of,
    num_cores,
)
from ..engine.output_folder import hash_files

PAIR_LABEL_FORMATS = ("next_sentence", "sentence_order")


@dataclasses.dataclass(frozen=True)
class CorpusOptions(CommandConfig):
    """How files of raw text are read and tokenized.

    Args:
        format: Sentences, one per line; paragraphs, one per line, which are split into sentences;
            jsonl, a JSON object per line; parquet, a document per row; auto takes jsonl for .jsonl
            and .ndjson, parquet for .parquet, or else sentences.
        document_ends: What separates documents besides the end of a file: blank_lines; files for
            nothing else; wikitext for the lines " = Title = " of the WikiText data sets, whose
            headings are removed.
        field: The key of the text in JSON Lines, or its column in Parquet.
        language: ISO code of the language, used to split paragraphs into sentences.
        lowercase: Whether the tokenizer lower-cases text and strips accents. By default, a
            vocab.txt determines it by its tokens, and a new vocabulary by the text; the folder of a
            tokenizer always specifies it.
    """

    format: str = "auto"
    document_ends: str = "blank_lines"
    field: str = "text"
    language: str = "en"
    lowercase: bool | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_one_of(self, format=FORMATS, document_ends=DOCUMENT_ENDS)


@dataclasses.dataclass(frozen=True)
class RowOptions(CommandConfig):
    """How rows are made of documents, and written to files.

    Args:
        sequence_format: Kind of instances: next_sentence (BERT), sentence_order (ALBERT),
            sentence_pairs, full_sentences (RoBERTa) or document_sentences.
        short_seq_probability: Probability that an instance has a random, shorter target length.
        duplicate_factor: Number of times that each document is used, each time cut and paired
            differently.
        static_masks: Whether to write masks to the records (static masking), as the original script
            does; otherwise masks are drawn during training (dynamic masking).
        whole_words: Whether static masks cover whole words.
        max_predictions: Maximum number of masks in a row; 0 derives it from the length and
            masked_lm_probability.
        masked_lm_probability: Share of the tokens that is selected for prediction.
        seed: Random seed.
        num_shards: Number of files to write; 0 takes one for each million tokens.
        independent_shards: Whether a shard depends on its own documents alone: random second
            segments are from another document of the same shard, not of the whole corpus. A Beam
            runner requires it, and its records are those of one machine with it.
        num_workers: Number of processes, which does not affect the records; 0 takes one for each
            core.
        keep_store: Whether to keep the tokenized corpus in output_dir/.work at the end.
    """

    sequence_format: str = "next_sentence"
    short_seq_probability: Fraction = 0.1
    duplicate_factor: PositiveInt = 10
    static_masks: bool = False
    whole_words: bool = False
    max_predictions: NonNegativeInt = 0
    masked_lm_probability: Annotated[float, checks.NumberRange(above=0, below=1)] = 0.15
    seed: Seed = 1
    num_shards: NonNegativeInt = 0
    independent_shards: bool = False
    num_workers: NonNegativeInt = 0
    keep_store: bool = False

    def unused_flags(self) -> UnusedFlags:
        if not self.static_masks:
            yield (
                ["whole_words"],
                "there is no --static_masks; masks that are drawn during training cover whole "
                "words with --masking_unit=word",
            )

    @property
    def next_sentence(self) -> bool:
        """Whether rows have labels of sentence pairs, for a second objective."""
        return self.sequence_format in PAIR_LABEL_FORMATS

    @property
    def workers(self) -> int:
        """The number of processes to use."""
        return self.num_workers or num_cores()


@dataclasses.dataclass(frozen=True)
class PretrainingDataConfig(CommandConfig):
    """How pre-training records of one length are created from files of raw text.

    Args:
        input_files: Text files, glob patterns such as corpus/**/*.txt, or folders, or URLs of these
            such as s3://bucket/corpus/*.jsonl.gz; compressed by gzip, bzip2, xz or Zstandard, or
            not. Hidden files, whose names begin with . or _, are left out.
        vocabulary: The vocab.txt of the tokenizer, or the folder of a tokenizer of any kind.
        output_dir: Folder for the records, summary.json and lengths.png.
        sequence_length: Maximum length of a row in tokens, special tokens included.
        corpus: How the files are read and tokenized.
        rows: How rows are made of their documents.
    """

    input_files: tuple[str, ...] = ()
    vocabulary: str = ""
    output_dir: str = "runs/pretraining_data"
    sequence_length: PositiveInt = 128
    corpus: CorpusOptions = dataclasses.field(default_factory=CorpusOptions)
    rows: RowOptions = dataclasses.field(default_factory=RowOptions)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.instance_maker(cls_token_id=0, sep_token_id=0)

    def instance_maker(self, cls_token_id: int, sep_token_id: int) -> InstanceGenerator:
        """Returns the object that creates instances, without masks."""
        return InstanceGenerator(
            cls_token_id,
            sep_token_id,
            sequence_format=self.rows.sequence_format,
            sequence_length=self.sequence_length,
            short_seq_probability=self.rows.short_seq_probability,
            duplicate_factor=self.rows.duplicate_factor,
            seed=self.rows.seed,
            independent_shards=self.rows.independent_shards,
        )


def find_inputs(
    input_files: Sequence[str], listing: file_systems.Listing | None = None
) -> list[InputFile]:
    """Returns the files to read, in the order of `input_files`, those of a folder by name.

    Args:
        input_files: Paths or URLs, see `find_files`.
        listing: How URLs are listed.

    Raises:
        FileNotFoundError: If an entry matches no file.
        ValueError: If `input_files` is empty.
    """
    if not input_files:
        raise ValueError("--input_files is empty, expected files, patterns or folders of text")
    inputs = []
    for path in input_files:
        files = file_systems.find_files(path, listing if file_systems.is_url(path) else None)
        if not files:
            raise FileNotFoundError(
                f"{path} matches no file, expected a file, a pattern or a folder with files"
            )
        inputs += files
    return inputs


def content_of_inputs(inputs: Sequence[InputFile]) -> str:
    """Returns a hash of the names and contents of files, and of the names and sizes of URLs."""
    remote = [(file.name, file.size) for file in inputs if file_systems.is_url(file.path)]
    local = [Path(file.path) for file in inputs if not file_systems.is_url(file.path)]
    content = hash_files(local)
    if remote:
        content = hashlib.sha256(content + json.dumps(remote).encode()).digest()
    return content.hex()
