# SPDX-License-Identifier: Apache-2.0
"""The configuration of pre-training records, and the text files to create them from."""

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
    TextFileOptions,
    UnusedFlags,
    check_one_of,
    num_cores,
)
from ..engine.output_directory import hash_files

PAIR_LABEL_FORMATS = ("next_sentence", "sentence_order")


@dataclasses.dataclass(frozen=True)
class CorpusOptions(TextFileOptions):
    """How raw text files are read and tokenized.

    Args:
        format: One of sentences (one per line), paragraphs (one per line, to be split into
            sentences), jsonl (a JSON object per line), parquet (a document per row) and auto (jsonl
            for .jsonl and .ndjson, parquet for .parquet, and otherwise sentences).
        document_ends: What separates documents in a file: blank_lines, files (only the end of the
            file) or wikitext (headings such as " = Title = " in the WikiText data sets). Headings
            are removed.
        field: Key of the text in JSON Lines, or its column in Parquet.
        language: ISO code of the language, used to split paragraphs into sentences.
        lowercase: Whether the tokenizer lowercases text and strips accents. By default, it is
            inferred from the tokens in vocab.txt, or from the text for a new vocabulary. A
            tokenizer directory always specifies it.
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
    """How examples are created from documents and written to files.

    Args:
        sequence_format: Format of the token sequences, one of next_sentence (BERT), sentence_order
            (ALBERT), sentence_pairs, full_sentences (RoBERTa) and document_sentences.
        short_seq_probability: Probability that an example has a random, shorter target length.
        duplicate_factor: Number of times that each document is used. It is split and paired
            differently each time.
        static_masks: Whether to write masks to the records (static masking), as the original BERT
            code does. By default, masks are sampled during training (dynamic masking).
        whole_words: Whether static masks cover whole words.
        max_predictions: Maximum number of masked tokens per example. 0 derives it from the sequence
            length and masked_lm_probability.
        masked_lm_probability: Fraction of tokens selected for prediction.
        seed: Random seed.
        num_shards: Number of files to write. 0 writes one file per million tokens.
        independent_shards: Whether each shard only depends on its own documents. Random second
            segments then come from another document in the same shard rather than in the whole
            corpus. Required by Beam runners. They create the same records as one machine with this
            option.
        num_workers: Number of processes. Does not affect the records. 0 uses one process per core.
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
                "--static_masks is not given; to mask whole words during training, use "
                "--masking_unit=word",
            )

    @property
    def next_sentence(self) -> bool:
        """Whether examples have sentence pair labels, for a second objective."""
        return self.sequence_format in PAIR_LABEL_FORMATS

    @property
    def workers(self) -> int:
        """The number of processes to use."""
        return self.num_workers or num_cores()


@dataclasses.dataclass(frozen=True)
class PretrainingDataConfig(CommandConfig):
    """How pre-training records of one sequence length are created from raw text.

    Args:
        input_files: Text files, directories, glob patterns such as corpus/**/*.txt, or URLs of
            these such as s3://bucket/corpus/*.jsonl.gz. Files may be compressed with gzip, bzip2,
            xz or Zstandard. Files are skipped if their names start with . or _.
        vocabulary: The tokenizer: a vocab.txt, or a directory with the files of any tokenizer.
        output_dir: Directory for the records, summary.json and lengths.png.
        sequence_length: Maximum sequence length in tokens, including special tokens.
        corpus: How files are read and tokenized.
        rows: How examples are created from documents.
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
        """Returns the generator that creates examples, without masks."""
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
    """Returns the files to read, in the order of `input_files`. Directories are sorted by name.

    Args:
        input_files: Paths or URLs; see `find_files`.
        listing: How to list URLs.

    Raises:
        FileNotFoundError: If an entry matches no file.
        ValueError: If `input_files` is empty.
    """
    if not input_files:
        raise ValueError("--input_files must have at least one file, pattern or directory")
    inputs = []
    for path in input_files:
        files = file_systems.find_files(path, listing if file_systems.is_url(path) else None)
        if not files:
            raise FileNotFoundError(
                f"input files must be files, patterns or directories with files. Received: {path}, "
                "which matches no file"
            )
        inputs += files
    return inputs


def content_of_inputs(inputs: Sequence[InputFile]) -> str:
    """Hashes the names and contents of local files, and the names and sizes of URLs."""
    remote = [(file.name, file.size) for file in inputs if file_systems.is_url(file.path)]
    local = [Path(file.path) for file in inputs if not file_systems.is_url(file.path)]
    content = hash_files(local)
    if remote:
        content = hashlib.sha256(content + json.dumps(remote).encode()).digest()
    return content.hex()
