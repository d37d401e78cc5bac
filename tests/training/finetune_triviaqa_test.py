# SPDX-License-Identifier: Apache-2.0
"""Fine-tunes on TriviaQA and then on SQuAD at a small scale. SQuAD starts from TriviaQA's head."""

import json

import pytest

pytestmark = pytest.mark.on_torch

import numpy as np  # noqa: E402

import keras_bert  # noqa: E402
from tests.training.finetune_squad_test import (  # noqa: E402, F401
    MINIATURE,
    preset,
    read,
    write_squad,
)
from tests.training.readers.triviaqa_test import make_question, write_files  # noqa: E402
from training import evaluate  # noqa: E402
from training.engine import finetuning, run_presets  # noqa: E402
from training.jobs.question_answering import QuestionJob, SquadConfig, read_data  # noqa: E402
from training.paper import recipes  # noqa: E402

DOCUMENTS = {
    "wikipedia/Ann.txt": "Then and then Ann ran " + "and then " * 20,
    "wikipedia/Bob.txt": "then Bob ran",
    "wikipedia/None.txt": "then and then",
    "web/1.txt": "Ann and Bob",
}


@pytest.fixture
def trivia(tmp_path):
    """The directory of small TriviaQA files."""
    directory = tmp_path / "triviaqa"
    directory.mkdir()
    pages = ["Ann.txt", "Bob.txt", "None.txt"]
    write_files(directory, make_question(1, pages), documents=DOCUMENTS, name="train.json")
    write_files(
        directory, make_question(2, pages), make_question(3, ["None.txt"]), documents=DOCUMENTS
    )
    web = make_question(4, ["Ann.txt"], results=["1.txt"])
    write_files(directory, web, documents=DOCUMENTS, domain="Web", name="web.json")
    return directory / "qa"


def test_squad_starts_from_the_triviaqa_head(trivia, preset, tmp_path):  # noqa: F811
    first = tmp_path / "first"
    config = recipes.load("bert_large_triviaqa", SquadConfig).replace(
        **MINIATURE,
        train_file=str(trivia / "train.json"),
        dev_file=str(trivia / "dev.json"),
        test_file=str(trivia / "web.json"),
        preset=str(preset),
        output_dir=str(first),
        export=False,
    )
    data = read_data(config)
    # Documents without an answer are not used for training, but for predictions.
    assert [example.id for example in data.train] == ["tc_1--Ann.txt"]
    assert [len(part) for part in (data.dev, data.test)] == [4, 2]
    results = finetuning.run(QuestionJob, config, data)
    predictions = read(first / "predictions.json")
    assert predictions.keys() == {"tc_2", "tc_3"}
    n_best = read(first / "nbest_predictions.json")
    logits = {
        name: best[0]["start_logit"] + best[0]["end_logit"]
        for name, best in n_best.items()
        if name.startswith("tc_2")
    }
    best_document = max(logits, key=logits.get)
    assert predictions["tc_2"] == n_best[best_document][0]["text"]
    assert read(first / "test" / "predictions.json").keys() == {"tc_4--Ann.txt", "tc_4--1.txt"}

    model = str(first / "seed_1" / "model.keras")
    scores = {
        name: evaluate.evaluate(
            evaluate.EvaluateConfig(data_file=str(trivia / "dev.json"), **{name: value})
        )
        for name, value in {"model": model, "predictions": str(first / "predictions.json")}.items()
    }
    assert scores["model"] == scores["predictions"] == results["runs"][0]["best"]["dev"]

    for name in ("train-v1.1.json", "dev-v1.1.json"):
        write_squad(tmp_path, name, name[0])
    # --max_document_words may apply to only some of the files.
    read_data(config.replace(test_file=str(tmp_path / "dev-v1.1.json")))
    second = recipes.load("bert_large_triviaqa_squad", SquadConfig).replace(
        **MINIATURE,
        data_dir=str(tmp_path),
        preset=str(first),
    )
    job = QuestionJob(second, read_data(second), run_presets.resolve(second.preset))
    start, triviaqa = job.build(seed=1).model, keras_bert.load_model(model, compile=False)
    for weight, expected in zip(start.get_weights(), triviaqa.get_weights(), strict=True):
        np.testing.assert_array_equal(weight, expected)


def test_run_preset_accepts_directory_seed_or_file(preset, tmp_path):  # noqa: F811
    run = tmp_path / "run"
    (run / "seed_2").mkdir(parents=True)
    model = run / "seed_2" / "model.keras"
    keras_bert.QuestionAnswerer.from_preset(preset).save(model)
    (run / "results.json").write_text(json.dumps({"kept": {"seed": 2, "model": "elsewhere"}}))
    assert {run_presets.find_model(path) for path in (run, run / "seed_2", model)} == {model}
    assert run_presets.find_model(preset) is None
    assert run_presets.find_model(tmp_path / "none") is None
    assert run_presets.resolve(str(preset)) == str(preset)
    directory = run_presets.resolve(str(run))
    assert directory == run_presets.resolve(str(model))  # The preset is created once.
    assert directory.endswith("run/seed_2")
    model.write_bytes(b"")
    with pytest.raises(ValueError, match=r"must be a `\.keras` archive"):
        run_presets.resolve(str(model.rename(run / "other.keras")))
