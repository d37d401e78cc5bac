# SPDX-License-Identifier: Apache-2.0

import pytest

from keras_bert.export.description import DESCRIPTION_FILE
from keras_bert.export.own_files import check_replaceable

pytestmark = pytest.mark.backend_independent


def save_export(folder):
    for name in ("saved_model.pb", "variables/variables.index", DESCRIPTION_FILE):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()


def test_only_exports_are_replaced(tmp_path):
    (tmp_path / "empty").mkdir()
    save_export(tmp_path / "models" / "1")
    own = [tmp_path / "none", tmp_path / "empty", tmp_path / "models" / "1"]
    save_export(tmp_path / "noted")
    (tmp_path / "noted" / "notes.txt").touch()
    (tmp_path / "saved_model.pb").touch()
    for foreign in (tmp_path, tmp_path / "models", tmp_path / "noted", tmp_path / "saved_model.pb"):
        with pytest.raises(FileExistsError, match="export did not write"):
            check_replaceable([foreign], "tf_saved_model")
    for path in own:
        check_replaceable([path], "tf_saved_model")
    (tmp_path / "x.bin").touch()
    (tmp_path / "model.keras").write_text("keras_bert")
    for names, format in ((["x.xml", "x.bin"], "openvino"), (["model.keras"], "tf_saved_model")):
        with pytest.raises(FileExistsError, match=f"export did not write .*{names[-1]}"):
            check_replaceable([tmp_path / name for name in names], format)
    (tmp_path / "x.xml").write_text("<net><keras_bert/></net>")
    check_replaceable([tmp_path / "x.xml", tmp_path / "x.bin"], "openvino")
