# SPDX-License-Identifier: Apache-2.0
"""The models of other libraries in a benchmark have the same number of weights as ours."""

import pytest

from keras_bert import Backbone, BertConfig
from keras_bert.families import SIZES
from training.benchmarks import peers
from training.benchmarks.workload import Workload

pytestmark = [pytest.mark.backend_independent, pytest.mark.needs_tensorflow]

NAMES = {
    "bert": "bert_base_uncased",
    "roberta": "roberta_base",
    "albert": "albert_base_v2",
    "distilbert": "distilbert_base_uncased",
    "electra": "electra_small_discriminator",
}
SMALL = {"vocabulary_size": 60, "num_layers": 2, "num_heads": 2, "hidden_dim": 16}


def small(family: str) -> BertConfig:
    return BertConfig(**{**SIZES[NAMES[family]], **SMALL, "intermediate_dim": 32})


@pytest.mark.parametrize("family", NAMES)
def test_transformers_has_as_many_weights(family):
    config = small(family)
    assert peers.find_family(config).name == family
    model = peers.transformers_class(config, "Model")(peers.transformers_config(config))
    assert model.num_parameters() == Backbone(config).count_params()


@pytest.mark.parametrize("what", ["forward", "classify", "pretrain"])
def test_transformers_computes_random_ids(what):
    pytest.importorskip("torch")
    from training.benchmarks.torch_subject import transformers_work

    workload = Workload(what, "bert_tiny_uncased", "float32", 2, 8, 0.0, 1, 0.0)
    assert transformers_work(workload)(1).steps == 1


@pytest.mark.parametrize("family", NAMES)
def test_keras_hub_has_as_many_but_for_what_it_leaves_out(family):
    config = small(family)
    width = config.hidden_dim
    pooler = width * width + width
    # Its RoBERTa has no pooler, no segment and no positions for padding; its ELECTRA has a pooler.
    difference = {"roberta": -pooler - 3 * width, "electra": pooler}.get(family, 0)
    theirs = peers.keras_hub_backbone(config).count_params()
    assert theirs == Backbone(config).count_params() + difference
