# SPDX-License-Identifier: Apache-2.0
"""Checks the page, figures and numbers in reports on small random models."""

import json
import re

import keras
import pytest

pytestmark = pytest.mark.on_torch

pytest.importorskip("matplotlib")

import keras_bert  # noqa: E402
from keras_bert import data  # noqa: E402
from tests.checkpoints.small_models import small_config  # noqa: E402
from tests.text.small_tokenizers import make_tokenizer  # noqa: E402
from training.insight import InsightConfig, write_report  # noqa: E402

WORDS = (
    "the film was dull gripping he she mary james actor actress who slept in paris . ? , "
    "doctor nurse warned that him her is a an"
)
TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS.split()]
CONFIG = small_config(vocabulary_size=len(TOKENS), initializer_range=0.5, max_sequence_length=80)


def save_model(path, task_class, *arguments, seed=1, **options):
    """Saves a task with random weights."""
    keras.utils.set_random_seed(seed)
    preprocessor_class = {
        keras_bert.TokenClassifier: data.TokenClassifierPreprocessor,
        keras_bert.QuestionAnswerer: data.QuestionAnswererPreprocessor,
        keras_bert.MultipleChoice: data.MultipleChoicePreprocessor,
    }.get(task_class, data.TextClassifierPreprocessor)
    preprocessor = preprocessor_class(make_tokenizer(*TOKENS), 80)
    task = task_class(keras_bert.Backbone(CONFIG), *arguments, preprocessor=preprocessor, **options)
    task.save(path)
    return str(path)


def make_report(directory, **options):
    """Writes a report, and returns its page and its numbers."""
    path = write_report(InsightConfig(report_dir=str(directory), examples=2, **options))
    assert path == directory / "index.html"
    page = path.read_text(encoding="utf-8")
    # The page loads no other files.
    assert all(url.startswith("data:") for url in re.findall(r'(?:src|href)="([^"]{,20})', page))
    return page, json.loads((directory / "insight.json").read_text(encoding="utf-8"))


def test_report_on_a_classifier(tmp_path):
    lines = [
        "he slept in paris\tgood", "mary was a gripping actress\tbad", "the film was dull\tbad",
        "who warned james that\tgood",
    ]  # fmt: skip
    (tmp_path / "dev.tsv").write_text("\n".join(["text\tlabel", *lines]) + "\n")
    models = [
        save_model(
            tmp_path / f"{seed}.keras", keras_bert.TextClassifier,
            class_names=["bad", "good"], seed=seed,
        )
        for seed in (1, 2)
    ]  # fmt: skip
    cost = {"hours": 0.5, "training_flops": 2e15, "energy_kwh": 0.02, "energy_is": "estimated"}
    cost |= {"co2_kg": 0.006, "country": "FRA", "cost": 0.75}
    (tmp_path / "results.json").write_text(json.dumps({"cost": cost}))
    page, numbers = make_report(
        tmp_path / "report",
        model=models[0],
        compare_with=models[1],
        data_file=str(tmp_path / "dev.tsv"),
        method="gradient_x_input",
    )
    for heading in ("Model", "Attributions", "Attention patterns", "Error rates by slice"):
        assert f"<h2>{heading}</h2>" in page
    assert len(numbers["attributions"]) == 2
    assert numbers["attributions"][0]["convergence_delta"] is None
    assert len(numbers["attention"]["heads"]) == 4
    measured = {(row["metric"], row["group"]): row for row in numbers["counterfactuals"]["rows"]}
    assert measured["change of probability", "gender"]["count"] == 2
    assert measured["change of probability", "names"]["count"] == 2
    directions = {(row["metric"], row["group"]): row for row in numbers["swap_directions"]["rows"]}
    assert directions["change of P(good)", "names: first to second"]["differences"].keys() == {
        "other model"
    }
    errors = {row["group"]: row for row in numbers["error_rates"]["rows"]}
    assert errors["label good"]["count"] == 2
    assert errors["words of names"]["measures"].keys() == {"this model", "other model"}
    assert numbers["left_out"] == []
    assert numbers["cost"] == cost
    assert "Time: 30 min 00 s" in page
    assert "Cost: 2 PFLOP in training, 20 Wh (estimated), 6 g of CO2 (FRA), cost 0.75" in page
    pictures = {path.stem for path in (tmp_path / "report").glob("*.png")}
    assert {"attribution_1", "attention_entropy", "attention_by_layer", "error_rates"} <= pictures


def test_report_on_a_masked_lm(tmp_path):
    (tmp_path / "text.txt").write_text(
        "= Paris =\n\nThe doctor warned the nurse that she slept .\n"
    )
    (tmp_path / "pairs.csv").write_text(
        "sent_more,sent_less,bias_type\nhe is a doctor,she is a doctor,gender\n"
    )
    for side, pronoun in (("pro", "he"), ("anti", "she")):
        (tmp_path / side).write_text(f"1 [The doctor] warned the nurse that [{pronoun}] slept.\n")
    page, numbers = make_report(
        tmp_path / "report",
        model=save_model(tmp_path / "model.keras", keras_bert.MaskedLM),
        data_file=str(tmp_path / "text.txt"),
        crows_pairs=str(tmp_path / "pairs.csv"),
        winobias_pro=str(tmp_path / "pro"),
        winobias_anti=str(tmp_path / "anti"),
        method="gradient_x_input",
    )
    assert "Logit lens" in page
    assert numbers["attributions"][0]["answer"].startswith("masked: ")
    assert numbers["crows_pairs"]["measures"][0]["count"] == 1
    assert numbers["winobias"]["observed"]["sentences"] == [
        "The doctor warned the nurse that he slept."
    ]
    # The vocabulary is too small for the templates.
    assert [reason.partition(":")[0] for reason in numbers["left_out"]] == [
        "StereoSet",
        "Occupations and pronouns",
        "Cost",
    ]


def test_report_on_tagger_and_answerer(tmp_path):
    tagger = save_model(
        tmp_path / "tagger.keras", keras_bert.TokenClassifier, class_names=["O", "B-PER"]
    )
    (tmp_path / "dev.conll").write_text("Mary B-PER\nslept O\nin O\nParis O\n\n")
    page, numbers = make_report(
        tmp_path / "tags", model=tagger, data_file=str(tmp_path / "dev.conll"), method="occlusion"
    )
    assert "not for a TokenClassifier" in page
    assert f"1. {numbers['attributions'][0]['answer']} <span" in page
    assert re.fullmatch(r"(Mary|slept|in|Paris): (O|B-PER)", numbers["attributions"][0]["answer"])
    assert numbers["attributions"][0]["texts"] == ["Mary slept in Paris"]

    answerer = save_model(tmp_path / "answerer.keras", keras_bert.QuestionAnswerer)
    paragraph = {
        "context": "Mary slept in Paris.",
        "qas": [
            {
                "id": "1",
                "question": "Who slept?",
                "answers": [{"text": "Mary", "answer_start": 0}],
            }
        ],
    }
    content = {"version": "1.1", "data": [{"title": "", "paragraphs": [paragraph]}]}
    (tmp_path / "dev.json").write_text(json.dumps(content))
    page, numbers = make_report(
        tmp_path / "answers",
        model=answerer,
        data_file=str(tmp_path / "dev.json"),
        method="occlusion",
    )
    assert "label: Mary; answer:" in page
    assert numbers["attributions"][0]["texts"] == ["Who slept?", "Mary slept in Paris."]


def test_options_for_other_models_raise(tmp_path):
    model = save_model(
        tmp_path / "model.keras", keras_bert.TextClassifier, class_names=["bad", "good"]
    )
    (tmp_path / "dev.tsv").write_text("text\tlabel\na\tgood\n")
    options = {"model": model, "data_file": str(tmp_path / "dev.tsv"), "report_dir": str(tmp_path)}
    for changes, error, message in (
        ({"crows_pairs": "none.csv"}, FileNotFoundError, "none.csv does not exist"),
        ({"crows_pairs": options["data_file"]}, ValueError, "are only for masked LMs"),
        ({"winobias_pro": options["data_file"]}, ValueError, "--winobias_anti, or neither"),
        ({"method": "lime"}, ValueError, "method"),
    ):
        with pytest.raises(error, match=message):
            write_report(InsightConfig(**{**options, **changes}))


def test_too_long_examples_are_left_out(tmp_path):
    classifier = save_model(tmp_path / "classifier.keras", keras_bert.TextClassifier, 2)
    (tmp_path / "long.tsv").write_text(
        "text\tlabel\n" + "".join(f"{'the film ' * 60}\t{label}\n" for label in "01")
    )
    page, numbers = make_report(
        tmp_path / "report", model=classifier, data_file=str(tmp_path / "long.tsv")
    )
    assert "attention" not in numbers
    left_out = " ".join(numbers["left_out"])
    assert "The text must have at most 78 tokens. Received: 120" in left_out
    assert "Attention patterns: all texts are too long for the model." in left_out
    assert "all texts are too long" in page
