# SPDX-License-Identifier: Apache-2.0

import keras
import pytest

from training.costs import model_flops
from training.engine import precision


@pytest.mark.parametrize(
    ("accelerator", "speedup", "expected"),
    [
        (True, None, "mixed_bfloat16"),
        (False, 1.6, "mixed_bfloat16"),
        (False, 1.4, "float32"),
        (False, 0.6, "float32"),
    ],
)
def test_auto_selects_the_faster_precision(monkeypatch, accelerator, speedup, expected):
    precision._fastest.cache_clear()
    monkeypatch.setattr(precision, "has_accelerator", lambda: accelerator)
    monkeypatch.setattr(model_flops, "bfloat16_speedup", lambda: speedup)
    if keras.backend.backend() == "jax" and not accelerator:
        expected = "float32"
    assert precision.resolve("auto") == expected
    assert precision.resolve("bfloat16") == "bfloat16"
    precision._fastest.cache_clear()


def test_resumed_run_keeps_its_precision(monkeypatch, tmp_path):
    choices = iter(["mixed_bfloat16", "float32"])
    monkeypatch.setattr(precision, "_fastest", lambda: next(choices))
    directory = tmp_path / "run"
    assert precision.resolve("auto", directory) == "mixed_bfloat16"
    assert precision.resolve("auto", directory) == "mixed_bfloat16"
    assert precision.resolve("float32", directory) == "float32"
    assert precision.resolve("auto", tmp_path / "other") == "float32"
