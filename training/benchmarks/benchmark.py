# SPDX-License-Identifier: Apache-2.0
"""Measures training steps, forward passes and served requests of libraries and servers.

The subjects are libraries, each with a backend in a separate process, or models on servers. All
subjects first build, compile and warm up. Then the rounds alternate between the subjects, so other
load on the machine affects all subjects equally. The medians over the rounds are reported.

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

Locust (the extra `load`) sends requests to servers with TensorFlow Serving's REST API or OpenAI's
embeddings API, and to no other host. First it runs each number of `--clients`. The clients wait for
responses (closed loop). Then it runs each of `--rates` without waiting for responses (open loop).
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
# Module and function with the subjects, for work in this process
_FUNCTIONS = {
    "tokenize": ("tokenizer", "tokenizer_subjects"),
    "mask": ("masking", "masking_subjects"),
    "answers": ("answers", "answer_subjects"),
}
# Options that only apply to some work
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
    """The work to measure, its workload, and the number of rounds.

    Args:
        what: What to measure. One of forward (inference), classify (training steps of a
            classifier), pretrain (masked LM training steps), serve (text requests to a server, or
            to a SavedModel with a BERT classifier that TensorFlow runs in this process), tokenize
            (batches of texts), mask (batches of ids) and answers (the span search in question
            answering).
        subjects: The subjects, each library[+option]:backend[:precision][@model]. Add a precision
            or model if they differ from --precision and --model. Libraries are keras_bert,
            keras_hub, transformers and matmuls (only the matmuls of the non-padding tokens).
            Options are unpadded (keras_bert), compiled (torch.compile, or XLA on TensorFlow) and
            sorted (texts sorted by length). With --what=serve, subjects can also be
            serve:tensorflow (an export of keras_bert with the dynamic batching of training.serve)
            and models on servers, such as http://localhost:8501/v1/models/sst2, or
            http://localhost:8000/v1/embeddings for a model named "model" with OpenAI's API. Ratios
            are relative to the first subject.
        model: A name that BertConfig.from_name accepts.
        precision: One of float32, bfloat16, mixed_bfloat16 (autocast, for transformers) and int8
            (only to serve keras_bert).
        batch_size: Number of examples per batch or texts per request.
        sequence_length: Sequence length in tokens. For texts, the maximum length. KerasHub pads all
            texts to it.
        padding: Fraction of padding tokens.
        steps: Number of batches, requests or questions per round.
        rounds: Number of rounds per subject.
        clip_norm: Maximum global norm of the gradients. 0 disables clipping.
        texts: File with one text per line. For serve and tokenize, it defaults to sentences from
            docstrings. For servers, it may be JSON Lines, whose objects are sent unchanged. For
            forward and classify, batches use texts at equal distances in the file, padded to the
            longest text (for KerasHub, to --sequence_length). By default, forward and classify use
            random ids.
        vocabulary: WordPiece vocabulary for the texts, a vocab.txt. Defaults to the installed
            MiniLM's vocabulary.
        clients: For serve, the numbers of concurrent requests. Each number gets a line in the
            table. For tokenize and mask, the number of threads.
        batching: A batching_params.pbtxt. Requests to keras_bert and keras_hub are batched with
            these parameters, as in TensorFlow Serving. Empty disables batching.
        rates: Requests per second to servers, sent at random times without waiting for earlier
            responses. Each rate gets a line in the table.
        seconds: Duration of a round in seconds, for requests to servers.
        signature: The signature of models on servers.
        expected: JSON Lines with the expected prediction for each line of --texts, as
            training.predict writes them. Empty does not check predictions.
        tolerance: Maximum difference between a number and the expected number.
        timeout: Maximum number of seconds to wait for a server's response.
        device: One of cpu and auto. auto uses an accelerator if available.
        clock: One of wall and cpu. On a machine with other load, cpu measures a subject's processor
            seconds.
        json: File for the results as JSON.
        plot: PNG file for a plot of the requests' latency.
        overwrite: Whether to replace an existing file of --json or --plot.
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
                yield [name], f"it only applies to --what={' or '.join(work)}, not {self.what}"
        are_urls = [self.what == "serve" and is_url(name) for name in self.subjects]
        if not any(are_urls):
            yield _OPTIONS_OF_SERVERS, "--subjects has no model on a server (a URL)"
        elif all(are_urls):
            yield _OPTIONS_OF_LIBRARIES, "all --subjects are models on servers"
        if self.texts:
            yield ["padding"], "it only applies to random ids, not to --texts"
        elif self.what in _MODELS:
            yield ["vocabulary"], "--texts is not given"
        if not self.texts:
            yield ["expected"], "--texts, whose predictions it contains, is not given"
        if not self.expected:
            yield ["tolerance"], "--expected is not given"
        if not (self.json or self.plot):
            yield ["overwrite"], "neither --json nor --plot is given"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_one_of(self, device=("cpu", "auto"))

    @property
    def loads(self) -> list[Load]:
        """One load per number of clients, then one load per rate."""
        clients = _positive("clients", self.clients, int)
        rates = _positive("rates", self.rates, float)
        return [*(Load(clients=number) for number in clients), *(Load(rate=rate) for rate in rates)]

    def workload(self, load: Load) -> Workload:
        """Returns the workload for a library."""
        names = [field.name for field in dataclasses.fields(WorkOptions)]
        return Workload(**{name: getattr(self, name) for name in names}, clients=load.clients)

    @property
    def locust_options(self) -> list[str]:
        """The command-line options of the locustfile."""
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
    """Yields the subjects. For serve, it yields every subject once per load.

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
    """Measures all subjects in alternating rounds.

    Raises:
        ValueError: If a subject, a load or a field of the workload is invalid.
    """
    with contextlib.ExitStack() as stack:
        if config.what in ("serve", "tokenize") and not config.texts:
            directory = stack.enter_context(tempfile.TemporaryDirectory())
            path = Path(directory, "texts.txt")
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
    """Writes the configuration and the results atomically."""
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
        raise ValueError("no subject could be measured. See the reasons in the table")


if __name__ == "__main__":
    program.run(main, BenchmarkConfig)
