# SPDX-License-Identifier: Apache-2.0
"""Compares Apache Beam's records with those written without Beam, file by file."""

import contextlib
import gzip
import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow
import pytest
from pyarrow import parquet

pytestmark = [pytest.mark.needs_tensorflow, pytest.mark.backend_independent]

pytest.importorskip("tensorflow")
pytest.importorskip("apache_beam")

from tests.source_imports import ROOT  # noqa: E402
from tests.training.pretraining.killed_records import (  # noqa: E402
    digests,
    kill_between_files,
    write_times,
)
from training import create_pretraining_data  # noqa: E402
from training.create_pretraining_data import CreatePretrainingDataConfig  # noqa: E402
from training.pretraining import beam_pipeline  # noqa: E402
from training.pretraining.records import create_records  # noqa: E402

WORDS = [f"w{i}" for i in range(40)]
TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", ".", *WORDS]


@pytest.fixture
def config(tmp_path):
    """A config for 60 documents in files of each format. One of the files is empty."""
    (tmp_path / "vocab.txt").write_text("\n".join(TOKENS) + "\n")
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    rng = np.random.default_rng(0)

    def document():
        lengths = rng.integers(3, 12, rng.integers(2, 12))
        return "\n".join(" ".join(rng.choice(WORDS, length)) + " ." for length in lengths)

    def lines():
        return "".join(json.dumps({"text": document()}) + "\n" for _ in range(15)).encode()

    (corpus / "a.txt").write_text("\n\n".join(document() for _ in range(15)))
    (corpus / "b.jsonl.gz").write_bytes(gzip.compress(lines()))
    (corpus / "c.jsonl.zst").write_bytes(pyarrow.compress(lines(), "zstd", asbytes=True))
    (corpus / "d.txt").write_text("\n")
    table = pyarrow.table({"text": [document() for _ in range(15)]})
    parquet.write_table(table, corpus / "e.parquet")
    return CreatePretrainingDataConfig.from_flags(
        input_files=(str(corpus),),
        vocabulary=str(tmp_path / "vocab.txt"),
        output_dir=str(tmp_path / "records"),
        sequence_length=32,
        duplicate_factor=3,
        num_shards=5,
        independent_shards=True,
        num_workers=1,
    )


def create(config):
    return create_records(config.records, config.runner, config.runner_options)


def beam_config(config, name, **changes):
    output_dir = str(Path(config.records.output_dir).parent / name)
    return config.replace(output_dir=output_dir, runner="FnApiRunner", **changes)


@contextlib.contextmanager
def run_job_server(directory):
    """Runs a Beam job server. Pipelines reach Flink and Spark through the same protocol."""
    port, module = directory / "port", "apache_beam.runners.portability.local_job_service_main"
    command = (sys.executable, "-m", module, f"--port_file={port}")
    with subprocess.Popen(command, cwd=directory, stderr=subprocess.DEVNULL) as process:
        try:
            end = time.monotonic() + 60
            while not (port.exists() and port.read_text()):
                assert time.monotonic() < end
                assert process.poll() is None
                time.sleep(0.05)
            yield process, f"localhost:{port.read_text()}"
        finally:
            process.kill()


@pytest.fixture(scope="module")
def job_server(tmp_path_factory):
    with run_job_server(tmp_path_factory.mktemp("server")) as (_, address):
        yield address


# The job server starts the workers as processes in its own working directory.
PROCESS_WORKERS = (
    "--environment_type=beam:env:harness_subprocess_python:v1",
    f"--environment_config=exec env PYTHONPATH={ROOT} {sys.executable} "
    "-m apache_beam.runners.worker.sdk_worker_main",
)


def job_server_config(config, address, *options, **changes):
    options = (f"--job_endpoint={address}", *options)
    return config.replace(runner="PortableRunner", runner_options=options, **changes)


def summary_without_config(summary):
    return {name: value for name, value in summary.items() if name != "config"}


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"sequence_format": "sentence_order", "static_masks": True, "whole_words": True},
        {"sequence_format": "full_sentences", "num_shards": 0},
        {"duplicate_factor": 1, "num_shards": 500},
    ],
)
def test_beam_records_match_one_machine(config, changes):
    config = config.replace(**changes)
    memory = beam_config(config, "memory")
    summary = create(config)
    assert summary_without_config(create(memory)) == summary_without_config(summary)
    assert digests(memory) == digests(config)
    assert len(digests(config)) == {0: 1, 5: 5, 500: 30}[config.records.rows.num_shards]
    names = sorted(path.name for path in Path(memory.records.output_dir).iterdir())
    assert names == ["lengths.png", *digests(memory), "summary.json"]
    # A run without Beam does not repeat the work that Beam has finished.
    elsewhere = config.replace(output_dir=memory.records.output_dir)
    times = {path: path.stat().st_mtime_ns for path in Path(memory.records.output_dir).iterdir()}
    assert summary_without_config(create(elsewhere)) == json.loads(
        json.dumps(summary_without_config(summary))
    )
    assert {path: path.stat().st_mtime_ns for path in times} == times


def test_records_do_not_depend_on_process_count(config):
    create(config)
    options = ("--direct_num_workers=2", "--direct_running_mode=multi_processing")
    processes = beam_config(config, "processes", runner_options=options)
    create(processes)
    assert digests(processes) == digests(config)
    assert len(digests(config)) == 5


def test_killed_pipeline_resumes_to_the_same_records(config):
    config = config.replace(num_shards=30, duplicate_factor=40)
    killed = beam_config(config, "killed")
    directory = Path(killed.records.output_dir)
    before = kill_between_files(directory, killed.records, killed.runner, killed.runner_options)
    assert 0 < len(digests(killed)) < 30
    assert len(list(directory.glob(".work/tokens-*"))) == 5
    summary = create(killed.replace(keep_store=True))
    assert write_times(directory).items() >= before.items()
    assert summary_without_config(create(config)) == summary_without_config(summary)
    assert digests(config) == digests(killed)


@pytest.mark.parametrize("options", [("--environment_type=LOOPBACK",), PROCESS_WORKERS])
def test_job_server_records_match_one_machine(config, options, job_server, tmp_path, monkeypatch):
    create(config)
    monkeypatch.chdir(tmp_path)
    relative = {"input_files": ("corpus",), "vocabulary": "vocab.txt", "output_dir": "portable"}
    portable = job_server_config(config, job_server, *options, **relative)
    create(portable)
    assert digests(portable) == digests(config)
    assert len(digests(config)) == 5


def test_unreachable_job_server_raises(config):
    unreachable = job_server_config(config, "localhost:1", "--job_server_timeout=1")
    with pytest.raises(
        beam_pipeline.RunnerError, match="localhost:1, which did not respond within 1 seconds"
    ):
        create(unreachable)
    with pytest.raises(
        beam_pipeline.RunnerError, match="PortableRunner failed: You must specify a --job_endp"
    ):
        create(unreachable.replace(runner_options=()))


@pytest.mark.skipif(not Path("/proc/self/cwd").exists(), reason="needs /proc")
def test_unshared_directories_raise(config, job_server, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    cwd = "/proc/self/cwd"  # a different directory in each process
    run = job_server_config(config, job_server, *PROCESS_WORKERS, input_files=(f"{cwd}/corpus",))
    with pytest.raises(
        beam_pipeline.RunnerError,
        match=f"Runner failed: FileNotFoundError: .* Received: {cwd}/corpus/a.txt, which does not",
    ):
        create(run)
    run = job_server_config(config, job_server, *PROCESS_WORKERS, output_dir=f"{cwd}/elsewhere")
    with pytest.raises(
        beam_pipeline.RunnerError,
        match=f"{cwd}/elsewhere, where .* wrote no file for .*/corpus/a.txt",
    ):
        create(run)


def test_invalid_file_error_has_the_line(config, tmp_path):
    bad = tmp_path / "corpus" / "f.jsonl"
    bad.write_text('{"text": "w1 ."}\n{"text": 3}\n')
    (tmp_path / "corpus" / "g.jsonl").write_text("{")
    run = beam_config(config, "memory")
    with pytest.raises(
        ValueError,
        match=r"f\.jsonl, line 2: 'text' must be a string, but it is of type int\..*1 more files",
    ):
        create(run)
    bad.write_text('{"text": "w1 ."}\n{"text": "w3"}\n')
    with pytest.raises(ValueError, match=r"g.jsonl, line 1: each line must be JSON"):
        create(run)
    (tmp_path / "corpus" / "g.jsonl").unlink()
    assert create(run)["documents"] == 62


def test_runner_flags_require_each_other(config):
    with pytest.raises(ValueError, match="--runner=FlinkRunner requires --independent_shards"):
        CreatePretrainingDataConfig.from_flags(runner="FlinkRunner")
    with pytest.raises(ValueError, match=r"require --runner. Received: --flink_master=x"):
        CreatePretrainingDataConfig.from_flags(runner_options=("--flink_master=x",))
    with pytest.raises(ValueError, match="--output_dir must be a local directory unless"):
        CreatePretrainingDataConfig.from_flags(output_dir="gs://b/r")


def test_arguments_after_dashes_go_to_the_runner(config):
    flags = [
        f"--{name}={config.to_dict()[name]}"
        for name in ("vocabulary", "output_dir", "sequence_length", "num_shards")
    ]
    command = [
        *(sys.executable, "-m", create_pretraining_data.__name__, *flags),
        *(f"--input_files={config.records.input_files[0]}", "--independent_shards"),
        *("--runner=FnApiRunner", "--", "--direct_num_workers=1", "--job_name=mine"),
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    summary = json.loads(Path(config.records.output_dir, "summary.json").read_text())
    assert summary["documents"] == 60
