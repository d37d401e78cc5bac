# SPDX-License-Identifier: Apache-2.0

import dataclasses

import pytest

pytestmark = [pytest.mark.needs_tensorflow, pytest.mark.backend_independent]

pytest.importorskip("tensorflow")

import keras_bert  # noqa: E402
from tests.checkpoints.small_models import small_config  # noqa: E402
from training.export import ExportConfig, calibration_texts, export  # noqa: E402
from training.predict import load_model  # noqa: E402

SMALL = small_config(vocabulary_size=8, num_layers=1, max_sequence_length=16)


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    tokenizer = keras_bert.WordPieceTokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", *"abcd"])
    preprocessor = keras_bert.data.TextClassifierPreprocessor(tokenizer, 16)
    task = keras_bert.TextClassifier(
        keras_bert.Backbone(SMALL), class_names=["bad", "good"], preprocessor=preprocessor
    )
    path = tmp_path_factory.mktemp("task") / "model.keras"
    task.save(path)
    return ExportConfig(model=str(path))


def test_deployed_version_matches_the_model(config, tmp_path):
    report = export(dataclasses.replace(config, deploy_to=str(tmp_path / "models")))
    assert "TextClassifier, tf_saved_model, float32" in report
    versions = [path.name for path in (tmp_path / "models").iterdir()]
    assert versions == ["1"]
    rows = [{"text": "a b"}, {"text": "d"}]
    served, saved = (
        load_model(path)[0].predict_rows(rows)
        for path in (str(tmp_path / "models" / "1"), config.model)
    )
    for served_row, saved_row in zip(served, saved, strict=True):
        assert served_row["label"] == saved_row["label"]
        assert served_row["score"] == pytest.approx(saved_row["score"], abs=1e-6)


def test_checkpoint_is_exported_as_its_task(config, tmp_path):
    keras_bert.load_model(config.model).save_to_preset(tmp_path / "preset")
    output = tmp_path / "written"
    export(
        ExportConfig(
            model=str(tmp_path / "preset"), output=str(output), export_format="hugging_face"
        )
    )
    rows = [{"text": "a b"}]
    written, saved = (
        load_model(path)[0].predict_rows(rows) for path in (str(output), config.model)
    )
    assert written == saved


def test_calibration_texts_reads_the_given_column(tmp_path):
    (tmp_path / "texts.csv").write_text("id,review\n" + "1,a b\n2,c d\n" * 4)
    config = ExportConfig(
        calibration_file=str(tmp_path / "texts.csv"), text="review", calibration_rows=3
    )
    assert calibration_texts(config) == ["a b", "c d", "a b"]
    assert calibration_texts(ExportConfig()) is None


def test_hub_directory_has_a_model_card(config, tmp_path):
    pytest.importorskip("huggingface_hub")
    (tmp_path / "results.json").write_text('{"config": {"train_file": "reviews.csv"}}')
    export_config = dataclasses.replace(
        config,
        output=str(tmp_path / "hub"),
        export_format="hugging_face",
        results=str(tmp_path / "results.json"),
    )
    assert "card     " in export(export_config)
    assert "| train file | reviews.csv |" in (tmp_path / "hub" / "README.md").read_text()
    with pytest.raises(FileExistsError, match="pass --overwrite to replace it"):
        export(export_config)
    export(dataclasses.replace(export_config, overwrite=True))
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "README.md").write_text("---\ntags:\n- x\n---\n- keras-bert")
    for overwrite in (False, True):
        saved_row = dataclasses.replace(
            export_config, output=str(tmp_path / "other"), overwrite=overwrite
        )
        with pytest.raises(FileExistsError, match=r"by the same command\. Received: .*other\."):
            export(saved_row)
    with pytest.raises(FileNotFoundError, match=r"--results=none\.json does not exist"):
        export(dataclasses.replace(export_config, results="none.json", overwrite=True))


def test_invalid_options_raise(config, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"none\.keras, which does not exist"):
        export(ExportConfig(model="none.keras", output="x"))
    with pytest.raises(ValueError, match="pass --output, --deploy_to or --push_to"):
        export(config)
    with pytest.raises(
        ValueError, match=r"--deploy_to is only supported for tf_saved_model\. Received: onnx"
    ):
        export(dataclasses.replace(config, output="x.onnx", deploy_to=str(tmp_path)))
    hub_config = dataclasses.replace(
        config, output=str(tmp_path / "x"), export_format="hugging_face"
    )
    with pytest.raises(
        ValueError, match="--dtype=bfloat16 is given, but the format is hugging_fac"
    ):
        export(dataclasses.replace(hub_config, dtype="bfloat16"))


def test_unknown_suffix_raises(config, tmp_path):
    output = str(tmp_path / "x.foo")
    with pytest.raises(
        ValueError, match=r"must end in \.onnx \(onnx\), \.xml .*directory.* Received: .*\.foo\."
    ):
        export(dataclasses.replace(config, output=output))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.filterwarnings("ignore:TensorFlow Serving only loads directories")
def test_saved_model_directory_by_suffix_or_format(config, tmp_path):
    plain, dotted = tmp_path / "plain", tmp_path / "v1.5"
    assert "tf_saved_model" in export(dataclasses.replace(config, output=str(plain)))
    named = dataclasses.replace(config, output=str(dotted), export_format="tf_saved_model")
    assert "tf_saved_model" in export(named)
    assert (plain / "saved_model.pb").is_file()
    assert (dotted / "saved_model.pb").is_file()
    with pytest.raises(ValueError, match=r"must be the \.keras file.* is an exported SavedModel"):
        export(dataclasses.replace(config, model=str(plain), output=str(tmp_path / "1")))
    with pytest.raises(
        ValueError, match=r"must be the \.keras file.* is a directory without a model"
    ):
        export(dataclasses.replace(config, model=str(tmp_path), output=str(tmp_path / "1")))


def test_errors_include_the_flag(config, tmp_path):
    (tmp_path / "taken.xml").touch()
    (tmp_path / "taken.bin").touch()
    (tmp_path / "texts.csv").write_text("text\na b\n")

    def assert_export_raises(error, match, output="x.onnx", **flags):
        export_config = {"output": output and str(tmp_path / output)} | flags
        with pytest.raises(error, match=match):
            export(dataclasses.replace(config, **export_config))

    assert_export_raises(
        FileExistsError, r"by the same command\. Received: .*taken\.bin", "taken.xml"
    )
    (tmp_path / "taken.xml").write_text("<net><rt_info><keras_bert/></rt_info></net>")
    assert_export_raises(
        FileExistsError, r"taken\.xml already exists: pass --overwrite to", "taken.xml"
    )
    (tmp_path / "taken.xml").unlink()
    assert_export_raises(
        FileExistsError, r"by the same command\. Received: .*taken\.bin", "taken.xml"
    )
    assert_export_raises(
        ValueError,
        "--calibration_file must be given for --dtype=int8 in openvino",
        "x.xml",
        dtype="int8",
    )
    assert_export_raises(
        ValueError,
        r"--calibration_file is only for tf_saved_model and openvino in int8, .* onnx in int8",
        dtype="int8",
        calibration_file=str(tmp_path / "texts.csv"),
    )
    assert_export_raises(
        ValueError, "--takes_text is only for .* the format is onnx", takes_text=True
    )
    is_file = "taken.bin is a file"
    assert_export_raises(
        NotADirectoryError, f"--output must be in a directory.*{is_file}", "taken.bin/1"
    )
    deploy_to = str(tmp_path / "taken.bin")
    assert_export_raises(
        NotADirectoryError,
        f"--deploy_to must be in a directory.*{is_file}",
        "",
        deploy_to=deploy_to,
    )
    # These errors are raised by `Task.export`.
    assert_export_raises(
        ValueError,
        r"^--dtype must be one of float32, int8\. Received: 'bfloat16'",
        dtype="bfloat16",
    )
    assert_export_raises(
        ValueError, "^--class_names must have 2 names, one per class", class_names=("bad",)
    )
    assert_export_raises(
        ValueError, r"^--pair must be False for --export_format=onnx, because", pair=True
    )
    assert_export_raises(
        ValueError,
        r"^--output must end in \.xml for --export_format=openvino\. Received: '.*x\.onnx'",
        export_format="openvino",
    )
    assert_export_raises(
        FileNotFoundError,
        "^--calibration_file=none.csv does not exist$",
        "x.xml",
        dtype="int8",
        calibration_file="none.csv",
    )
    assert_export_raises(
        ValueError,
        "^--model must be a single model for the format onnx_hugging_face. Received: 2 models. An",
        "x",
        export_format="onnx_hugging_face",
        model=f"{config.model},{config.model}",
    )
    tagger = keras_bert.TokenClassifier(keras_bert.Backbone(SMALL), num_classes=2)
    tagger.save(tmp_path / "tagger.keras")
    assert_export_raises(
        ValueError,
        "--takes_text is only for .* is a TokenClassifier",
        "x.xml",
        takes_text=True,
        model=str(tmp_path / "tagger.keras"),
    )
