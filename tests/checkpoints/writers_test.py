# SPDX-License-Identifier: Apache-2.0
"""Random architectures are either read again from each format, or not written at all."""

import random

import keras
import numpy as np
import pytest

transformers = pytest.importorskip("transformers")

from keras_bert import checkpoints  # noqa: E402
from keras_bert.checkpoints import CheckpointError  # noqa: E402
from keras_bert.config import ACTIVATIONS, BertConfig, ConfigError  # noqa: E402
from keras_bert.models import Backbone  # noqa: E402
from keras_bert.tasks import MaskedLM  # noqa: E402
from keras_bert.text import tokenizer_from_config  # noqa: E402
from tests.checkpoints.families_test import make_inputs, reference_outputs  # noqa: E402
from tests.checkpoints.small_models import (  # noqa: E402
    VOCABULARY,
    classification_head,
    randomize,
)

pytestmark = pytest.mark.on_torch

SIZES = {
    **{"vocabulary_size": 20, "num_layers": 3, "num_heads": 2, "hidden_dim": 8},
    **{"intermediate_dim": 16, "max_sequence_length": 12},
}
STANDARD_NAMES = {
    "bert": "bert_base_uncased",
    "roberta": "roberta_base",
    "albert": "albert_base_v2",
    "electra": "electra_small_discriminator",
    "distilbert": "distilbert_base_uncased",
    "modernbert": "modernbert_base",
    "nomic_bert": "nomic_bert",
    "gte": "gte_multilingual_base",
    "eurobert": "eurobert_210m",
    "mpnet": "mpnet_base",
    "deberta-v2": "deberta_v3_small",
}
FAMILY_FIELDS = {
    "albert": {"embedding_dim": 4},
    "electra": {"embedding_dim": 4},
    "modernbert": {"pad_token_id": 0, "attention_window": 2},
    "eurobert": {"pad_token_id": 0, "num_key_value_heads": 1},
    "deberta-v2": {"relative_buckets": 4, "relative_distance": 8},
}
BOOL = (False, True)
VALUES = {
    "embedding_dim": (None, 4, 8),
    "layer_sharing": ("none", "all", "attention"),
    "num_layer_groups": (1, 2, 3),
    "num_key_value_heads": (None, 1, 2),
    "heads_by_layer": (None, (2, 2, 2), (1, 2, 2)),
    "num_segments": (0, 1, 2, 3),
    "position_offset": (0, 1, 2),
    "pad_token_id": (0, 1, 2),
    "rotary_base": (10_000.0, 7.0),
    "local_rotary_base": (None, 5.0),
    "rotary_scale": (1.0, 0.5),
    "attention_window": (None, 1, 2),
    "global_attention_every": (None, 1, 2, 3, 4),
    **dict.fromkeys(("attention_bias", "feed_forward_bias", "masked_lm_bias", "head_bias"), BOOL),
    **dict.fromkeys(("norm_bias", "first_attention_norm", "embedding_norm", "pooler"), BOOL),
    **dict.fromkeys(("pooler_norm", "token_pooler", "causal"), BOOL),
    "intermediate_bias": (None, *BOOL),
    "norm": ("layer_norm", "rms_norm"),
    "norm_placement": ("post", "pre"),
    **dict.fromkeys(("activation", "pooler_activation"), ACTIVATIONS),
    "masked_lm_activation": (None, *ACTIVATIONS),
    "masked_lm_head": ("tied", "linear"),
    "pooling": (None, "first", "last", "mean", "late"),
    "layer_norm_epsilon": (1e-12, 1e-5),
}
FORMATS = {
    "preset": checkpoints.save_preset,
    "hugging_face": checkpoints.save_hugging_face,
    "google_tf1": checkpoints.save_google_tf1,
}


def make_config(family, **changes):
    return BertConfig.from_name(STANDARD_NAMES[family]).replace(
        **{**SIZES, **FAMILY_FIELDS.get(family, {}), **changes}
    )


def make_model(config, has_masked_lm):
    backbone = Backbone(config)
    model = MaskedLM(backbone) if has_masked_lm else backbone
    randomize(model)
    return model


def compute_outputs(model, config):
    inputs = make_inputs(config)
    backbone = getattr(model, "backbone", model)
    hidden = backbone(inputs)
    hidden = hidden["sequence_output"] if isinstance(hidden, dict) else hidden
    if model is backbone:
        return keras.ops.convert_to_numpy(hidden)[inputs["padding_mask"]]
    positions = np.tile(np.arange(6), (3, 1))
    logits = model({**inputs, "mask_positions": positions})
    return keras.ops.convert_to_numpy(logits)[inputs["padding_mask"]]


def save(model, name, directory):
    heads = model.heads if isinstance(model, MaskedLM) else {}
    backbone = getattr(model, "backbone", model)
    FORMATS[name](backbone, directory, heads=heads)


def load(directory, has_masked_lm):
    checkpoint = checkpoints.open_checkpoint(directory)
    model = make_model(checkpoint.config, has_masked_lm)
    checkpoint.load_into(getattr(model, "backbone", model), pooler_is_used=False)
    if has_masked_lm:
        assert checkpoint.load_head("masked_lm", model.heads["masked_lm"])
    return model


@pytest.mark.parametrize("count", [6, pytest.param(600, marks=pytest.mark.release)])
def test_random_architectures_round_trip(count, tmp_path):
    num_saved = 0
    for seed in range(count):
        generator = random.Random(seed)
        family = list(STANDARD_NAMES)[seed % len(STANDARD_NAMES)]
        names = generator.sample(list(VALUES), generator.randrange(3))
        try:
            config = make_config(family, **{name: generator.choice(VALUES[name]) for name in names})
        except ConfigError:
            continue
        has_masked_lm = generator.random() < 0.5
        model = make_model(config, has_masked_lm)
        outputs = compute_outputs(model, config)
        for name in FORMATS:
            directory = tmp_path / f"{seed}_{name}"
            try:
                save(model, name, directory)
            except CheckpointError:
                assert not directory.exists()
                continue
            num_saved += 1
            restored_outputs = compute_outputs(load(directory, has_masked_lm), config)
            np.testing.assert_allclose(
                restored_outputs, outputs, atol=1e-5, err_msg=f"{seed} {config}"
            )
            if name == "hugging_face" and seed % 2:
                kind = "AutoModelForMaskedLM" if has_masked_lm else "AutoModel"
                transformers_model = getattr(transformers, kind).from_pretrained(directory).eval()
                inputs = make_inputs(config)
                reference = reference_outputs(transformers_model, inputs)[0][inputs["padding_mask"]]
                np.testing.assert_allclose(
                    reference, outputs, atol=1e-5, err_msg=f"{seed} {config}"
                )
    assert num_saved > 1.3 * count


@pytest.mark.parametrize(
    ("family", "changes", "field"),
    [
        ("modernbert", {"global_attention_every": None}, "attention_window=None"),
        ("modernbert", {"activation": "silu"}, "masked_lm_activation="),
        (
            "modernbert",
            {"pooling": "late"},
            "pooling must be one of first, mean in this format. Received: 'late'",
        ),
        ("electra", {"embedding_dim": 8}, "embedding_dim=None"),
        ("eurobert", {"masked_lm_bias": True}, "masked_lm_bias=False"),
        ("eurobert", {"feed_forward_bias": True}, "masked_lm_bias=True"),
        (
            "eurobert",
            {"pooling": "last"},
            "pooling must be one of first, mean, late in this format. Received: 'last'",
        ),
        ("mpnet", {"pad_token_id": 0, "position_offset": 1}, "pad_token_id must be 1"),
    ],
)
def test_unsupported_field_error_includes_family(family, changes, field, tmp_path):
    model = MaskedLM(Backbone(make_config(family, **changes)))
    with pytest.raises(CheckpointError, match=rf"{family} requires [^;]*{field}"):
        save(model, "hugging_face", tmp_path / "new")
    assert not (tmp_path / "new").exists()


@pytest.mark.on_tensorflow
@pytest.mark.parametrize("name", FORMATS)
def test_quantized_head_is_not_saved(name, tmp_path):
    backbone = Backbone(make_config("bert", activation="gelu_tanh"))
    head = classification_head(8, 2)
    FORMATS[name](backbone, tmp_path, heads={"classifier": head})
    head.dense.quantize("int8")
    files = {path: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(CheckpointError, match="Received: quantized layers"):
        FORMATS[name](backbone, tmp_path, heads={"classifier": head})
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == files


def test_modernbert_with_wordpiece_is_read(tmp_path):
    backbone = Backbone(make_config("modernbert"))
    tokenizer = {"vocabulary": VOCABULARY}
    checkpoints.save_hugging_face(backbone, tmp_path, tokenizer=tokenizer)
    transformers_tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path)
    text = "a gripping films."
    assert transformers_tokenizer(text)["input_ids"] == tokenizer_from_config(tokenizer).encode(
        text
    )
