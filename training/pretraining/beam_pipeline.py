# SPDX-License-Identifier: Apache-2.0
"""Creates pre-training records with Apache Beam, on one machine or on a cluster.

The work is done by two pipelines. Every file that a step writes is complete:

1. The first pipeline tokenizes each input file into a file of documents. A document's index in the
   corpus is the number of documents before it, in its own file and in all earlier files.
2. The second pipeline computes each document's shards from its index and sends the document there.
   It creates each shard from these documents with the same functions as on one machine.

The records are the same as on one machine with `independent_shards`. They do not depend on the
runner, the number of workers or the delivery order.
"""

import contextlib
import dataclasses
import functools
import json
import os
import tempfile
import threading
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import apache_beam as beam
import grpc
import numpy as np
from apache_beam.options.pipeline_options import PipelineOptions, PortableOptions
from apache_beam.runners.portability.portable_runner import PortableRunner
from apache_beam.runners.runner import PipelineRunner

from keras_bert.data import TokenStore, TokenStoreWriter
from keras_bert.data.arrays import Ragged
from keras_bert.data.file_systems import InputFile, is_url
from keras_bert.data.pretraining import tfrecords
from keras_bert.data.pretraining.token_store import Documents, Ids, Sentences
from keras_bert.text import tokenizer_from_config
from keras_bert.text.tokenizer import Tokenizer

from .beam_files import open_input, record_directory, set_options
from .record_config import PretrainingDataConfig
from .record_directory import RecordDirectory
from .shards import ShardMaker, ShardStatistics, shard_name, statistics_name
from .tokenized_corpus import (
    CorpusCounts,
    check_any_text,
    corpus_of_file,
    write_tokens_of,
)

# The shards are computed for this number of documents at once.
_DOCUMENTS_AT_ONCE = 1024
# Number of small files to read in parallel, because each read is a round trip to an object store
_READS_AT_ONCE = 32
# Beam's own timeout is ten times as long, and its error does not include the job server's address.
_SECONDS_TO_CONNECT = 30
# Beam limits a call to a job server to 300 seconds. If the server runs the whole job before it
# returns from the call, this also limits the job. Beam's Python server does so.
_SECONDS_OF_JOB = 2**31 - 1
# Up to this vocabulary size, token ids are stored in two bytes.
_SMALL_VOCABULARY = 2**16
_LENGTH = np.dtype("<u4")

_process_lock = threading.Lock()


class _FileCounts(NamedTuple):
    """Counts for one tokenized file, as in `CorpusCounts`, or the error from reading it."""

    documents: int = 0
    sentences: int = 0
    tokens: int = 0
    unknown: int = 0
    error: str = ""


class RunnerError(OSError):
    """Raised if a runner fails or if its job server does not respond."""


class BeamEngine:
    """Tokenizes a corpus and writes its shards with a Beam runner."""

    def __init__(
        self,
        config: PretrainingDataConfig,
        inputs: Sequence[InputFile],
        tokenizer: Tokenizer,
        runner: str,
        options: Sequence[str],
    ) -> None:
        # Workers have a different working directory.
        config = dataclasses.replace(config, output_dir=_absolute(config.output_dir))
        self.inputs = [InputFile(_absolute(file.path), file.size) for file in inputs]
        self.directory = record_directory(config.output_dir)
        self._runner, self._options = runner, _pipeline_options(config, runner, options)
        self._task = _Task(config, tuple(options), _ProcessTokenizer(tokenizer.get_config()))

    def tokenize(self) -> CorpusCounts:
        """Tokenizes the remaining files, and returns the counts over all files.

        Raises:
            RunnerError: If the runner fails, or if its workers do not write to this directory.
            ValueError: If files are invalid. The message includes the file and the line.
        """
        self._remove_errors()
        if files := self._not_tokenized():
            with self._pipeline() as pipeline:
                _ = (
                    pipeline
                    | "files" >> beam.Create(files)
                    | "spread" >> beam.Reshuffle()
                    | "tokenize" >> beam.ParDo(_TokenizeFile(self._task))
                )
            if missing := self._not_tokenized():
                raise RunnerError(
                    "--output_dir must be a URL, or a directory that all workers share. Received: "
                    f"{self.directory.path}, where {self._runner} wrote no file for {missing[0][1]}"
                )
        counts = self._file_counts()
        errors = [count.error for count in counts if count.error]
        if errors:
            self._remove_errors()
            more = f" ({len(errors) - 1} more files cannot be read)" if errors[1:] else ""
            raise ValueError(errors[0] + more)
        check_any_text(sum(count.documents for count in counts), self.inputs)
        totals = np.sum([count[:4] for count in counts], axis=0).tolist()
        return CorpusCounts(*totals)

    def write_shards(self, num_shards: int) -> list[ShardStatistics]:
        """Writes missing shards, and returns the statistics of all shards.

        Raises:
            RunnerError: If the runner fails.
        """
        names = [statistics_name(shard) for shard in range(num_shards)]
        shard_names = set(self.directory.names(f"pretraining-*-of-{num_shards:05}.tfrecord"))
        statistics_names = set(self.directory.names(".work/statistics-*.json"))
        done = frozenset(
            shard
            for shard, name in enumerate(names)
            if shard_name(shard, num_shards) in shard_names and f".work/{name}" in statistics_names
        )
        if len(done) < num_shards:
            self._write_missing(num_shards, done)
        with ThreadPoolExecutor(_READS_AT_ONCE) as pool:
            contents = pool.map(self.directory.read, [f".work/{name}" for name in names])
            return [ShardStatistics.from_json(content) for content in contents]

    def _write_missing(self, num_shards: int, done: frozenset[int]) -> None:
        sizes = [count.documents for count in self._file_counts()]
        first = np.cumsum([0, *sizes]).tolist()
        corpus = _Corpus(first[-1], num_shards)
        files = [(number, first[number]) for number, size in enumerate(sizes) if size]
        with self._pipeline() as pipeline:
            _ = (
                pipeline
                | "tokenized files" >> beam.Create(files)
                | "spread" >> beam.Reshuffle()
                | "send to shards"
                >> beam.ParDo(_SendDocuments(self._task, corpus, done)).with_output_types(
                    tuple[int, tuple[int, bytes]]
                )
                | "group by shard" >> beam.GroupByKey()
                | "write shards" >> beam.ParDo(_WriteShard(self._task, corpus))
            )

    @contextlib.contextmanager
    def _pipeline(self) -> Iterator[beam.Pipeline]:
        """Context manager that yields a pipeline and runs it at the end."""
        try:
            with _quiet_streams(), beam.Pipeline(options=self._options) as pipeline:
                self._check_job_server(pipeline.runner)
                yield pipeline
        except grpc.RpcError as error:
            address = self._options.view_as(PortableOptions).job_endpoint or "on this machine"
            raise RunnerError(
                f"{self._runner}'s job server {address} stopped responding: "
                f"{error.code().name}, {error.details()}"
            ) from error
        except RuntimeError as error:
            raise RunnerError(f"{self._runner} failed: {_last_error(str(error))}") from error

    def _check_job_server(self, runner: PipelineRunner) -> None:
        options = self._options.view_as(PortableOptions)
        endpoint, seconds = options.job_endpoint, options.job_server_timeout
        if not isinstance(runner, PortableRunner) or endpoint in (None, "embed"):
            return
        if seconds == _SECONDS_OF_JOB:
            seconds = _SECONDS_TO_CONNECT
        with grpc.insecure_channel(endpoint) as channel:
            try:
                grpc.channel_ready_future(channel).result(seconds)
            except grpc.FutureTimeoutError:
                raise RunnerError(
                    "--job_endpoint must be the host and port of a job server. Received: "
                    f"{endpoint}, which did not respond within {seconds} seconds"
                ) from None

    def _not_tokenized(self) -> list[tuple[int, str]]:
        done = set(self.directory.names(".work/counts-*.json"))
        return [
            (number, file.path)
            for number, file in enumerate(self.inputs)
            if _counts_name(number) not in done
        ]

    def _file_counts(self) -> list[_FileCounts]:
        names = [_counts_name(number) for number in range(len(self.inputs))]
        with ThreadPoolExecutor(_READS_AT_ONCE) as pool:
            return [
                _FileCounts(**json.loads(content))
                for content in pool.map(self.directory.read, names)
            ]

    def _remove_errors(self) -> None:
        for name in self.directory.names(".work/counts-*.json"):
            if self.directory.read_json(name)["error"]:
                self.directory.remove(name)


def _pipeline_options(
    config: PretrainingDataConfig, runner: str, options: Sequence[str]
) -> PipelineOptions:
    own = [
        *(f"--runner={runner}", f"--job_server_timeout={_SECONDS_OF_JOB}"),
        "--default_sdk_harness_log_level=WARNING",
    ]
    if runner == "FnApiRunner" and not any(option.startswith("--direct_") for option in options):
        mode = "multi_processing" if config.rows.workers > 1 else "in_memory"
        own += [f"--direct_num_workers={config.rows.workers}", f"--direct_running_mode={mode}"]
    return PipelineOptions([*own, *options])


def _absolute(path: str) -> str:
    return path if is_url(path) else os.path.abspath(path)


@contextlib.contextmanager
def _quiet_streams() -> Iterator[None]:
    """Hides gRPC errors in Beam's message thread, because the main thread also raises them."""
    shown = threading.excepthook

    def hook(raised: threading.ExceptHookArgs) -> None:
        if not isinstance(raised.exc_value, grpc.RpcError):
            shown(raised)

    threading.excepthook = hook
    try:
        yield
    finally:
        for thread in threading.enumerate():
            if thread.name == "wait_until_finish_read":
                thread.join(1)
        threading.excepthook = shown


def _last_error(text: str) -> str:
    """Returns the last error in a chain of tracebacks, or the text if it has no traceback."""
    lines = [line for line in text.splitlines() if line and not line[0].isspace()]
    return lines[-1] if "Traceback" in text else text


def _counts_name(number: int) -> str:
    return f".work/counts-{number:06}.json"


def _tokens_name(number: int) -> str:
    return f".work/tokens-{number:06}"


class _Corpus(NamedTuple):
    """The two numbers that determine a document's shards."""

    num_documents: int
    num_shards: int


class _ProcessTokenizer:
    """Sends a tokenizer's config to workers, and creates the tokenizer once per process."""

    def __init__(self, config: dict[str, Any]) -> None:
        self._config = json.dumps(config)

    def __call__(self) -> Tokenizer:
        with _process_lock:  # A worker starts multiple threads at once.
            return _tokenizer(self._config)


@functools.lru_cache(maxsize=1)
def _tokenizer(config: str) -> Tokenizer:
    return tokenizer_from_config(json.loads(config))


class _Task(NamedTuple):
    """The values that every worker receives."""

    config: PretrainingDataConfig
    options: tuple[str, ...]
    tokenizer: _ProcessTokenizer


class _FileDoFn(beam.DoFn):
    """Base class of steps that read and write files."""

    def __init__(self, task: _Task) -> None:
        self.config, self.options, self.tokenizer = task

    def setup(self) -> None:
        # Some runners do not pass the options to their workers.
        set_options(self.options)


class _TokenizeFile(_FileDoFn):
    """Tokenizes an input file into records, one per document, and counts its tokens."""

    def process(self, numbered: tuple[int, str]) -> None:
        number, path = numbered
        directory = record_directory(self.config.output_dir)
        try:
            counts = self._tokenize(directory, number, path)
        except (ImportError, ValueError) as error:
            # Runners retry if a worker raises an error. A retry would not help here.
            counts = _FileCounts(error=str(error))
        directory.write_json(_counts_name(number), counts._asdict())

    def _tokenize(self, directory: RecordDirectory, number: int, path: str) -> _FileCounts:
        tokenizer = self.tokenizer()
        with tempfile.TemporaryDirectory() as scratch:
            store_path = Path(scratch, "store")
            with open_input(path) as file, TokenStoreWriter(store_path) as writer:
                write_tokens_of(corpus_of_file(self.config.corpus, path, file), tokenizer, writer)
            store = TokenStore(store_path)
            dtype = _id_type(tokenizer)
            with directory.create(_tokens_name(number)) as file:
                tfrecords.write_records(
                    file, (_to_bytes(list(document), dtype) for document in store)
                )
            num_unknown = store.token_count(tokenizer.unk_token_id)
            return _FileCounts(len(store), store.num_sentences, store.num_tokens, num_unknown)


class _SendDocuments(_FileDoFn):
    """Yields `(shard, (index, document))` for each document in a tokenized file."""

    def __init__(self, task: _Task, corpus: _Corpus, done: frozenset[int]) -> None:
        super().__init__(task)
        self.corpus, self.done = corpus, done

    def process(self, numbered: tuple[int, int]) -> Iterator[tuple[int, tuple[int, bytes]]]:
        number, first = numbered
        make = self.config.instance_maker(0, 0)
        directory = record_directory(self.config.output_dir)
        name = _tokens_name(number)
        records = tfrecords.read_records(directory.path_of(name), directory.open(name))
        for chunk in tfrecords.chunked(records, _DOCUMENTS_AT_ONCE):
            indices = np.arange(first, first + len(chunk))
            first += len(chunk)
            shards = make.shards_of(indices, *self.corpus)
            for index, record, own in zip(indices.tolist(), chunk, shards.tolist(), strict=True):
                # A shard that uses a document multiple times still receives it once.
                for shard in sorted(set(own) - self.done):
                    yield shard, (index, record.content)


class _WriteShard(_FileDoFn):
    """Writes a shard, given its documents."""

    def __init__(self, task: _Task, corpus: _Corpus) -> None:
        super().__init__(task)
        self.corpus = corpus

    def setup(self) -> None:
        super().setup()
        tokenizer = self.tokenizer()
        self.make = ShardMaker(self.config, tokenizer)
        self.dtype = _id_type(tokenizer)

    def process(self, group: tuple[int, Iterable[tuple[int, bytes]]]) -> None:
        shard, received = group
        directory = record_directory(self.config.output_dir)
        contents = dict(received)
        self._check_complete(shard, list(contents))
        documents = _ReceivedDocuments(contents, self.dtype, self.corpus.num_documents)
        statistics, records = self.make(documents, shard, self.corpus.num_shards)
        # Write the statistics before the shard, so that they exist whenever the shard does.
        directory.write(f".work/{statistics_name(shard)}", statistics.to_json())
        with directory.create(shard_name(shard, self.corpus.num_shards)) as file:
            tfrecords.write_records(file, records)

    def _check_complete(self, shard: int, indices: Sequence[int]) -> None:
        shard_documents = self.make.make_instances.documents_of(shard, *self.corpus)
        if not np.array_equal(np.sort(indices), shard_documents):
            raise RuntimeError(
                f"shard {shard} must receive all its {len(shard_documents)} documents. Received: "
                f"{len(indices)} documents, or different documents"
            )


class _ReceivedDocuments(Documents):
    """A shard's documents by their indices in the corpus. `len` is the corpus size."""

    def __init__(
        self, contents: dict[int, bytes], dtype: np.dtype[Any], num_documents: int
    ) -> None:
        self._contents, self._dtype, self._num_documents = contents, dtype, num_documents

    def __len__(self) -> int:
        return self._num_documents

    def __getitem__(self, index: Any) -> Any:
        return _ReceivedDocument(self._contents[index], self._dtype)


class _ReceivedDocument(Sentences):
    """A document's sentences, as `_to_bytes` serializes them. Ids become int32 on access."""

    def __init__(self, content: bytes, dtype: np.dtype[Any]) -> None:
        (count,) = np.frombuffer(content, _LENGTH, 1)
        self._lengths = np.frombuffer(content, _LENGTH, count, _LENGTH.itemsize)
        self._ends = np.cumsum(self._lengths)
        self._ids = np.frombuffer(content, dtype, offset=(1 + count) * _LENGTH.itemsize)

    def __len__(self) -> int:
        return len(self._lengths)

    def __getitem__(self, index: Any) -> Any:
        end = self._ends[index]
        return self._ids[end - self._lengths[index] : end].astype(np.int32)

    def __iter__(self) -> Iterator[Ids]:
        return iter(Ragged(self._ids.astype(np.int32), self._lengths).to_arrays())


def _id_type(tokenizer: Tokenizer) -> np.dtype[Any]:
    """Returns the dtype of token ids in files and in messages between workers."""
    return np.dtype("<u2" if tokenizer.vocabulary_size <= _SMALL_VOCABULARY else "<i4")


def _to_bytes(sentences: Sentences, dtype: np.dtype[Any]) -> bytes:
    """Serializes the number of sentences, their lengths and their token ids."""
    lengths = np.array([len(sentences), *map(len, sentences)], _LENGTH)
    return lengths.tobytes() + np.concatenate(sentences).astype(dtype).tobytes()
