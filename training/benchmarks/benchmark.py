# SPDX-License-Identifier: Apache-2.0
"""Measures steps, forward passes and served requests of libraries and servers in one run.

The subjects are libraries, each on a backend in a process of its own, or models on servers. All of
them build, compile and warm up first. Then they take turns, one round each, so that other load on
the machine affects all of them alike. The medians over the rounds are reported.

    python -m training.benchmarks.benchmark
    python -m training.benchmarks.benchmark --what=classify --model=minilm_l6_h384_uncased \\
        --batch_size=32 --sequence_length=24 --precision=mixed_bfloat16
    python -m training.benchmarks.benchmark --batch_size=64 --sequence_length=512 --padding=0.3 \\
        --precision=mixed_bfloat16 --subjects=keras_bert:jax,keras_hub:jax,transformers:torch
    python -m training.benchmarks.benchmark --subjects=keras_bert:jax,keras_bert:jax@albert_base_v2
    python -m training.benchmarks.benchmark --what=serve --model=minilm_l6_h384_uncased \\
        --batch_size=1 --steps=50 --subjects=keras_bert:tensorflow,keras_hub:tensorflow
    python -m training.benchmarks.benchmark --what=serve --batch_size=1 --clients=1,4,16 \\
        --subjects=http://localhost:8501/v1/models/sst2 --texts=dev.txt --rates=20,40,80 --rounds=1
    taskset -c 0 python -m training.benchmarks.benchmark --what=forward --texts=dev.txt \\
        --clock=cpu --model=minilm_l6_h384_uncased --batch_size=32 --steps=16 --rounds=3 \\
        --subjects=keras_bert:tensorflow,keras_bert+unpadded:tensorflow,matmuls:torch
    python -m training.benchmarks.benchmark --what=tokenize --batch_size=1024

Locust (the extra `load`) sends the requests to servers with TensorFlow Serving's REST API or
OpenAI's embeddings, and to no other host. It runs each number of `--clients`, which wait for the
answers (a closed loop), then each of `--rates`, without waiting for answers (an open loop).
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import os
import platform
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from keras_bert import atomic, checks

from ..engine import program
from ..engine.options import (
    NonNegativeFloat,
    PositiveFloat,
    PositiveInt,
    UnusedFlags,
    check_one_of,
)
from .library import Library
from .report import Row, format_table, make_rows
from .server import Server
from .subject import Load, Subject
from .workload import Workload, WorkOptions, standard_library_sentences

MAX_TEXTS = 2000
_MODELS = ("forward", "classify", "pretrain")
# Work that is measured in this process: the module, and its function that returns the subjects
_FUNCTIONS = {
    "tokenize": ("tokenizer", "tokenizer_subjects"),
    "mask": ("masking", "masking_subjects"),
    "answers": ("answers", "answer_subjects"),
}
# Options that only some kinds of work have
_OPTIONS_OF = {
    **dict.fromkeys(("subjects", "model", "precision", "device"), (*_MODELS, "serve")),
    "sequence_length": (*_MODELS, "serve", "mask"),
    "batch_size": (*_MODELS, "serve", "tokenize", "mask"),
    "padding": _MODELS,
    "clip_norm": ("classify", "pretrain"),
    "texts": ("forward", "classify", "serve", "tokenize"),
    "vocabulary": ("forward", "classify", "serve", "tokenize"),
    "clock": _MODELS,
    "clients": ("serve", "tokenize", "mask"),
    "batching": ("serve",),
    "plot": ("serve",),
}
_OPTIONS_OF_SERVERS = ("rates", "signature", "expected", "tolerance", "seconds", "timeout")
_OPTIONS_OF_LIBRARIES = ("model", "precision", "sequence_length", "steps", "vocabulary", "batching")
_OPTIONS_OF_LIBRARIES += ("device",)


@dataclasses.dataclass(frozen=True)
class BenchmarkConfig(WorkOptions):
    """What to measure, on which workload, and how often.

    Args:
        what: What to measure: forward (inference), classify (training steps of a classifier),
            pretrain (training steps of a masked LM), serve (requests of text to a server, or to a
            SavedModel of a BERT classifier, which TensorFlow executes in this process), tokenize
            (batches of texts), mask (batches of ids) or answers (the span search of questions).
        subjects: The subjects, each library[+option]:backend[:precision][@model], with a precision
            and a model if they differ from --precision and --model. Libraries are keras_bert,
            keras_hub, transformers and matmuls (only the matrix products of the tokens, without
            padding). Options are unpadded (keras_bert), compiled (by torch.compile, or XLA on
            TensorFlow) and sorted (texts in the order of their lengths). With --what=serve also
            serve:tensorflow, which answers by the export of keras_bert in the batches of
            `training.serve`, and models on servers, such as http://localhost:8501/v1/models/sst2,
            or http://localhost:8000/v1/embeddings for a model named "model" with OpenAI's API.
            Ratios are relative to the first subject.
        model: A name that BertConfig.from_name knows.
        precision: Float32, bfloat16, mixed_bfloat16 (autocast, for transformers), or int8 to serve
            keras_bert.
        batch_size: Rows in a batch, or texts in a request.
        sequence_length: Tokens in a row; of texts, the maximum, to which KerasHub pads all.
        padding: Share of the tokens that are padding.
        steps: Batches, requests or questions in a round.
        rounds: Rounds of each subject.
        clip_norm: Global norm that gradients are clipped to; 0 for no clipping.
        texts: File of texts, one per line. To serve or to tokenize, empty takes sentences from
            docstrings; for servers, the file may be JSON Lines, and each object is sent unchanged.
            For forward and classify, batches take these texts at equal distances in the file, and
            are padded to their longest text (for KerasHub, to --sequence_length); empty takes
            random ids.
        vocabulary: WordPiece vocabulary for the texts, a vocab.txt; empty takes MiniLM's, which is
            installed.
        clients: With --what=serve, numbers of concurrent requests; each is a row of the table. To
            tokenize and to mask, the number of threads.
        batching: A batching_params.pbtxt: requests to keras_bert and keras_hub that wait are joined
            to batches by these parameters, as in TensorFlow Serving; empty answers each by itself.
        rates: Requests per second to servers, sent at random times without waiting for earlier
            answers; each is a row of the table.
        seconds: Duration in seconds of a round of requests to a server.
        signature: The signature of models on servers.
        expected: JSON Lines with the prediction expected from a server for each line of --texts,
            as `python -m training.predict` writes them; empty to check no answers.
        tolerance: Maximum difference between a number and the expected one.
        timeout: Seconds to wait at most for a server's answer.
        device: Cpu, or auto for an accelerator if there is one.
        clock: Wall, or cpu to measure a subject's processor seconds, on a machine with other load.
        json: File for the results as JSON; empty for none.
        plot: PNG file for a plot of the latency of requests; empty for none.
        overwrite: Whether to replace an existing file of --json and --plot.
    """

    subjects: tuple[str, ...] = (
        "keras_bert:tensorflow",
        "keras_hub:tensorflow",
        "transformers:torch",
    )
    rounds: PositiveInt = 7
    clients: tuple[str, ...] = ("1",)
    rates: tuple[str, ...] = ()
    seconds: PositiveInt = 10
    signature: str = "serving_default"
    expected: str = ""
    tolerance: NonNegativeFloat = 1e-3
    timeout: PositiveFloat = 30.0
    device: str = "auto"
    json: str = ""
    plot: str = ""
    overwrite: bool = False

    def unused_flags(self) -> UnusedFlags:
        for name, work in _OPTIONS_OF.items():
            if self.what not in work:
                yield [name], f"it is an option of --what={' or '.join(work)}, not of {self.what}"
        are_urls = [self.what == "serve" and is_url(name) for name in self.subjects]
        if not any(are_urls):
            yield _OPTIONS_OF_SERVERS, "there is no model on a server, a URL in --subjects"
        elif all(are_urls):
            yield _OPTIONS_OF_LIBRARIES, "all --subjects are models on servers"
        if self.texts:
            yield ["padding"], "it is an option of random ids, not of --texts"
        elif self.what in _MODELS:
            yield ["vocabulary"], "there are no --texts"
        if not self.texts:
            yield ["expected"], "there are no --texts, the lines that it has predictions for"
        if not self.expected:
            yield ["tolerance"], "there is no --expected"
        if not (self.json or self.plot):
            yield ["overwrite"], "there is neither --json nor --plot"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_one_of(self, device=("cpu", "auto"))

    @property
    def loads(self) -> list[Load]:
        """The loads: one for each number of clients, then one for each rate."""
        clients = _positive("clients", self.clients, int)
        rates = _positive("rates", self.rates, float)
        return [*(Load(clients=number) for number in clients), *(Load(rate=rate) for rate in rates)]

    def workload(self, load: Load) -> Workload:
        """Returns the fields that the work of a library needs."""
        names = [field.name for field in dataclasses.fields(WorkOptions)]
        return Workload(**{name: getattr(self, name) for name in names}, clients=load.clients)

    @property
    def locust_options(self) -> list[str]:
        """The options of the locustfile."""
        names = ("texts", "expected", "tolerance", "signature", "batch_size", "timeout")
        return [f"--{name.replace('_', '-')}={getattr(self, name)}" for name in names]


def is_url(subject: str) -> bool:
    """Returns whether a subject is a model on a server."""
    return subject.startswith(("http://", "https://"))


def _positive(name: str, values: Sequence[str], number: Callable[[str], Any]) -> list[Any]:
    try:
        numbers = [number(value) for value in values]
    except ValueError:
        numbers = [0]
    if not all(map(checks.POSITIVE.allows, numbers)):
        raise ValueError(f"--{name} must be positive numbers. Received: {','.join(values)!r}")
    return numbers


def make_subjects(config: BenchmarkConfig) -> Iterator[Subject]:
    """Yields the subjects; to serve, once for each load.

    Raises:
        ValueError: If a subject, a load or a field of the workload is invalid.
    """
    loads = config.loads
    if config.what in _FUNCTIONS:
        if len(loads) > 1:
            raise ValueError(
                f"--clients must be one number. Received: {','.join(config.clients)!r}"
            )
        module, function = _FUNCTIONS[config.what]
        program.import_quietly("tensorflow")
        work = importlib.import_module(f"{__package__}.{module}")
        yield from getattr(work, function)(config.workload(loads[0]))
        return
    for load in loads:
        for name in config.subjects:
            if is_url(name):
                yield Server(name, load, config.seconds, config.locust_options)
            elif not load.rate:
                yield Library(name, config.workload(load), config.device)


def run(config: BenchmarkConfig) -> list[Row]:
    """Measures every subject of `config`, in alternating rounds.

    Raises:
        ValueError: If a subject, a load or a field of the workload is invalid.
    """
    with contextlib.ExitStack() as stack:
        if config.what in ("serve", "tokenize") and not config.texts:
            folder = stack.enter_context(tempfile.TemporaryDirectory())
            path = Path(folder, "texts.txt")
            path.write_text("\n".join(standard_library_sentences(MAX_TEXTS)), "utf-8")
            config = dataclasses.replace(config, texts=str(path))
        subjects = [stack.enter_context(subject) for subject in make_subjects(config)]
        for subject in subjects:
            subject.prepare()
        for _ in range(config.rounds):
            for subject in subjects:
                subject.measure()
        return make_rows(subjects)


def write_json(path: str, config: BenchmarkConfig, rows: Sequence[Row]) -> None:
    """Writes the configuration and the rows atomically."""
    results = {
        "config": dataclasses.asdict(config),
        "machine": f"{platform.machine()}, {os.cpu_count()} CPUs",
        "rows": [dataclasses.asdict(row) for row in rows],
    }
    atomic.write_json(path, results)


def _heading(config: BenchmarkConfig) -> str:
    is_server = [config.what == "serve" and is_url(name) for name in config.subjects]
    parts = [config.what]
    if config.what not in _FUNCTIONS and not all(is_server):
        parts += [config.model, config.precision]
    if config.texts or config.what in ("serve", "tokenize"):
        parts.append(f"batches of {config.batch_size}")
        if config.what in _MODELS:
            workload = config.workload(Load())
            padding = workload.padding_of_texts()
            by_length = dataclasses.replace(workload, options=("sorted",)).padding_of_texts()
            parts.append(f"padding {padding:.0%}, sorted {by_length:.0%}")
    elif config.what != "answers":
        tokens = f"{config.batch_size} x {config.sequence_length} tokens"
        parts.append(f"{tokens}, padding {config.padding:.0%}")
    steps = [] if all(is_server) else [f"{config.steps} steps"]
    seconds = [f"{config.seconds} s"] if any(is_server) else []
    return f"{', '.join(parts)}, rounds: {config.rounds} x {' or '.join(steps + seconds)}"


def main(config: BenchmarkConfig) -> None:
    if config.plot:
        program.require(("matplotlib",), "training")
    program.check_new_file("--json", config.json, config.overwrite)
    program.check_new_file("--plot", config.plot, config.overwrite, b"\x89PNG")
    print(_heading(config), flush=True)
    rows = run(config)
    print(format_table(rows))
    if config.json:
        write_json(config.json, config, rows)
    if config.plot:
        from ..plots.style import save
        from .report import serving_latency_figure

        save(serving_latency_figure(rows), config.plot)
    if all(row.unavailable for row in rows):
        raise ValueError("nothing could be measured, for the reasons in the table")


if __name__ == "__main__":
    program.run(main, BenchmarkConfig)
