# SPDX-License-Identifier: Apache-2.0
"""`--devices`: a run on two devices has the same results as a run on one.

The number of devices is fixed when a process starts, so a separate process with two virtual CPUs
makes the runs.
"""

import json
import os
import subprocess
import sys

import keras
import pytest

from tests.source_imports import ROOT
from training.engine import devices
from training.engine.finetuning_config import FineTuningConfig
from training.pretraining.config import PretrainConfig

pytestmark = pytest.mark.slow
BACKEND = keras.backend.backend()

PROGRAM = """
import contextlib, json, pathlib, shutil, sys
import keras
if keras.backend.backend() == "tensorflow":
    import tensorflow as tf
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
import keras_bert
from keras_bert.data import TextClassifierPreprocessor
from tests.text.small_tokenizers import make_tokenizer
from training.engine import finetuning
from training.jobs.classification import ClassificationJob, FinetuneConfig, read_data
from training.pretraining.config import PretrainConfig
from training.pretraining.run import pretrain

directory, DATA = pathlib.Path(sys.argv[1]), sys.argv[1]
WORDS = ["good", "bad", "film", "a", "dull", "long"]
TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]
config = keras_bert.BertConfig(
    vocabulary_size=len(TOKENS), num_layers=1, num_heads=2, hidden_dim=8, intermediate_dim=16,
    max_sequence_length=16, dropout=0.0, attention_dropout=0.0,
)
preprocessor = TextClassifierPreprocessor(make_tokenizer(*TOKENS), sequence_length=16)
keras.utils.set_random_seed(0)
keras_bert.TextClassifier(
    keras_bert.Backbone(config), 2, preprocessor=preprocessor
).save_to_preset(directory / "preset")
rows = [
    " ".join(WORDS[(i * i + j) % 6] for j in range(i % 7 + 1)) + f"\\t{(i * i % 6) % 2}"
    for i in range(45)
]
(directory / "train.tsv").write_text("text\\tlabel\\n" + "\\n".join(rows) + "\\n")
(directory / "corpus.txt").write_text(
    "\\n\\n".join("\\n".join(row.split("\\t")[0] + " ." for row in rows) for _ in range(4))
)

def run_finetune(num_devices):
    run_config = FinetuneConfig.from_flags(
        preset=str(directory / "preset"), train_file=str(directory / "train.tsv"), dropout=0.0,
        encoder_dropout=0.0, epochs=2, batch_size=8, accumulation=2,
        learning_rate=1e-2, sequence_length=16, checkpoint_seconds=0.0,
        precision="float32", export=False, measure_energy=False, devices=num_devices,
        output_dir=str(directory / f"finetune_{num_devices}"),
    )
    results = finetuning.run(ClassificationJob, run_config, read_data(run_config), None)
    (run,) = results["runs"]
    return {"loss": run["history"]["loss"], "scores": run["final"]}

def run_pretrain(num_devices, directory=directory, **options):
    run_config = PretrainConfig.from_flags(
        input_files=("corpus.txt",), dev_files=("corpus.txt",), data_dir=DATA,
        vocabulary_size=40, model="bert_tiny_uncased", num_layers=1, hidden_dim=16, num_heads=2,
        dropout=0.0, phases=("16:1",), batch_size=8, accumulation=2, num_steps=6,
        eval_every=2, warmup_steps=1, learning_rate=1e-2, dev_batches=2, duplicate_factor=1,
        num_workers=1, precision="float32", measure_energy=False, devices=num_devices,
        output_dir=str(directory / f"pretrain_{num_devices}"), **options,
    )
    log = pretrain(run_config)["log"]
    return {name: [record[name] for record in log] for name in ("loss", "val_loss")}

# Runs on two devices with a sharded optimizer, then resumes the run on one device.
def run_resumed():
    before, after = directory / "before", directory / "after"
    logs = [run_pretrain(2, before, shard_optimizer=True)]
    shutil.rmtree(before / "pretrain_2" / "checkpoints" / "step_000000006")
    shutil.copytree(before / "pretrain_2", after / "pretrain_1")
    logs.append(run_pretrain(1, after))
    assert (after / "pretrain_1" / "checkpoints" / "step_000000004").is_dir()
    return logs

with contextlib.redirect_stdout(sys.stderr):
    # On TensorFlow, one command covers the strategy's scope and its variables in checkpoints.
    if keras.backend.backend() == "tensorflow":
        results = {"finetuned": [run_finetune(1), run_finetune(2)]}
    else:
        results = {"pretrained": run_pretrain(1), "resumed": run_resumed()}
    results["distribution_is_reset"] = keras.distribution.distribution() is None
print(json.dumps(results))
"""


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    finished = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path_factory.mktemp("runs"))],
        cwd=ROOT,
        env=os.environ | {"JAX_NUM_CPU_DEVICES": "2"},
        capture_output=True,
        text=True,
    )
    assert finished.returncode == 0, finished.stderr[-4000:]
    return json.loads(finished.stdout)


@pytest.mark.skipif(BACKEND != "tensorflow", reason="JAX pre-trains")
def test_fine_tuning_matches_on_two_devices(runs):
    one_device, two_devices = runs["finetuned"]
    assert one_device["loss"][-1] < one_device["loss"][0]
    assert two_devices["loss"] == pytest.approx(one_device["loss"], rel=1e-5)
    assert two_devices["scores"] == one_device["scores"]


@pytest.mark.skipif(BACKEND != "jax", reason="only JAX shards the optimizer state")
def test_resume_on_fewer_devices_matches(runs):
    one_device, (two_then_two, two_then_one) = runs["pretrained"], runs["resumed"]
    assert one_device["loss"][-1] < one_device["loss"][0]
    for name, expected in one_device.items():
        assert two_then_two[name] == pytest.approx(expected, rel=1e-5), name
    for name, expected in two_then_two.items():
        assert two_then_one[name][:2] == expected[:2]
        assert two_then_one[name] == pytest.approx(expected, rel=1e-5), name
    assert runs["distribution_is_reset"]  # The run resets the distribution.


def test_unavailable_devices_raise():
    message = (
        "--devices must be 1 with PyTorch" if BACKEND == "torch" else "--devices must be at most"
    )
    with pytest.raises(ValueError, match=message), devices.distribute_over(64):
        pass


@pytest.mark.backend_independent
def test_batch_size_must_be_divisible_by_devices():
    with pytest.raises(ValueError, match="--devices must be a divisor of 2 "):
        FineTuningConfig.from_flags(batch_size=8, accumulation=4, devices=4)
    with pytest.raises(
        ValueError, match=r"--devices must be .* and of 64, the batch size for scoring.*Received: 3"
    ):
        FineTuningConfig.from_flags(batch_size=12, devices=3)
    with pytest.raises(
        ValueError,
        match=r"must be a multiple of --devices, which is 3. Received: 4 \(after step 0\)",
    ):
        PretrainConfig.from_flags(batch_size=8, accumulation=2, devices=3)
