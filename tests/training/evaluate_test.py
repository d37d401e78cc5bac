# SPDX-License-Identifier: Apache-2.0

import dataclasses
import json

import numpy as np
import pytest

pytestmark = pytest.mark.on_torch

import keras_bert  # noqa: E402
from keras_bert.data import (  # noqa: E402
    QuestionAnswererPreprocessor,
    TokenClassifierPreprocessor,
)
from tests.checkpoints.small_models import small_config  # noqa: E402
from training.evaluate import EvaluateConfig, evaluate  # noqa: E402
from training.scores.classifier_scores import calibration_bins  # noqa: E402

SMALL = small_config(vocabulary_size=8, num_layers=1, max_sequence_length=16)
REVIEWS = "text\tlabel\na\tgood\nb\tbad\nc\tgood\nd\tgood\n"
PREDICTIONS = [("good", 0.9), ("bad", 0.8), ("bad", 0.6), ("good", 0.7)]


@pytest.fixture
def reviews(tmp_path):
    path = tmp_path / "reviews.tsv"
    path.write_text(REVIEWS)
    return str(path)


def write_predictions(path, rows):
    if path.suffix == ".tsv":
        lines = ["label\tscore", *(f"{label}\t{score}" for label, score in rows)]
    else:
        lines = [json.dumps({"label": label, "score": score}) for label, score in rows]
    path.write_text("\n".join(lines) + "\n")
    return str(path)


def test_text_predictions_are_scored_and_plotted(reviews, tmp_path):
    answers = write_predictions(tmp_path / "predictions.tsv", PREDICTIONS)
    plots = tmp_path / "plots"
    config = EvaluateConfig(data_file=reviews, predictions=answers, plots_dir=str(plots))
    assert evaluate(config)["accuracy"] == 75.0
    for picture in ("confusion.png", "calibration.png"):
        assert (plots / picture).stat().st_size > 1000


def test_label_map_applies_to_labels_and_predictions(tmp_path):
    data, answers = tmp_path / "hans.tsv", tmp_path / "answers.jsonl"
    data.write_text("text\tlabel\na\tentailment\nb\tnon-entailment\nc\tnon-entailment\n")
    write_predictions(answers, [("entailment", 1), ("neutral", 0.5), ("contradiction", 0.5)])
    config = EvaluateConfig(data_file=str(data), predictions=str(answers))
    with pytest.raises(ValueError, match=r"label must be one of .* Received: 'neutral'"):
        evaluate(config)
    label_map = ("neutral:non-entailment", "contradiction:non-entailment")
    for class_names in ((), ("contradiction", "entailment", "neutral")):
        mapped = dataclasses.replace(config, label_map=label_map, class_names=class_names)
        assert evaluate(mapped)["accuracy"] == 100
    # The model predicts three classes, and `label_map` maps them to two.
    tokenizer = keras_bert.WordPieceTokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", *"abc?"])
    classifier = keras_bert.TextClassifier(
        keras_bert.Backbone(SMALL),
        preprocessor=keras_bert.data.TextClassifierPreprocessor(tokenizer, 16),
        class_names=["contradiction", "entailment", "neutral"],
    )
    classifier.save(tmp_path / "model.keras")
    is_entailment = [row["label"] == "entailment" for row in classifier.classify(["a", "b", "c"])]
    right = sum(a == b for a, b in zip(is_entailment, (True, False, False), strict=True))
    mapped = dataclasses.replace(mapped, predictions="", model=str(tmp_path / "model.keras"))
    with pytest.raises(
        ValueError, match=r"--class_names=contradiction.* --model has its own class"
    ):
        evaluate(mapped)
    scores = evaluate(dataclasses.replace(mapped, class_names=()))
    assert scores["accuracy"] == pytest.approx(100 * right / 3)


@pytest.mark.parametrize("has_ids", [True, False])
def test_skip_labels_also_omits_predictions(has_ids, tmp_path):
    labels = ["x", "-", "y"]
    rows = [{"id": n, "text": "a", "label": label} for n, label in enumerate(labels)]
    answers = [{"id": n, "label": label} for n, label in enumerate("xyy")]
    (tmp_path / "dev.jsonl").write_text("\n".join(map(json.dumps, rows)))
    config = EvaluateConfig(
        data_file=str(tmp_path / "dev.jsonl"),
        predictions=str(tmp_path / "answers.jsonl"),
        skip_labels=("-",),
    )
    for predicted in (answers, answers[::2], answers[::-1] if has_ids else answers):
        lines = [row if has_ids else {"label": row["label"]} for row in predicted]
        (tmp_path / "answers.jsonl").write_text("\n".join(map(json.dumps, lines)))
        assert evaluate(config)["accuracy"] == 100


def test_predictions_of_another_file_raise(reviews, tmp_path):
    answers = write_predictions(tmp_path / "predictions.tsv", PREDICTIONS[:3])
    with pytest.raises(ValueError, match=r"predictions\.tsv must have .* the 4 rows .*: 3 predic"):
        evaluate(EvaluateConfig(data_file=reviews, predictions=answers))
    (tmp_path / "answers.csv").write_text("id,class\n1,good\n")
    with pytest.raises(ValueError, match=r"answers\.csv, line 2: the fields must include label"):
        evaluate(EvaluateConfig(data_file=reviews, predictions=str(tmp_path / "answers.csv")))
    answers = write_predictions(tmp_path / "predictions.tsv", [("great", 1.0), *PREDICTIONS[1:]])
    with pytest.raises(ValueError, match=r"one of \['bad', 'good'\]\. Received: 'great'"):
        evaluate(EvaluateConfig(data_file=reviews, predictions=answers))


def test_predictions_are_matched_by_id(tmp_path):
    """All predictions are correct, but in a different order from the labels."""
    labels = {"a": 0, "b": 1, "7": 2}
    data = [{"id": id, "label": label, "text": "t"} for id, label in labels.items()]
    answers = [{"id": id, "label": labels[str(id)], "score": 1} for id in ("b", 7, "a")]
    config = EvaluateConfig(
        data_file=str(tmp_path / "dev.jsonl"),
        predictions=str(tmp_path / "answers.jsonl"),
        kind="text",
    )

    def accuracy(data, answers):
        for path, rows in ((config.data_file, data), (config.predictions, answers)):
            with open(path, "w", encoding="utf-8") as file:
                file.writelines(json.dumps(row) + "\n" for row in rows)
        return evaluate(config)["accuracy"]

    def remove_ids(rows):
        return [{name: value for name, value in row.items() if name != "id"} for row in rows]

    assert accuracy(data, answers) == 100
    assert accuracy(remove_ids(data), answers) == pytest.approx(0)
    assert accuracy(data, remove_ids(answers)) == pytest.approx(0)
    same_ids = [{**row, "id": "a"} for row in data]
    assert accuracy(same_ids, [{**row, "id": "a"} for row in answers]) == pytest.approx(0)
    for invalid_data, invalid_answers, message in [
        (
            data,
            [*answers[:2], {**answers[2], "id": "c"}],
            "1 other ids, such as 'c', but no .* 'a'",
        ),
        (
            data,
            [*answers[:2], {**answers[2], "id": 7}],
            "unique. Received: '7' in line 2 and line 3",
        ),
        (data, [*answers[:2], {**answers[2], "id": None}], "line 3: each row must have an id"),
        (same_ids, answers, "unique. Received: 'a' in row 1 and row 2"),
    ]:
        with pytest.raises(ValueError, match=message):
            accuracy(invalid_data, invalid_answers)


ROWS = {
    "text": "text\tlabel\na\tx\nb\ty\n",
    "regression": "text\tlabel\na\t1\nb\t2\n",
    "tagging": "a B-P\nb O\n",
    "multiple_choice": '{"text": "a", "choices": ["b", "c"], "label": 0}\n',
    "squad": json.dumps(
        {"data": [{"paragraphs": [{"context": "b", "qas": [
            {"id": "1", "question": "a", "answers": [{"text": "b", "answer_start": 0}]}
        ]}]}]}
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "answers", "message"),
    [
        ("text", '{"label": "x", "score": "high"}', "line 1: score must be a finite"),
        ("regression", '{"score": 1}\n{"score": 1e999}', "line 2: score must be a finite"),
        ("tagging", '{"answers": null}', "line 1: answers must not be null"),
        (
            "tagging",
            '{"answers": [{"word": "a", "label": "X"}, {"word": "b", "label": "O"}]}',
            "must predict span labels",
        ),
        ("multiple_choice", '{"choice": true}', "line 1: choice must be an integer from 0"),
        ("squad", '{"id": "1", "answer": 3}', "line 1: answer must be a string"),
    ],
)
def test_invalid_predictions_raise(kind, answers, message, tmp_path):
    suffix = {"tagging": "conll", "multiple_choice": "jsonl", "squad": "json"}.get(kind, "tsv")
    data, path = tmp_path / f"dev.{suffix}", tmp_path / "answers.jsonl"
    data.write_text(ROWS[kind])
    path.write_text(answers + "\n")
    config = EvaluateConfig(
        data_file=str(data),
        predictions=str(path),
        kind=kind.replace("regression", "text"),
        regression=kind == "regression",
    )
    with pytest.raises(ValueError, match=rf"answers\.jsonl.*{message}"):
        evaluate(config)


def test_plots_include_a_page_of_answers(tmp_path):
    question = {"id": "1", "question": "a?", "answers": [{"text": "b", "answer_start": 2}]}
    data = {"data": [{"paragraphs": [{"context": "a b c", "qas": [question]}]}]}
    (tmp_path / "dev.json").write_text(json.dumps(data))
    tokenizer = keras_bert.WordPieceTokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", *"abc?"])
    preprocessor = QuestionAnswererPreprocessor(tokenizer, 16, 8, 4)
    task = keras_bert.QuestionAnswerer(keras_bert.Backbone(SMALL), preprocessor)
    task.save(tmp_path / "model.keras")
    config = EvaluateConfig(
        data_file=str(tmp_path / "dev.json"),
        model=str(tmp_path / "model.keras"),
        plots_dir=str(tmp_path / "plots"),
    )
    evaluate(config)
    assert "<mark" in (tmp_path / "plots" / "spans.html").read_text()


def test_tagging_predictions_are_scored(tmp_path):
    (tmp_path / "dev.conll").write_text("Ann B-PER\nin O\nParis B-LOC\n")
    (tmp_path / "answers.conll").write_text("Ann B-PER\nin O\nParis O\n")
    config = EvaluateConfig(
        data_file=str(tmp_path / "dev.conll"), predictions=str(tmp_path / "answers.conll")
    )
    scores = evaluate(config)
    assert scores["precision"] == 100.0
    assert scores["recall"] == 50.0
    for text in ("Ann (PER)\nin *\nParis (LOC)\n", "Ann PER\nin O\nParis LOC\n"):
        (tmp_path / "dev.conll").write_text(text)
        assert evaluate(config) == scores
    (tmp_path / "answers.conll").write_text("Ann O\nin O\nParis O\n")
    assert evaluate(config)["f1"] == 0.0
    (tmp_path / "answers.conll").write_text("Ann B-PER\n")
    with pytest.raises(ValueError, match="must have the same words"):
        evaluate(config)


def test_tagger_scheme_is_inferred_from_its_labels(tmp_path):
    """The tagger predicts the same label for every word. Its class names follow IOB2."""
    tokenizer = keras_bert.WordPieceTokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "a"])
    preprocessor = TokenClassifierPreprocessor(tokenizer, 16)
    backbone = keras_bert.Backbone(SMALL)
    names = ["O", "B-PER"]
    tagger = keras_bert.TokenClassifier(backbone, preprocessor=preprocessor, class_names=names)
    head = tagger.layers[-1]
    for variable in head.trainable_variables:
        variable.assign(np.eye(2)[1] if variable.shape == (2,) else np.zeros(variable.shape))
    tagger.save(tmp_path / "model.keras")
    (tmp_path / "dev.conll").write_text("a I-PER\na O\n\na I-PER\na O\n")
    config = EvaluateConfig(
        data_file=str(tmp_path / "dev.conll"), model=str(tmp_path / "model.keras")
    )
    assert evaluate(config)["accuracy"] == 50.0


def test_missing_model_or_kind_raises(reviews, tmp_path):
    with pytest.raises(ValueError, match="pass either --model or --predictions"):
        evaluate(EvaluateConfig(data_file=reviews))
    with pytest.raises(FileNotFoundError, match="none, which does not exist"):
        evaluate(EvaluateConfig(data_file=reviews, model=str(tmp_path / "none")))
    (tmp_path / "test.annotated").write_text("Ann sang\n")
    with pytest.raises(
        ValueError, match=r"the task of .* must be clear .* Pass --kind, or --format"
    ):
        evaluate(EvaluateConfig(data_file=str(tmp_path / "test.annotated"), predictions=reviews))


def test_kind_is_inferred_from_the_model(tmp_path):
    tokenizer = keras_bert.WordPieceTokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", *"abc?"])
    preprocessor = keras_bert.data.MultipleChoicePreprocessor(tokenizer, 16)
    task = keras_bert.MultipleChoice(keras_bert.Backbone(SMALL), preprocessor)
    (tmp_path / "run" / "seed_1").mkdir(parents=True)
    model = tmp_path / "run" / "seed_1" / "model.keras"
    task.save(model)
    rows = [{"text": "a", "choices": ["b", "c"], "label": 0}]
    (tmp_path / "dev.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    config = EvaluateConfig(data_file=str(tmp_path / "dev.jsonl"), model=str(model))
    right = task.choose([("a", ["b", "c"])])[0][0]["choice"] == 0
    assert evaluate(config) == {"accuracy": 100.0 * right}
    with pytest.raises(ValueError, match=r"is a MultipleChoice, so --kind must be multiple_choice"):
        evaluate(dataclasses.replace(config, kind="text"))

    classifier = keras_bert.TextClassifier(
        keras_bert.Backbone(SMALL),
        2,
        keras_bert.data.TextClassifierPreprocessor(tokenizer, 16),
    )
    classifier.save(model)
    (model.parents[1] / "results.json").write_text('{"pairs": true}')
    (tmp_path / "dev.csv").write_text("text,label\na b,0\nc,1\n")
    with pytest.raises(
        ValueError, match=r"--text_pair must be the column .* trained on text pairs"
    ):
        evaluate(dataclasses.replace(config, data_file=str(tmp_path / "dev.csv")))
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "saved_model.pb").touch()
    with pytest.raises(ValueError, match=r"must be the \.keras file.* is an exported SavedModel"):
        evaluate(dataclasses.replace(config, model=str(tmp_path / "1")))


def test_output_of_predict_is_scored(tmp_path):
    (tmp_path / "dev.conll").write_text("Ann B-PER\nsang O\n\nhere O\n")
    rows = [[("Ann", "B-PER"), ("sang", "B-PER")], [("here", "O")]]
    lines = [{"answers": [{"word": word, "label": label} for word, label in row]} for row in rows]
    answers = tmp_path / "answers.jsonl"
    answers.write_text("".join(json.dumps(line) + "\n" for line in lines))
    config = EvaluateConfig(data_file=str(tmp_path / "dev.conll"), predictions=str(answers))
    assert evaluate(config)["accuracy"] == pytest.approx(100 * 2 / 3)

    question = {"id": "1", "question": "Who?", "answers": [{"text": "Goethe", "answer_start": 3}]}
    data = {"data": [{"paragraphs": [{"context": "By Goethe.", "qas": [question]}]}]}
    (tmp_path / "dev.json").write_text(json.dumps(data))
    answers.write_text('{"id": "1", "answer": "Goethe", "start": 3, "end": 9, "score": 0.5}\n')
    config = EvaluateConfig(data_file=str(tmp_path / "dev.json"), predictions=str(answers))
    assert evaluate(config)["exact_match"] == 100.0
    answers.write_text('{"id": 1, "answer": "a"}\n{"id": "1", "answer": "b"}\n')
    with pytest.raises(ValueError, match=r"unique. Received: '1' in line 1 and line 2"):
        evaluate(config)
    answers.write_text('{"id": "1"}\n')
    with pytest.raises(ValueError, match=r"line 1: the fields must include answer"):
        evaluate(config)


def test_calibration_averages_bins():
    confidence, accuracy, fraction = calibration_bins([True, False, True], [0.91, 0.97, 1.0])
    assert confidence.tolist() == pytest.approx([0.96])
    assert accuracy.tolist() == pytest.approx([2 / 3])
    assert fraction.tolist() == [1.0]


def evaluate_with_report(config, tmp_path):
    """Evaluates with a report, and returns the scores and the HTML."""
    directory = tmp_path / "report"
    scores = evaluate(dataclasses.replace(config, report_dir=str(directory)))
    assert json.loads((directory / "scores.json").read_text()) == scores
    return scores, (directory / "report.html").read_text(encoding="utf-8")


def test_classification_report_lists_mistakes(tmp_path):
    texts = [f"<text {index}> {'long ' * index}" for index in range(8)]
    labels = ["good", "bad"] * 4
    lines = [f"{text}\t{label}" for text, label in zip(texts, labels, strict=True)]
    (tmp_path / "dev.tsv").write_text("\n".join(["text\tlabel", *lines]) + "\n")
    rows = [("good", 0.9), ("good", 0.7), *[(label, 0.6) for label in labels[2:7]], ("good", 0.8)]
    config = EvaluateConfig(
        data_file=str(tmp_path / "dev.tsv"),
        predictions=write_predictions(tmp_path / "predictions.tsv", rows),
    )
    scores, page = evaluate_with_report(config, tmp_path)
    assert scores["accuracy"] == 75.0
    assert "Mistakes: 2 of 8 rows" in page
    # Mistakes are sorted by confidence, and the text is escaped.
    assert 0 < page.index("&lt;text 7&gt;") < page.index("&lt;text 1&gt;")
    assert "&lt;text 2&gt;" not in page
    assert page.count("data:image/svg+xml") == 2
    # The most frequent class is correct for half of the rows.
    assert '<td>the most frequent class</td><td class="number">50.00</td>' in page
    # Each length quartile has two rows, one correct and one wrong. This is Wilson's interval.
    assert '<td class="number">50.00</td><td>9.45 to 90.55</td>' in page


def test_regression_report_sorts_errors(tmp_path):
    (tmp_path / "dev.tsv").write_text("text\tlabel\na\t1\nbb\t2\nccc\t3\ndddd\t4.5\n")
    (tmp_path / "predictions.tsv").write_text("score\n1.5\n2\n1\n4\n")
    config = EvaluateConfig(
        data_file=str(tmp_path / "dev.tsv"),
        predictions=str(tmp_path / "predictions.tsv"),
        regression=True,
    )
    _, page = evaluate_with_report(config, tmp_path)
    largest = page[page.index("Largest errors") :]
    assert largest.index("<td>ccc</td>") < largest.index("<td>a</td>")
    assert "the mean of the labels" in page


def test_question_report_lists_mistakes(tmp_path):
    def question(number, text, *answers):
        golds = [{"text": answer, "answer_start": 3} for answer in answers]
        return {"id": number, "question": text, "answers": golds, "is_impossible": not golds}

    context = "By Goethe, not by Schiller."
    questions = [question("1", "Who wrote it?", "Goethe"), question("2", "Which year?")]
    data = {"version": "2.0", "data": [{"paragraphs": [{"context": context, "qas": questions}]}]}
    (tmp_path / "dev.json").write_text(json.dumps(data))
    (tmp_path / "predictions.json").write_text(json.dumps({"1": "Schiller", "2": ""}))
    config = EvaluateConfig(
        data_file=str(tmp_path / "dev.json"), predictions=str(tmp_path / "predictions.json")
    )
    scores, page = evaluate_with_report(config, tmp_path)
    assert scores["exact"] == 50.0
    assert "Mistakes: 1 of 2 rows" in page
    assert '<mark class="gold">Goethe</mark>' in page
    assert '<mark class="answer">Schiller</mark>' in page
    assert "Which year?" not in page
    assert "<td>unanswerable</td>" in page


def test_question_report_uses_the_null_threshold(tmp_path):
    def question(number, *answers):
        golds = [{"text": answer, "answer_start": 3} for answer in answers]
        return {"id": number, "question": "Who?", "answers": golds, "is_impossible": not golds}

    questions = [question("1", "Goethe"), question("2")]
    paragraphs = [{"context": "By Goethe, not by Schiller.", "qas": questions}]
    data = {"version": "2.0", "data": [{"paragraphs": paragraphs}]}
    (tmp_path / "dev.json").write_text(json.dumps(data))
    answers = tmp_path / "predictions.json"
    answers.write_text(json.dumps({"1": "Goethe", "2": "Schiller"}))
    (tmp_path / "null_odds.json").write_text(json.dumps({"1": -3.0, "2": 2.0}))
    config = EvaluateConfig(
        data_file=str(tmp_path / "dev.json"),
        predictions=str(answers),
        null_odds=str(tmp_path / "null_odds.json"),
    )
    scores, page = evaluate_with_report(config, tmp_path)
    assert scores["exact"] == 100.0
    assert "Mistakes: 0 of 2 rows" in page
    # A higher threshold keeps the wrong answer.
    scores, page = evaluate_with_report(dataclasses.replace(config, null_threshold=5.0), tmp_path)
    assert scores["exact"] == 50.0
    assert "Mistakes: 1 of 2 rows" in page


def test_tagging_report_lists_confusions(tmp_path):
    (tmp_path / "dev.conll").write_text("Ann B-PER\nin O\nParis B-LOC\n\nBob B-PER\n")
    (tmp_path / "answers.conll").write_text("Ann B-PER\nin O\nParis B-PER\n\nBob B-PER\n")
    config = EvaluateConfig(
        data_file=str(tmp_path / "dev.conll"), predictions=str(tmp_path / "answers.conll")
    )
    _, page = evaluate_with_report(config, tmp_path)
    assert '<mark class="wrong">Paris</mark>' in page
    assert "Mistakes: 1 of 2 sentences" in page
    assert "Bob" not in page
    confused = '<td>B-LOC</td><td>B-PER</td><td class="number">1</td><td>Paris</td>'
    assert confused in page


def test_multiple_choice_report_lists_mistakes(tmp_path):
    rows = [
        {"text": text, "choices": ["left", "right"], "label": label}
        for text, label in zip("abcd", (0, 1, 0, 1), strict=True)
    ]
    (tmp_path / "dev.jsonl").write_text("\n".join(map(json.dumps, rows)))
    choices = [{"choice": 0, "score": score} for score in (0.9, 0.6, 0.8, 0.7)]
    # The last two have the format of `predict`, sorted by score.
    answers = [*choices[:2], *({"answers": [choice, {"choice": 1}]} for choice in choices[2:])]
    (tmp_path / "answers.jsonl").write_text("\n".join(map(json.dumps, answers)))
    config = EvaluateConfig(
        data_file=str(tmp_path / "dev.jsonl"),
        kind="multiple_choice",
        predictions=str(tmp_path / "answers.jsonl"),
    )
    scores, page = evaluate_with_report(config, tmp_path)
    assert scores == {"accuracy": 50.0}
    mistakes = page[page.index("Mistakes: 2 of 4 rows") :]
    row = '<td>right</td><td>left</td><td class="number">0.70</td>'
    assert row in mistakes
    assert mistakes.index("0.70") < mistakes.index("0.60")
