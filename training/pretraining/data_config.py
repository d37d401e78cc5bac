# SPDX-License-Identifier: Apache-2.0
"""What decides how pre-training data are made: one typed, frozen record, from flags or code."""

from __future__ import annotations

import dataclasses
import glob
import hashlib
import json
import os
from pathlib import Path

from keras_bert.data import InstanceMaker, StaticMasker
from keras_bert.data.pretraining.corpus import DOCUMENT_ENDS, FORMATS
from keras_bert.data.pretraining.static_masking import default_max_predictions
from keras_bert.text.tokenizer import Tokenizer
from training.engine.options import check_at_least, check_one_of
from training.pretraining.tokenizer_source import content_of, is_lowercased


@dataclasses.dataclass(frozen=True)
class PretrainingDataConfig:
    """How files of raw text become records to pre-train on.

    Args:
        input_files: files of text, patterns such as corpus/*.txt, or folders; .gz is read too.
        vocabulary: the vocab.txt of the tokenizer, or the folder of a tokenizer of any kind.
        output_dir: where the records go, with summary.json and lengths.png.
        lowercase: whether the tokenizer lower-cases and strips accents. By default a vocab.txt says
            it by its tokens, and for a vocabulary that is made the text decides; the folder of a
            tokenizer always says it itself.
        format: sentences, one a line; paragraphs, one a line, to be split into sentences; jsonl,
            a JSON object a line; auto takes jsonl for .jsonl and .ndjson, and else sentences.
        document_ends: what ends a document besides the end of a file: blank_lines; files for
            nothing else; wikitext for the lines " = Title = " of the WikiText sets, whose headings
            are left out.
        field: the key of the text in JSON Lines.
        language: ISO code of the language, by which paragraphs are split into sentences.
        kind: next_sentence (BERT), sentence_order (ALBERT), sentence_pairs, full_sentences
            (RoBERTa) or document_sentences.
        sequence_length: the longest row in tokens, special ones counted.
        short_seq_probability: how often segments are gathered to a random, shorter length.
        duplicate_factor: how often each document is used, cut and paired anew.
        static_masks: whether to write masks, as the original script does, instead of leaving them
            to be drawn anew in training.
        whole_words: whether static masks take whole words.
        max_predictions: the most static masks in a row; 0 takes what the longest row asks for.
        masked_lm_probability: the share of tokens under static masks.
        seed: decides all that is drawn.
        num_shards: how many files to write; 0 takes one for each million tokens.
        num_workers: processes, of no influence on the records; 0 takes one for each core.
        keep_store: whether to keep the tokenized corpus, in output_dir/work, once all is done.
    """

    input_files: tuple[str, ...] = ()
    vocabulary: str = ""
    output_dir: str = "runs/pretraining_data"
    lowercase: bool | None = None
    format: str = "auto"
    document_ends: str = "blank_lines"
    field: str = "text"
    language: str = "en"
    kind: str = "next_sentence"
    sequence_length: int = 128
    short_seq_probability: float = 0.1
    duplicate_factor: int = 10
    static_masks: bool = False
    whole_words: bool = False
    max_predictions: int = 0
    masked_lm_probability: float = 0.15
    seed: int = 1
    num_shards: int = 0
    num_workers: int = 0
    keep_store: bool = False

    def __post_init__(self) -> None:
        check_one_of(self, format=FORMATS, document_ends=DOCUMENT_ENDS)
        check_at_least(self, 0, "num_shards", "num_workers", "max_predictions")
        if not 0 < self.masked_lm_probability < 1:
            raise ValueError(
                f"--masked_lm_probability is {self.masked_lm_probability}, expected between 0 and 1"
            )
        self.instance_maker(cls_token_id=0, sep_token_id=0)

    def instance_maker(self, cls_token_id: int, sep_token_id: int) -> InstanceMaker:
        """What makes the rows, without masks."""
        return InstanceMaker(
            cls_token_id,
            sep_token_id,
            kind=self.kind,
            sequence_length=self.sequence_length,
            short_seq_probability=self.short_seq_probability,
            duplicate_factor=self.duplicate_factor,
            seed=self.seed,
        )

    def masker(self, tokenizer: Tokenizer) -> StaticMasker | None:
        """What draws static masks; None where they are left to training."""
        if not self.static_masks:
            return None
        share = self.masked_lm_probability
        return StaticMasker(
            tokenizer.mask_token_id,
            tokenizer.vocabulary_size,
            self.max_predictions or default_max_predictions(self.sequence_length, share),
            share,
            self.whole_words,
        )

    def workers(self) -> int:
        """How many processes to use."""
        if self.num_workers:
            return self.num_workers
        # What this process may use, where the system tells
        affinity = getattr(os, "sched_getaffinity", None)
        return len(affinity(0)) if affinity else os.cpu_count() or 1

    def paths(self) -> list[Path]:
        """The files to read, in the order of the arguments, those of a folder by name.

        Raises:
            FileNotFoundError: if an argument stands for no file.
            ValueError: if there is no argument.
        """
        if not self.input_files:
            raise ValueError("--input_files is empty, expected files, patterns or folders of text")
        return [path for argument in self.input_files for path in files_of(argument)]

    def fingerprint(self) -> str:
        """Changes with whatever the records depend on: settings, vocabulary, sizes of the files."""
        settings = dataclasses.asdict(self)
        settings["lowercase"] = is_lowercased(self.vocabulary, self.lowercase)
        for name in ("output_dir", "num_workers", "keep_store", "vocabulary", "input_files"):
            del settings[name]
        files = [(path.name, path.stat().st_size) for path in self.paths()]
        content = json.dumps([settings, files], sort_keys=True).encode()
        return hashlib.sha256(content + content_of(self.vocabulary)).hexdigest()


def files_of(argument: str) -> list[Path]:
    """The files that an argument stands for: a file, a pattern or a folder, read by name."""
    if os.path.isdir(argument):
        found = sorted(path for path in Path(argument).rglob("[!.]*") if path.is_file())
    else:
        found = [Path(path) for path in sorted(glob.glob(argument)) if os.path.isfile(path)]
    if not found:
        raise FileNotFoundError(f"{argument} is not there, expected a file, pattern or folder")
    return found
