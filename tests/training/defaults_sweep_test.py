# SPDX-License-Identifier: Apache-2.0
"""The sweep over learning rates and epochs, at miniature size."""

import dataclasses

import keras
import pytest

pytestmark = [pytest.mark.needs_tensorflow, pytest.mark.backend_independent]

pytest.importorskip("tensorflow")

from keras_bert import Backbone, BertConfig, TextClassifier  # noqa: E402
from keras_bert.data import TextClassifierPreprocessor  # noqa: E402
from tests.text.small_tokenizers import of_tokens  # noqa: E402
from training.defaults_sweep import (  # noqa: E402
    DefaultsSweepConfig,
    append,
    format_table,
    read_records,
    sample,
    sweep,
)
from training.jobs.classification import FinetuneConfig, build_classifier  # noqa: E402
from training.readers.glue import read_split  # noqa: E402

TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "good", "bad", "film", "a"]


@pytest.fixture
def config(tmp_path):
    encoder = BertConfig(
        vocabulary_size=len(TOKENS), num_layers=1, num_heads=2, hidden_dim=8, intermediate_dim=16
    )
    preprocessor = TextClassifierPreprocessor(of_tokens(*TOKENS), sequence_length=128)
    TextClassifier(Backbone(encoder), 2, preprocessor).save_to_preset(tmp_path / "preset")
    folder = tmp_path / "SST-2"
    folder.mkdir()
    lines = [("good film" if i % 2 else "a bad film") + f"\t{i % 2}" for i in range(90)]
    for split in ("train", "dev"):
        (folder / f"{split}.tsv").write_text("sentence\tlabel\n" + "\n".join(lines) + "\n")
    return DefaultsSweepConfig(
        data_dir=str(tmp_path),
        tasks=("sst2",),
        rows=("1000",),
        learning_rates=("1e-3", "2e-2"),
        epochs=("2",),
        dev_rows=50,
        preset=str(tmp_path / "preset"),
        precision="float32",
    )


def test_a_run_is_as_one_of_its_own_and_is_not_done_again(config, tmp_path):
    path = tmp_path / "results.jsonl"
    config = dataclasses.replace(config, learning_rates=("1e-3", "1e30", "2e-2"))
    sweep(config, path)
    written = path.read_text()
    sweep(config, path)
    assert path.read_text() == written
    records = read_records(path)
    runs = [record for record in records if "scores" in record]
    assert [run["learning_rate"] for run in runs] == [0.001, 0.02]
    table = format_table(records)
    assert f"| sst2 | 90 | 0.02, 2 epochs, {config.preset} |" in table
    assert "| sst2 | 90 | majority |" in table
    (diverged,) = (record["diverged"] for record in records if "diverged" in record)
    assert diverged.startswith("the loss is nan in epoch 1, batch ")
    assert f"| sst2 | 90 | 1e+30, 2 epochs, {config.preset} | - | 0, 1 diverged |" in table

    run = FinetuneConfig(learning_rate=0.02, epochs=2, precision="float32")
    train = read_split(config.data_dir, "sst2", "train")
    keras.utils.set_random_seed(1)
    classifier = build_classifier(run, train, config.preset)
    keras.utils.set_random_seed(1)
    history = classifier.fit(train.inputs, train.labels, epochs=2, verbose=0)
    assert runs[-1]["loss"] == pytest.approx(history.history["loss"][-1], rel=1e-4)


def test_a_sample_is_a_part_of_a_larger_one(config):
    data = read_split(config.data_dir, "sst2", "train")
    numbered = dataclasses.replace(data, texts=[str(index) for index in range(len(data))])
    small, large = (sample(numbered, count).texts for count in (10, 30))
    assert small == large[:10]
    assert large != numbered.texts[:30]
    assert sample(data, 1000) is data


def test_what_an_interrupted_write_left_is_replaced(tmp_path):
    path = tmp_path / "sweep.jsonl"
    append({"task": "sst2"}, path)
    with open(path, "a") as file:
        file.write('{"task": "co')
    assert read_records(path) == [{"task": "sst2"}]
    append({"task": "cola"}, path)
    assert read_records(path) == [{"task": "sst2"}, {"task": "cola"}]
