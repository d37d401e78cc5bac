# SPDX-License-Identifier: Apache-2.0

import json
import warnings

import pytest

pytestmark = [pytest.mark.needs_tensorflow, pytest.mark.backend_independent]

pytest.importorskip("tensorflow")

import keras_bert  # noqa: E402
from keras_bert.data import TextClassifierPreprocessor  # noqa: E402
from training.predict import PredictConfig, RowError, load_predictor, predict, read_rows  # noqa: E402

LETTERS = "abcdefghijklmnopqrstuvwxyz"
TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *LETTERS, *(f"##{c}" for c in LETTERS)]
CONFIG = keras_bert.BertConfig(
    vocabulary_size=len(TOKENS),
    num_layers=1,
    num_heads=2,
    hidden_dim=8,
    intermediate_dim=16,
    max_sequence_length=32,
)


@pytest.fixture(scope="module")
def classifier():
    tokenizer = keras_bert.WordPieceTokenizer(TOKENS)
    preprocessor = TextClassifierPreprocessor(tokenizer, sequence_length=32)
    backbone = keras_bert.Backbone(CONFIG)
    return keras_bert.TextClassifier(
        backbone, preprocessor=preprocessor, class_names=["bad", "good"]
    )


@pytest.fixture(scope="module")
def models(classifier, tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    classifier.save(folder / "model.keras")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        classifier.export(folder / "export", warm_up=False)
    return {"saved": str(folder / "model.keras"), "exported": str(folder / "export")}


@pytest.mark.parametrize("kind", ["saved", "exported"])
def test_a_line_for_each_line(models, kind, classifier, tmp_path):
    texts = ["a fine film", "", "naïve é"]
    source, target = tmp_path / "in.txt", tmp_path / "out.jsonl"
    source.write_text("\n".join(texts) + "\n", encoding="utf-8")
    config = PredictConfig(model=models[kind], input=str(source), output=str(target), batch_size=2)
    assert predict(config) == 3
    answers = [json.loads(line) for line in target.read_text().splitlines()]
    for answer, expected in zip(answers, classifier.classify(texts), strict=True):
        assert answer["label"] == expected["label"]
        assert answer["score"] == pytest.approx(expected["score"], abs=1e-4)


def test_pairs_and_ids(models, tmp_path, classifier):
    source, target = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    rows = [{"id": 7, "text": "a", "text_pair": "b"}, {"id": "x", "text": "b", "text_pair": "c"}]
    source.write_text("\ufeff" + "\r\n".join(map(json.dumps, rows)) + "\r\n\r\n", encoding="utf-8")
    predict(PredictConfig(model=models["saved"], input=str(source), output=str(target)))
    answers = [json.loads(line) for line in target.read_text().splitlines()]
    assert [answer["id"] for answer in answers] == [7, "x"]
    expected = classifier.classify([("a", "b"), ("b", "c")])
    assert answers[1]["score"] == pytest.approx(expected[1]["score"], abs=1e-5)


def test_a_saved_task_of_another_kind(tmp_path, classifier):
    masked_lm = keras_bert.MaskedLM(keras_bert.Backbone(CONFIG), classifier.preprocessor)
    masked_lm.save(tmp_path / "model.keras")
    (answer,) = load_predictor(str(tmp_path / "model.keras"))([{"text": "a [MASK] b"}])
    assert len(answer) == 5


def test_a_malformed_line_is_named():
    lines = ['{"text": "a"}\n', '{"text": \n']
    rows = read_rows(lines, "in.jsonl")
    assert next(rows) == {"text": "a"}
    with pytest.raises(RowError, match=r"in\.jsonl, line 2: no JSON"):
        next(rows)
    with pytest.raises(RowError, match="line 2: '3' is no JSON object"):
        list(read_rows(['{"text": "a"}\n', "3\n"], "in.jsonl"))


def test_a_missing_field_is_named(models):
    with pytest.raises(RowError, match=r"wants text; .*\"txt\".* has no text"):
        load_predictor(models["saved"])([{"txt": "a"}])


def test_a_missing_model(tmp_path):
    with pytest.raises(FileNotFoundError, match="is not there"):
        load_predictor(str(tmp_path / "none"))
    with pytest.raises(ValueError, match="neither a folder with a saved_model"):
        load_predictor(str(tmp_path))
