# SPDX-License-Identifier: Apache-2.0
"""Compares the parameter counts of other libraries' models with keras_bert's models."""

import pytest

from keras_bert import Backbone, BertConfig
from keras_bert.families import SIZES
from training.benchmarks import peers
from training.benchmarks.workload import Workload

pytestmark = [pytest.mark.backend_independent, pytest.mark.needs_tensorflow]

MODELS = {
    "bert": "bert_base_uncased",
    "roberta": "roberta_base",
    "albert": "albert_base_v2",
    "distilbert": "distilbert_base_uncased",
    "electra": "electra_small_discriminator",
}
SMALL = {"vocabulary_size": 60, "num_layers": 2, "num_heads": 2, "hidden_dim": 16}


def small_config(family: str) -> BertConfig:
    return BertConfig(**{**SIZES[MODELS[family]], **SMALL, "intermediate_dim": 32})


@pytest.mark.parametrize("family", MODELS)
def test_transformers_parameter_count_matches(family):
    config = small_config(family)
    assert peers.find_family(config).name == family
    model = peers.transformers_class(config, "Model")(peers.transformers_config(config))
    assert model.num_parameters() == Backbone(config).count_params()


@pytest.mark.parametrize("work", ["forward", "classify", "pretrain"])
def test_transformers_work_runs_on_random_ids(work):
    pytest.importorskip("torch")
    from training.benchmarks.torch_subject import transformers_work

    workload = Workload(work, "bert_tiny_uncased", "float32", 2, 8, 0.0, 1, 0.0)
    assert transformers_work(workload)(1).steps == 1


@pytest.mark.parametrize("family", MODELS)
def test_keras_hub_parameter_count_matches(family):
    config = small_config(family)
    width = config.hidden_dim
    pooler = width * width + width
    # KerasHub's RoBERTa has no pooler, no segment and no positions for padding. Its ELECTRA has a
    # pooler.
    difference = {"roberta": -pooler - 3 * width, "electra": pooler}.get(family, 0)
    actual = peers.keras_hub_backbone(config).count_params()
    assert actual == Backbone(config).count_params() + difference
