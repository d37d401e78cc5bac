# SPDX-License-Identifier: Apache-2.0
"""Models and optimizers sharded over devices train like on one device.

The number of devices is fixed when a process starts, so the models are trained in a separate
process with four virtual CPUs.
"""

import json
import os
import subprocess
import sys

import keras
import pytest

from keras_bert import Backbone
from keras_bert.optimizers import AdamW
from tests.source_imports import ROOT

pytestmark = [
    pytest.mark.skipif(
        keras.backend.backend() != "jax", reason="Keras shards variables only on JAX"
    ),
    pytest.mark.slow,
]

PROGRAM = """
import contextlib, json, math, sys
import keras
import numpy as np
import keras_bert
from keras_bert.optimizers import AdamW

small = dict(
    vocabulary_size=50, num_layers=1, num_heads=4, hidden_dim=16, intermediate_dim=32,
    max_sequence_length=16, dropout=0.0, attention_dropout=0.0, initializer_range=0.2,
)
CONFIGS = {
    "bert": keras_bert.BertConfig(**small),
    # A global layer, and a local layer
    "parts": keras_bert.BertConfig(**small).replace(
        num_layers=2, positions="rotary", attention_window=2, global_attention_every=2,
        feed_forward="gated", norm_placement="pre", first_attention_norm=False,
        num_key_value_heads=2, embedding_dim=8, attention_bias=False,
    ),
}
random = np.random.default_rng(0)
ids = random.integers(1, 50, (8, 12)).astype("int32")
slots = np.sort(random.choice(12, (8, 3))).astype("int32")
DATA = {
    "Pretrainer": (
        {"token_ids": ids, "mask_positions": slots},
        {"masked_lm_logits": random.integers(1, 50, (8, 3)),
         "next_sentence_logits": random.integers(0, 2, 8)},
    ),
    "TextClassifier": ({"token_ids": ids}, random.integers(0, 2, 8)),
}

def make(task, config):
    backbone = keras_bert.Backbone(config)
    if task == "Pretrainer":
        return keras_bert.Pretrainer(backbone, next_sentence=True)
    return keras_bert.TextClassifier(backbone, 2)

def trained(task, config, distribution=None, **options):
    scope = contextlib.nullcontext() if distribution is None else distribution.scope()
    with scope:
        keras.utils.set_random_seed(0)
        model = make(task, config)
        model.compile(AdamW(1e-3, global_clipnorm=0.5, **options))
        x, y = DATA[task]
        losses = model.fit(x, y, batch_size=8, epochs=5, shuffle=False, verbose=0)
        variables = [*model.weights, *model.optimizer.variables]
        shares = {
            v.path: math.prod(v.value.addressable_shards[0].data.shape) / max(1, math.prod(v.shape))
            for v in variables
        }
    return {"loss": losses.history["loss"], "shares": shares}

mesh = keras.distribution.DeviceMesh((2, 2), ("batch", "model"))
parallel = keras.distribution.ModelParallel(
    layout_map=keras_bert.Backbone.get_layout_map(mesh), batch_dim_name="batch"
)
answers = {
    "TextClassifier": {
        "one": trained("TextClassifier", CONFIGS["parts"]),
        "model": trained("TextClassifier", CONFIGS["parts"], parallel),
    },
    "Pretrainer": {
        "one": trained("Pretrainer", CONFIGS["bert"], gradient_accumulation_steps=2),
        "model": trained(
            "Pretrainer", CONFIGS["bert"], parallel, shard_state=True, gradient_accumulation_steps=2
        ),
    },
}

# A preset, with the weights of a model on one device
preset = sys.argv[1]
keras.utils.set_random_seed(1)
backbone = keras_bert.Backbone(CONFIGS["bert"])
backbone.save_to_preset(preset)
with parallel.scope():
    loaded = keras_bert.Backbone.from_preset(preset)
    answers["preset"] = {
        "differences": [
            float(np.abs(np.asarray(a.value) - np.asarray(b.value)).max())
            for a, b in zip(backbone.weights, loaded.weights)
        ],
        "shares": {
            v.path: math.prod(v.value.addressable_shards[0].data.shape) / math.prod(v.shape)
            for v in loaded.weights
        },
    }
print(json.dumps(answers))
"""


@pytest.fixture(scope="module")
def answers(tmp_path_factory):
    process = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path_factory.mktemp("preset"))],
        cwd=ROOT,
        # XLA has a thread per processor. Each device occupies one while it waits for the others.
        env=os.environ | {"JAX_NUM_CPU_DEVICES": "4", "NPROC": "8"},
        capture_output=True,
        text=True,
    )
    assert process.returncode == 0, process.stderr[-4000:]
    return json.loads(process.stdout.splitlines()[-1])


PROJECTIONS = {"Pretrainer": "query_key_value", "TextClassifier": "grouped_query_key_value"}


@pytest.mark.parametrize("task", PROJECTIONS)
def test_sharded_model_trains_like_one_device(answers, task):
    one, sharded = answers[task]["one"], answers[task]["model"]
    assert sharded["loss"][-1] < sharded["loss"][0]
    assert sharded["loss"] == pytest.approx(one["loss"], rel=1e-6)
    assert set(one["shares"].values()) == {1}
    projection = PROJECTIONS[task]
    for path in (f"layer_0/attention/{projection}/kernel", "token_embedding/embeddings"):
        assert sharded["shares"][path] == 0.5
    kernels = {path: share for path, share in sharded["shares"].items() if path.endswith("kernel")}
    whole = {path for path, share in kernels.items() if share == 1}
    assert whole <= {"classifier/dense/kernel", "next_sentence/dense/kernel"}
    # The Pretrainer's optimizer state is also sharded over the other axis.
    share = 0.25 if task == "Pretrainer" else 0.5
    for slot in ("momentum", "velocity"):
        assert sharded["shares"][f"adamw/layer_0_attention_{projection}_kernel_{slot}"] == share


def test_preset_is_loaded_into_shards(answers):
    assert set(answers["preset"]["differences"]) == {0.0}
    shares = answers["preset"]["shares"]
    assert shares["layer_0/feed_forward/output_projection/kernel"] == 0.5
    assert shares["layer_0/feed_forward_norm/gamma"] == 1


def test_mesh_without_model_axis_raises():
    mesh = keras.distribution.DeviceMesh((1,), ("batch",), devices=["cpu:0"])
    message = r"must be an axis of the device mesh, one of 'batch'\. Received: 'model'"
    with pytest.raises(ValueError, match=message):
        Backbone.get_layout_map(mesh)


def test_shard_state_on_one_device():
    optimizer = AdamW.from_config(AdamW(shard_state=True).get_config())
    assert optimizer.shard_state
    variable = keras.Variable([1.0, 2.0])
    optimizer.apply([keras.ops.ones(2)], [variable])
    assert float(variable[0]) < 1
