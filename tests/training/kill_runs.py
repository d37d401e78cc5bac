# SPDX-License-Identifier: Apache-2.0
"""Kills training commands at random moments, and compares their final results.

    KERAS_BACKEND=tensorflow python -m tests.training.kill_runs --run=finetune --kills=20

An uninterrupted run yields the expected result, which is a hash of its weights and scores. Then the
same command is started, killed with SIGKILL at a random moment and started again, until it has been
killed `--kills` times. Each finished run must have the same hash.
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import io
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterable
from pathlib import Path

from tests.source_imports import ROOT

WORDS = ("the", "a", "cat", "dog", "bird", "sat", "ran", "flew", "on", "under", "mat", "and")
# Measurements and paths differ between runs.
_NOT_COMPARED = frozenset(
    {"seconds", "examples_per_second", "tokens_per_second", "flops_per_second", "mfu"}
    | {"cost", "energy", "energy_kwh", "co2_kg", "energy_is_measured"}
    | {"config", "model_path", "model", "total"}
)
_PRETRAINING = (
    *("--vocabulary_size=60", "--model=bert_tiny_uncased", "--num_layers=1", "--hidden_dim=16"),
    *("--num_heads=2", "--batch_size=4", "--num_steps=30", "--warmup_steps=2", "--eval_every=2"),
    *("--duplicate_factor=1", "--precision=float32", "--num_workers=1", "--dev_batches=1"),
    "--nomeasure_energy",
)
_FINE_TUNING = (
    *("--epochs=3", "--batch_size=8", "--learning_rate=1e-3"),
    *("--precision=float32", "--sequence_length=32", "--checkpoint_seconds=0"),
    "--nomeasure_energy",
)


@dataclasses.dataclass(frozen=True)
class Case:
    """A command and its flags. `{data}` in a flag stands for the data directory."""

    module: str
    arguments: tuple[str, ...]


def _pretraining(phases: str, *options: str) -> Case:
    files = ("--input_files={data}/train.txt", "--dev_files={data}/dev.txt")
    return Case("training.pretrain", (*files, f"--phases={phases}", *_PRETRAINING, *options))


_MODERN = (
    *(
        "--sequence_format=full_sentences",
        "--packing",
        "--masked_lm_probability=0.3",
        "--clip_norm=0",
    ),
    *("--optimizer=stable_adamw", "--schedule=trapezoidal", "--decay_steps=6", "--accumulation=2"),
    *("--batch_size=12", "--initial_batch_size=4", "--batch_warmup_steps=8"),
)


def _fine_tuning(module: str, *arguments: str) -> Case:
    accumulation = () if module == "paper.feature_tagging" else ("--accumulation=2",)
    flags = ("--preset={data}/preset", *arguments, *_FINE_TUNING, *accumulation)
    return Case(f"training.{module}", flags)


_TAGGED = ("--train_file={data}/train.conll", "--dev_file={data}/train.conll")
CASES = {
    "pretrain_two_phases": _pretraining("16:0.5,32:0.5"),
    "pretrain_as_modernbert": _pretraining(
        "16:0.5,16:0.2:learning_rate=5e-5,32:0.3:batch_size=4:learning_rate=2e-5", *_MODERN
    ),
    "finetune": _fine_tuning(
        "finetune", "--train_file={data}/train.tsv", "--patience=2", "--noexport"
    ),
    "grid": _fine_tuning(
        *("finetune", "--train_file={data}/train.tsv", "--test_file={data}/train.tsv"),
        *("--warmup=0,0.5", "--num_seeds=2", "--noexport"),
    ),
    "feature_tagging": _fine_tuning(
        "paper.feature_tagging", *_TAGGED, "--cache_dir={data}/features", "--lstm_units=6"
    ),
    "question_answering": _fine_tuning(
        "finetune",
        *("--train_file={data}/squad.json", "--dev_file={data}/squad.json", "--noexport"),
        *("--doc_stride=8", "--max_query_length=8"),
    ),
    "ranking": _fine_tuning("finetune", "--data_dir={data}/collection", "--candidates=8"),
}


def make_data(directory: Path) -> None:
    """Writes text, labeled text, tagged words, questions and a ranking collection."""
    generator = random.Random(0)

    def sentence() -> list[str]:
        # With two lengths, only two shapes are traced.
        return generator.choices(WORDS, k=generator.choice((6, 22)))

    for name, count in {"train": 16, "dev": 4}.items():
        documents = ["\n".join(" ".join(sentence()) + " ." for _ in range(8)) for _ in range(count)]
        (directory / f"{name}.txt").write_text("\n\n".join(documents) + "\n")
    rows = [sentence() for _ in range(36)]
    lines = [f"{' '.join(row)}\t{'yes' if 'cat' in row else 'no'}" for row in rows]
    (directory / "train.tsv").write_text("\n".join(["text\tlabel", *lines]) + "\n")
    tagged = [[f"{word} {'B-X' if word == 'cat' else 'O'}\n" for word in row] for row in rows]
    (directory / "train.conll").write_text("\n".join(map("".join, tagged)))
    questions = [
        {
            "context": " ".join(row),
            "qas": [
                {
                    "id": str(number),
                    "question": "the bird and ?",
                    "answers": [{"text": row[0], "answer_start": 0}],
                }
            ],
        }
        for number, row in enumerate(rows)
    ]
    squad = {"version": "1.1", "data": [{"title": "rows", "paragraphs": questions}]}
    (directory / "squad.json").write_text(json.dumps(squad))
    collection = directory / "collection"
    (collection / "qrels").mkdir(parents=True)
    texts = [{"_id": f"d{number}", "text": " ".join(row)} for number, row in enumerate(rows)]
    _write_json_lines(collection / "corpus.jsonl", texts)
    queries = [{"_id": f"q{n}", "text": " ".join(rows[n][:3])} for n in range(20)]
    _write_json_lines(collection / "queries.jsonl", queries)
    judged = [f"q{n}\td{n}\t1\n" for n in range(20)]
    (collection / "qrels" / "test.tsv").write_text(
        "".join(["query-id\tcorpus-id\tscore\n", *judged])
    )


def _write_json_lines(path: Path, rows: Iterable[object]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def make_preset(directory: Path) -> None:
    """Writes a small encoder with random weights."""
    import keras

    from keras_bert import Backbone, BertConfig, TextClassifier
    from keras_bert.text.wordpiece import WordPieceTokenizer

    keras.utils.set_random_seed(0)
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS, "."]
    sizes = {"hidden_dim": 16, "intermediate_dim": 32, "max_sequence_length": 32}
    config = BertConfig(vocabulary_size=len(tokens), num_layers=1, num_heads=2, **sizes)
    tokenizer = WordPieceTokenizer(tokens).get_config()
    preprocessor = {"tokenizer": tokenizer, "sequence_length": 32}
    TextClassifier(Backbone(config), 2, preprocessor=preprocessor).save_to_preset(directory)


def hash_results(directory: Path) -> str:
    """Returns a hash of a run's final weights and scores."""
    import h5py

    content = hashlib.sha256()

    def add(name: str, item: object) -> None:
        if isinstance(item, h5py.Dataset):
            content.update(name.encode() + item[()].tobytes())

    for path in sorted(directory.glob("**/*.safetensors")):
        if "checkpoints" not in path.parts:
            content.update(path.read_bytes())
    for path in sorted(directory.glob("**/model.keras")):
        with zipfile.ZipFile(path) as archive:
            weights = io.BytesIO(archive.read("model.weights.h5"))
        with h5py.File(weights) as file:
            file.visititems(add)
    for name in ("results.json", "scores.json"):
        if (directory / name).exists():
            results = json.loads((directory / name).read_text())
            content.update(json.dumps(_remove_measurements(results), sort_keys=True).encode())
    return content.hexdigest()[:16]


def _remove_measurements(value: object) -> object:
    if isinstance(value, dict):
        return {
            name: _remove_measurements(x) for name, x in value.items() if name not in _NOT_COMPARED
        }
    return [_remove_measurements(x) for x in value] if isinstance(value, list) else value


def kill_and_compare(case: Case, kills: int, seed: int, directory: Path) -> str:
    """Compares a command's uninterrupted run with its killed runs.

    Args:
        case: The command and its flags.
        kills: The number of kills.
        seed: Determines the moments.
        directory: Directory for the data and the runs.

    Returns:
        The common hash of all runs' weights and scores.

    Raises:
        RuntimeError: If the hashes of two runs differ.
    """
    data, log = directory / "data", os.fspath(directory / "log")
    data.mkdir()
    make_data(data)
    make_preset(data / "preset")

    def start(target: Path) -> subprocess.Popen[bytes]:
        arguments = [argument.format(data=data) for argument in case.arguments]
        command = [sys.executable, "-m", case.module, *arguments, f"--output_dir={target}"]
        with open(log, "ab") as file:
            return subprocess.Popen(
                command, cwd=ROOT, stdout=file, stderr=file, start_new_session=True
            )

    def check(status: int) -> None:
        if status:
            raise RuntimeError(Path(log).read_text(errors="replace")[-4000:])

    start_time = time.monotonic()
    check(start(directory / "whole").wait())
    longest = time.monotonic() - start_time
    expected = hash_results(directory / "whole")
    print(f"never killed: {expected}, {longest:.0f} s", flush=True)
    generator = random.Random(seed)
    killed, num_finished, target = 0, 0, directory / "killed"
    while killed < kills or not num_finished:
        process, start_time = start(target), time.monotonic()
        if killed < kills:
            moment = start_time + generator.uniform(0, longest)
            # If the process finishes before that moment, stop waiting.
            while time.monotonic() < moment:
                if process.poll() is not None:
                    longest = min(longest, time.monotonic() - start_time)
                    break
                time.sleep(0.05)
            else:
                os.killpg(process.pid, signal.SIGKILL)  # also the runs of a grid
            if process.wait() == -signal.SIGKILL:
                killed += 1
                num_finished = 0
                print(f"killed {killed} times", flush=True)
                continue
        check(process.wait())
        num_finished += 1
        result = hash_results(target)
        print(f"{killed} kills: {result}", flush=True)
        if result != expected:
            raise RuntimeError(f"{result} after {killed} kills, instead of {expected}")
        shutil.rmtree(target)
    return expected


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--run", choices=list(CASES), default="finetune")
    parser.add_argument("--kills", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0, help="determines the moments of the kills")
    options = parser.parse_args()
    print(f"{options.run} on {os.environ['KERAS_BACKEND']}", flush=True)
    with tempfile.TemporaryDirectory() as directory:
        kill_and_compare(CASES[options.run], options.kills, options.seed, Path(directory))


if __name__ == "__main__":
    main()
