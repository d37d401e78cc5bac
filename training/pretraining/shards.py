# SPDX-License-Identifier: Apache-2.0
"""Writes shards of pre-training records with multiple processes, and counts their examples."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from absl import logging

from keras_bert import atomic
from keras_bert.data import Instance, InstanceEncoder, StaticMasker, TokenStore, write_records
from keras_bert.data.pretraining.instances import PAIR_FORMATS
from keras_bert.data.pretraining.static_masking import default_max_predictions
from keras_bert.data.pretraining.token_store import Documents
from keras_bert.text import tokenizer_from_config
from keras_bert.text.tokenizer import Tokenizer

from .record_config import PretrainingDataConfig
from .worker_pool import process_pool

_TOKENS_PER_SHARD = 1_000_000
_MAX_SHARDS = 1024
# A whole shard is held in memory. Dependent shards also need the order of the whole corpus.
_MAX_INDEPENDENT_SHARDS = 2**16
# With fewer documents per shard, second segments are sampled from too small a set.
_FEW_DOCUMENTS = 10

# The worker process's writer
_writer: _ShardWriter


@dataclasses.dataclass(frozen=True)
class ShardStatistics:
    """Statistics of examples.

    Args:
        lengths: Number of examples per length, from 0 to the maximum.
        random_pairs: Number of examples with label 1. Their second segment does not follow the
            first.
        pairs: Number of examples with a label.
    """

    lengths: tuple[int, ...]
    random_pairs: int
    pairs: int

    @classmethod
    def from_instances(cls, instances: list[Instance], sequence_length: int) -> ShardStatistics:
        """Counts a shard's examples."""
        lengths = np.bincount(
            [len(instance.token_ids) for instance in instances], minlength=sequence_length + 1
        )
        labels = [instance.label for instance in instances if instance.label is not None]
        return cls(tuple(lengths.tolist()), sum(labels), len(labels))

    @classmethod
    def from_json(cls, content: bytes) -> ShardStatistics:
        """Loads statistics from the bytes that `to_json` returned."""
        values = json.loads(content)
        return cls(**(values | {"lengths": tuple(values["lengths"])}))

    def to_json(self) -> bytes:
        """Returns the statistics as JSON."""
        return json.dumps(dataclasses.asdict(self)).encode()

    def __add__(self, other: ShardStatistics) -> ShardStatistics:
        lengths = tuple(a + b for a, b in zip(self.lengths, other.lengths, strict=True))
        return ShardStatistics(
            lengths, self.random_pairs + other.random_pairs, self.pairs + other.pairs
        )


def count_shards(config: PretrainingDataConfig, num_documents: int, num_tokens: int) -> int:
    """Returns the number of shards to write. By default, it depends on the number of tokens.

    It is at most the number of documents, or half of it if each shard needs two documents.
    """
    tokens = num_tokens * config.rows.duplicate_factor
    most = _MAX_INDEPENDENT_SHARDS if config.rows.independent_shards else _MAX_SHARDS
    by_size = min(-(-tokens // _TOKENS_PER_SHARD), most)
    # An independent shard must contain the documents of its second segments.
    needs_two = config.rows.independent_shards and config.rows.sequence_format in PAIR_FORMATS
    num_shards = min(
        config.rows.num_shards or by_size, num_documents // 2 if needs_two else num_documents
    )
    per_shard = num_documents // num_shards
    if needs_two and num_shards > 1 and per_shard < _FEW_DOCUMENTS:
        logging.warning(
            "each of %d shards has only about %d documents to sample second segments from. Use a "
            "smaller --num_shards or --noindependent_shards for more variety",
            num_shards,
            per_shard,
        )
    return num_shards


def shard_name(shard: int, num_shards: int) -> str:
    """Returns a shard's file name."""
    return f"pretraining-{shard:05}-of-{num_shards:05}.tfrecord"


def statistics_name(shard: int) -> str:
    """Returns the file name for a shard's statistics."""
    return f"statistics-{shard:05}.json"


class ShardMaker:
    """Creates the examples of shards."""

    def __init__(self, config: PretrainingDataConfig, tokenizer: Tokenizer) -> None:
        self.config = config
        special_ids = [tokenizer.cls_token_id, tokenizer.sep_token_id]
        rows, length = config.rows, config.sequence_length
        masker = None
        if rows.static_masks:
            share = rows.masked_lm_probability
            masker = StaticMasker(
                tokenizer.mask_token_id,
                tokenizer.vocabulary_size,
                rows.max_predictions or default_max_predictions(length, share),
                share,
                rows.whole_words,
            )
        self.make_instances = config.instance_maker(*special_ids)
        self.encode = InstanceEncoder(
            tokenizer.vocabulary, special_ids, length, masker, tokenizer.continuation_token_ids
        )

    def __call__(
        self, documents: Documents, shard: int, num_shards: int
    ) -> tuple[ShardStatistics, Iterator[bytes]]:
        """Returns a shard's statistics and records."""
        instances = self.make_instances(documents, shard, num_shards)
        rng = np.random.default_rng([self.config.rows.seed, num_shards, shard])
        statistics = ShardStatistics.from_instances(instances, self.config.sequence_length)
        return statistics, self.encode.records(instances, rng)


def write_shards(
    config: PretrainingDataConfig,
    tokenizer: Tokenizer,
    work: Path,
    num_shards: int,
    report: Callable[[int], Any],
) -> list[ShardStatistics]:
    """Writes missing shards.

    `report` is called with the number of shards completed since the last call.

    Returns:
        The statistics of each shard.
    """
    directory = Path(config.output_dir)
    absent_shards = [
        shard
        for shard in range(num_shards)
        if not (directory / shard_name(shard, num_shards)).exists()
        or not (work / statistics_name(shard)).exists()
    ]
    report(num_shards - len(absent_shards))
    workers = min(config.rows.workers, len(absent_shards))
    if workers <= 1:
        for _ in map(_ShardWriter(config, tokenizer, work, num_shards), absent_shards):
            report(1)
    else:
        arguments = (config, tokenizer.get_config(), work, num_shards)
        with process_pool(workers, _start_worker, arguments) as pool:
            for _ in pool.map(_write_shard, absent_shards):
                report(1)
    return [
        ShardStatistics.from_json((work / statistics_name(shard)).read_bytes())
        for shard in range(num_shards)
    ]


class _ShardWriter:
    """Creates shards in a process."""

    def __init__(
        self, config: PretrainingDataConfig, tokenizer: Tokenizer, work: Path, num_shards: int
    ) -> None:
        self.directory, self.work, self.num_shards = Path(config.output_dir), work, num_shards
        self.store = TokenStore(work / "store")
        self.make = ShardMaker(config, tokenizer)

    def __call__(self, shard: int) -> None:
        statistics, records = self.make(self.store, shard, self.num_shards)
        # Write the statistics before the shard, so that they exist whenever the shard does.
        atomic.write_bytes(self.work / statistics_name(shard), statistics.to_json())
        write_records(self.directory / shard_name(shard, self.num_shards), records)


def _start_worker(
    config: PretrainingDataConfig, tokenizer_config: dict[str, Any], work: Path, num_shards: int
) -> None:
    global _writer
    _writer = _ShardWriter(config, tokenizer_from_config(tokenizer_config), work, num_shards)


def _write_shard(shard: int) -> None:
    _writer(shard)
