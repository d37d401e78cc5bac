# SPDX-License-Identifier: Apache-2.0
"""Compares the speed and memory of keras_bert, KerasHub and `transformers` in one run.

Each subject, a library on a backend, runs in its own process. All of them build, compile and warm
up first. Then the subjects take turns, one round each, so that other load on the machine affects
all of them alike. The medians over the rounds are reported.

    python -m training.benchmark
    python -m training.benchmark --what=classify --model=minilm_l6_h384_uncased --batch_size=32 \\
        --sequence_length=24 --precision=mixed_bfloat16
    python -m training.benchmark --subjects=keras_bert:jax,keras_hub:jax,transformers:torch \\
        --batch_size=64 --sequence_length=512 --padding=0.3 --precision=mixed_bfloat16
    python -m training.benchmark --subjects=keras_bert:jax,keras_bert:jax@albert_base_v2
    python -m training.benchmark --what=serve --model=minilm_l6_h384_uncased --batch_size=1 \\
        --steps=50 --subjects=keras_bert:tensorflow,keras_hub:tensorflow
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import platform
from collections.abc import Sequence

from keras_bert import atomic

from .benchmarks.report import Row, format_table, make_rows
from .benchmarks.subject import Subject
from .benchmarks.workload import Workload
from .engine import program
from .engine.config_flags import define_flags, read_flags
from .engine.options import NonNegativeFloat, PositiveInt, ProgramConfig, ProperFraction


@dataclasses.dataclass(frozen=True)
class BenchmarkConfig(ProgramConfig):
    """What to measure, on which workload, and how often.

    Args:
        what: What to measure: forward (inference), classify (training steps of a classifier),
            pretrain (training steps of a masked LM) or serve (requests of text to a
            SavedModel of a BERT classifier, which TensorFlow executes in this process).
        subjects: The subjects, each library:backend[:precision][@model], with a precision and a
            model if they differ from --precision and --model; libraries are keras_bert, keras_hub
            and transformers. Ratios are relative to the first subject.
        model: A name that BertConfig.from_name knows.
        precision: Float32, bfloat16 or mixed_bfloat16 (autocast, for transformers).
        batch_size: Rows in a batch, or texts in a request.
        sequence_length: Tokens in a row; of texts, the maximum, to which KerasHub pads all.
        padding: Share of the tokens that are padding.
        steps: Batches, or requests, in a round.
        clients: Requests at a time, of --what=serve.
        batching: A batching_params.pbtxt, by which requests that wait are joined to batches as
            TensorFlow Serving does; empty to answer each by itself.
        rounds: Rounds of each subject.
        clip_norm: Global norm that gradients are clipped to; 0 for no clipping.
        texts: File of texts to serve, one per line; empty for sentences of docstrings.
        vocabulary: WordPiece vocabulary to serve with, a vocab.txt; empty for the installed
            MiniLM's.
        device: Cpu, or auto for an accelerator if there is one.
        json: File for the results as JSON; empty for none.
    """

    what: str = "forward"
    subjects: tuple[str, ...] = (
        "keras_bert:tensorflow",
        "keras_hub:tensorflow",
        "transformers:torch",
    )
    model: str = "bert_base_uncased"
    precision: str = "float32"
    batch_size: PositiveInt = 8
    sequence_length: PositiveInt = 128
    padding: ProperFraction = 0.0
    steps: PositiveInt = 4
    rounds: PositiveInt = 7
    clip_norm: NonNegativeFloat = 1.0
    texts: str = ""
    vocabulary: str = ""
    clients: PositiveInt = 1
    batching: str = ""
    device: str = "auto"
    json: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.device not in ("cpu", "auto"):
            raise ValueError(f"--device is {self.device!r}, expected cpu or auto")

    @property
    def workload(self) -> Workload:
        """The fields that a child process needs."""
        fields = [field.name for field in dataclasses.fields(Workload)]
        return Workload(**{name: getattr(self, name) for name in fields})


def run(config: BenchmarkConfig) -> list[Row]:
    """Measures every subject of `config`, in alternating rounds.

    Raises:
        ValueError: If a subject or a field of the workload is invalid.
    """
    with contextlib.ExitStack() as stack:
        subjects = [
            stack.enter_context(Subject(name, config.workload, config.device))
            for name in config.subjects
        ]
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


def main(arguments: list[str]) -> None:
    program.refuse_arguments(arguments)
    config = read_flags(BenchmarkConfig)
    batch = f"{config.batch_size} x {config.sequence_length} tokens, padding {config.padding:.0%}"
    if config.what == "serve":
        batch = f"{config.batch_size} texts of at most {config.sequence_length} tokens"
    print(
        f"{config.what}, {config.model}, {batch}, {config.precision}, {config.rounds} rounds of "
        f"{config.steps} steps",
        flush=True,
    )
    rows = run(config)
    print(format_table(rows))
    if config.json:
        write_json(config.json, config, rows)


if __name__ == "__main__":
    define_flags(BenchmarkConfig())
    program.run(main)
