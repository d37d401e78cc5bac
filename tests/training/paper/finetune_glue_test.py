# SPDX-License-Identifier: Apache-2.0
"""Fine-tunes on GLUE over a grid at a small scale, starting from random weights."""

import json
from pathlib import Path

import pytest

from keras_bert import Backbone, TextClassifier
from keras_bert.data import TextClassifierPreprocessor
from tests.checkpoints.small_models import small_config
from tests.text.small_tokenizers import make_tokenizer
from tests.training.engine.finished_cells import finish
from training.engine.output_directory import is_own
from training.paper.glue_grid import (
    FinetuneGlueConfig,
    TaskResult,
    finetune_glue,
    format_table,
    make_grid,
)
from training.readers.glue import find_task

pytestmark = pytest.mark.on_torch

CHARACTERS = "abcdefghijklmnopqrstuvwxyz"
TOKENS = [
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    *CHARACTERS,
    *(f"##{character}" for character in CHARACTERS),
]


@pytest.fixture
def preset(tmp_path):
    config = small_config(vocabulary_size=len(TOKENS), num_layers=1, max_sequence_length=32)
    preprocessor = TextClassifierPreprocessor(make_tokenizer(*TOKENS), sequence_length=32)
    TextClassifier(Backbone(config), 2, preprocessor).save_to_preset(tmp_path / "preset")
    return str(tmp_path / "preset")


def make_table(header, line, count=8):
    return "\n".join([header, *(line.format(n, n % 2) for n in range(count))]) + "\n"


def write_rte(directory):
    (directory / "RTE").mkdir(parents=True)
    header, line = "index\tsentence1\tsentence2\tlabel", "{0}\ta cat\ta dog\t"
    for split in ("train", "dev"):
        text = make_table(header, line + "{1}").replace("\t0\n", "\tentailment\n")
        (directory / "RTE" / f"{split}.tsv").write_text(text.replace("\t1\n", "\tnot_entailment\n"))
    (directory / "RTE" / "test.tsv").write_text(make_table(header[:-6], line[:-1], 5))


def test_finetune_glue_writes_table_and_submission(tmp_path, preset, caplog):
    write_rte(tmp_path / "glue")
    config = FinetuneGlueConfig(
        data_dir=str(tmp_path / "glue"),
        preset=preset,
        learning_rate=(1e-3, 1e30, 1e-4),
        epochs=(1,),
        precision="float32",
        sequence_length=16,
        output_dir=str(tmp_path / "runs"),
    )
    # One of the three runs is trained. All its texts are the same, so the accuracy is 50%.
    grid_cells = make_grid(config, find_task("rte")).cells()
    finish(grid_cells[1e30, 32, 1], {"runs": [], "diverged": ["seed 1 diverged"]})
    worse = {"selection_scores": [0.0], "runs": [{"best": {"dev": {"accuracy": 0.0}}}]}
    finish(grid_cells[1e-4, 32, 1], {**worse, "seconds": {}, "diverged": []})
    with caplog.at_level("ERROR", logger="absl"):
        results = finetune_glue(config)
    assert (
        "learning_rate=1e+30_batch_size=32_epochs=1: seed 1 diverged. The other runs continue"
        in caplog.text
    )
    assert set(results) == {"rte"}
    submission = (tmp_path / "runs" / "submission" / "RTE.tsv").read_text().splitlines()
    assert submission[0] == "index\tprediction"
    assert [line.split("\t")[0] for line in submission[1:]] == ["0", "1", "2", "3", "4"]
    assert {line.split("\t")[1] for line in submission[1:]} <= {"entailment", "not_entailment"}
    assert (tmp_path / "runs" / "glue.png").stat().st_size > 1000
    finished = grid_cells[1e-3, 32, 1].directory / "results.json"
    finish_time = finished.stat().st_mtime_ns
    assert finetune_glue(config) == results
    assert finished.stat().st_mtime_ns == finish_time
    files = {path.name for path in (tmp_path / "runs").iterdir()}
    assert {name for name in files if not is_own(name, "finetune_glue")} == {"rte"}
    saved = json.loads((tmp_path / "runs" / "glue.json").read_text())
    best = {"learning_rate": 1e-3, "batch_size": 32, "epochs": 1}
    assert saved["rte"]["best_setting"] == best
    assert saved["rte"]["seeds"] == {"dev": {"accuracy": [50.0]}}
    with pytest.raises(
        ValueError, match=r"epochs=1 contains a run with different settings \(--precision=float32\)"
    ):
        finetune_glue(config.replace(precision="auto"))
    (Path(preset) / "vocab.txt").write_text("other\n")
    with pytest.raises(ValueError, match=r"learning_rate=0.001_.* \(other files in .*preset\)"):
        finetune_glue(config)


def test_format_table_averages_tasks():
    seeds = {"dev": {"f1": [80.0, 82.0], "accuracy": [70.0, 70.0]}}
    setting = {"learning_rate": 5e-5, "batch_size": 32, "epochs": 3}
    result = TaskResult(("f1", "accuracy"), seeds, setting, 76.0, "model.keras")
    lines = format_table({"mrpc": result}).splitlines()
    assert lines[2] == "| MRPC | f1 | 81.0 | 12.7 | 82.0 | 5e-05, 32, 3 |"
    assert lines[-1] == "| average of 1 |  | 75.5 |  |  |  |"


def test_table_has_a_row_for_each_mnli_dev_set():
    seeds = {"dev_matched": {"accuracy": [84.0]}, "dev_mismatched": {"accuracy": [80.0]}}
    setting = {"learning_rate": 5e-5, "batch_size": 32, "epochs": 3}
    result = TaskResult(("accuracy",), seeds, setting, 84.0, "model.keras")
    assert format_table({"mnli": result}).splitlines()[2:] == [
        "| MNLI, matched | accuracy | 84.0 |  | 84.0 | 5e-05, 32, 3 |",
        "| MNLI, mismatched | accuracy | 80.0 |  | 80.0 | 5e-05, 32, 3 |",
        "| average of 1 |  | 82.0 |  |  |  |",
    ]


def test_directory_without_tasks_raises(tmp_path):
    with pytest.raises(ValueError, match="must contain at least one of CoLA"):
        finetune_glue(FinetuneGlueConfig(data_dir=str(tmp_path), output_dir=str(tmp_path)))


def test_find_task_rejects_all():
    with pytest.raises(
        ValueError,
        match=r"must be a single task\. Received: all\. .* use the command finetune_glue",
    ):
        find_task("all")


def test_epochs_of_overrides_a_task():
    config = FinetuneGlueConfig(epochs=(3,), epochs_of=("rte=10",))
    assert (config.task_epochs("rte"), config.task_epochs("mrpc")) == ((10,), (3,))
    with pytest.raises(
        ValueError, match=r"a task and a positive number, as in rte=10. Received: 'rte=0'"
    ):
        FinetuneGlueConfig(epochs_of=("rte=0",))
    with pytest.raises(ValueError, match="'squad'"):
        FinetuneGlueConfig(epochs_of=("squad=2",))
