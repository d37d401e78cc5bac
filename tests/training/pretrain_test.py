# SPDX-License-Identifier: Apache-2.0

import contextlib
import functools
import json
import random
import shutil
from pathlib import Path

import keras
import numpy as np
import pytest

from keras_bert import (
    Backbone,
    BertConfig,
    MaskedLM,
    ReplacedTokenDetector,
    TextClassifier,
    checkpoints,
)
from keras_bert.checkpoints import CheckpointWarning
from keras_bert.data import TextClassifierPreprocessor
from tests.text.small_tokenizers import make_tokenizer
from training import pretrain as pretrain_command
from training.costs import model_flops
from training.engine.output_directory import SettingsMismatchError, is_own
from training.engine.run_checkpoints import (
    NotFiniteError,
    RunCheckpoints,
)
from training.paper import recipes
from training.pretraining import run
from training.pretraining.config import EncoderOptions, PretrainConfig, named_architecture
from training.pretraining.model import build_model
from training.pretraining.optimization import Optimization, Phase
from training.pretraining.report import collapse_warning, has_collapsed
from training.pretraining.run import pretrain
from training.pretraining.text_source import Batches, TextSource
from training.pretraining.tokenizer_source import open_tokenizer
from training.pretraining.unigrams import score, smoothed, unigram_probabilities

pytestmark = [pytest.mark.on_torch, pytest.mark.slow]

WORDS = ("the", "a", "cat", "dog", "bird", "sat", "ran", "flew", "on", "under", "mat", "and")
OPTIONS = {
    "vocabulary_size": 60,
    "model": "bert_tiny_uncased",
    "num_layers": 1,
    "hidden_dim": 16,
    "num_heads": 2,
    "phases": ("16:0.7", "24:0.3"),
    "batch_size": 4,
    "num_steps": 10,
    "warmup_steps": 2,
    # With this rate, ten steps lower the loss.
    "learning_rate": 0.01,
    "eval_every": 3,
    "dev_batches": 2,
    "duplicate_factor": 1,
    "precision": "float32",
    "num_workers": 1,
}


def make_text(seed, documents=12):
    rng = random.Random(seed)
    sentences = [
        [" ".join(rng.choices(WORDS, k=rng.randint(3, 9))) + " ." for _ in range(8)]
        for _ in range(documents)
    ]
    return "\n\n".join("\n".join(document) for document in sentences) + "\n"


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    directory = tmp_path_factory.mktemp("corpus")
    (directory / "train.txt").write_text(make_text(0))
    (directory / "dev.txt").write_text(make_text(1, 4))
    return directory


def config(corpus, directory, **changes):
    return PretrainConfig.from_flags(
        measure_energy=False,
        input_files=("train.txt",),
        data_dir=str(corpus),
        output_dir=str(directory),
        dev_files=("dev.txt",),
        **OPTIONS,
    ).replace(**changes)


def read_weights(directory):
    return (directory / "preset" / "model.safetensors").read_bytes()


@pytest.fixture(scope="module")
def finished_run(corpus, tmp_path_factory):
    directory = tmp_path_factory.mktemp("runs") / "whole"
    with open(directory.with_suffix(".out"), "w") as out, contextlib.redirect_stdout(out):
        pretrain_command.main(config(corpus, directory, preset_every=6))
    return directory, json.loads((directory / "results.json").read_text())


@pytest.mark.on_each_backend
def test_pretrain_writes_a_preset(finished_run):
    directory, results = finished_run
    assert [record["step"] for record in results["log"]] == [3, 6, 7, 10]
    assert results["log"][-1]["loss"] < results["log"][0]["loss"]
    names = {path.name for path in directory.iterdir()}
    assert [name for name in names if not is_own(name, "pretrain")] == []
    assert {"vocab.txt", "records_16", "records_24", "dev_records_16", "curves.png"} < names
    lines = (directory / "log.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == results["log"]
    assert len(list((directory / "checkpoints").iterdir())) == 2
    with pytest.warns(CheckpointWarning, match="unused weights: heads.next_sentence"):
        masked_lm = MaskedLM.from_preset(directory / "preset")
    assert len(masked_lm.fill("the [MASK] sat", top_k=3)) == 3
    with pytest.warns(CheckpointWarning):
        TextClassifier.from_preset(directory / "preset", num_classes=2)
    (intermediate,) = (directory / "presets").iterdir()
    assert intermediate.name == "step_000000006"
    with pytest.warns(CheckpointWarning):
        early = MaskedLM.from_preset(intermediate)
    assert not np.array_equal(*(task.backbone.get_weights()[0] for task in (early, masked_lm)))


@pytest.mark.on_each_backend
def test_log_has_scores_baselines_and_speed(finished_run):
    record = finished_run[1]["log"][0]
    assert {
        "loss",
        "masked_accuracy",
        "perplexity",
        "pair_accuracy",
        "val_masked_accuracy",
        "val_perplexity",
        "learning_rate",
        "tokens_per_second",
        "mfu",
        "unigram_accuracy",
        "unigram_perplexity",
    } <= set(record)
    assert 0 < record["mfu"] <= 1
    # With so small a vocabulary, 31% of the words are [UNK], the most frequent token.
    assert record["unigram_accuracy"] == pytest.approx(0.31, abs=0.1)
    assert 5 < record["unigram_perplexity"] < 12


@pytest.mark.backend_independent
def test_unigram_baseline_excludes_special_tokens():
    counts = np.bincount([2, 5, 6, 5, 6, 3, 2, 5, 6, 3, 0, 0], minlength=8)
    probabilities = smoothed(counts, never_predicted=(0, 2, 3, 4))
    np.testing.assert_allclose(probabilities, np.array([0, 1, 0, 0, 0, 4, 4, 1]) / 10)
    batch = {"mask_ids": np.array([[5, 7, 0]]), "mask_weights": np.array([[1.0, 1.0, 0.0]])}
    scores = {"unigram_accuracy": 0.5, "unigram_perplexity": 5.0}
    assert score(probabilities, [batch]) == scores


@pytest.mark.on_torch
def test_unigrams_count_original_tokens(corpus, tmp_path):
    frequencies = []
    for name in ("dynamic", "static"):
        settings = config(corpus, tmp_path / name, static_masks=name == "static")
        source = TextSource.from_config(settings)
        vocabulary = source.vocabulary()
        tokenizer = open_tokenizer(vocabulary, None)
        records = source.records(16, vocabulary)
        frequencies.append(unigram_probabilities(records, 16, tokenizer, EncoderOptions()))
    first, second = frequencies
    np.testing.assert_array_equal(first, second)
    assert first[tokenizer.special_token_ids].tolist() == [
        0,
        first[tokenizer.unk_token_id],
        0,
        0,
        0,
    ]


@pytest.mark.on_each_backend
def test_output_has_a_line_per_interval_and_a_report(finished_run):
    directory, results = finished_run
    output = directory.with_suffix(".out").read_text()
    assert "\r" not in output
    lines = [line for line in output.splitlines() if line.startswith("step ")]
    assert [line.partition("/")[0] for line in lines] == [
        f"step {record['step']}" for record in results["log"]
    ]
    record = results["log"][1]
    assert lines[1].startswith(
        f"step 6/10, loss {record['loss']:.4g}, "
        f"masked accuracy {record['masked_accuracy']:.1%} "
        f"(unigram {record['unigram_accuracy']:.1%}), "
    )
    assert f"validation perplexity {record['val_perplexity']:.4g}" in lines[1]
    assert lines[1].endswith(" left")
    assert "logits" not in output
    assert "{" not in output
    table = {line[:15].rstrip(): line.split() for line in output.splitlines()}
    assert table["validation text"][3] == f"{100 * results['last']['val_masked_accuracy']:.2f}"
    assert table["unigram model"][2] == f"{100 * results['last']['unigram_accuracy']:.2f}"
    assert f"preset   {directory / 'preset'}" in output


@pytest.mark.backend_independent
def test_has_collapsed_compares_with_unigrams():
    baseline = {"unigram_accuracy": 0.5, "unigram_perplexity": 2.828}

    def log(*accuracies):
        return [
            {
                "step": 10.0 * (n + 1),
                "val_masked_accuracy": value,
                "val_perplexity": 3.0,
                **baseline,
            }
            for n, value in enumerate(accuracies)
        ]

    assert has_collapsed(log(0.4, 0.5, 0.52, 0.5), warmup_steps=10)
    assert not has_collapsed(log(0.4, 0.5, 0.52, 0.5), warmup_steps=20)  # too early to decide
    assert not has_collapsed(log(0.5, 0.5, 0.5, 0.6), warmup_steps=0)
    assert not has_collapsed([], warmup_steps=0)
    message = collapse_warning(log(0.5)[0])
    assert "After step 10, its accuracy on masked tokens is 50.0%" in message
    assert "frequent token gives 50.0% (perplexity 3.0, unigram baseline 2.8)" in message


@pytest.mark.on_torch
def test_run_resumes_after_ctrl_c(corpus, finished_run, tmp_path, monkeypatch, press_ctrl_c):
    on_train_batch_begin = run.IntervalReport.on_train_batch_begin

    def press(report, batch, logs=None):
        on_train_batch_begin(report, batch, logs)
        if report.state.step == 3 and batch == 1:
            press_ctrl_c()

    settings = config(corpus, tmp_path / "run")
    with monkeypatch.context() as patched:
        patched.setattr(run.IntervalReport, "on_train_batch_begin", press)
        with pytest.raises(KeyboardInterrupt):
            pretrain(settings)
    assert (tmp_path / "run" / "checkpoints" / "step_000000005").is_dir()
    resumed = pretrain(settings)
    for name in ("step", "loss", "val_loss"):
        expected = [record[name] for record in finished_run[1]["log"]]
        if name == "loss":  # The log of the interrupted interval covers only its second part.
            expected[1] = resumed["log"][1][name]
        assert [record[name] for record in resumed["log"]] == expected
    assert read_weights(tmp_path / "run") == read_weights(finished_run[0])


class Stopped(Exception):
    """Replaces a kill of the process after a checkpoint."""


MODERN = {
    "sequence_format": "full_sentences",
    "packing": True,
    "masked_lm_probability": 0.3,
    "phases": ("16:0.5", "24:0.5:batch_size=4:learning_rate=5e-3"),
    "num_steps": 8,
    "batch_size": 8,
    "initial_batch_size": 4,
    "batch_warmup_steps": 2,
    "accumulation": 2,
    "optimizer": "stable_adamw",
    "schedule": "trapezoidal",
    "decay_steps": 2,
    "clip_norm": 0.0,
    "eval_every": 1,
}


def test_resume_with_changing_batches_and_rates(corpus, tmp_path, monkeypatch):
    """Stops ModernBERT's training while the batch size grows, and again in the last phase.

    An exception after a checkpoint replaces a kill. `kill_runs_test` kills the command.
    """
    uninterrupted = pretrain(config(corpus, tmp_path / "whole", dev_files=(), **MODERN))
    save = RunCheckpoints.save
    stops = {1, 7}

    def save_and_stop(checkpoints, model, state, **options):
        save(checkpoints, model, state, **options)
        if state.step in stops:
            stops.remove(state.step)
            raise Stopped

    monkeypatch.setattr(RunCheckpoints, "save", save_and_stop)
    stopped = config(corpus, tmp_path / "stopped", dev_files=(), **MODERN)
    for _ in range(2):
        with pytest.raises(Stopped):
            pretrain(stopped)
    resumed = pretrain(stopped)
    assert not stops
    assert read_weights(tmp_path / "stopped") == read_weights(tmp_path / "whole")
    for name in ("loss", "learning_rate"):
        expected = [record[name] for record in uninterrupted["log"]]
        assert [record[name] for record in resumed["log"]] == expected
    # The log has the next step's learning rate. In the last two steps, it decays by 1 - √x.
    rates = [record["learning_rate"] for record in uninterrupted["log"]]
    decay = [1 - (number / 2) ** 0.5 for number in (0, 1, 2)]
    expected = [0.01] * 3 + [5e-3 * factor for factor in (1, 1, *decay)]
    np.testing.assert_allclose(rates, expected, atol=1e-9)


def test_resume_rejects_changed_settings(finished_run, corpus):
    with pytest.raises(
        ValueError, match=r"a run with different settings\. Choose another --output_dir"
    ):
        pretrain(config(corpus, finished_run[0], learning_rate=1e-3))


@pytest.mark.backend_independent
@pytest.mark.parametrize("groups", [1, 2])
def test_resume_rejects_changed_file_contents(tmp_path, groups):
    (tmp_path / "train.txt").write_text(make_text(0))
    settings = config(
        tmp_path, tmp_path / "run", dev_files=(), num_shards=groups, file_groups=groups
    )
    source = TextSource.from_config(settings)
    vocabulary = source.vocabulary()
    source.records(16, vocabulary)
    settings_with_files = settings.replace(
        input_files=(),
        records=str(tmp_path / "run" / "records_16"),
        model=str(tmp_path / "model.json"),
        vocabulary=str(vocabulary),
    )
    architecture = named_architecture(settings.encoder.model)
    (tmp_path / "model.json").write_text(json.dumps(architecture.to_dict()))
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    model.optimizer.build(model.trainable_variables)
    checkpoints = RunCheckpoints(tmp_path / "checkpoints")
    restore_run = functools.partial(
        run.restore, model, checkpoints, TextSource.from_config(settings_with_files), ""
    )
    checkpoints.save(model, restore_run())
    assert restore_run().step == 0
    *_, records = sorted(tmp_path.glob("run/records_16/*.tfrecord"))
    for path, flag in ((records, "records"), (tmp_path / "model.json", "model")):
        content = path.read_bytes()
        path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
        with pytest.raises(ValueError, match=f"started from a --{flag} with different files"):
            restore_run()
        path.write_bytes(content)
    # The text changes before the records of the second phase are created.
    (tmp_path / "train.txt").write_text(make_text(0).replace(" .", " ,"))
    with pytest.raises(ValueError, match=r"was created from different inputs \(content\)"):
        pretrain(settings)
    with pytest.raises(ValueError, match="records_16 contains records with different settings"):
        pretrain(settings.replace(vocabulary=str(vocabulary)))


def test_non_finite_loss_stops_the_run(corpus, tmp_path):
    changes = {"learning_rate": 1e30, "clip_norm": 0.0, "warmup_steps": 0}
    exploding = config(corpus, tmp_path, phases=("16:1",), dev_files=(), **changes)
    with pytest.raises(NotFiniteError, match=r"in step [2-5]$"):
        pretrain(exploding)
    assert not list(tmp_path.glob("checkpoints/*"))


@pytest.mark.filterwarnings("ignore::keras_bert.checkpoints.CheckpointWarning")
def test_compute_options_apply_to_the_model(finished_run, corpus, tmp_path):
    changes = {"sequence_format": "full_sentences", "objective": "replaced_token"}
    settings = config(corpus, tmp_path, rematerialize=True, jit="on", **changes)
    tokenizer = open_tokenizer(finished_run[0] / "vocab.txt", settings.text.corpus.lowercase)
    model = build_model(settings, tokenizer)
    encoders = [model.backbone, getattr(model, "generator", model.backbone)]
    assert all(block.rematerialize for encoder in encoders for block in encoder.blocks)
    assert model.jit_compile


def test_dev_text_has_its_own_mask_probability(corpus, tmp_path):
    settings = config(
        corpus,
        tmp_path,
        sequence_format="full_sentences",
        masked_lm_probability=0.3,
        dev_masked_lm_probability=0.1,
    )
    source = TextSource.from_config(settings)
    vocabulary = source.vocabulary()
    tokenizer = open_tokenizer(vocabulary, None)
    batches = Batches(settings.text, settings.task, EncoderOptions(), tokenizer)
    streams = batches.phase_batches(settings.optimization, source.all_records(vocabulary))
    (train, dev), *_ = streams.values()
    for stream, probability in ((train, 0.3), (dev, 0.1)):
        batches = list(stream.first_batches(20))
        masked = sum(batch["mask_weights"].sum() for batch in batches)
        tokens = sum(batch["padding_mask"].sum() for batch in batches)
        assert masked / tokens == pytest.approx(probability, rel=0.2)


@pytest.mark.backend_independent
def test_hidden_dim_scales_the_feed_forward_layers(tmp_path):
    (tmp_path / "model.json").write_text(
        json.dumps(BertConfig(hidden_dim=96, intermediate_dim=144).to_dict())
    )
    tokenizer = make_tokenizer("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a")
    for model, expected in (("bert_base_uncased", 256), (str(tmp_path / "model.json"), 96)):
        settings = EncoderOptions(model=model, hidden_dim=64, num_heads=2)
        assert settings.architecture(tokenizer, 128).intermediate_dim == expected


# The other recipes and tests in this file cover the options of these recipes. The test reduces the
# sizes and rates of all recipes.
COVERED_RECIPES = {
    *("bert_base", "electra_base", "modernbert_cpu"),
    *("wikitext2_cpu", "wikitext2_cpu_more", "wikitext2_distil", "wikitext2_electra"),
}
RECIPES = [
    name
    for name in recipes.names()
    if isinstance(recipes.load(name, object), PretrainConfig) and name not in COVERED_RECIPES
]
VOCABULARY_SIZES = {"wordpiece": 60, "byte_pair": 300, "sentence_piece": 40}


@pytest.mark.parametrize("name", RECIPES)
@pytest.mark.filterwarnings("ignore::keras_bert.checkpoints.CheckpointWarning")
def test_pretraining_recipe_runs(finished_run, corpus, tmp_path, name):
    recipe = recipes.load(name, PretrainConfig)
    tokenizer = named_architecture(recipe.encoder.model).tokenizer
    preset = str(finished_run[0] / "preset")
    optimization = recipe.optimization
    small = {
        **OPTIONS,
        "model": recipe.encoder.model,
        "input_files": ("train.txt",),
        "dev_files": (),
        "data_dir": str(corpus),
        "output_dir": str(tmp_path),
        "vocabulary_size": VOCABULARY_SIZES[tokenizer],
        "vocabulary": "",
        "phases": ("16:1",),
        "batch_size": 8,
        "initial_batch_size": optimization.initial_batch_size and 4,
        "batch_warmup_steps": min(optimization.batch_warmup_steps, 1),
        "decay_steps": optimization.decay_steps and 1,
        "accumulation": min(optimization.accumulation, 2),
        "steps_per_execution": min(recipe.compute.steps_per_execution, 2),
        "num_steps": 2,
        "warmup_steps": 1,
        "eval_every": 2,
        "teacher": recipe.task.teacher and preset,
        "init_preset": recipe.encoder.init_preset and preset,
        "measure_energy": False,
    }
    del small["dev_batches"]
    if recipe.task.teacher:
        del small["vocabulary_size"]
    results = pretrain(recipe.replace(**small))
    assert results["last"]["step"] == 2
    assert ("pair_accuracy" in results["last"]) == recipe.text.rows.next_sentence
    if recipe.task.objective == "distillation":
        assert {"divergence", "cosine_distance", "masked_loss"} <= set(results["last"])
        assert MaskedLM.from_preset(tmp_path / "preset").config.num_layers == 1
    if recipe.task.objective == "replaced_token":
        names = {"masked_loss", "replaced_token_loss", "discriminator_accuracy"}
        assert names <= set(results["last"])
        detector = ReplacedTokenDetector.from_preset(tmp_path / "preset")
        assert len(detector.detect("the cat sat", threshold=0)) == 3
        generator = MaskedLM.from_preset(tmp_path / "preset" / "generator")
        assert generator.config.hidden_dim == 16 * recipe.task.generator_size
    if recipe.task.objective == "masked_lm":
        masked_lm = MaskedLM.from_preset(tmp_path / "preset")
        text_tokenizer = masked_lm.preprocessor.tokenizer
        assert masked_lm.config.tokenizer == text_tokenizer.kind == tokenizer
        assert masked_lm.config.pad_token_id == text_tokenizer.pad_token_id
        assert len(masked_lm.fill(f"the {text_tokenizer.mask_token} sat", top_k=3)) == 3


def test_init_preset_continues_from_a_checkpoint(finished_run, corpus, tmp_path):
    preset = tmp_path / "preset"
    shutil.copytree(finished_run[0] / "preset", preset)
    short = {"phases": ("16:1",), "num_steps": 2, "eval_every": 2, "dev_files": (), "dropout": 0.3}
    run = config(corpus, tmp_path / "run", init_preset=str(preset), **short)
    results = pretrain(run)
    assert results["last"]["loss"] < finished_run[1]["log"][0]["loss"]
    assert (tmp_path / "run" / "vocab.txt").read_bytes() == (
        finished_run[0] / "vocab.txt"
    ).read_bytes()
    architecture = checkpoints.open_checkpoint(tmp_path / "run" / "preset").config
    assert (architecture.dropout, architecture.attention_dropout) == (0.3, 0.3)  # set by the run
    # The run does not resume if the checkpoint has changed.
    assert pretrain(run)["log"] == results["log"]
    for path in preset.glob("*.json"):
        path.write_text(path.read_text() + "\n")
    with pytest.raises(SettingsMismatchError, match="--init_preset with different files"):
        pretrain(run)


def test_init_preset_rejects_a_different_architecture(finished_run, corpus, tmp_path):
    with pytest.raises(
        ValueError, match=r"--num_layers must be 1, as in .* --init_preset=.* Received: 2"
    ):
        pretrain(
            config(
                corpus,
                tmp_path / "run",
                init_preset=str(finished_run[0] / "preset"),
                num_layers=2,
            )
        )
    assert not (tmp_path / "run").exists()


def test_last_interval_has_the_remaining_steps(corpus, tmp_path, monkeypatch):
    """The records have static masks, and the run uses mixed precision."""
    models = []

    def build_model(*arguments):
        models.append(build(*arguments))
        return models[-1]

    build = run.build_model
    monkeypatch.setattr(run, "build_model", build_model)
    short = {"phases": ("16:1",), "eval_every": 4, "steps_per_execution": 4, "dev_files": ()}
    short |= {"static_masks": True, "precision": "mixed_bfloat16"}
    results = pretrain(config(corpus, tmp_path, num_steps=6, **short))
    assert [record["step"] for record in results["log"]] == [4, 6]
    assert "pair_accuracy" in results["last"]
    assert int(models[0].optimizer.iterations) == 6


def test_default_evaluation_interval(corpus, tmp_path, monkeypatch):
    """One validation batch is scored for every four training batches, and at the end.

    The encoder is causal.
    """
    monkeypatch.setattr(model_flops, "peak_flops", lambda dtype: 1.0)
    short = {"phases": ("16:1",), "eval_every": None, "warmup_steps": None, "dev_batches": 1}
    short |= {
        "sequence_format": "full_sentences",
        "causal": True,
        "optimizer": "adamw",
    }
    results = pretrain(config(corpus, tmp_path, num_steps=6, **short))
    evaluated_steps = [record["step"] for record in results["log"] if "val_loss" in record]
    assert len(results["log"]) == 6
    assert "pair_accuracy" not in results["last"]
    assert evaluated_steps == [4, 6]
    # The run is faster than the patched peak, and raises it to its own speed.
    assert 0 < results["total"]["mfu"] <= 1
    assert Optimization(num_steps=600).steps_between_scores(50) == 200
    assert Optimization(num_steps=600, accumulation=8).steps_between_scores(50) == 25
    assert Optimization(num_steps=100_000).steps_between_scores(50) == 1000
    assert Optimization(num_steps=600, eval_every=6).steps_between_scores(50) == 6


@pytest.mark.backend_independent
def test_default_warmup_is_one_percent(tmp_path):
    assert Optimization(num_steps=1500).num_warmup_steps == 15
    assert Optimization().num_warmup_steps == 10_000
    assert Optimization(num_steps=1500, warmup_steps=0).num_warmup_steps == 0


@pytest.mark.backend_independent
def test_default_decay_is_ten_percent():
    trapezoid = Optimization(num_steps=1500, schedule="trapezoidal")
    assert trapezoid.num_decay_steps == 150
    assert trapezoid.replace(warmup_steps=1400).num_decay_steps == 100
    assert trapezoid.replace(decay_steps=0).num_decay_steps == 0


@pytest.mark.backend_independent
def test_phases_set_length_batch_and_rate():
    plan = Optimization(num_steps=1000, warmup_steps=10).plan()
    assert plan == [Phase(128, 0, 900, 256, 1e-4), Phase(512, 900, 100, 256, 1e-4)]
    phases = ("128:0.9", "512:0.1:batch_size=64:learning_rate=3e-5")
    plan = Optimization(num_steps=1000, warmup_steps=10, phases=phases).plan()
    assert plan == [Phase(128, 0, 900, 256, 1e-4), Phase(512, 900, 100, 64, 3e-5)]


@pytest.mark.backend_independent
def test_batch_size_warmup_has_equal_stages():
    """ModernBERT's batch size grows from 768 to 4,608 examples."""
    optimization = Optimization(
        num_steps=1000,
        batch_size=4608,
        initial_batch_size=768,
        batch_warmup_steps=22,
        accumulation=8,
        phases=("1024:0.8", "1024:0.1:learning_rate=1e-5", "8192:0.1:batch_size=576"),
    )
    steps = [(phase.batch_size, phase.first_step, phase.num_steps) for phase in optimization.plan()]
    assert steps == [
        (768, 0, 4),
        (1536, 4, 5),
        (2304, 9, 4),
        (3072, 13, 5),
        (3840, 18, 4),
        (4608, 22, 778),
        (4608, 800, 100),
        (576, 900, 100),
    ]
    assert [optimization.dev_batch_size(length) for length in (1024, 8192)] == [576, 72]
    assert optimization.num_intervals == 80 + 10 + 10 + 5 - 2


@pytest.mark.backend_independent
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"phases": ("128:0.9",)}, "must have fractions that sum to 1"),
        (
            {"phases": ("128:1:batch=4",)},
            "with batch_size and learning_rate, as in .* Received: '128:1:batch=4'",
        ),
        (
            {"phases": ("128:1:batch_size=1.5",)},
            "must be length:fraction.* Received: '128:1:batch_size=1.5'",
        ),
        (
            {"accumulation": 4, "phases": ("128:0.5", "512:0.5:batch_size=6")},
            "multiples of --accumulation, which is 4. Received: 6 .after step 500000",
        ),
        ({"initial_batch_size": 64}, "must be given together. Received: 64 and 0"),
        (
            {"initial_batch_size": 48, "batch_warmup_steps": 64},
            "--initial_batch_size must be a divisor of the first phase's .*, 256. Received: 48",
        ),
        ({"decay_steps": 9}, "--decay_steps=9 is given, but --schedule is not trapezoidal"),
        (
            {"decay": "cosine", "schedule": "trapezoidal"},
            "decay must be one of one_minus_sqrt, linear",
        ),
        ({"num_shards": 2, "file_groups": 4}, "--num_shards must be at least --file_groups"),
        ({"records": "s3://b/r"}, "--records must be a local directory"),
        (
            {"whole_words": True},
            "--whole_words.* --static_masks is not given; .* --masking_unit=word",
        ),
        (
            {"eval_every": 5, "steps_per_execution": 2},
            "must be a multiple of --steps_per_execution",
        ),
        ({"eval_every": 5, "preset_every": 7}, "multiple of --eval_every, which is 5. Received: 7"),
        ({"right_to_left": True}, "--right_to_left=True is given, but --causal is not given"),
        ({"objective": "replaced_token"}, "not support the pair labels"),
        (
            {"teacher": "somewhere"},
            "--teacher must be given if, and only if, --objective is distillation",
        ),
    ],
)
def test_contradictory_options_raise(changes, message):
    with pytest.raises(ValueError, match=message):
        PretrainConfig.from_flags(**changes)


@pytest.mark.backend_independent
def test_next_sentence_rejects_byte_pair_tokenizers(corpus, tmp_path):
    settings = config(corpus, tmp_path, model="roberta_base", vocabulary_size=300)
    with pytest.raises(
        ValueError, match=r"byte_pair tokenizers, because they put 2 separators .* full_sentences"
    ):
        pretrain(settings)


def test_cased_checkpoint_keeps_the_case(corpus, tmp_path):
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "Ann", "서울", "é"]
    tokenizer = make_tokenizer(*tokens, lowercase=False)
    small = BertConfig(
        vocabulary_size=len(tokens), num_layers=1, num_heads=1, hidden_dim=8, intermediate_dim=8
    )
    task = MaskedLM(Backbone(small), TextClassifierPreprocessor(tokenizer, 8))
    task.save_to_preset(tmp_path / "preset")
    preset = str(tmp_path / "preset")
    run = config(corpus, tmp_path / "run", init_preset=preset)
    for _ in range(2):  # The second iteration uses the existing files.
        opened = open_tokenizer(TextSource.from_config(run).vocabulary(), run.text.corpus.lowercase)
        assert opened("Ann 서울 é") == [5, 6, 7]
    lowercase_run = config(corpus, tmp_path / "lowercase", init_preset=preset, lowercase=True)
    assert (
        open_tokenizer(
            TextSource.from_config(lowercase_run).vocabulary(),
            lowercase_run.text.corpus.lowercase,
        ).lowercase
        is True
    )


KOREAN = "\n\n".join(["서울은 한국의 수도이다 .\n부산은 항구 도시이다 ."] * 6) + "\n"


@pytest.mark.backend_independent
def test_vocabulary_of_different_text_raises(corpus, tmp_path):
    (tmp_path / "ko.txt").write_text(KOREAN)
    directory = tmp_path / "run"
    korean = config(corpus, directory).replace(input_files=(str(tmp_path / "ko.txt"),))
    tokenizer = TextSource.from_config(korean).vocabulary()
    assert tokenizer == directory / "tokenizer"
    assert TextSource.from_config(korean).vocabulary() == tokenizer
    english = config(corpus, directory)
    with pytest.raises(
        ValueError, match=rf"{tokenizer} was created from different inputs \(input_files"
    ):
        pretrain(english)


@pytest.mark.backend_independent
def test_vocabulary_with_different_settings_raises(corpus, tmp_path):
    run = config(corpus, tmp_path)
    path = TextSource.from_config(run).vocabulary()
    for name, value in (("vocabulary_size", 61), ("lowercase", False)):
        other = run.replace(**{name: value})
        with pytest.raises(ValueError, match=rf"created from different inputs \({name}\)"):
            TextSource.from_config(other).vocabulary()
    # A flag may repeat the setting inferred from the text, and the text may be missing.
    lower_cased = TextSource.from_config(run.replace(lowercase=True))
    lower_cased.check()
    assert lower_cased.vocabulary() == path
    assert TextSource.from_config(run.replace(data_dir="gone")).vocabulary() == path


@pytest.mark.backend_independent
def test_records_of_a_different_vocabulary_warn(corpus, tmp_path, caplog):
    (tmp_path / "ko.txt").write_text(KOREAN)
    korean = config(corpus, tmp_path / "ko").replace(input_files=(str(tmp_path / "ko.txt"),))
    wrong_vocabulary = config(corpus, tmp_path / "run").replace(
        vocabulary=str(TextSource.from_config(korean).vocabulary())
    )
    TextSource.from_config(wrong_vocabulary).records(16, Path(wrong_vocabulary.text.vocabulary))
    assert "are unknown to the vocabulary" in caplog.text
    caplog.clear()
    settings_with_records = wrong_vocabulary.replace(
        records=str(tmp_path / "run" / "records_{length}")
    )
    TextSource.from_config(settings_with_records).records(
        16, Path(wrong_vocabulary.text.vocabulary)
    )
    assert "are unknown to the vocabulary" in caplog.text
