# SPDX-License-Identifier: Apache-2.0
"""Fine-tunes at a small scale, from files to an exported model."""

import csv
import dataclasses
import hashlib
import json
import os
import shutil
import subprocess
import sys

import keras
import numpy as np
import pytest

pytestmark = pytest.mark.on_torch

from sklearn.metrics import average_precision_score, f1_score  # noqa: E402

from keras_bert import Backbone, TextClassifier, atomic, load_model  # noqa: E402
from keras_bert.checkpoints import CheckpointWarning  # noqa: E402
from keras_bert.data import TextClassifierPreprocessor  # noqa: E402
from tests.checkpoints.small_models import small_config  # noqa: E402
from tests.source_imports import ROOT  # noqa: E402
from tests.text.small_tokenizers import make_tokenizer  # noqa: E402
from tests.training.engine.finished_cells import finish  # noqa: E402
from training.engine import dev_evaluation, finetuning, run_report  # noqa: E402
from training.engine.grid import Cell  # noqa: E402
from training.engine.grid_search import Grid  # noqa: E402
from training.engine.output_directory import (  # noqa: E402
    NotFiniteError,
    SettingsMismatchError,
    is_own,
)
from training.engine.program import exit_on_user_error  # noqa: E402
from training.engine.seed_runs import hash_data  # noqa: E402
from training.evaluate import EvaluateConfig, evaluate  # noqa: E402
from training.jobs.classification import (  # noqa: E402
    ClassificationJob,
    FewShotConfig,
    FewShotJob,
    FinetuneConfig,
    new_classifier,
    read_data,
)
from training.readers.data_inspection import count_rows  # noqa: E402

TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "good", "bad", "film", "a"]


@pytest.fixture
def preset(tmp_path):
    tokenizer = make_tokenizer(*TOKENS)
    config = small_config(vocabulary_size=len(TOKENS), num_layers=1, max_sequence_length=16)
    preprocessor = TextClassifierPreprocessor(tokenizer, sequence_length=16)
    TextClassifier(Backbone(config), 2, preprocessor).save_to_preset(tmp_path / "preset")
    return tmp_path / "preset"


@pytest.fixture
def reviews(tmp_path):
    path = tmp_path / "reviews.tsv"
    rows = [("good film" if i % 2 else "a bad film") + f"\t{i % 2}" for i in range(24)]
    path.write_text("review\tstars\n" + "\n".join(rows) + "\n")
    return path


@pytest.fixture
def make_config(preset, reviews, tmp_path):
    """A function that returns a config for a small run on the reviews."""

    def make(**changes):
        columns = {"train_file": str(reviews), "text": "review", "label": "stars"}
        options = {"sequence_length": 16, "precision": "float32", "preset": str(preset)}
        options["output_dir"] = str(tmp_path / "run")
        return FinetuneConfig.from_flags(**{**columns, **options, **changes})

    return make


@pytest.mark.needs_tensorflow
@pytest.mark.on_tensorflow
def test_run_writes_results_predictions_and_export(
    make_config, preset, reviews, tmp_path, monkeypatch
):
    prediction_sizes = []
    predict = TextClassifier.predict

    def count_and_predict(self, x, *arguments, **options):
        prediction_sizes.append(len(x))
        return predict(self, x, *arguments, **options)

    monkeypatch.setattr(TextClassifier, "predict", count_and_predict)
    config = make_config(
        test_file=str(reviews), epochs=2, batch_size=8, accumulation=2, num_seeds=2
    )
    config_data = read_data(config)
    results = finetuning.run(ClassificationJob, config, config_data)
    directory = tmp_path / "run"
    assert all(is_own(path.name, "finetune") for path in directory.iterdir())
    assert json.loads((directory / "results.json").read_text()) == json.loads(json.dumps(results))
    assert [run["seed"] for run in results["runs"]] == [1, 2]
    assert set(results["baselines"]["dev"]) == {"majority", "bag_of_words"}
    assert set(results["baselines"]["dev"]["majority"]) == set(results["summary"]["dev"])
    scores = results["summary"]["dev"]["accuracy"]
    assert len(scores["seeds"]) == 2
    assert scores["mean"] == pytest.approx(sum(scores["seeds"]) / 2, abs=0.01)
    for seed in (1, 2):
        assert (directory / f"seed_{seed}" / "model.keras").exists()
        assert (directory / f"seed_{seed}" / "curves.png").read_bytes()[1:4] == b"PNG"
    prediction_lines = (directory / "predictions.tsv").read_text().splitlines()
    assert prediction_lines[0].startswith("label\tscore\ttrue_label")
    assert len(prediction_lines) == 25
    assert prediction_sizes.count(24) == 1  # once for the predictions and scores of the test file
    labels = [line.split("\t")[1] for line in reviews.read_text().splitlines()[1:]]
    is_correct = [
        answer.split("\t")[0] == label
        for answer, label in zip(prediction_lines[1:], labels, strict=True)
    ]
    best = results["kept"]
    assert best["scores"]["test"]["accuracy"] == pytest.approx(100 * sum(is_correct) / 24)
    assert set(results["baselines"]["test"]) == {"majority", "bag_of_words"}
    assert (directory / "export" / "1" / "saved_model.pb").exists()
    assert not list(directory.rglob("*partial*"))
    sizes = {"num_layers": 1, "num_heads": 2, "hidden_dim": 8, "intermediate_dim": 16}
    assert results["encoder"].items() >= {**sizes, "vocabulary_size": len(TOKENS)}.items()
    assert (
        results["encoder"]["parameters"]
        == TextClassifier.from_preset(preset, num_classes=2).backbone.count_params()
    )
    dev_scores = results["runs"][best["seed"] - 1]["best"]
    assert best["scores"] == {**dev_scores, "test": best["scores"]["test"]}
    assert [row["rows"] for row in results["by_class"].values()] == [
        count_rows(config_data.parts()["test"])[name] for name in results["by_class"]
    ]
    assert set(results["seconds"]) == {"building", "training", "scoring", "answers", "export"}
    assert min(results["seconds"].values()) > 0
    # A second run does not train again. It keeps the export, because a server may watch it.
    files = [directory / "export" / "1" / "saved_model.pb", *directory.glob("seed_*/model.keras")]
    write_times = [path.stat().st_mtime_ns for path in files]
    assert finetuning.run(ClassificationJob, config, config_data)["kept"] == best
    assert [path.stat().st_mtime_ns for path in files] == write_times
    # The export is updated if the best model changes, even if the clock was set back.
    seeds = best["seed"], 3 - best["seed"]
    model, other = (directory / f"seed_{seed}" / "model.keras" for seed in seeds)
    shutil.copyfile(other, model)
    os.utime(model, ns=(0, 0))
    exported = finetuning.run(ClassificationJob, config, config_data)["exported_model"]
    assert exported == hashlib.sha256(other.read_bytes()).hexdigest()
    assert files[0].stat().st_mtime_ns > write_times[0]
    write_times = [path.stat().st_mtime_ns for path in files]
    with pytest.raises(ValueError, match="finished run with different settings"):
        finetuning.run(ClassificationJob, config.replace(epochs=3), config_data)
    # The checkpoint at the same path may have changed.
    classifier = TextClassifier.from_preset(preset, num_classes=2)
    classifier.trainable_weights[0].assign(1 + np.array(classifier.trainable_weights[0]))
    classifier.save_to_preset(preset)
    with pytest.raises(ValueError, match="started from a --preset with different files"):
        finetuning.run(ClassificationJob, config, config_data)
    assert [path.stat().st_mtime_ns for path in files] == write_times


def test_long_texts_of_the_checkpoint_are_kept(make_config, preset):
    saved = TextClassifier.from_preset(preset, num_classes=2, long_texts="max")
    saved.save_to_preset(preset)
    for flag, expected in (("", "max"), ("truncate", "truncate")):
        config = make_config(long_texts=flag)
        classifier = new_classifier(config, read_data(config).train, str(preset), None)
        assert classifier.preprocessor.long_texts == expected


@pytest.mark.on_tensorflow
def test_run_calibrates_only_the_saved_model(preset, tmp_path):
    """The training is the same without the calibration, and the best epoch also."""
    words, rows = ["good", "bad", "film"], []
    for index in range(360):  # A fifth of the labels is wrong.
        label = (index + (index % 5 == 0)) % 3
        rows.append(f"a {words[index % 3]}\t{words[label]}")
    path = tmp_path / "words.tsv"
    path.write_text("\n".join(["text\tlabel", *rows]) + "\n")
    models = []
    for calibrate in (False, True):
        config = FinetuneConfig.from_flags(
            train_file=str(path),
            dev_file=str(path),
            preset=str(preset),
            epochs=2,
            batch_size=8,
            learning_rate=1e-2,
            sequence_length=16,
            precision="float32",
            output_dir=str(tmp_path / f"calibrated_{calibrate}"),
            export=False,
            calibrate=calibrate,
        )
        with pytest.warns(CheckpointWarning, match="initialized randomly"):
            results = finetuning.run(ClassificationJob, config, read_data(config))
        models.append(load_model(tmp_path / f"calibrated_{calibrate}" / "seed_1" / "model.keras"))
    without, calibrated = (model.predict(words, verbose=0) for model in models)
    calibration = results["calibration"]
    np.testing.assert_allclose(calibrated * calibration["temperature"], without, atol=1e-5)
    assert calibration["data"] == "dev"
    report = run_report.report(results)
    assert f"validation): {calibration['ece']:.1f}%, before calibration" in report
    assert (tmp_path / "calibrated_True" / "calibration.png").is_file()


class Diverging(ClassificationJob):
    """A job in which some seeds have learning rates that make them diverge."""

    def build(self, seed):
        training = super().build(seed)
        rates = {1: np.nan, 3: 1e30}
        if seed in rates:
            training.model.compile(keras.optimizers.SGD(rates[seed]))
        return training


def test_diverged_seed_is_reported(make_config, tmp_path):
    config = make_config(epochs=1, num_seeds=3, learning_rate=1e-3, export=False)
    data = read_data(config)
    # The loss of the only batch is finite, because it is computed before the weights are updated.
    results = finetuning.run(Diverging, config, data)
    assert [run["seed"] for run in results["runs"]] == [results["kept"]["seed"]] == [2]
    assert [path.parent.name for path in tmp_path.glob("run/*/model.keras")] == ["seed_2"]
    first, third = results["diverged"]
    assert first.startswith("seed 1 diverged: after epoch 1, batch 1, the weight ")
    assert "is not finite. No model was saved. Try a lower --learning_rate" in first
    assert third.startswith("seed 3 diverged: after epoch 1, 4 of 4 outputs of the model are not")
    report = run_report.report(results)
    assert "Best model: seed 2, epoch 1 of 1" in report
    assert f"Not in these scores:\n{first}\n{third}" in report
    # In multiple batches, the second loss is not finite, because it follows the first update.
    single_seed = config.replace(num_seeds=1, batch_size=8, output_dir=str(tmp_path / "alone"))
    with pytest.raises(NotFiniteError, match=r"the loss is nan in epoch 1, batch 2\. No model"):
        finetuning.run(Diverging, single_seed, data)
    assert not list(tmp_path.glob("alone/**/model.keras"))
    # A grid does not repeat a diverged run.
    cell = Cell(tmp_path / "alone", ["training.finetune"])
    (tmp_path / "alone" / "command.json").write_text(json.dumps(cell.record()))
    with pytest.raises(NotFiniteError, match="alone: seed 1 diverged"):
        cell()


def test_grid_keeps_the_best_run(make_config, reviews, tmp_path, monkeypatch, capsys):
    config = make_config(test_file=str(reviews), epochs=1, batch_size=8, export=False)
    grid = Grid("classification", config, {"learning_rate": (1e-4, 1e30, 1e-3)})
    data = read_data(config)
    inputs = {"data": hash_data(data).hex(), "backend": keras.backend.backend()}
    cells, score = grid.cells(**inputs), {1e-4: 40.0, 1e-3: 60.0}
    finish(cells[1e30,], {"runs": [], "diverged": ["seed 1 diverged"]})
    for rate, value in score.items():
        cell = cells[rate,]
        own = config.replace(learning_rate=rate, test_file="", output_dir=str(cell.directory))
        results = finetuning.run(ClassificationJob, own, read_data(own))
        assert "test" not in results["kept"]["scores"]
        atomic.write_json(cell.directory / "settings.json", own.settings())
        atomic.write_json(cell.directory / "command.json", cell.record())
        atomic.write_json(cell.directory / "results.json", {**results, "selection_scores": [value]})

    def fail(*arguments):
        raise AssertionError("the best run is trained again")

    monkeypatch.setattr(finetuning, "train", fail)
    best = finetuning.search(grid, data)
    assert best == config.replace(learning_rate=1e-3)
    results = finetuning.run(ClassificationJob, best, data)
    assert "test" in results["kept"]["scores"]
    model = tmp_path / "run" / "seed_1" / "model.keras"
    assert model.read_bytes() == (cells[1e-3,].directory / "seed_1" / "model.keras").read_bytes()
    assert all(is_own(path.name, "finetune") for path in (tmp_path / "run").iterdir())
    lines = (tmp_path / "run" / "grid.md").read_text().splitlines()
    assert [line.split(" | ")[0] for line in lines[2:]] == ["| 0.001", "| 0.0001", "| 1e+30"]
    assert "diverged | diverged" in lines[-1]
    assert (tmp_path / "run" / "grid.png").read_bytes()[1:4] == b"PNG"
    # The best run changes, for example because a value is removed from the list.
    smaller = Grid("classification", config, {"learning_rate": (1e-4, 1e30)})
    best = finetuning.search(smaller, data)
    assert finetuning.run(ClassificationJob, best, data)["config"]["learning_rate"] == 1e-4
    # Another run in the directory is not replaced, and a changed file is noticed.
    changed = dataclasses.replace(data, train=data.train.rows(range(8)))
    with pytest.raises(SettingsMismatchError, match=r"different settings \(other data\)"):
        finetuning.search(grid, changed)
    atomic.write_json(tmp_path / "run" / "seed_1" / "run.json", {})
    with pytest.raises(SettingsMismatchError, match=r"run contains a run with different settings"):
        finetuning.search(grid, data)


def test_failed_save_keeps_the_previous_model(preset, tmp_path):
    path = tmp_path / "written" / "model.keras"
    path.parent.mkdir()
    path.write_text("older")
    disk_full = OSError("no space left on device")

    class Full(TextClassifier):
        def save(self, path):
            path.write_text("half a model")
            raise disk_full

    model = Full.from_preset(preset, num_classes=2)
    with pytest.raises(OSError, match=r"model\.keras could not be written: no space left"):
        dev_evaluation.save_model(model, path)
    assert os.listdir(tmp_path / "written") == ["model.keras"]
    assert path.read_text() == "older"


@pytest.mark.backend_independent
def test_output_without_terminal_is_plain_lines(preset, reviews, tmp_path):
    directory = tmp_path / "run"
    command = [sys.executable, "-m", "training.finetune", f"--train_file={reviews}"]
    command += ["--text=review", "--label=stars", "--sequence_length=16", "--noexport"]
    command += [f"--output_dir={directory}", "--epochs=1", f"--preset={preset}"]
    # The output also includes what TensorFlow writes during its import.
    finished = subprocess.run(
        command,
        cwd=ROOT,
        env={key: os.environ[key] for key in os.environ if key != "TF_CPP_MIN_LOG_LEVEL"},
        capture_output=True,
        text=True,
    )
    assert finished.returncode == 0, finished.stderr
    assert all(line.isprintable() for line in finished.stdout.splitlines())
    assert "Best model: epoch 1 of 1, selected on dev" in finished.stdout
    assert f"Next: python -m training.serve --model={directory / 'seed_1' / 'model.keras'}" in (
        finished.stdout
    )
    # Lines from absl in Python start with the date. Lines from native code start with 0000.
    assert not [line for line in finished.stderr.splitlines() if line[1:6] == "0000 "]
    assert "cuInit" not in finished.stderr


@pytest.mark.backend_independent
def test_missing_preset_exits_with_one_line(make_config, tmp_path):
    config = make_config(preset=str(tmp_path / "nowhere"))
    data = read_data(config)
    with (
        pytest.raises(SystemExit, match=r"^error: preset must be a directory"),
        exit_on_user_error(),
    ):
        finetuning.run(ClassificationJob, config, data)


def test_patience_stops_the_run(make_config):
    config = make_config(epochs=30, learning_rate=0.0, patience=1, export=False)
    (run,) = finetuning.run(ClassificationJob, config, read_data(config))["runs"]
    assert len(run["evaluations"]) == 2
    assert run["best_epoch"] == 1


@pytest.mark.backend_independent
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"task": "sst2", "train_file": "a.tsv"},
            "--train_file=a.tsv is given, but --task=sst2 .* has its own files",
        ),
        ({"task": "sst2"}, "--data_dir must be the directory"),
        ({"train_file": "nowhere.tsv"}, "nowhere.tsv does not exist"),
    ],
)
def test_invalid_input_raises_before_training(changes, message):
    with pytest.raises((ValueError, OSError), match=message):
        read_data(FinetuneConfig(**changes))


@pytest.mark.backend_independent
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"accumulation": 5}, "divisor of --batch_size, 32"),
        ({"header": "maybe"}, "header must be one of auto, yes, no"),
        (
            {"bilstm_layers": 3},
            "bilstm_layers=3 is given, but there is no new BiLSTM without --bilstm_units",
        ),
    ],
)
def test_invalid_options_raise(changes, message):
    with pytest.raises(ValueError, match=message):
        FinetuneConfig(**changes)


@pytest.mark.backend_independent
def test_held_out_examples_are_stratified(tmp_path):
    path = tmp_path / "reviews.tsv"
    rows = [f"text {i}\t{('neg', 'pos')[i % 2]}\n" for i in range(800)]
    path.write_text("text\tlabel\n" + "".join(rows))
    config = FinetuneConfig(train_file=str(path))
    data = read_data(config)
    assert {name: count_rows(part) for name, part in data.parts().items()} == {
        "train": {"rows": 720, "neg": 360, "pos": 360},
        "dev": {"rows": 80, "neg": 40, "pos": 40},
    }
    assert sorted(data.train.texts + data.dev["dev"].texts) == sorted(
        f"text {i}" for i in range(800)
    )
    resampled = read_data(config.replace(seed=7, train_rows=90))
    assert resampled.dev["dev"].texts == data.dev["dev"].texts
    assert count_rows(resampled.parts()["train"]) == {"rows": 90, "neg": 45, "pos": 45}
    scored = read_data(config.replace(dev_rows=20))
    assert count_rows(scored.parts()["dev"]) == {"rows": 20, "neg": 10, "pos": 10}
    assert scored.train.texts == data.train.texts


@pytest.mark.backend_independent
def test_regression_examples_are_held_out_at_random(tmp_path, caplog):
    path = tmp_path / "scores.tsv"
    path.write_text("text\tlabel\n" + "".join(f"text {i}\t{i % 10}\n" for i in range(200)))
    data = read_data(FinetuneConfig(train_file=str(path), regression=True))
    counts = count_rows(data.parts()["dev"])
    assert (counts["rows"], counts["lowest"], counts["highest"]) == (20, "0", "9")
    assert len(set(data.dev["dev"].labels.tolist())) > 5
    assert "standard deviation" not in caplog.text
    path.write_text("text\tlabel\n" + "".join(f"text {i}\t{i}000\n" for i in range(20)))
    read_data(FinetuneConfig(train_file=str(path), regression=True))
    assert "a standard deviation of about 1. Received: 5.56e+03" in caplog.text


@pytest.mark.backend_independent
def test_format_and_allow_empty_are_applied(tmp_path):
    path = tmp_path / "reviews.txt"
    path.write_text("text,label\n" + "a,0\n,1\n" * 10)
    config = FinetuneConfig(train_file=str(path), format="csv", allow_empty=True)
    assert len(read_data(config).train) == 18
    for name, message in {
        "format": "set --format to one of tsv",
        "allow_empty": "--allow_empty",
    }.items():
        default = getattr(FinetuneConfig(), name)
        with pytest.raises(ValueError, match=message):
            read_data(config.replace(**{name: default}))


@pytest.mark.backend_independent
def test_unlabeled_test_file_warns(reviews, tmp_path, caplog):
    path = tmp_path / "new.tsv"
    path.write_text("review\tStars\ngood film\t1\n")
    config = FinetuneConfig.from_flags(
        train_file=str(reviews), test_file=str(path), text="review", label="stars"
    )
    with caplog.at_level("WARNING", logger="absl"):
        assert read_data(config).test.labels is None
    assert "not scored" in caplog.text
    assert "Received: column 'stars' (did you mean 'Stars'?)" in caplog.text


def test_rematerialize_applies_to_the_encoder(make_config, preset):
    config = make_config(rematerialize=True)
    training = ClassificationJob(config, read_data(config), str(preset)).build(1)
    assert training.model.backbone.rematerialize


@pytest.mark.filterwarnings("ignore::keras_bert.checkpoints.CheckpointWarning")
def test_few_shot_training_is_reproducible(preset, reviews, tmp_path):
    """The same command yields the same weights, and the model is an ordinary classifier."""
    flags = {"train_file": str(reviews), "text": "review", "label": "stars", "preset": str(preset)}
    flags |= {"train_rows": 12, "sequence_length": 16, "precision": "float32", "export": False}
    models = []
    for run in ("first", "second"):
        config = FewShotConfig.from_flags(**flags, output_dir=str(tmp_path / run))
        results = finetuning.run(FewShotJob, config, read_data(config))
        # Six examples of each class yield 42 positive and 36 negative pairs.
        assert results["runs"][0]["history"].keys() >= {"loss"}
        models.append(load_model(tmp_path / run / "seed_1" / "model.keras"))
    first, second = models
    for first_weight, second_weight in zip(first.get_weights(), second.get_weights(), strict=True):
        np.testing.assert_array_equal(first_weight, second_weight)
    assert [a["label"] for a in first.classify(["good film", "a bad film"])] == ["1", "0"]
    assert results["summary"]["dev"]["accuracy"]["mean"] == 100
    with pytest.raises(ValueError, match="--bilstm_units=4 is given, but --task=few_shot needs"):
        FewShotConfig.from_flags(**flags, bilstm_units=4)


@pytest.mark.filterwarnings(
    "ignore:.*initialized randomly:keras_bert.checkpoints.CheckpointWarning"
)
def test_multi_label_run_sets_thresholds_and_scores(preset, tmp_path):
    """The thresholds are chosen on the held-out tenth and saved with the model."""
    rows = {
        "good film": ["film", "praise"],
        "a bad film": ["film"],
        "good": ["praise"],
        "a bad": [],
    }
    lines = [f"{text}\t{json.dumps(labels)}" for text, labels in rows.items()]
    path = tmp_path / "rows.tsv"
    path.write_text("text\tlabel\n" + "\n".join(lines * 8) + "\n")
    config = FinetuneConfig.from_flags(
        train_file=str(path),
        test_file=str(path),
        multi_label=True,
        preset=str(preset),
        epochs=2,
        batch_size=8,
        learning_rate=1e-2,
        sequence_length=16,
        precision="float32",
        output_dir=str(tmp_path / "run"),
        export=False,
    )
    results = finetuning.run(ClassificationJob, config, read_data(config))
    assert set(results["baselines"]["dev"]) == {"frequency", "bag_of_words"}
    model_file = tmp_path / "run" / "seed_1" / "model.keras"
    model = load_model(model_file)
    assert results["thresholds"] == list(model.thresholds) != [0.5, 0.5]
    # scikit-learn computes the expected scores from the model's predictions.
    texts, truth = (
        list(rows) * 8,
        np.array([["film" in r, "praise" in r] for r in rows.values()] * 8),
    )
    predicted_labels = [{label["label"] for label in row} for row in model.classify(texts)]
    multi_hot = np.array([["film" in row, "praise" in row] for row in predicted_labels])
    expected = {
        "average_precision": 100 * average_precision_score(truth, model.predict(texts, verbose=0)),
        "micro_f1": 100 * f1_score(truth, multi_hot, average="micro"),
        "macro_f1": 100 * f1_score(truth, multi_hot, average="macro"),
    }
    scores = results["kept"]["scores"]["test"]
    assert scores == pytest.approx(expected)
    scores_of_evaluate = evaluate(
        EvaluateConfig(
            data_file=str(path), model=str(model_file), report_dir=str(tmp_path / "report")
        )
    )
    assert scores_of_evaluate.pop("ece") == pytest.approx(results["calibration"]["ece"])
    assert scores_of_evaluate == pytest.approx(expected)
    with open(tmp_path / "run" / "predictions.tsv", newline="") as file:
        header, *prediction_lines = csv.reader(file, delimiter="\t")
    assert header == ["labels", "scores", "true_label", "text"]
    assert [set(json.loads(labels)) for labels, *_ in prediction_lines] == predicted_labels
