# SPDX-License-Identifier: Apache-2.0
"""The learning rate schedule is as long as the run."""

import keras
import numpy as np
import pytest

from training.costs.energy import Energy
from training.engine.finetuning import DevEvaluation, make_optimizer
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


def test_energy_is_known_only_if_all_of_it_was_metered():
    def meter():
        return Energy(2.0, 1.0, True)

    first = DevEvaluation(None, None, meter)
    state = first.state()
    assert state["energy"] == (2.0, 1.0, True)
    resumed = DevEvaluation(None, None, meter)
    resumed.restore(state)
    assert resumed.metered() == (4.0, 2.0, True)
    for before, after in ((meter, None), (None, meter)):
        resumed = DevEvaluation(None, None, after)
        resumed.restore(DevEvaluation(None, None, before).state())
        assert resumed.metered() is None
