# SPDX-License-Identifier: Apache-2.0

import shutil
import zipfile

import pytest

from keras_bert.export.description import DESCRIPTION_FILE
from keras_bert.export.own_files import check_exports

pytestmark = pytest.mark.backend_independent


def save_export(directory):
    for name in ("saved_model.pb", "variables/variables.index", DESCRIPTION_FILE):
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).touch()


def test_only_own_exports_are_replaced(tmp_path):
    (tmp_path / "empty").mkdir()
    save_export(tmp_path / "models" / "1")
    replaceable = [tmp_path / "none", tmp_path / "empty", tmp_path / "models" / "1"]
    save_export(tmp_path / "noted")
    (tmp_path / "noted" / "notes.txt").touch()
    save_export(tmp_path / "other")
    (tmp_path / "other" / DESCRIPTION_FILE).unlink()  # a SavedModel written by other code
    (tmp_path / "saved_model.pb").touch()
    foreign_files = [
        "assets/a/cat.jpg",
        "assets/a.txt",
        "assets.extra/a",
        "variables/variables.backup.txt",
    ]
    for name in foreign_files:
        directory = tmp_path / name.replace("/", "_")
        save_export(directory)
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).touch()
        with pytest.raises(FileExistsError, match="by the same command"):
            check_exports([directory], "tf_saved_model")
    for name in (".", "models", "noted", "other", "saved_model.pb"):
        with pytest.raises(FileExistsError, match="by the same command"):
            check_exports([tmp_path / name], "tf_saved_model")
    for path in replaceable:
        check_exports([path], "tf_saved_model")
    with pytest.raises(FileExistsError, match=r"models/1 already exists: pass overwrite=True"):
        check_exports([replaceable[-1]], "tf_saved_model", "pass overwrite=True to replace it")
    (tmp_path / "x.bin").touch()
    (tmp_path / "model.keras").write_text("keras_bert")
    (tmp_path / "x.xml").write_text("<net>made with keras_bert: task.json <keras_bert/></net>")
    shutil.copy(tmp_path / "x.xml", tmp_path / "x.onnx")
    shutil.copy(tmp_path / "x.xml", tmp_path / "x.tflite")
    for names, format in (
        (["x.xml", "x.bin"], "openvino"),
        (["model.keras"], "tf_saved_model"),
        (["x.onnx"], "onnx"),
        (["x.tflite"], "litert"),
    ):
        with pytest.raises(FileExistsError, match=f"Received: .*{min(names)}"):
            check_exports([tmp_path / name for name in names], format)
    (tmp_path / "x.xml").write_text("<net><rt_info><keras_bert value=''/></rt_info></net>")
    check_exports([tmp_path / "x.xml", tmp_path / "x.bin"], "openvino")
    with zipfile.ZipFile(tmp_path / "x.tflite", "a") as archive:
        archive.writestr("task.json", "{}")
    check_exports([tmp_path / "x.tflite"], "litert")
    (tmp_path / "x.onnx").write_bytes(b"\x08\x08r\x0e\n\nkeras_bert\x12\x02{}")
    check_exports([tmp_path / "x.onnx"], "onnx")
