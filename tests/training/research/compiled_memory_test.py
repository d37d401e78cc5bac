# SPDX-License-Identifier: Apache-2.0
"""The memory of compiled steps, which have no values, and the table of them.

The number of devices is fixed when a process starts, so they are compiled in a separate process.
"""

import json
import os
import subprocess
import sys

import keras
import pytest

from tests.source_imports import ROOT

pytestmark = [
    pytest.mark.skipif(keras.backend.backend() != "jax", reason="compiled by JAX"),
    pytest.mark.release,
]

PROGRAM = """
import json
import jax
import keras
import numpy as np
from keras_bert import Backbone, BertConfig, Pretrainer
from keras_bert.optimizers import AdamW
from training.research.compiled_memory import Step, step_memory

config = BertConfig(
    vocabulary_size=64, num_layers=4, num_heads=2, hidden_dim=32, intermediate_dim=128,
    max_sequence_length=64, dropout=0.0, attention_dropout=0.0,
)
def found(**options):
    memory = step_memory(Step(config, **{"rows": 8, "sequence_length": 64, "slots": 8, **options}))
    return [memory.state, memory.temporary]

answer = {
    "stored": found(),
    "rematerialized": found(rematerialize=True),
    "accumulated": found(rows=2, accumulation=4),
    "copied": found(devices=8),
    "shared": found(devices=8, shard_optimizer=True),
}
model = Pretrainer(Backbone(config), next_sentence=False)
model.compile(AdamW(1e-4))
answer["parameters"] = model.count_params()
x = {
    "token_ids": np.ones((8, 64), "int32"), "segment_ids": None, "padding_mask": None,
    "mask_positions": np.ones((8, 8), "int32"),
}
name = "masked_lm_logits"
batch = x, {name: np.ones((8, 8), "int32")}, {name: np.ones((8, 8), "float32")}
model._symbolic_build(data_batch=batch)
parts = (
    model.trainable_variables, model.non_trainable_variables, model.optimizer.variables,
    model.metrics_variables,
)
state = tuple([variable.value for variable in part] for part in parts)
analysis = jax.jit(model.train_step, donate_argnums=0).lower(state, batch).compile()
answer["with values"] = [
    analysis.memory_analysis().argument_size_in_bytes, analysis.memory_analysis().temp_size_in_bytes
]
print(json.dumps(answer))
"""


@pytest.fixture(scope="module")
def memory():
    finished = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=ROOT,
        env=os.environ | {"JAX_NUM_CPU_DEVICES": "8"},
        capture_output=True,
        text=True,
    )
    assert finished.returncode == 0, finished.stderr[-4000:]
    return json.loads(finished.stdout)


def test_the_step_is_that_of_a_model_with_values(memory):
    assert memory["stored"] == pytest.approx(memory["with values"], rel=0.01)


def test_the_state_is_what_each_configuration_stores(memory):
    """Float32 weights, and two moments of all but the unused pooler's."""
    weights = 4 * memory["parameters"]
    state = {name: of_step[0] for name, of_step in memory.items() if name != "parameters"}
    assert state["stored"] == pytest.approx(3 * weights, rel=0.05)
    assert state["accumulated"] == pytest.approx(4 * weights, rel=0.05)
    assert state["copied"] == pytest.approx(3 * weights, rel=0.05)
    assert state["shared"] == pytest.approx((1 + 2 / 8) * weights, rel=0.1)


def test_temporary_results_shrink_with_rematerialization_and_with_smaller_batches(memory):
    stored = memory["stored"][1]
    assert memory["rematerialized"][1] < 0.7 * stored
    assert memory["accumulated"][1] < 0.7 * stored


def test_the_table_has_a_cell_for_each_configuration(monkeypatch):
    from training.research.memory import MemoryConfig, table

    config = MemoryConfig(
        models=("bert_tiny_uncased",),
        lengths=("16", "1024"),  # of which the second is longer than the positions
        tokens=64,
        accumulation=2,
        devices=1,
        precisions=("float32",),
    )
    header, _, *rows = table(config).splitlines()
    assert header.split(" | ")[-1] == "shared by 1 |"
    (row,) = rows
    assert row.startswith("| bert_tiny_uncased | 4 x 16 | float32 | 0.1 (0.1) |")
