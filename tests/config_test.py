# SPDX-License-Identifier: Apache-2.0
"""`BertConfig`: valid values, errors and serialization."""

import pytest

from keras_bert.config import BertConfig, ConfigError

pytestmark = pytest.mark.backend_independent


INVALID_VALUES = [
    *[
        (name, value, "an integer above 0")
        for name in (
            "vocabulary_size", "num_heads", "hidden_dim",
            "intermediate_dim", "max_sequence_length", "num_layer_groups",
        )
        for value in (0, True)
    ],
    *[
        (name, value, "a number in [0, 1)")
        for name in ("dropout", "attention_dropout", "classifier_dropout")
        for value in (-0.1, 1.0)
    ],
    *[
        (name, value, "an integer of at least 0")
        for name in ("num_segments", "position_offset", "pad_token_id")
        for value in (-1, 0.5)
    ],
    *[
        ("num_layers", value, "an integer in [1, 10000]")
        for value in (0, 1.5, "12", None, True, 10_001)
    ],
    ("embedding_dim", 0, "None or an integer above 0"),
    ("layer_sharing", "half", "one of none, all, attention, feed_forward"),
    ("masked_lm_activation", "gelu", "None or one of gelu_erf"),
    ("pooler_activation", None, "one of gelu_erf"),
    *[
        (name, 1, "True or False")
        for name in (
            "pooler", "pooler_norm", "token_pooler", "head_bias", "attention_bias",
            "feed_forward_bias", "norm_bias", "first_attention_norm", "embedding_norm",
            "masked_lm_bias", "scaled_initializer",
        )
    ],
    *[
        (name, value, "None or an integer above 0")
        for name in ("num_key_value_heads", "attention_window", "global_attention_every")
        for value in (0, 1.5)
    ],
    *[
        (name, value, "None or a number in [0, 1)")
        for name in ("embedding_dropout", "token_dropout")
        for value in (1, "0.1")
    ],
    ("intermediate_bias", 0, "None or True or False"),
    ("positions", "counted", "one of learned, rotary"),
    ("relative_positions", "t5", "None or one of bucketed, disentangled"),
    ("relative_buckets", 0, "an integer above 0"),
    ("relative_distance", 0.5, "an integer in [1, 1048576]"),
    ("masked_lm_head", "dense", "one of tied, linear"),
    ("rotary_base", 0, "a finite number above 0"),
    ("rotary_scale", 0, "a finite number above 0"),
    ("local_rotary_base", -1.0, "None or a finite number above 0"),
    ("feed_forward", "glu", "one of plain, gated"),
    ("norm", "batch_norm", "one of layer_norm, rms_norm"),
    ("norm_placement", None, "one of post, pre"),
    ("pooling", "cls", "None or one of first, last, mean, late"),
    ("tokenizer", "bpe", "one of wordpiece, byte_pair, sentence_piece"),
    ("dropout", None, "a number in [0, 1)"),
    ("pooler_dropout", None, "a number in [0, 1)"),
    ("answer_dropout", 1, "a number in [0, 1)"),
    *[
        (name, value, "a finite number above 0")
        for name in ("layer_norm_epsilon", "initializer_range")
        for value in (0, float("inf"))
    ],
    ("activation", "gelu", "one of gelu_erf, gelu_tanh, relu, silu, tanh"),
    ("activation", None, "one of gelu_erf, gelu_tanh, relu, silu, tanh"),
    ("causal", 1, "True or False"),
    ("output_hidden_states", 1, "True or False"),
    ("output_attention_scores", "yes", "True or False"),
    *[
        ("heads_by_layer", value, "None or a tuple of integers above 0")
        for value in ((), (12, 0), 12, (1.5,))
    ],
]  # fmt: skip

KERAS_HUB_NAMES = {
    "bert_tiny_en_uncased": "bert_tiny_uncased",
    "bert_small_en_uncased": "bert_small_uncased",
    "bert_medium_en_uncased": "bert_medium_uncased",
    "bert_base_en_uncased": "bert_base_uncased",
    "bert_base_en": "bert_base_cased",
    "bert_base_zh": "bert_base_chinese",
    "bert_base_multi": "bert_base_multilingual_cased",
    "bert_large_en_uncased": "bert_large_uncased",
    "bert_large_en": "bert_large_cased",
    "roberta_base_en": "roberta_base",
    "albert_extra_large_en_uncased": "albert_xlarge_v2",
    "distil_bert_base_multi": "distilbert_base_multilingual_cased",
    "electra_small_generator_uncased_en": "electra_small_generator",
}


@pytest.mark.parametrize(("name", "value", "allowed"), INVALID_VALUES)
def test_error_includes_field_value_and_rule(name, value, allowed):
    with pytest.raises(ConfigError) as error:
        BertConfig(**{name: value})
    message = str(error.value)
    assert message.startswith(f"BertConfig.{name} must be ")
    assert message.endswith(f"Received: {value!r}")
    assert allowed in message


def test_num_heads_must_divide_hidden_dim():
    with pytest.raises(
        ConfigError, match=r"num_heads must divide hidden_dim \(768\)\. Received: 5"
    ):
        BertConfig(num_heads=5)


def test_heads_by_layer():
    sizes = {"num_layers": 2, "num_heads": 4, "hidden_dim": 8}
    config = BertConfig(**sizes, heads_by_layer=[4, 1])
    assert config.heads_by_layer == config.effective_heads_by_layer == (4, 1)
    assert config.head_dim == 2
    assert BertConfig(**sizes).effective_heads_by_layer == (4, 4)
    assert BertConfig.from_json(config.to_json()) == config
    assert hash(config) != hash(BertConfig(**sizes))
    for changes, message in (
        (
            {"heads_by_layer": (4, 1, 1)},
            r"must have 2 values, one per layer\. Received: \(4, 1, 1\)",
        ),
        ({"heads_by_layer": (4, 5)}, r"at most num_heads \(4\)"),
        ({"layer_sharing": "all"}, "equal for layers that share their attention"),
    ):
        with pytest.raises(ConfigError, match=message):
            config.replace(**changes)


def test_defaults_match_bert_base():
    config = BertConfig()
    assert (config.num_layers, config.hidden_dim, config.num_heads) == (12, 768, 12)
    assert (config.intermediate_dim, config.max_sequence_length) == (3072, 512)
    assert (config.num_segments, config.dropout, config.attention_dropout) == (2, 0.1, 0.1)
    assert (config.layer_norm_epsilon, config.initializer_range) == (1e-12, 0.02)


def test_classifier_dropout_defaults_to_dropout():
    assert BertConfig(dropout=0.3).effective_classifier_dropout == 0.3
    assert BertConfig(classifier_dropout=0.0).effective_classifier_dropout == 0.0


def test_replace_validates_a_copy():
    config = BertConfig()
    assert config.replace(num_layers=2) == BertConfig(num_layers=2)
    assert config.num_layers == 12
    with pytest.raises(
        ConfigError, match=r"num_layers must be an integer in \[1, 10000\]\. Received: 0"
    ):
        config.replace(num_layers=0)
    with pytest.raises(ConfigError, match=r"has no field 'layers'\. The fields are: vocabulary"):
        config.replace(layers=2)


@pytest.mark.parametrize("name", BertConfig.names())
def test_json_round_trip_of_standard_configs(name):
    config = BertConfig.from_name(name)
    assert BertConfig.from_json(config.to_json()) == config
    assert BertConfig.from_dict(config.to_dict()) == config


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"num_layers": 3', "cannot be parsed"),
        ("[1, 2]", "must be an object. Received: list"),
        ('{"num_layer": 3}', "has no field 'num_layer'"),
        ('{"num_layers": 3.0}', r"num_layers must be an integer in \[1, 10000\]"),
        ('{"dropout": NaN}', r"dropout must be a number in \[0, 1\)\. Received: nan"),
    ],
)
def test_invalid_json_raises(text, message, tmp_path):
    with pytest.raises(ConfigError, match=message):
        BertConfig.from_json(text)
    path = tmp_path / "config.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=rf"config\.json: .*{message}"):
        BertConfig.from_json_file(path)


def test_json_file_round_trip(tmp_path):
    path = tmp_path / "config.json"
    path.write_text(BertConfig(num_heads=6).to_json(), encoding="utf-8")
    assert BertConfig.from_json_file(path) == BertConfig(num_heads=6)


@pytest.mark.parametrize(("alias", "name"), KERAS_HUB_NAMES.items())
def test_keras_hub_names_are_aliases(alias, name):
    assert BertConfig.from_name(alias) == BertConfig.from_name(name)
    assert alias not in BertConfig.names()


def test_unknown_name_error_lists_names():
    with pytest.raises(ConfigError) as error:
        BertConfig.from_name("bert_huge_uncased")
    assert "'bert_huge_uncased'" in str(error.value)
    assert all(name in str(error.value) for name in BertConfig.names())


@pytest.mark.parametrize(
    "name",
    [name for name in BertConfig.names() if BertConfig.from_name(name).feed_forward == "plain"],
)
def test_standard_configs_keep_bert_proportions(name):
    config = BertConfig.from_name(name)
    assert config.intermediate_dim == 4 * config.hidden_dim
    exceptions = {"minilm": 12, "albert_xlarge": 16}
    heads = [count for start, count in exceptions.items() if name.startswith(start)]
    assert config.num_heads == (heads[0] if heads else config.hidden_dim // 64)
    # The TF1 code of BERT and ALBERT approximates GELU with tanh. Other models compute it exactly.
    assert config.activation == ("gelu_tanh" if name.startswith(("bert", "albert")) else "gelu_erf")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"num_key_value_heads": 5}, "num_key_value_heads must divide num_heads"),
        ({"pooling": "late"}, "pooling='late', BertConfig.pooler must be False"),
        (
            {"positions": "rotary", "num_heads": 256},
            "positions='rotary', the head dimension must be even. Received: 3",
        ),
        (
            {"relative_positions": "bucketed", "attention_window": 8},
            "attention_window must be None with relative_positions",
        ),
        (
            {"relative_positions": "disentangled", "relative_buckets": 128},
            "below relative_distance. Received: 128 with relative_distance=128",
        ),
        (
            {"num_key_value_heads": 4, "heads_by_layer": (12,) * 12},
            "heads_by_layer must be None with num_key_value_heads",
        ),
    ],
)
def test_contradictory_fields_raise(fields, message):
    with pytest.raises(ConfigError, match=message):
        BertConfig(**fields)


def test_windows_and_rotary_bases_by_layer():
    config = BertConfig.from_name("modernbert_base").replace(num_layers=5)
    assert config.attention_windows == (None, 64, 64, None, 64)
    assert config.rotary_bases == (160_000.0, 10_000.0, 10_000.0, 160_000.0, 10_000.0)
    assert config.attention_norms == (False, True, True, True, True)
    assert BertConfig(attention_window=3, num_layers=2).attention_windows == (3, 3)
    assert BertConfig().attention_windows == (None,) * 12
    assert BertConfig().rotary_bases == ()
