# SPDX-License-Identifier: Apache-2.0
"""Parameter counts of all standard configurations, computed without allocating memory.

The expected values are the parameter counts of the released models.
"""

import math

import keras
import pytest

from keras_bert.checkpoints.weights import backbone_weight_shapes
from keras_bert.config import BertConfig
from keras_bert.layers import ReplacedTokenHead
from keras_bert.models import Backbone
from keras_bert.tasks import MaskedLM, Pretrainer
from training.costs.model_flops import without_values

# The encoder, and its pooler if it has one
ENCODER = {
    "bert_base_uncased": 109_482_240,
    "bert_base_cased": 108_310_272,
    "bert_large_uncased": 335_141_888,
    "bert_large_uncased_whole_word": 335_141_888,
    "bert_large_cased": 333_579_264,
    "bert_large_cased_whole_word": 333_579_264,
    "bert_base_multilingual_cased": 177_853_440,
    "bert_base_chinese": 102_267_648,
    "minilm_l6_h384_uncased": 22_713_216,
    "minilm_l12_h384_uncased": 33_360_000,
    "bert_l2_h128_uncased": 4_385_920,
    "bert_l4_h128_uncased": 4_782_464,
    "bert_l6_h128_uncased": 5_179_008,
    "bert_l8_h128_uncased": 5_575_552,
    "bert_l10_h128_uncased": 5_972_096,
    "bert_l12_h128_uncased": 6_368_640,
    "bert_l2_h256_uncased": 9_591_040,
    "bert_l4_h256_uncased": 11_170_560,
    "bert_l6_h256_uncased": 12_750_080,
    "bert_l8_h256_uncased": 14_329_600,
    "bert_l10_h256_uncased": 15_909_120,
    "bert_l12_h256_uncased": 17_488_640,
    "bert_l2_h512_uncased": 22_458_880,
    "bert_l4_h512_uncased": 28_763_648,
    "bert_l6_h512_uncased": 35_068_416,
    "bert_l8_h512_uncased": 41_373_184,
    "bert_l10_h512_uncased": 47_677_952,
    "bert_l12_h512_uncased": 53_982_720,
    "bert_l2_h768_uncased": 38_603_520,
    "bert_l4_h768_uncased": 52_779_264,
    "bert_l6_h768_uncased": 66_955_008,
    "bert_l8_h768_uncased": 81_130_752,
    "bert_l10_h768_uncased": 95_306_496,
    "bert_l12_h768_uncased": 109_482_240,
    "bert_tiny_uncased": 4_385_920,
    "bert_mini_uncased": 11_170_560,
    "bert_small_uncased": 28_763_648,
    "bert_medium_uncased": 41_373_184,
    "roberta_base": 124_645_632,
    "roberta_large": 355_359_744,
    "distilroberta_base": 82_118_400,
    "albert_base_v1": 11_683_584,
    "albert_large_v1": 17_683_968,
    "albert_xlarge_v1": 58_724_864,
    "albert_xxlarge_v1": 222_595_584,
    "albert_base_v2": 11_683_584,
    "albert_large_v2": 17_683_968,
    "albert_xlarge_v2": 58_724_864,
    "albert_xxlarge_v2": 222_595_584,
    "distilbert_base_uncased": 66_362_880,
    "distilbert_base_cased": 65_190_912,
    "distilbert_base_multilingual_cased": 134_734_080,
    "electra_small_discriminator": 13_483_008,
    "electra_base_discriminator": 108_891_648,
    "electra_large_discriminator": 334_092_288,
    "electra_small_generator": 13_483_008,
    "electra_base_generator": 33_511_168,
    "electra_large_generator": 50_999_552,
    "xlm_roberta_base": 278_043_648,
    "xlm_roberta_large": 559_890_432,
    "camembert_base": 110_621_952,
    "nomic_bert": 136_731_648,
    "gte_multilingual_base": 305_368_320,
    "eurobert_210m": 211_766_016,
    "eurobert_610m": 607_874_688,
    "eurobert_2.1b": 2_107_590_912,
    "mpnet_base": 109_486_464,
    "deberta_v3_xsmall": 70_682_112,
    "deberta_v3_small": 141_304_320,
    "deberta_v3_base": 183_831_552,
    "deberta_v3_large": 434_012_160,
    "mdeberta_v3_base": 278_218_752,
    "modernbert_base": 149_014_272,
    "modernbert_large": 394_781_696,
    "ettin_17m": 16_797_440,
    "ettin_32m": 31_883_136,
    "ettin_68m": 68_144_640,
    "ettin_150m": 149_014_272,
    "ettin_400m": 394_781_696,
    "ettin_1b": 1_028_050_688,
    "mmbert_small": 140_493_696,
    "mmbert_base": 306_939_648,
}

# With the masked-LM head, and with both pretraining heads
PRETRAINING = {
    "bert_base_uncased": (110_104_890, 110_106_428),
    "bert_base_cased": (108_931_396, 108_932_934),
    "bert_large_uncased": (336_224_058, 336_226_108),
    "bert_large_cased": (334_659_908, 334_661_958),
    "bert_base_multilingual_cased": (178_565_115, 178_566_653),
    "bert_base_chinese": (102_880_904, 102_882_442),
}


def count_parameters(model: keras.Model) -> int:
    """Counts shared weights once."""
    return sum(math.prod(variable.shape) for variable in model.weights)


def test_all_standard_configs_have_expected_counts():
    assert ENCODER.keys() == set(BertConfig.names())


# Shapes are the same on every backend, so one backend counts all of them.
@pytest.mark.backend_independent
@pytest.mark.parametrize(("name", "expected"), ENCODER.items())
def test_encoder_parameter_count(name, expected):
    """Counts the expected weight shapes. parts_test.py compares them with a model's weights."""
    shapes = backbone_weight_shapes(BertConfig.from_name(name))
    assert sum(map(math.prod, shapes.values())) == expected


@pytest.mark.backend_independent
@pytest.mark.parametrize(("name", "expected"), PRETRAINING.items())
def test_pretraining_parameter_counts(name, expected):
    def models() -> tuple[keras.Model, keras.Model]:
        backbone = Backbone(BertConfig.from_name(name))
        return Pretrainer(backbone, next_sentence=False), Pretrainer(backbone)

    masked_lm, both = without_values(models)
    assert (count_parameters(masked_lm), count_parameters(both)) == expected


@pytest.mark.backend_independent
@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("distilbert_base_uncased", 66_985_530),
        ("nomic_bert", 137_354_304),
        ("modernbert_base", 149_655_232),
        ("modernbert_large", 395_881_664),
        ("mmbert_small", 140_897_536),
    ],
)
def test_masked_lm_parameter_count(name, expected):
    task = without_values(lambda: MaskedLM(Backbone(BertConfig.from_name(name))))
    assert count_parameters(task) == expected


# The encoder, and the head that detects replaced tokens
REPLACED_TOKEN = {"small": 13_549_057, "base": 109_483_009, "large": 335_142_913}


@pytest.mark.backend_independent
@pytest.mark.parametrize(("size", "expected"), REPLACED_TOKEN.items())
def test_electra_parameter_count(size, expected):
    def layers() -> tuple[Backbone, ReplacedTokenHead]:
        config = BertConfig.from_name(f"electra_{size}_discriminator")
        backbone, head = Backbone(config), ReplacedTokenHead(config.activation)
        head(backbone.output["sequence_output"])
        return backbone, head

    backbone, head = without_values(layers)
    assert count_parameters(backbone) + count_parameters(head) == expected


def test_base_model_parameter_count():
    backbone = without_values(lambda: Backbone(BertConfig.from_name("bert_base_uncased")))
    assert count_parameters(backbone) == 109_482_240
    assert backbone.count_params() == 109_482_240
