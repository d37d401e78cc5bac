# SPDX-License-Identifier: Apache-2.0
"""The learning-rate schedule ends with the run, and the export directory is checked first."""

from types import SimpleNamespace

import numpy as np
import pytest

from keras_bert import TextClassifier
from tests.small_tasks import make_task
from training.engine import finetuning
from training.engine.finetuning import compile_task
from training.engine.finetuning_config import FineTuningConfig


# tests/optimizers/fit_updates_test.py counts the steps on each backend.
@pytest.mark.on_torch
@pytest.mark.parametrize(
    ("num_rows", "batch_size", "accumulation", "epochs", "updates"),
    [
        (33, 32, 1, 3, 6),
        (33, 32, 2, 3, 6),  # 3 micro-batches of at most 16 examples. The last is a separate step.
        (10, 8, 4, 4, 8),
    ],
)
def test_schedule_ends_with_the_run(num_rows, batch_size, accumulation, epochs, updates):
    config = FineTuningConfig(
        batch_size=batch_size,
        accumulation=accumulation,
        epochs=epochs,
        learning_rate=1e-3,
        warmup=0.25,
    )
    model = make_task(TextClassifier)
    x = np.ones((num_rows, 4), "int32")
    compile_task(model, config, x)
    model.fit(x, x[:, 0], batch_size=batch_size // accumulation, epochs=epochs, verbose=0)
    assert int(model.optimizer.iterations) == updates
    assert float(model.optimizer.learning_rate) == pytest.approx(0, abs=1e-9)


def test_unknown_file_in_export_raises(tmp_path):
    note = tmp_path / "export" / "1" / "note.txt"
    note.parent.mkdir(parents=True)
    note.touch()
    job = SimpleNamespace(config=SimpleNamespace(export=True, output_dir=str(tmp_path)))
    with pytest.raises(FileExistsError, match=r"by the same command\. Received: .*note\.txt"):
        finetuning.train(job, None)
