# SPDX-License-Identifier: Apache-2.0
"""Fine-tunes on question answering at a small scale, from files to an exported model."""

import json

import keras
import pytest

pytestmark = pytest.mark.on_torch

from keras_bert import Backbone, QuestionAnswerer  # noqa: E402
from keras_bert.data import QuestionAnswererPreprocessor, read_squad  # noqa: E402
from keras_bert.data.questions import question_rows  # noqa: E402
from tests.checkpoints.small_models import small_config  # noqa: E402
from tests.text.small_tokenizers import make_tokenizer  # noqa: E402
from training.engine import finetuning  # noqa: E402
from training.engine.output_directory import is_own  # noqa: E402
from training.jobs.question_answering import QuestionJob, SquadConfig, read_data  # noqa: E402
from training.paper import recipes  # noqa: E402
from training.readers.data_inspection import count_rows  # noqa: E402
from training.scores import question_scores, squad_scores  # noqa: E402

TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "who", "?", "ann", "bob", "ran", "and", "then"]


@pytest.fixture
def preset(tmp_path):
    config = small_config(vocabulary_size=len(TOKENS), num_layers=1, max_sequence_length=16)
    preprocessor = QuestionAnswererPreprocessor(make_tokenizer(*TOKENS), 16, 4, 4)
    QuestionAnswerer(Backbone(config), preprocessor).save_to_preset(tmp_path / "preset")
    return tmp_path / "preset"


def article(title, is_version_2, bad=False):
    paragraphs = []
    for number in range(4):
        context = "then and " * number + "Ann ran and then " * 2 + "Bob ran"
        question = {
            "id": f"{title}{number}",
            "question": "who ran?",
            "answers": [{"text": "Bob", "answer_start": context.index("Bob") + bad}],
        }
        if is_version_2:
            question["is_impossible"] = number == 3
            question["answers"] = question["answers"] * (number < 3)
        paragraphs.append({"context": context, "qas": [question]})
        bad = False
    return {"title": title, "paragraphs": paragraphs}


def write_squad(directory, name, *titles, is_version_2=False, **changes):
    articles = [article(title, is_version_2, **changes) for title in titles]
    (directory / name).write_text(json.dumps({"data": articles}))


# With these values, a run takes seconds.
MINIATURE = {
    "epochs": 1,
    "batch_size": 4,
    "sequence_length": 16,
    "doc_stride": 4,
    "max_query_length": 4,
    "n_best": 5,
    "precision": "float32",
}


def run(recipe, directory, preset, **changes):
    config = recipes.load(recipe, SquadConfig).replace(
        **MINIATURE,
        data_dir=str(directory),
        preset=str(preset),
        output_dir=str(directory / "run"),
        **changes,
    )
    return finetuning.run(QuestionJob, config, read_data(config))


def num_windows(model, directory):
    train = read_squad(directory / "train-v2.0.json").examples
    return len(question_rows(train, model.preprocessor))


def read(path):
    return json.loads(path.read_text())


@pytest.mark.needs_tensorflow
@pytest.mark.on_tensorflow
def test_squad_v2_run_writes_predictions_and_export(preset, tmp_path):
    write_squad(tmp_path, "train-v2.0.json", "t", is_version_2=True)
    write_squad(tmp_path, "dev-v2.0.json", "d", "e", is_version_2=True)
    write_squad(tmp_path, "test.json", "x")
    results = run("squad_v2", tmp_path, preset, test_file="test.json", accumulation=2)
    directory = tmp_path / "run"
    assert all(is_own(path.name, "finetune") for path in directory.iterdir())

    predictions = read(directory / "predictions.json")
    odds, n_best = read(directory / "null_odds.json"), read(directory / "nbest_predictions.json")
    assert predictions == read(directory / "seed_1" / "predictions.json")
    assert predictions.keys() == odds.keys() == n_best.keys()
    assert len(predictions) == 8
    for name, answers in n_best.items():
        best = next(answer["text"] for answer in answers if answer["text"])
        assert predictions[name] in (best, "")
        assert sum(answer["probability"] for answer in answers) == pytest.approx(1)
    golds = question_scores.read_gold(str(tmp_path / "dev-v2.0.json"))
    official = squad_scores.score_squad_v2(golds.questions, predictions)
    scores = results["summary"]["dev"]
    assert set(scores) == set(results["baselines"]["dev"]["no_answer"])
    assert {name: official[name] for name in scores} == {
        name: pytest.approx(score["seeds"][0]) for name, score in scores.items()
    }
    # The predictions use the model's threshold.
    model = keras.models.load_model(directory / "seed_1" / "model.keras")
    # Each optimizer step reads four training windows.
    assert int(model.optimizer.iterations) == -(-num_windows(model, tmp_path) // 4)
    assert all((odds[name] > model.null_threshold) == (not predictions[name]) for name in odds)
    # According to the official scorer, no threshold would have scored better.
    best_texts = {
        name: next(answer["text"] for answer in answers if answer["text"])
        for name, answers in n_best.items()
    }
    best = squad_scores.score_squad_v2(golds.questions, best_texts, odds)["best_f1"]
    assert official["f1"] >= best - 1e-6

    assert len(read(directory / "test" / "predictions.json")) == 4
    assert (directory / "export" / "1" / "saved_model.pb").exists()


def test_squad_v1_run_writes_predictions(preset, tmp_path):
    for name in ("train-v1.1.json", "squadshifts-new_wiki-v1.0.json"):
        write_squad(tmp_path, name, "t")
    write_squad(tmp_path, "dev-v1.1.json", "d")
    results = run("minilm_squad_v1", tmp_path, preset, num_seeds=2, export=False)
    assert len(results["summary"]["dev"]["f1"]["seeds"]) == 2
    directory = tmp_path / "run"
    golds = question_scores.read_gold(str(tmp_path / "dev-v1.1.json"))
    for result in results["runs"]:
        predictions = read(directory / f"seed_{result['seed']}" / "predictions.json")
        assert all(predictions.values())
        assert result["best"]["dev"] == squad_scores.score_squad_v1(golds.questions, predictions)
    assert not (directory / "null_odds.json").exists()
    assert not (directory / "export").exists()


def test_train_articles_splits_by_title(tmp_path):
    write_squad(tmp_path, "dev-v2.0-rebuilt.json", "b", "c", "a", is_version_2=True)
    config = recipes.load("minilm_squad_v2", SquadConfig).replace(
        data_dir=str(tmp_path), train_articles=2
    )
    data = read_data(config)
    assert {example.title for example in data.train} == {"a", "b"}
    assert {example.title for example in data.dev} == {"c"}
    assert {name: count_rows(part) for name, part in data.parts().items()} == {
        "train": {"questions": 8, "passages": 4, "answerable": 6, "unanswerable": 2},
        "dev": {"questions": 4, "passages": 4, "answerable": 3, "unanswerable": 1},
    }
    assert len(read_data(config.replace(max_questions=3)).train) == 3
    with pytest.raises(ValueError, match="less than the 3 articles"):
        read_data(config.replace(train_articles=3))


def test_invalid_questions_raise_or_are_skipped(tmp_path):
    write_squad(tmp_path, "train.json", "t", bad=True)
    write_squad(tmp_path, "dev.json", "d")
    config = SquadConfig(data_dir=str(tmp_path), train_file="train.json", dev_file="dev.json")
    with pytest.raises(ValueError, match=r"article 1 \('t'\), paragraph 1, .*'t0'.*contain 'Bob'"):
        read_data(config)
    data = read_data(config.replace(skip_invalid=True))
    assert (len(data.train), len(data.skipped)) == (3, 1)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"train_file": "t.json"}, "either --dev_file or --train_articles"),
        ({"unanswerable": "maybe"}, "--unanswerable must be one of .*. Received: 'maybe'"),
    ],
)
def test_invalid_input_raises_before_training(changes, message):
    with pytest.raises((ValueError, OSError), match=message):
        read_data(SquadConfig(**changes))


def test_unanswerable_no_rejects_empty_answers(tmp_path):
    write_squad(tmp_path, "v2.json", "t", is_version_2=True)
    config = SquadConfig(
        data_dir=str(tmp_path), train_file="v2.json", dev_file="v2.json", unanswerable="no"
    )
    with pytest.raises(ValueError, match=r"question must have an answer\. Received: 't3'"):
        read_data(config)
