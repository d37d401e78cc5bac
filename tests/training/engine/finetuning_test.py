# SPDX-License-Identifier: Apache-2.0
"""The learning rate schedule is as long as the run, and the precision is the faster one."""

import keras
import numpy as np
import pytest

from training.costs import model_flops
from training.engine.finetuning import make_optimizer, resolve_precision
from training.engine.options import EncoderConfig


@pytest.mark.parametrize(
    ("num_rows", "batch_size", "accumulation", "epochs", "updates"),
    [
        (33, 32, 1, 3, 6),
        (33, 32, 2, 3, 4),  # 9 micro-batches of at most 16 rows, the last of which is partial
        (10, 8, 4, 4, 5),  # an accumulation that continues in the next epoch
    ],
)
def test_the_schedule_ends_with_the_run(num_rows, batch_size, accumulation, epochs, updates):
    config = EncoderConfig(
        batch_size=batch_size,
        accumulation=accumulation,
        epochs=epochs,
        learning_rate=1e-3,
        warmup=0.25,
    )
    optimizer = make_optimizer(config, num_rows)
    model = keras.Sequential([keras.layers.Dense(1)])
    model.compile(optimizer, "mse")
    x = np.ones((num_rows, 2), "float32")
    model.fit(x, x[:, :1], batch_size=batch_size // accumulation, epochs=epochs, verbose=0)
    assert int(optimizer.iterations) == updates
    assert float(optimizer.learning_rate) == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize(
    ("accelerator", "speedup", "expected"),
    [
        (True, None, "mixed_bfloat16"),
        (False, 1.6, "mixed_bfloat16"),
        (False, 1.05, "float32"),
        (False, 0.6, "float32"),
    ],
)
def test_the_precision_is_the_faster_one(monkeypatch, accelerator, speedup, expected):
    monkeypatch.setattr(model_flops, "has_accelerator", lambda: accelerator)
    monkeypatch.setattr(model_flops, "bfloat16_speedup", lambda: speedup)
    if keras.backend.backend() == "jax" and not accelerator:
        expected = "float32"
    assert resolve_precision("auto") == expected
    assert resolve_precision("bfloat16") == "bfloat16"
