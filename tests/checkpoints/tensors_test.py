# SPDX-License-Identifier: Apache-2.0
"""Reads tensors from safetensors files."""

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from keras_bert.checkpoints import CheckpointError, tensors

pytestmark = pytest.mark.backend_independent


def save_tensors(directory, values):
    path = directory / "model.safetensors"
    save_file(values, path)
    return tensors.SafetensorsFiles({name: tensors.Location(path, name) for name in values})


@pytest.mark.parametrize("rows", [tensors.ALL_ROWS, slice(1, 3)])
def test_quantized_dtype_error_includes_dtype(rows, tmp_path):
    source = save_tensors(tmp_path, {"kernel": torch.zeros(4, 2).to(torch.float8_e4m3fn)})
    with pytest.raises(CheckpointError) as raised:
        source.read("kernel", rows)
    assert str(raised.value) == (
        f"{tmp_path}/model.safetensors: tensor 'kernel' must have one of the dtypes F64, F32, F16, "
        "BF16, I64, I32, I16, I8, U64, U32, U16, U8, BOOL. Received: F8_E4M3. Quantized models are "
        "not supported."
    )


@pytest.mark.parametrize("rows_at_once", [1, 2, 7, 100])
def test_are_equal_compares_all_rows(rows_at_once, tmp_path, monkeypatch):
    monkeypatch.setattr(tensors, "_VALUES_COMPARED", 5 * rows_at_once)
    rows = torch.arange(35.0).reshape(7, 5)
    last_differs = rows.clone()
    last_differs[6, 4] = 0
    different = {"last differs": last_differs, "fewer": rows[:6].clone(), "one": rows[0].clone()}
    source = save_tensors(tmp_path, {"rows": rows, "same": rows.clone(), **different})
    assert tensors.are_equal("rows", "same", source)
    assert not any(tensors.are_equal("rows", name, source) for name in different)


def test_are_equal_compares_scalars(tmp_path):
    values = {"two": 2.0, "again": 2.0, "three": 3.0}
    source = save_tensors(tmp_path, {name: torch.tensor(value) for name, value in values.items()})
    assert tensors.are_equal("two", "again", source)
    assert not tensors.are_equal("two", "three", source)


def test_written_file_has_default_permissions(tmp_path):
    """A server often runs as a different user than the training."""
    path, default_file = tmp_path / "model.safetensors", tmp_path / "other"
    default_file.touch()
    tensors.write_safetensors(path, {"weights": np.zeros(2)})
    assert path.stat().st_mode == default_file.stat().st_mode
