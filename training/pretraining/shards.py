# SPDX-License-Identifier: Apache-2.0
"""Shards of pre-training records, written by several processes, and their statistics."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from keras_bert import atomic
from keras_bert.data import Instance, InstanceEncoder, TokenStore, write_records

from .config import PretrainingDataConfig
from .tokenizer_source import open_tokenizer
from .worker_pool import ordered_map, process_pool

_TOKENS_PER_SHARD = 1_000_000
_MAX_SHARDS = 1024

# The shard maker of a worker process
_maker: _ShardMaker


@dataclasses.dataclass(frozen=True)
class ShardStatistics:
    """Statistics of rows.

    Args:
        lengths: Number of rows of each length, from 0 to the longest.
        random_pairs: Number of rows labeled 1: the second segment does not follow the first.
        pairs: Number of rows with a label.
    """

    lengths: tuple[int, ...]
    random_pairs: int
    pairs: int

    @classmethod
    def of(cls, instances: list[Instance], sequence_length: int) -> ShardStatistics:
        """Counts the rows of a shard."""
        lengths = np.bincount(
            [len(instance.token_ids) for instance in instances], minlength=sequence_length + 1
        )
        labels = [instance.label for instance in instances if instance.label is not None]
        return cls(tuple(lengths.tolist()), sum(labels), len(labels))

    def __add__(self, other: ShardStatistics) -> ShardStatistics:
        lengths = tuple(a + b for a, b in zip(self.lengths, other.lengths, strict=True))
        return ShardStatistics(
            lengths, self.random_pairs + other.random_pairs, self.pairs + other.pairs
        )


def count_shards(config: PretrainingDataConfig, store: TokenStore) -> int:
    """Returns the number of shards to write: as configured, or by the number of tokens."""
    tokens = store.num_tokens * config.duplicate_factor
    by_size = min(-(-tokens // _TOKENS_PER_SHARD), _MAX_SHARDS)
    return min(config.num_shards or by_size, len(store))


def shard_path(folder: Path, shard: int, num_shards: int) -> Path:
    """Returns the path of a shard."""
    return folder / f"pretraining-{shard:05}-of-{num_shards:05}.tfrecord"


def write_shards(
    config: PretrainingDataConfig, work: Path, num_shards: int, report: Callable[[int], Any]
) -> list[ShardStatistics]:
    """Writes the shards that do not exist yet.

    Args:
        config: The settings of the records.
        work: The folder of the token store and of the shards' statistics.
        num_shards: Total number of shards.
        report: Called with the number of shards completed since the last call.

    Returns:
        The statistics of each shard.
    """
    folder = Path(config.output_dir)
    missing = [
        shard
        for shard in range(num_shards)
        if not shard_path(folder, shard, num_shards).exists()
        or not _statistics_path(work, shard).exists()
    ]
    report(num_shards - len(missing))
    workers = min(config.workers(), len(missing))
    if workers <= 1:
        for _ in map(_ShardMaker(config, work, num_shards), missing):
            report(1)
    else:
        with process_pool(workers, _start_worker, (config, work, num_shards)) as pool:
            for _ in ordered_map(pool, _write_shard, missing, ahead=2 * workers):
                report(1)
    return [_read_statistics(_statistics_path(work, shard)) for shard in range(num_shards)]


def _statistics_path(work: Path, shard: int) -> Path:
    return work / f"statistics-{shard:05}.json"


def _read_statistics(path: Path) -> ShardStatistics:
    values = json.loads(path.read_text(encoding="utf-8"))
    return ShardStatistics(**(values | {"lengths": tuple(values["lengths"])}))


class _ShardMaker:
    """Creates shards in a process."""

    def __init__(self, config: PretrainingDataConfig, work: Path, num_shards: int) -> None:
        self.config, self.work, self.num_shards = config, work, num_shards
        self.store = TokenStore(work / "store")
        tokenizer = open_tokenizer(config.vocabulary, config.lowercase)
        special_ids = [tokenizer.cls_token_id, tokenizer.sep_token_id]
        self.make_instances = config.instance_maker(*special_ids)
        self.encode = InstanceEncoder(
            tokenizer.vocabulary,
            special_ids,
            config.sequence_length,
            config.masker(tokenizer),
            tokenizer.continuation_token_ids,
        )

    def __call__(self, shard: int) -> None:
        instances = self.make_instances(self.store, shard, self.num_shards)
        statistics = ShardStatistics.of(instances, self.config.sequence_length)
        # The statistics are written before the shard: if the shard exists, so do they.
        atomic.write_json(_statistics_path(self.work, shard), dataclasses.asdict(statistics))
        target = shard_path(Path(self.config.output_dir), shard, self.num_shards)
        write_records(target, self._records(instances, shard))

    def _records(self, instances: list[Instance], shard: int) -> Iterator[bytes]:
        rng = np.random.default_rng([self.config.seed, self.num_shards, shard])
        return (self.encode(instance, rng) for instance in instances)


def _start_worker(config: PretrainingDataConfig, work: Path, num_shards: int) -> None:
    global _maker
    _maker = _ShardMaker(config, work, num_shards)


def _write_shard(shard: int) -> None:
    _maker(shard)
