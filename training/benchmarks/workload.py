# SPDX-License-Identifier: Apache-2.0
"""Defines workloads with random ids or text. They are the same for every library."""

from __future__ import annotations

import ast
import dataclasses
import importlib.util
import itertools
import os
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from keras_bert import minilm
from keras_bert.config import BertConfig

from ..engine.options import (
    CommandConfig,
    NonNegativeFloat,
    PositiveInt,
    ProperFraction,
    check_one_of,
)
from .subject import Round

_CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}
WORK = ("forward", "classify", "pretrain", "serve", "tokenize", "mask", "answers")
# Fields in batching_params.pbtxt
_BATCHING_FIELD = re.compile(r"^\s*(\w+)\s*\{\s*value:\s*(\d+)\s*\}", re.M)
_BATCH_SIZE = re.compile(r"^\s*allowed_batch_sizes:\s*(\d+)", re.M)


@dataclasses.dataclass(frozen=True)
class WorkOptions(CommandConfig):
    """The options of `benchmark` that define the work. `BenchmarkConfig` documents them."""

    what: str = "forward"
    model: str = "bert_base_uncased"
    precision: str = "float32"
    batch_size: PositiveInt = 8
    sequence_length: PositiveInt = 128
    padding: ProperFraction = 0.0
    steps: PositiveInt = 4
    clip_norm: NonNegativeFloat = 1.0
    texts: str = ""
    vocabulary: str = ""
    batching: str = ""
    clock: str = "wall"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_one_of(self, what=WORK, clock=tuple(_CLOCKS))


@dataclasses.dataclass(frozen=True)
class Workload(WorkOptions):
    """A workload with batches of random ids, batches of text, or text requests.

    Args:
        clients: Number of concurrent requests or threads.
        options: The subject's options. `sorted` sorts texts by length, `unpadded` computes batches
            without padding, and `compiled` uses `torch.compile`, or XLA on TensorFlow.
    """

    clients: PositiveInt = 1
    options: tuple[str, ...] = ()

    @property
    def architecture(self) -> BertConfig:
        """The architecture of `model`, with positions for `sequence_length`."""
        config = BertConfig.from_name(self.model)
        return config.replace(
            max_sequence_length=max(config.max_sequence_length, self.sequence_length)
        )

    @property
    def tokens_per_round(self) -> int:
        """Number of tokens per round, excluding padding. 0 for requests (their tokens vary)."""
        if self.what == "serve":
            return 0
        if self.texts:
            batches = self.text_batches()
            return sum(
                int(batches[step % len(batches)]["padding_mask"].sum())
                for step in range(self.steps)
            )
        return self.steps * int(self.padding_mask().sum())

    @property
    def warm_up_steps(self) -> int:
        """Number of steps until all shapes are compiled. For texts, all steps (lengths differ)."""
        return self.steps if self.texts and self.what != "serve" else 2

    def now(self) -> float:
        """Returns the time of the clock in seconds."""
        return _CLOCKS[self.clock]()

    def timed(self, step: Callable[[int], object]) -> Callable[[int], Round]:
        """Returns a function that runs a number of steps, called with their index."""

        def run(steps: int) -> Round:
            start = self.now()
            for number in range(steps):
                step(number)
            return Round(self.now() - start, steps)

        return run

    @property
    def num_predictions(self) -> int:
        """Number of masked tokens per sequence: 15%, as in the BERT paper."""
        return max(1, round(0.15 * self.sequence_length))

    def token_ids(self) -> np.ndarray:
        """Returns a batch of token ids, int32 `(batch, length)`."""
        shape = (self.batch_size, self.sequence_length)
        config = self.architecture
        # The padding id must only occur at padding, because some families infer positions from it.
        ids = self._random().integers(config.pad_token_id + 1, config.vocabulary_size, shape)
        return np.where(self.padding_mask(), ids, config.pad_token_id).astype("int32")

    def padding_mask(self) -> np.ndarray:
        """Returns the padding mask, int32 `(batch, length)`, with 0 at padding.

        The lengths are evenly spaced and give the requested fraction of padding. Unless the batch
        has a single example, the first example has no padding.
        """
        spread = np.linspace(1, -1, self.batch_size) if self.batch_size > 1 else np.zeros(1)
        shares = 1 - self.padding + spread * min(self.padding, 1 - self.padding)
        lengths = np.maximum(1, np.round(shares * self.sequence_length)).astype("int32")
        return (np.arange(self.sequence_length) < lengths[:, None]).astype("int32")

    def mask_positions(self) -> np.ndarray:
        """Returns distinct positions to predict per example, int32 `(batch, predictions)`."""
        numbers = self._random().random((self.batch_size, self.sequence_length))
        return numbers.argsort(axis=1)[:, : self.num_predictions].astype("int32")

    def labels(self) -> np.ndarray:
        """Returns classes `(batch,)`, or the ids of masked tokens `(batch, predictions)`."""
        if self.what == "pretrain":
            return np.take_along_axis(self.token_ids(), self.mask_positions(), axis=1)
        return self._random().integers(0, 2, (self.batch_size,)).astype("int32")

    def requests(self) -> list[list[str]]:
        """Returns the texts of each request or batch, in the order of the file.

        Raises:
            ValueError: If the file has fewer than `batch_size` texts.
        """
        lines = [line for line in Path(self.texts).read_text("utf-8").split("\n") if line.strip()]
        size = self.batch_size
        requests = [lines[i : i + size] for i in range(0, len(lines) - size + 1, size)]
        if not requests:
            raise ValueError(f"--texts must have at least {size} texts. Received: {len(lines)}")
        return requests

    def text_batches(self, padded_length: int | None = None) -> list[dict[str, np.ndarray]]:
        """Returns one batch of texts per step, or fewer batches if the file is too short.

        The texts are at equal distances in the file, and in its order unless `sorted` is an option.

        Args:
            padded_length: The length of all batches. `None` pads each batch to its longest text.

        Returns:
            A dict for each batch with `token_ids`, int32 `(batch, length)`, `padding_mask`, and
            `labels`, `(batch,)`.
        """
        lines = [line for batch in self.requests() for line in batch]
        count = min(self.steps, len(lines) // self.batch_size) * self.batch_size
        texts = [lines[index * len(lines) // count] for index in range(count)]
        # Import only here, because the package imports `sentencepiece`. `--help` does not need it.
        from keras_bert.text import WordPieceTokenizer

        tokenizer = WordPieceTokenizer(self.words())
        start, end = tokenizer.cls_token_id, tokenizer.sep_token_id
        rows = [[start, *ids[: self.sequence_length - 2], end] for ids in tokenizer(texts)]
        if "sorted" in self.options:
            rows.sort(key=len)
        return [
            self._batch(rows[index : index + self.batch_size], padded_length)
            for index in range(0, count, self.batch_size)
        ]

    def padding_of_texts(self) -> float:
        """Returns the fraction of padding in all text batches."""
        masks = [batch["padding_mask"] for batch in self.text_batches()]
        return 1 - sum(int(mask.sum()) for mask in masks) / sum(mask.size for mask in masks)

    def _batch(self, rows: list[list[int]], padded_length: int | None) -> dict[str, np.ndarray]:
        lengths = np.array([len(row) for row in rows])
        mask = np.arange(padded_length or max(lengths)) < lengths[:, None]
        token_ids = np.full(mask.shape, self.architecture.pad_token_id, "int32")
        token_ids[mask] = np.concatenate(rows)
        return {
            "token_ids": token_ids,
            "padding_mask": mask.astype("int32"),
            "labels": self.labels(),
        }

    def words(self) -> list[str]:
        """Returns the WordPiece vocabulary."""
        path = Path(self.vocabulary) if self.vocabulary else minilm.directory() / "vocab.txt"
        return path.read_text("utf-8").splitlines()

    def _random(self) -> np.random.Generator:
        return np.random.default_rng(0)


def batching_options(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Converts a `batching_params.pbtxt` to options of `tf.nondifferentiable_batch_function`.

    Raises:
        ValueError: If the file does not set `max_batch_size` and `batch_timeout_micros`.
    """
    text = Path(path).read_text("utf-8")
    fields = {name: int(value) for name, value in _BATCHING_FIELD.findall(text)}
    try:
        return {
            # If both sizes are set, `max_batch_size` only limits requests.
            "max_batch_size": fields.get("max_execution_batch_size", fields["max_batch_size"]),
            "batch_timeout_micros": fields["batch_timeout_micros"],
            "num_batch_threads": fields.get("num_batch_threads", os.cpu_count() or 1),
            "max_enqueued_batches": fields.get("max_enqueued_batches", 10),
            "allowed_batch_sizes": [int(size) for size in _BATCH_SIZE.findall(text)] or None,
        }
    except KeyError as error:
        raise ValueError(f"--batching must set {error.args[0]}. Received: {path}") from None


def standard_library_sentences(count: int) -> list[str]:
    """Returns sentences from the standard library's docstrings, with the lengths of prose."""
    return list(itertools.islice(_standard_library_sentences(), count))


def _standard_library_sentences() -> Iterator[str]:
    for package in ("asyncio", "email", "http", "json", "logging", "unittest"):
        spec = importlib.util.find_spec(package)
        for directory in (spec and spec.submodule_search_locations) or ():
            for path in sorted(Path(directory).rglob("*.py")):
                for node in ast.walk(ast.parse(path.read_bytes())):
                    if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                        for paragraph in (ast.get_docstring(node) or "").split("\n\n"):
                            text = " ".join(paragraph.split())
                            yield from filter(None, re.split(r"(?<=[.!?]) (?=[^a-z])", text))
