# SPDX-License-Identifier: Apache-2.0

import dataclasses
import gzip
import io
import itertools
import json
import warnings

import keras
import pyarrow
import pytest
from pyarrow import parquet

pytestmark = pytest.mark.on_torch

import keras_bert  # noqa: E402
from keras_bert.data import TextClassifierPreprocessor  # noqa: E402
from tests.checkpoints.small_models import small_config  # noqa: E402
from tests.text.small_tokenizers import LETTER_TOKENS, make_tokenizer  # noqa: E402
from training.predict import (  # noqa: E402
    PredictConfig,
    RowFields,
    load_model,
    predict,
    read_rows,
)
from training.readers.answer_files import relabeled  # noqa: E402

CONFIG = small_config(vocabulary_size=len(LETTER_TOKENS), num_layers=1, max_sequence_length=32)
CLASSIFIER = RowFields(("text",), optional=("text_pair",))


@pytest.fixture(scope="module")
def classifier():
    tokenizer = make_tokenizer(*LETTER_TOKENS)
    preprocessor = TextClassifierPreprocessor(tokenizer, sequence_length=32)
    backbone = keras_bert.Backbone(CONFIG)
    return keras_bert.TextClassifier(
        backbone, preprocessor=preprocessor, class_names=["bad", "good"]
    )


@pytest.fixture(scope="module")
def models(classifier, tmp_path_factory):
    directory = tmp_path_factory.mktemp("models")
    classifier.save(directory / "model.keras")
    if keras.backend.backend() == "tensorflow":
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            classifier.export(directory / "export", warm_up=False)
    return {"saved": str(directory / "model.keras"), "exported": str(directory / "export")}


@pytest.mark.parametrize(
    "model_format",
    [
        "saved",
        pytest.param("exported", marks=[pytest.mark.needs_tensorflow, pytest.mark.on_tensorflow]),
    ],
)
def test_predict_writes_one_line_per_example(models, model_format, classifier, tmp_path):
    texts = ["a fine film", "", "", " ", "naïve é"]
    source, target = tmp_path / "in.csv", tmp_path / "out.jsonl"
    source.write_text("\n".join(["text", *texts]) + "\n", encoding="utf-8")
    config = PredictConfig(
        model=models[model_format], input=str(source), output=str(target), batch_size=2
    )
    assert predict(config) == 5
    predictions = [json.loads(line) for line in target.read_text().splitlines()]
    for prediction, expected in zip(predictions, classifier.classify(texts), strict=True):
        assert prediction["label"] == expected["label"]
        assert prediction["score"] == pytest.approx(expected["score"], abs=1e-4)
        assert list(prediction) == sorted(prediction)


def test_text_pairs_and_ids_are_read(models, tmp_path, classifier):
    source, target = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    rows = [{"id": 7, "text": "a", "text_pair": "b"}, {"id": "x", "text": "b", "text_pair": "c"}]
    source.write_text("\ufeff" + "\r\n".join(map(json.dumps, rows)) + "\r\n\r\n", encoding="utf-8")
    predict(PredictConfig(model=models["saved"], input=str(source), output=str(target)))
    predictions = [json.loads(line) for line in target.read_text().splitlines()]
    assert [prediction["id"] for prediction in predictions] == [7, "x"]
    expected = classifier.classify([("a", "b"), ("b", "c")])
    assert predictions[1]["score"] == pytest.approx(expected[1]["score"], abs=1e-5)


TABLES = {
    "csv": 'id,review,stars\n7,"one, two",1\nx,"a ""b""\nc",0\n',
    "tsv": "id\treview\tstars\n7\tone, two\t1\nx\ta b\t0\n",
    "jsonl": '{"id": "7", "review": "one, two"}\n{"id": "x", "review": "a b", "stars": 0}\n',
    "json": '[{"id": "7", "review": "one, two"},\n {"id": "x", "review": "a b"}]',
}


@pytest.mark.parametrize("format", TABLES)
def test_read_rows_accepts_training_file_formats(format, tmp_path):
    source = tmp_path / f"in.{format}.gz"
    source.write_bytes(gzip.compress(TABLES[format].encode()))
    config = PredictConfig(input=str(source), text="review")
    second = 'a "b"\nc' if format == "csv" else "a b"
    texts = [{"id": "7", "text": "one, two"}, {"id": "x", "text": second}]
    rows = list(read_rows(config, CLASSIFIER))
    assert [{name: row[name] for name in ("id", "text")} for row in rows] == texts


def test_include_input_writes_the_text(models, tmp_path):
    source, target = tmp_path / "in.csv", tmp_path / "out.jsonl"
    source.write_text("id,review,other,stars\n7,a film,one,1\nx,,é,0\n")
    config = PredictConfig(
        models["saved"], str(source), str(target), text="review", include_input=True, overwrite=True
    )

    def write_predictions(**options):
        predict(dataclasses.replace(config, **options))
        return [json.loads(line) for line in target.read_text(encoding="utf-8").splitlines()]

    first, second = write_predictions()
    assert list(first)[:3] == ["id", "text", "label"]
    assert [(row["id"], row["text"]) for row in (first, second)] == [("7", "a film"), ("x", "")]
    fields = {"id": "x", "text": "", "text_pair": "é"}
    assert write_predictions(text_pair="other", batch_size=1)[1].items() >= fields.items()
    assert "text" not in write_predictions(include_input=False)[0]


def test_label_map_renames_labels(models, tmp_path):
    source, target = tmp_path / "in.txt", tmp_path / "out.jsonl"
    source.write_text("a\nfilm\n")
    for label_map, expected in (((), {"bad", "good"}), (("bad:no", "good:no"), {"no"})):
        config = PredictConfig(
            models["saved"], str(source), str(target), label_map=label_map, overwrite=True
        )
        predict(config)
        assert {json.loads(line)["label"] for line in target.read_text().splitlines()} <= expected
    with pytest.raises(ValueError, match=r"--label_map must have an old label.* Received: 'bad'"):
        PredictConfig(label_map=("bad",))
    with pytest.raises(ValueError, match=r"--label_map must have labels of the model.* nice"):
        predict(dataclasses.replace(config, label_map=("nice:good",)))
    multi_label = {"labels": ["bad", "x"], "scores": [0.9, 0.8], "text": ["bad"]}
    entities = {"id": "bad", "answers": [{"word": "bad", "label": "bad"}, "bad"]}
    assert [relabeled(row, {"bad": "no"}) for row in (multi_label, entities)] == [
        {**multi_label, "labels": ["no", "x"]},
        {**entities, "answers": [{"word": "bad", "label": "no"}, "bad"]},
    ]


@pytest.mark.needs_tensorflow
@pytest.mark.on_tensorflow
def test_input_and_foreign_files_are_not_lost(models, tmp_path, monkeypatch):
    source, row = tmp_path / "in.jsonl", '{"text": "a", "text_pair": "b"}\n'
    source.write_text(row)
    config = PredictConfig(
        model=models["exported"], input=str(source), output=str(tmp_path / "out")
    )
    with pytest.raises(ValueError, match=r"in.jsonl, line 1: the model accepts text.* text_pair"):
        predict(config)
    pairs = tmp_path / "pairs.csv"
    pairs.write_text("question,answer\na,b\n")
    with pytest.raises(ValueError, match=r"--text must be given .* columns question and answer"):
        predict(dataclasses.replace(config, input=str(pairs)))
    with pytest.raises(ValueError, match="--text_pair is only for models that accept text_pair"):
        predict(dataclasses.replace(config, text_pair="other"))
    monkeypatch.chdir(tmp_path)
    for output in ("in.jsonl", models["saved"]):
        with pytest.raises(ValueError, match="--output must be a different file than --"):
            predict(dataclasses.replace(config, model=models["saved"], output=output))
    assert source.read_text() == row
    source.write_text('{"text": "a"}\n')
    (tmp_path / "out").write_text("mine\n")
    for overwrite in (False, True):
        with pytest.raises(FileExistsError, match="must be a file that this command wrote"):
            predict(dataclasses.replace(config, overwrite=overwrite))
    assert (tmp_path / "out").read_text() == "mine\n"
    (tmp_path / "out").write_text('{"label": "bad", "score": 0.7}\n' * 2)
    with pytest.raises(FileExistsError, match=r"--output must be a new file.*--overwrite"):
        predict(config)
    assert predict(dataclasses.replace(config, overwrite=True)) == 1
    assert len((tmp_path / "out").read_text().splitlines()) == 1


def test_columns_are_selected_by_number(tmp_path):
    path = tmp_path / "in.csv"
    path.write_text("a,b\nc,d\n")
    config = PredictConfig(input=str(path), text="0", text_pair="1")
    assert list(read_rows(config, CLASSIFIER)) == [
        {"text": "a", "text_pair": "b"},
        {"text": "c", "text_pair": "d"},
    ]
    config = dataclasses.replace(config, header="yes", text_pair="")
    assert list(read_rows(config, CLASSIFIER)) == [{"text": "c"}]
    path.write_text("text,text_pair\na,\n")
    assert list(read_rows(PredictConfig(input=str(path)), CLASSIFIER)) == [
        {"text": "a", "text_pair": ""}
    ]


@pytest.mark.parametrize(
    ("name", "content", "texts"),
    [
        ("in.csv", 'text\na\n\n \n""\nb\n\n\n', ["a", "", " ", "", "b"]),
        ("in.tsv", "id\ttext\n1\ta\n2\t \n\n\t\n", ["a", " ", ""]),
        ("in.csv", "text,text_pair\n,\na,b\n,c\n", [("", ""), ("a", "b"), ("", "c")]),
        ("in.jsonl", '{"text": "a"}\n\n{"text": ""}\n{"text": null}\n', ["a", "", ""]),
        ("in.txt", "a\n\nb\n", ["a", "", "b"]),
    ],
)
def test_blank_rows_are_kept_and_logged(name, content, texts, tmp_path, caplog):
    (tmp_path / name).write_text(content)
    rows = list(read_rows(PredictConfig(input=str(tmp_path / name)), CLASSIFIER))
    actual = [(r["text"], r["text_pair"]) if "text_pair" in r else r["text"] for r in rows]
    assert actual == texts
    assert "rows are blank, the first in line" in caplog.text


def test_standard_input_is_read_as_lines_or_table(monkeypatch):
    for format, expected in {"auto": ["text,id", "a,1"], "csv": ["a"]}.items():
        stream = io.TextIOWrapper(io.BytesIO(b"\xef\xbb\xbftext,id\na,1\n"))
        monkeypatch.setattr("sys.stdin", stream)
        rows = read_rows(PredictConfig(format=format), CLASSIFIER)
        assert [row["text"] for row in rows] == expected


@pytest.mark.needs_tensorflow
@pytest.mark.on_tensorflow
def test_exported_tagger_matches_the_task(classifier, tmp_path):
    """The input is CoNLL or text. The predictions do not depend on padding."""
    task = keras_bert.TokenClassifier(
        keras_bert.Backbone(CONFIG),
        preprocessor=keras_bert.data.TokenClassifierPreprocessor(
            classifier.preprocessor.tokenizer, 32
        ),
        class_names=["O", "B-PER"],
    )
    files = {"in.conll": "a O\nfilm B-PER\n\ngood O\n", "in.txt": "a fine film\n\nbad\n"}
    task.save(tmp_path / "model.keras")
    task.export(tmp_path / "1", warm_up=False)
    for name, content in files.items():
        (tmp_path / name).write_text(content)
        predictions = []
        for model in ("model.keras", "1"):
            config = PredictConfig(
                model=str(tmp_path / model),
                input=str(tmp_path / name),
                output=str(tmp_path / "out.jsonl"),
                overwrite=True,
            )
            predict(config)
            lines = (tmp_path / "out.jsonl").read_text().splitlines()
            predictions.append([json.loads(line)["answers"] for line in lines])
        saved, exported = predictions
        assert [len(row) for row in exported] == [len(row) for row in saved]
        parts = map(itertools.chain.from_iterable, (exported, saved))
        for row, other in zip(*parts, strict=True):
            assert row.pop("score") == pytest.approx(other.pop("score"), abs=1e-4)
            assert row == other


def test_read_rows_accepts_files_of_each_task(tmp_path):
    (tmp_path / "dev.json").write_text(
        '{"data": [{"paragraphs": [{"context": "b", "qas": [{"id": "q", "question": "a", '
        '"answers": [{"text": "not in the passage", "answer_start": 0}]}]}]}]}'
    )
    (tmp_path / "a.conll").write_text("Ann B-PER\nsang O\n\nhere O\n")
    (tmp_path / "a.csv").write_text("sent1,sent2,ending0,ending1,label\na,b,c,d,x\n")
    fields_by_file = {
        "dev.json": RowFields(("question", "context")),
        "a.conll": RowFields(("text",), ("text",)),
        "a.csv": RowFields(("text", "choices"), ("choices",)),
        "copa.jsonl": RowFields(("text", "choices"), ("choices",)),
        "a.parquet": CLASSIFIER,
        "words.jsonl": RowFields(("text",), ("text",)),
    }
    expected = {
        "dev.json": [{"id": "q", "question": "a", "context": "b"}],
        "a.conll": [{"text": ["Ann", "sang"]}, {"text": ["here"]}],
        "a.csv": [{"text": "a", "choices": ["b c", "b d"]}],
        "copa.jsonl": [{"text": "a What was the cause of this?", "choices": ["b", "c"]}],
        "words.jsonl": [{"id": 1, "text": ["Ann", "sang"]}, {"id": "k", "text": "Bob sang"}],
        "a.parquet": [{"id": 3, "text": "a"}, {"id": 4, "text": ""}],
    }
    (tmp_path / "copa.jsonl").write_text(
        '{"premise": "a", "question": "cause", "choice1": "b", "choice2": "c", "label": "x"}\n'
    )
    (tmp_path / "words.jsonl").write_text(
        '{"id": 1, "tokens": ["Ann", "sang"]}\n{"guid": "k", "text": "Bob sang"}\n'
    )
    rows = [{"id": 3, "text": "a"}, {"id": 4, "text": None}]
    parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "a.parquet")
    for name, fields in fields_by_file.items():
        config = PredictConfig(input=str(tmp_path / name))
        actual = list(read_rows(config, fields))
        for row, values in zip(actual, expected[name], strict=True):
            assert {field: row[field] for field in values} == values


def test_masked_lm_predicts_and_reports_errors(tmp_path, classifier):
    masked_lm = keras_bert.MaskedLM(keras_bert.Backbone(CONFIG), classifier.preprocessor)
    masked_lm.save(tmp_path / "model.keras")
    model, _ = load_model(str(tmp_path / "model.keras"))
    (answer,) = model.predict_rows([{"text": "a [MASK] b"}])
    assert len(answer) == 5
    lines = tmp_path / "in.txt"
    lines.write_text("a [MASK]\n" * 3 + "b\n")
    config = PredictConfig(
        model=str(tmp_path / "model.keras"),
        input=str(lines),
        output=str(tmp_path / "out.jsonl"),
        batch_size=2,
    )
    message = (
        r"in\.txt, in the batch of rows 3 to 4: "
        r"Text 1 must have a \[MASK\] to fill\. Received: 'b'"
    )
    with pytest.raises(ValueError, match=message):
        predict(config)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("in.jsonl", '{"text": "a"}\n{"text": \n', r"in\.jsonl, line 2: not JSON"),
        ("in.jsonl", '{"txt": "a"}', r"line 1: text must be given\. Received: .*'txt'"),
    ],
)
def test_invalid_row_raises(name, content, message, tmp_path):
    (tmp_path / name).write_text(content)
    with pytest.raises(ValueError, match=message):
        list(read_rows(PredictConfig(input=str(tmp_path / name)), CLASSIFIER))


@pytest.mark.parametrize("name", ["TextClassifier", "TextEmbedder"])
def test_predictions_include_num_windows(name, tmp_path):
    tokenizer = make_tokenizer(*LETTER_TOKENS)
    preprocessor = TextClassifierPreprocessor(tokenizer, 8, long_texts="mean", overlap=1)
    options = {"class_names": ["a", "b"], "multi_label": True} if name == "TextClassifier" else {}
    task = getattr(keras_bert, name)(
        keras_bert.Backbone(CONFIG), preprocessor=preprocessor, **options
    )
    task.save(tmp_path / "model.keras")
    (tmp_path / "in.txt").write_text("a b\n" + "a b c " * 12 + "\n")
    model, source, target = (
        str(tmp_path / name) for name in ("model.keras", "in.txt", "out.jsonl")
    )
    predict(PredictConfig(model=model, input=source, output=target))
    answers = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [answer["num_windows"] for answer in answers] == [1, 7]
    assert {*answers[0]} == {"answers" if options else "embedding", "num_windows"}


def test_truncated_rows_are_counted_once(models, tmp_path, caplog):
    (tmp_path / "in.txt").write_text("a b\n" + "a b c " * 12 + "\n" + "b " * 31 + "\n" + "a " * 30)
    config = PredictConfig(
        model=models["saved"],
        input=str(tmp_path / "in.txt"),
        output=str(tmp_path / "out.jsonl"),
        batch_size=2,
    )
    with caplog.at_level("WARNING", logger="absl"):
        predict(config)
    # A row has at most 32 tokens, including [CLS] and [SEP].
    assert (
        "in.txt: 2 of 4 rows are truncated: they have more tokens than sequence_length=32"
        in caplog.text
    )


def test_skip_invalid_skips_and_counts_rows(tmp_path, caplog):
    for name, content in (
        ("in.jsonl", '{"text": "a"}\n{"text": \n{"text": 3}\n{"text": "b"}\n'),
        ("in.csv", "text,x\na,1\nc\nd,1,2\nb,2\n"),
    ):
        path = tmp_path / name
        path.write_text(content)
        caplog.clear()
        with caplog.at_level("WARNING", logger="absl"):
            rows = list(read_rows(PredictConfig(input=str(path), skip_invalid=True), CLASSIFIER))
        assert [row["text"] for row in rows] == ["a", "b"]
        assert f"2 invalid rows were skipped, the first: {path}, line" in caplog.text
