# SPDX-License-Identifier: Apache-2.0

import time

import keras
import numpy as np
import pytest

import keras_bert
from keras_bert import BertConfig
from training.costs import model_flops
from training.costs.model_flops import (
    bfloat16_speedup,
    fine_tuning_flops,
    num_parameters,
    peak_flops,
    training_flops,
)


def test_num_parameters_initializes_no_weights(monkeypatch):
    def make_model():
        config = BertConfig.from_name("bert_tiny_uncased")
        return keras_bert.MaskedLM(keras_bert.Backbone(config))

    expected = make_model().count_params()

    def raise_error(*_, **__):
        raise AssertionError("a weight is initialized")

    monkeypatch.setattr(keras.initializers.TruncatedNormal, "__call__", raise_error)
    assert num_parameters(make_model) == expected
    with keras.StatelessScope():
        pass  # On exit, Keras initializes all variables whose initialization is deferred.


def test_bert_base_flops():
    config = BertConfig.from_name("bert_base_uncased")
    weights = 12 * (4 * 768 * 768 + 2 * 768 * 3072)
    attention = 12 * 2 * 2 * 128 * 768
    flops = training_flops(config, 8, 128, 0, False, reads_all=True)
    assert flops == 3 * 8 * 128 * (2 * weights + attention)


def test_pruned_heads_are_not_counted():
    config = BertConfig(num_layers=2, hidden_dim=64, num_heads=8, intermediate_dim=128)
    pruned = config.replace(heads_by_layer=(8, 2))
    saved = [
        training_flops(config, 4, 16, 3, False, reads_all=reads_all)
        - training_flops(pruned, 4, 16, 3, False, reads_all=reads_all)
        for reads_all in (True, False)
    ]
    # Six heads of dimension 8: Q, K, V and the output of every token, and both matmuls of attention
    for tokens, saved_flops in zip((16, 3), saved, strict=True):
        assert saved_flops == 3 * 4 * 2 * 48 * (16 * (3 * 64 + 2 * 16) + tokens * 64)


def test_modernbert_flops_follow_attention_windows():
    config = BertConfig.from_name("modernbert_base")
    weights = 22 * (4 * 768 * 768 + 3 * 768 * 1152)
    for length, attended in ((128, 22 * 128), (1024, 8 * 1024 + 14 * 129)):
        attention = 2 * 2 * attended * 768
        flops = training_flops(config, 8, length, 0, False, reads_all=True)
        assert flops == 3 * 8 * length * (2 * weights + attention)


def test_disentangled_position_flops():
    config = BertConfig(num_layers=1, hidden_dim=64, num_heads=8, intermediate_dim=128)
    relative = config.replace(relative_positions="disentangled")
    added = training_flops(relative, 4, 16, 0, False, reads_all=True)
    added -= training_flops(config, 4, 16, 0, False, reads_all=True)
    pair_flops, distance_flops = 2 * (2 * 31 * 64), 12 * 64 * 64 // 4
    assert added == 3 * 4 * 16 * (pair_flops + distance_flops)


def test_grouped_query_attention_flops():
    config = BertConfig(num_layers=2, hidden_dim=64, num_heads=8, intermediate_dim=128)
    grouped = config.replace(num_key_value_heads=2)
    saved = training_flops(config, 4, 16, 0, False, reads_all=True)
    saved -= training_flops(grouped, 4, 16, 0, False, reads_all=True)
    # Both layers save keys and values for six heads with dimension 8.
    assert saved == 3 * 4 * 16 * 2 * 2 * (2 * 64 * 48)


@pytest.mark.parametrize("next_sentence", [False, True])
def test_last_layer_counts_only_positions_read(next_sentence):
    config = BertConfig.from_name("bert_base_uncased")
    read = 19 + next_sentence
    all_flops = training_flops(config, 8, 128, 19, next_sentence, reads_all=True)
    saved = all_flops - training_flops(config, 8, 128, 19, next_sentence)
    assert saved == 3 * 8 * (128 - read) * 2 * (768 * 768 + 2 * 768 * 3072)
    causal = config.replace(causal=True)
    assert training_flops(causal, 8, 128, 19, next_sentence) == all_flops


def test_mlm_and_nsp_head_flops():
    config = BertConfig.from_name("bert_tiny_uncased")
    base = training_flops(config, 1, 16, 0, False, reads_all=True)
    mlm_flops = training_flops(config, 1, 16, 3, False, reads_all=True) - base
    assert mlm_flops == 3 * 3 * 2 * 128 * (128 + 30522)
    assert training_flops(config, 1, 16, 0, True, reads_all=True) - base == 3 * 2 * 128 * (128 + 2)


def test_embedding_projection_flops():
    config = BertConfig(hidden_dim=64, num_heads=1, vocabulary_size=1000, embedding_dim=16)
    wide = config.replace(embedding_dim=None)
    base = training_flops(config, 1, 8, 0, False, reads_all=True)
    projection_flops = base - training_flops(wide, 1, 8, 0, False, reads_all=True)
    assert projection_flops == 3 * 8 * 2 * 16 * 64
    mlm_flops = training_flops(config, 1, 8, 5, False, reads_all=True) - base
    assert mlm_flops == 3 * 5 * 2 * 16 * (64 + 1000)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_peak_flops_is_plausible(monkeypatch, dtype):
    monkeypatch.setattr("training.costs.model_flops._SIZES_ON_CPU", (32, 64))
    assert 1e6 < peak_flops(dtype) < 1e16
    assert np.isfinite(peak_flops(dtype))


@pytest.mark.backend_independent
def test_slow_matmuls_are_measured_briefly(monkeypatch):
    """For example, PyTorch's bfloat16 matmuls without bfloat16 instructions."""
    sizes = []

    def multiply_slowly(factor):
        sizes.append(factor.shape[0])
        time.sleep(0.02)

    monkeypatch.setattr(model_flops, "_SIZES_ON_CPU", (32, 64))
    monkeypatch.setattr(model_flops, "_MAX_SECONDS", 0.03)
    monkeypatch.setattr(model_flops, "_multiply", multiply_slowly)
    assert 0 < peak_flops.__wrapped__("float32") < 2 * 32**3 / 0.02
    assert sizes == [32] * 3  # once before the measurement
    assert bfloat16_speedup.__wrapped__() > 0
    assert len(sizes) == 3 + 2 + 2


def test_bfloat16_speedup_is_measured_once():
    speedup = bfloat16_speedup()
    assert 0.001 < speedup < 1000
    assert bfloat16_speedup() == speedup


@pytest.mark.skipif(keras.backend.backend() != "torch", reason="PyTorch has a profiler of FLOPs")
@pytest.mark.parametrize("reads_all", [False, True])
@pytest.mark.parametrize(
    "changes",
    [{}, {"feed_forward": "gated", "positions": "rotary", "norm_placement": "pre"}],
    ids=["bert", "modern"],
)
def test_fine_tuning_flops_match_profiler(changes, reads_all):
    from torch.utils.flop_counter import FlopCounterMode

    config = BertConfig(
        vocabulary_size=50, num_layers=2, num_heads=2, hidden_dim=64, intermediate_dim=256
    ).replace(**changes)
    backbone = keras_bert.Backbone(config)
    task_class = keras_bert.TokenClassifier if reads_all else keras_bert.TextClassifier
    task = task_class(backbone, num_classes=2)
    length = 24
    task.compile("sgd")

    def step_flops():
        ids = np.ones((4, length), "int32")
        x = {"token_ids": ids, "segment_ids": 0 * ids, "padding_mask": ids}
        with FlopCounterMode(display=False) as counter:
            task.fit(x, 0 * (ids if reads_all else ids[:, 0]), verbose=0)
        return counter.get_total_flops()

    # Before its first step, Keras computes shapes. The profiler counts those FLOPs as well.
    step_flops()
    expected = fine_tuning_flops(config, np.full(4, length), reads_all)
    assert step_flops() == pytest.approx(expected, rel=0.02)
