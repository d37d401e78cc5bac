# SPDX-License-Identifier: Apache-2.0
"""Provides a pre-training run's vocabulary, records of each sequence length, and batches."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from absl import logging

from keras_bert import atomic, checkpoints
from keras_bert.data import MaskedLMMaskGenerator, NextTokenTargets, PretrainingStream, has_masks
from keras_bert.data.file_systems import InputFile, is_url
from keras_bert.data.pretraining.corpus import resolve_format
from keras_bert.data.pretraining.record_files import record_paths
from keras_bert.data.pretraining.stream import group_files
from keras_bert.text import WordPieceTokenizer, save_vocabulary
from keras_bert.text.tokenizer import Tokenizer

from ..engine import hosts
from ..engine.output_directory import SettingsMismatchError
from .config import EncoderOptions, PretrainConfig, TaskOptions, TextOptions, named_architecture
from .optimization import Optimization, Phase
from .record_config import RowOptions, content_of_inputs, find_inputs
from .records import (
    SUMMARY_FILE,
    check_corpus,
    create_records,
    require_libraries,
    warn_of_unknown_tokens,
)
from .right_to_left import PreviousTokenTargets
from .tokenizer_source import family_options, make_tokenizer, save_tokenizer

VOCABULARY = "vocab.txt"
TOKENIZER = "tokenizer"
# File names of existing records. The names of records that a run creates end in .tfrecord.
_RECORDS = "*.tfrecord*"
# Describes what the vocabulary was created from.
SOURCE_FILE = "vocabulary.json"


@dataclasses.dataclass(frozen=True)
class TextSource:
    """Provides a run's vocabulary and records, and creates them if they are not given.

    Args:
        text: The text or the records.
        directory: The output directory.
        preset: The checkpoint that the run starts from and whose vocabulary it uses, or empty.
        preset_flag: The flag with that checkpoint.
        model: The architecture. It determines the type of tokenizer to train.
        lengths: The sequence lengths in tokens.
    """

    text: TextOptions
    directory: Path
    preset: str
    preset_flag: str
    model: str
    lengths: tuple[int, ...]

    @classmethod
    def from_config(cls, config: PretrainConfig) -> TextSource:
        """Returns the text source for a run's config."""
        preset, flag = config.encoder.init_preset, "init_preset"
        if not preset:
            preset, flag = config.task.teacher, "teacher"
        lengths = dict.fromkeys(phase.sequence_length for phase in config.optimization.plan())
        directory = Path(config.output_dir)
        return cls(config.text, directory, preset, flag, config.encoder.model, tuple(lengths))

    def check(self) -> None:
        """Checks before any work that the input files exist and the sentence splitter is installed.

        Neither is necessary if the records already exist.

        Raises:
            FileNotFoundError: If an entry of `input_files` or `dev_files` matches no file.
            ImportError: If the library that splits paragraphs into sentences is not installed.
            UnusedFlagError: If a flag does not apply to any of these files.
        """
        inputs: list[InputFile] = []
        some_are_made = False
        for name, files in (
            ("records", self.text.input_files),
            ("dev_records", self.text.dev_files),
        ):
            directories = [self.directory / f"{name}_{length}" for length in self.lengths]
            made = [(directory / SUMMARY_FILE).exists() for directory in directories]
            some_are_made |= any(made)
            if files and not getattr(self.text, name) and not all(made):
                inputs += self._inputs(files)
        require_libraries(self.text.corpus, inputs)
        if inputs and not some_are_made:
            check_corpus(self.text.corpus, inputs, self.text.vocabulary)

    def vocabulary(self) -> Path:
        """Returns the given vocabulary, the checkpoint's vocabulary, or one trained on the text.

        Returns:
            The path of vocab.txt or the tokenizer directory.

        Raises:
            ValueError: If the directory contains a vocabulary created from different text, from a
                different checkpoint or with different settings.
        """
        if self.text.vocabulary:
            return Path(self.text.vocabulary)
        file, directory = (self.directory / name for name in (VOCABULARY, TOKENIZER))
        for path in (directory, file):
            if path.exists():
                self._check_source(path)
                return path
        tokenizer = self._tokenizer_config()
        self.directory.mkdir(parents=True, exist_ok=True)
        # Write the source before the vocabulary, so that it exists whenever the vocabulary does.
        source = {**self._source(), "lowercase": tokenizer.get("lowercase")}
        atomic.write_json(self.directory / SOURCE_FILE, source)
        is_wordpiece = tokenizer.get("kind", WordPieceTokenizer.kind) == WordPieceTokenizer.kind
        # Without --lowercase, a vocab.txt does not specify whether it is cased.
        if not is_wordpiece or (self.text.corpus.lowercase is None and not tokenizer["lowercase"]):
            save_tokenizer(tokenizer, directory)
            return directory
        save_vocabulary(tokenizer["vocabulary"], file)
        return file

    def given_files(self) -> dict[str, list[list[Path]]]:
        """Returns a run's existing input files by flag name.

        Returns:
            For each flag, a list of file groups. The files for all sequence lengths follow each
            other. Files that every process reads are in a single group.
        """
        files = {"model": [[Path(self.model)] if os.path.isfile(self.model) else []]}
        for flag, count in (("records", self.text.file_groups), ("dev_records", 1)):
            groups: list[list[Path]] = [[] for _ in range(count)]
            value = getattr(self.text, flag)
            directories = dict.fromkeys(
                _records_directory(value, length) for length in self.lengths
            )
            for directory in directories if value else ():
                paths = record_paths(os.fspath(directory / _RECORDS))
                for group, own in zip(groups, group_files(paths, count), strict=True):
                    group += map(Path, own)
            files[flag] = groups
        return files

    def all_records(self, vocabulary: Path) -> dict[int, tuple[str, str | None]]:
        """Returns the file patterns of the training and validation records for each length.

        Raises:
            ValueError: If neither text nor records are given.
        """
        text = self.text
        if not text.records and not text.input_files:
            raise ValueError("either --input_files or --records must be given")
        return {
            length: (
                self.records(length, vocabulary),
                self.records(length, vocabulary, for_validation=True)
                if text.dev_records or text.dev_files
                else None,
            )
            for length in self.lengths
        }

    def records(self, sequence_length: int, vocabulary: Path, for_validation: bool = False) -> str:
        """Returns the file pattern for records with this length, and creates missing records."""
        text, name, files = self.text, "records", self.text.input_files
        if for_validation:
            text, name, files = text.for_validation(), "dev_records", text.dev_files
        if value := getattr(text, name):
            directory = _records_directory(value, sequence_length)
            warn_of_unknown_tokens(directory)
            return os.fspath(directory / _RECORDS)
        directory = self.directory / f"{name}_{sequence_length}"
        config = text.data_config(sequence_length, files, directory, vocabulary)
        create_records(config, is_checked=True)
        return os.fspath(directory / "*.tfrecord")

    def _tokenizer_config(self) -> dict[str, Any]:
        if self.preset:
            return checkpoints.open_checkpoint(self.preset).require_tokenizer()
        if not self.text.input_files:
            raise ValueError("either --vocabulary or --input_files must be given")
        architecture = named_architecture(self.model)
        kind = architecture.tokenizer
        logging.info("training a vocabulary of %d tokens (%s)", self.text.vocabulary_size, kind)
        inputs, corpus = self._inputs(self.text.input_files), self.text.corpus
        for file in inputs:
            if is_url(file.path) or resolve_format(file.path, corpus.format) == "parquet":
                raise ValueError(
                    f"a vocabulary can only be trained on local text files. Received: {file.path}. "
                    "Train one on a sample with `keras-bert tokenizer`, and pass it with "
                    "--vocabulary"
                )
        return make_tokenizer(
            kind,
            [Path(file.path) for file in inputs],
            self.text.vocabulary_size,
            corpus.lowercase,
            options=family_options(architecture),
            encoding=corpus.encoding,
        ).get_config()

    def _inputs(self, files: tuple[str, ...]) -> list[InputFile]:
        return find_inputs(self.text.resolve_in_data_dir(files))

    def _source(self) -> dict[str, Any]:
        """Describes the source of the vocabulary, a checkpoint's tokenizer or text."""
        if self.preset:
            tokenizer = json.dumps(self._tokenizer_config(), sort_keys=True).encode()
            return {"checkpoint": hashlib.sha256(tokenizer).hexdigest()}
        inputs = self._inputs(self.text.input_files)
        return {
            "input_files": [[file.name, file.size] for file in inputs],
            "content": content_of_inputs(inputs),
            "kind": named_architecture(self.model).tokenizer,
            "vocabulary_size": self.text.vocabulary_size,
        }

    def _check_source(self, vocabulary: Path) -> None:
        """Raises a ValueError if an existing vocabulary was created from a different source."""
        file = self.directory / SOURCE_FILE
        if not file.exists() or not (self.preset or self.text.input_files):
            return
        before = json.loads(file.read_text(encoding="utf-8"))
        lowercase = before.pop("lowercase", None)
        try:
            now = self._source()
        except FileNotFoundError:
            return  # If the records exist, a run can resume without the text.
        # Without --lowercase, the existing vocabulary specifies it.
        if self.text.corpus.lowercase is not None and lowercase is not None:
            before, now = (
                before | {"lowercase": lowercase},
                now | {"lowercase": self.text.corpus.lowercase},
            )
        if before != now:
            names = [name for name in {**before, **now} if before.get(name) != now.get(name)]
            raise SettingsMismatchError(
                f"{vocabulary} was created from different inputs ({', '.join(names)}). Choose "
                f"another --output_dir, or remove {vocabulary} and the records and checkpoints "
                "that use it"
            )


def _records_directory(records: str, sequence_length: int) -> Path:
    return Path(records.replace("{length}", str(sequence_length)))


@dataclasses.dataclass(frozen=True)
class Batches:
    """Makes batches from a run's records, and masks records without masks."""

    text: TextOptions
    task: TaskOptions
    encoder: EncoderOptions
    tokenizer: Tokenizer

    def phase_batches(
        self, optimization: Optimization, records: Mapping[int, tuple[str, str | None]]
    ) -> dict[Phase, tuple[PretrainingStream, PretrainingStream | None]]:
        """Returns the training and validation batches of each phase.

        A phase with the same sequence length as an earlier phase continues after its batches.
        """
        streams: dict[Phase, tuple[PretrainingStream, PretrainingStream | None]] = {}
        latest: dict[int, Phase] = {}
        for phase in optimization.plan():
            length, rows = phase.sequence_length, optimization.micro_batch_size(phase)
            if length in latest:
                before = latest[length]
                train, dev = streams[before]
                num_batches = before.num_steps * optimization.accumulation
                streams[phase] = train.resume_after(num_batches, rows), dev
            else:
                own, dev_records = records[length]
                seed, groups = self.text.rows.seed, self.text.file_groups
                train = self._stream(
                    own, length, rows, self._masker(self.text.rows, seed), seed, groups
                )
                dev_rows = optimization.dev_batch_size(length)
                dev = (
                    None
                    if dev_records is None
                    else self.validation_batches(dev_records, length, dev_rows)
                )
                streams[phase] = train, dev
            latest[length] = phase
        return streams

    def validation_batches(
        self, records: str, sequence_length: int, rows: int
    ) -> PretrainingStream:
        """Returns validation batches. The masks are the same for every seed."""
        masker = self._masker(self.text.for_validation().rows, seed=0)
        return self._stream(records, sequence_length, rows, masker, seed=0)

    def _stream(
        self,
        records: str,
        sequence_length: int,
        rows: int,
        masker: Any,
        seed: int,
        groups: int = 1,
    ) -> PretrainingStream:
        return PretrainingStream(
            records,
            batch_size=rows,
            sequence_length=sequence_length,
            masker=None if has_masks(records) else masker,
            packed=self.text.packing,
            seed=seed,
            vocabulary_size=self.tokenizer.vocabulary_size,
            file_groups=groups,
            count=hosts.sharded_map,
        )

    def _masker(self, rows: RowOptions, seed: int) -> Any:
        if self.encoder.causal:
            targets = PreviousTokenTargets if self.encoder.right_to_left else NextTokenTargets
            return targets(pad_token_id=self.tokenizer.pad_token_id)
        return MaskedLMMaskGenerator.from_tokenizer(
            self.tokenizer,
            unit=self.task.masking_unit,
            mask_selection_rate=rows.masked_lm_probability,
            mask_token_rate=self.task.mask_token_rate,
            random_token_rate=self.task.random_token_rate,
            random_special_tokens=self.task.random_special_tokens,
            max_predictions=rows.max_predictions or None,
            seed=seed,
        )
