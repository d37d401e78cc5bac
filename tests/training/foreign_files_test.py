# SPDX-License-Identifier: Apache-2.0
"""Checks that commands delete and replace only files that they have written."""

import json
import os
import re

import pytest

from tests.text import small_tokenizers
from training.create_pretraining_data import CreatePretrainingDataConfig
from training.create_pretraining_data import main as create_pretraining_data
from training.engine import output_directory
from training.evaluate import evaluate
from training.inspect import InspectConfig
from training.inspect import main as inspect
from training.jobs.report_configs import EvaluateConfig
from training.tokenizer import TokenizerConfig
from training.tokenizer import main as train_tokenizer

pytestmark = pytest.mark.backend_independent

COMMANDS = sorted(output_directory._WRITTEN)
# Files from elsewhere. No command may touch them.
FOREIGN_FILES = [
    "work/thesis.txt",
    ".lock",
    "photos/cat.jpg",
    "notes.md",
    ".a.0.partial/draft",
    "1/x",
]
NAMES = {
    name.replace("[0-9]", "1").replace("*", "")
    for command in COMMANDS
    for name in (*output_directory._WRITTEN[command], "settings.json")
}


def write_files(directory, names):
    for name in names:
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"my own {name}")
        path.chmod(0o600)


def contents(directory):
    return {
        path.relative_to(directory).as_posix(): (path.read_bytes(), path.stat().st_mode)
        for path in directory.rglob("*")
        if path.is_file()
    }


@pytest.mark.parametrize("command", COMMANDS)
def test_command_rejects_foreign_files_with_its_names(command, tmp_path):
    own = {name for name in NAMES if output_directory.is_own(name, command)}
    for index, name in enumerate(sorted(own)):
        directory = tmp_path / str(index)
        write_files(directory, [name, *FOREIGN_FILES])
        before = contents(directory)
        with (
            pytest.raises(FileExistsError, match=re.escape(f"Received: {directory / name}. C")),
            output_directory.lock_output_dir(directory, {}, command=command),
        ):
            pass
        assert contents(directory) == before
    directory = tmp_path / "foreign"
    write_files(directory, [*(NAMES - own), *FOREIGN_FILES])
    for _ in range(2):
        with output_directory.lock_output_dir(directory, {}, command=command):
            (directory / "settings.json").write_text("{}")
    with (
        pytest.raises(FileExistsError, match="by the same command"),
        output_directory.lock_output_dir(
            directory, {}, command=COMMANDS[COMMANDS.index(command) - 1]
        ),
    ):
        pass


def fast_commands(data, directory):
    """Yields the name, function and config of each fast command that writes to a directory."""
    corpus, vocabulary = data / "corpus.txt", data / "vocab.txt"
    records = {"input_files": (str(corpus),), "vocabulary": str(vocabulary), "num_workers": 1}
    rows = {"sequence_length": 32, "sequence_format": "full_sentences", "duplicate_factor": 1}
    yield (
        "create_pretraining_data",
        create_pretraining_data,
        CreatePretrainingDataConfig.from_flags(**records, **rows, output_dir=str(directory)),
    )
    tokenizer = TokenizerConfig((str(corpus),), str(directory), vocabulary_size=200)
    yield "tokenizer", train_tokenizer, tokenizer
    labeled = str(data / "rows.csv")
    inspection = InspectConfig(data_file=labeled, report_dir=str(directory))
    yield "report", inspect, inspection
    evaluation = EvaluateConfig(
        data_file=labeled,
        predictions=str(data / "answers.jsonl"),
        report_dir=str(directory),
        plots_dir=str(directory),
    )
    yield "report", evaluate, evaluation


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    directory = tmp_path_factory.mktemp("data")
    texts = small_tokenizers.texts()[:200]
    (directory / "corpus.txt").write_text("\n\n".join(texts), encoding="utf-8")
    (directory / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\n")
    (directory / "rows.csv").write_text("text,label\n" + "a,x\nb,y\n" * 9)
    rows = [{"label": label, "score": 0.9} for label in "xy" * 9]
    (directory / "answers.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return directory


@pytest.mark.parametrize("index", range(4))
def test_commands_keep_foreign_files(index, data, tmp_path, capsys):
    command, main, config = list(fast_commands(data, tmp_path))[index]
    write_files(tmp_path, FOREIGN_FILES)
    before = contents(tmp_path)
    for _ in range(1 if command == "tokenizer" else 2):
        main(config)
        after = contents(tmp_path)
        assert before.items() <= after.items()
        own = {name.partition("/")[0] for name in after.keys() - before.keys()}
        assert own
        assert [name for name in own if not output_directory.is_own(name, command)] == []
        assert not any(name.startswith(".work") for name in os.listdir(tmp_path))
    if command == "tokenizer":
        with pytest.raises(FileExistsError, match=r"\.json already exists: choose another"):
            main(config)
        assert contents(tmp_path) == after
