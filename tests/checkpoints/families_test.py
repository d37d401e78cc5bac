# SPDX-License-Identifier: Apache-2.0
"""Compares BERT and its descendants, in Hugging Face's format, with the transformers library."""

import json
import re
import warnings

import keras
import numpy as np
import pytest
import torch
import transformers
from safetensors.numpy import load_file, save_file

from keras_bert import checkpoints
from keras_bert.checkpoints import CheckpointError
from keras_bert.config import BertConfig
from keras_bert.families import FAMILIES
from keras_bert.layers import ReplacedTokenHead
from keras_bert.models import Backbone
from keras_bert.tasks import (
    MaskedLM,
    MultipleChoice,
    NextSentencePredictor,
    Pretrainer,
    QuestionAnswerer,
    TextClassifier,
    TokenClassifier,
)
from tests.checkpoints.small_models import (
    compute_outputs,
    edit_json,
    random_inputs,
    read_task,
    small_config,
)

# Readers and writers do the same on all backends.
pytestmark = pytest.mark.on_torch

SIZES = {
    "vocab_size": 20,
    "hidden_size": 8,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "intermediate_size": 16,
    "max_position_embeddings": 12,
}
SPECIAL_TOKENS = {
    f"{name}_token_id": index for index, name in enumerate(("pad", "bos", "eos", "cls", "sep"))
}
# Each config has values that differ from the defaults of the transformers config.
CONFIGS = {
    "bert": {
        "config": "BertConfig",
        "plain": SIZES,
        "other": {
            **SIZES,
            "hidden_act": "relu",
            "num_attention_heads": 4,
            "type_vocab_size": 3,
            "layer_norm_eps": 1e-5,
            "hidden_dropout_prob": 0.25,
            "attention_probs_dropout_prob": 0.5,
            "classifier_dropout": 0.3,
        },
    },
    "roberta": {
        "config": "RobertaConfig",
        "plain": {**SIZES, "type_vocab_size": 1, "layer_norm_eps": 1e-5},
        "other": {
            **SIZES,
            "max_position_embeddings": 15,
            "pad_token_id": 3,
            "type_vocab_size": 2,
            "hidden_act": "gelu_new",
            "classifier_dropout": 0.3,
        },
    },
    "albert": {
        "config": "AlbertConfig",
        "plain": {**SIZES, "embedding_size": 4},
        "other": {
            **SIZES,
            "embedding_size": 8,
            "num_hidden_groups": 2,
            "hidden_act": "relu",
            "layer_norm_eps": 1e-6,
            "type_vocab_size": 3,
        },
    },
    "electra": {
        "config": "ElectraConfig",
        "plain": {**SIZES, "embedding_size": 4},
        "other": {
            **SIZES,
            "embedding_size": 8,
            "hidden_act": "gelu_new",
            "layer_norm_eps": 1e-5,
            "type_vocab_size": 3,
        },
    },
    "distilbert": {
        "config": "DistilBertConfig",
        "plain": {
            "vocab_size": 20,
            "dim": 8,
            "n_layers": 3,
            "n_heads": 2,
            "hidden_dim": 16,
            "max_position_embeddings": 12,
        },
        "other": {
            "vocab_size": 20,
            "dim": 12,
            "n_layers": 2,
            "n_heads": 3,
            "hidden_dim": 20,
            "max_position_embeddings": 9,
            "activation": "relu",
            "seq_classif_dropout": 0.4,
            "qa_dropout": 0.3,
            "sinusoidal_pos_embds": True,
        },
    },
    "nomic_bert": {
        "config": "NomicBertConfig",
        "plain": {**SIZES, "head_dim": 4, "rope_parameters": {"rope_theta": 7.0}},
        "other": {
            **SIZES,
            "hidden_size": 12,
            "head_dim": 6,
            "hidden_act": "gelu",
            "layer_norm_eps": 1e-3,
            "type_vocab_size": 3,
            "pad_token_id": 3,
            "classifier_dropout": 0.3,
        },
    },
    "gte": {
        "config": "GteConfig",
        "plain": {**SIZES, "rope_parameters": {"rope_type": "default", "rope_theta": 7.0}},
        "other": {
            **SIZES,
            "hidden_act": "silu",
            "layer_norm_eps": 1e-3,
            "type_vocab_size": 3,
            "pad_token_id": 3,
            "classifier_dropout": 0.3,
        },
    },
    "eurobert": {
        "config": "EuroBertConfig",
        "plain": {**SIZES, **SPECIAL_TOKENS, "num_key_value_heads": 2, "head_dim": 4},
        "other": {
            **SIZES,
            **SPECIAL_TOKENS,
            "pad_token_id": 3,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "head_dim": 2,
            "hidden_act": "gelu",
            "rms_norm_eps": 1e-3,
            "rope_parameters": {"rope_type": "default", "rope_theta": 7.0},
            "classifier_pooling": "mean",
            "attention_bias": True,
            "mlp_bias": True,
        },
    },
    "modernbert": {
        "config": "ModernBertConfig",
        "plain": {**SIZES, **SPECIAL_TOKENS, "local_attention": 4},
        "other": {
            **SIZES,
            **SPECIAL_TOKENS,
            "pad_token_id": 3,
            "global_attn_every_n_layers": 2,
            "local_attention": 2,
            "global_rope_theta": 100.0,
            "local_rope_theta": 7.0,
            "hidden_activation": "silu",
            "classifier_activation": "tanh",
            "classifier_pooling": "mean",
            "classifier_dropout": 0.3,
            "norm_eps": 1e-3,
            **dict.fromkeys(("norm_bias", "attention_bias", "mlp_bias", "classifier_bias"), True),
        },
    },
}
DISENTANGLED = {
    "position_buckets": 4,
    "relative_attention": True,
    "position_biased_input": False,
    "pos_att_type": ["p2c", "c2p"],
    "share_att_key": True,
    "norm_rel_ebd": "layer_norm",
}
CONFIGS["mpnet"] = {
    "config": "MPNetConfig",
    "plain": {**SIZES, "layer_norm_eps": 1e-5},
    "other": {
        **SIZES,
        "hidden_act": "gelu_new",
        "max_position_embeddings": 14,
    },
}
CONFIGS["deberta-v2"] = {
    "config": "DebertaV2Config",
    "plain": {**SIZES, **DISENTANGLED},
    "other": {
        **SIZES,
        **DISENTANGLED,
        "max_relative_positions": 30,
        "pos_att_type": "c2p|p2c",
        "hidden_act": "relu",
        "layer_norm_eps": 1e-3,
        "cls_dropout": 0.3,
        "pooler_dropout": 0.2,
    },
}
CONFIGS["xlm-roberta"] = {**CONFIGS["roberta"], "config": "XLMRobertaConfig"}
CONFIGS["camembert"] = {**CONFIGS["roberta"], "config": "CamembertConfig"}
CASES = [
    (family, shape)
    for family in CONFIGS
    # XLM-RoBERTa and CamemBERT are RoBERTa under different names.
    for shape in (("plain",) if family in ("xlm-roberta", "camembert") else ("plain", "other"))
]


def select_cases(ending):
    """Returns the cases of families with this class, whose head depends on the config."""
    return [
        (family, shape)
        for family, shape in CASES
        if ending in FAMILIES[family].classes
        and (shape == "plain" or family == "modernbert" or ending == "ForMaskedLM")
    ]


PREFIX = {name: family.class_prefix for name, family in FAMILIES.items()}


def save_with_transformers(family, shape, ending, directory, **changes):
    """Saves and returns a transformers model with only random weights."""
    torch.manual_seed(0)
    fields = {**CONFIGS[family][shape], **changes}
    config = getattr(transformers, CONFIGS[family]["config"])(**fields)
    model = getattr(transformers, PREFIX[family] + ending)(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    model.save_pretrained(directory)
    return model


def reference_outputs(model, inputs, **kwargs):
    tensors = {
        "input_ids": torch.tensor(inputs["token_ids"]),
        "attention_mask": torch.tensor(inputs["padding_mask"].astype("int64")),
    }
    families_without_segments = ("distilbert", "modernbert", "eurobert", "mpnet", "deberta-v2")
    has_segments = model.config.model_type not in families_without_segments
    if has_segments and "segment_ids" in inputs:
        tensors["token_type_ids"] = torch.tensor(inputs["segment_ids"])
    with torch.no_grad():
        return model(**tensors, **kwargs)


def make_inputs(config: BertConfig):
    """Returns padded inputs. Only padding has the padding id, because RoBERTa counts positions."""
    inputs = random_inputs(config.replace(num_segments=max(config.num_segments, 1)), length=6)
    tokens = inputs["token_ids"]
    tokens[tokens == config.pad_token_id] = config.pad_token_id + 1
    inputs["token_ids"] = np.where(inputs["padding_mask"], tokens, config.pad_token_id)
    return inputs


def variable_to_numpy(variable):
    return keras.ops.convert_to_numpy(variable.value)


def tensor_to_numpy(tensor):
    return tensor.numpy()


@pytest.fixture
def no_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error", checkpoints.CheckpointWarning)
        yield


@pytest.mark.parametrize(("family", "shape"), CASES)
def test_hidden_states_match_transformers(family, shape, tmp_path, no_warning):
    model = save_with_transformers(family, shape, "Model", tmp_path)
    checkpoint = checkpoints.open_checkpoint(tmp_path)
    backbone = Backbone(checkpoint.config, output_hidden_states=True)
    checkpoint.load_into(backbone)
    assert checkpoint.unused() == []
    inputs = make_inputs(checkpoint.config)
    outputs = compute_outputs(backbone, inputs)
    expected = reference_outputs(model, inputs, output_hidden_states=True)
    assert len(expected.hidden_states) == checkpoint.config.num_layers + 1
    # For ELECTRA, transformers' first hidden state is before the projection, keras_bert's after it.
    mask = inputs["padding_mask"]
    for hidden, expected_hidden in zip(
        outputs["hidden_states"][1:], expected.hidden_states[1:], strict=True
    ):
        np.testing.assert_allclose(hidden[mask], expected_hidden[mask], atol=1e-5)
    if expected.get("pooler_output") is not None:
        np.testing.assert_allclose(outputs["pooled_output"], expected.pooler_output, atol=1e-5)


# tests/models/parts_test.py compares the other families with NumPy on each backend.
@pytest.mark.parametrize(
    "family",
    [
        *(
            pytest.param(family, marks=pytest.mark.on_each_backend)
            for family in ("modernbert", "mpnet", "deberta-v2")
        ),
        *("eurobert", "gte", "nomic_bert"),
    ],
)
def test_long_text_hidden_states_match_transformers(family, tmp_path, no_warning):
    sizes = {"max_position_embeddings": 2048, "hidden_size": 16, "vocab_size": 50}
    sizes |= {"num_hidden_layers": 2}  # ModernBERT: one global layer and one with a window
    changes = {"local_attention": 128} if family == "modernbert" else {}
    changes |= {"max_position_embeddings": 2050} if family == "mpnet" else {}
    changes |= {"head_dim": 8} if family in ("eurobert", "nomic_bert") else {}
    model = save_with_transformers(family, "plain", "Model", tmp_path, **{**sizes, **changes})
    checkpoint = checkpoints.open_checkpoint(tmp_path)
    backbone = Backbone(checkpoint.config, output_hidden_states=True)
    checkpoint.load_into(backbone)
    rng = np.random.default_rng(0)
    lengths = np.array([[2048], [1500]])
    mask = np.arange(2048) < lengths
    tokens = rng.integers(4, 50, mask.shape)
    inputs = {
        "token_ids": np.where(mask, tokens, checkpoint.config.pad_token_id),
        "segment_ids": np.zeros_like(tokens),
        "padding_mask": mask,
    }
    hidden_states = compute_outputs(backbone, inputs)["hidden_states"]
    expected_states = reference_outputs(model, inputs, output_hidden_states=True).hidden_states
    for hidden, expected_hidden in zip(hidden_states[1:], expected_states[1:], strict=True):
        np.testing.assert_allclose(hidden[mask], expected_hidden[mask], atol=1e-5)


@pytest.mark.parametrize("family", ["eurobert", "gte", "nomic_bert", "modernbert"])
def test_scaled_positions_match_transformers(family, tmp_path, no_warning):
    rope = {"rope_type": "linear", "rope_theta": 7.0, "factor": 2.5}
    # For all layer types of ModernBERT
    changes = {"rope_scaling" if family == "modernbert" else "rope_parameters": rope}
    model = save_with_transformers(family, "plain", "Model", tmp_path / "transformers", **changes)
    checkpoint = checkpoints.open_checkpoint(tmp_path / "transformers")
    assert checkpoint.config.rotary_scale == 0.4
    backbone = checkpoint.new_backbone()
    checkpoint.load_into(backbone)
    inputs = make_inputs(checkpoint.config)
    mask = inputs["padding_mask"]
    outputs = compute_outputs(backbone, inputs)["sequence_output"]
    expected = tensor_to_numpy(reference_outputs(model, inputs).last_hidden_state)
    np.testing.assert_allclose(outputs[mask], expected[mask], atol=1e-5)
    checkpoints.save_hugging_face(backbone, tmp_path / "saved")
    assert checkpoints.open_checkpoint(tmp_path / "saved").config == checkpoint.config
    saved_model = type(model).from_pretrained(tmp_path / "saved").eval()
    expected = tensor_to_numpy(reference_outputs(saved_model, inputs).last_hidden_state)
    np.testing.assert_allclose(outputs[mask], expected[mask], atol=1e-5)


def test_gte_ntk_scaling(tmp_path, no_warning):
    """The base is multiplied by the factor, and frequencies divided by its power `2 / head_dim`."""
    save_with_transformers("gte", "plain", "Model", tmp_path)
    for path, model_type in ((tmp_path / "config.json", "new"), (tmp_path / "config.json", "gte")):
        fields = json.loads(path.read_text())
        fields.pop("rope_parameters", None)
        fields |= {
            "model_type": model_type,
            "rope_theta": 20_000,
            "rope_scaling": {"type": "ntk", "factor": 8.0},
            "position_embedding_type": "rope",
            "layer_norm_type": "layer_norm",
            "logn_attention_scale": False,
        }
        path.write_text(json.dumps(fields))
        config = checkpoints.open_checkpoint(tmp_path).config
        assert config.rotary_base == 160_000
        assert config.rotary_scale == 8 ** (-2 / 4)
    checkpoint = checkpoints.open_checkpoint(tmp_path)
    checkpoint.load_into(checkpoint.new_backbone())
    assert checkpoint.unused() == []
    edit_json(tmp_path / "config.json", rope_scaling={"type": "yarn", "factor": 8.0})
    with pytest.raises(
        CheckpointError, match=r"rope_type in .* must be one of default, linear, ntk"
    ):
        checkpoints.open_checkpoint(tmp_path)
    mixed = {"type": "ntk", "factor": 8.0, "mixed_b": 0.6}
    edit_json(tmp_path / "config.json", rope_scaling=mixed)
    with pytest.raises(
        CheckpointError, match=r"must have a factor above 0 \(at least 1 for 'ntk'\), no mixed_b"
    ):
        checkpoints.open_checkpoint(tmp_path)


RELEASED_NOMIC_BERT = {
    "activation_function": "swiglu",
    "architectures": ["NomicBertForPreTraining"],
    "attn_pdrop": 0.0,
    "causal": False,
    "embd_pdrop": 0.1,
    "layer_norm_epsilon": 1e-12,
    "mlp_fc1_bias": False,
    "mlp_fc2_bias": False,
    "model_type": "nomic_bert",
    "n_embd": 8,
    "n_head": 2,
    "n_inner": 16,
    "n_layer": 3,
    "n_positions": 12,
    "pad_vocab_size_multiple": 64,
    "prenorm": False,
    "qkv_proj_bias": False,
    "resid_pdrop": 0.2,
    "rotary_emb_base": 7,
    "rotary_emb_fraction": 1.0,
    "rotary_emb_interleaved": False,
    "rotary_emb_scale_base": None,
    "rotary_scaling_factor": None,
    "scale_attn_weights": True,
    "summary_activation": None,
    "summary_type": "cls_index",
    "summary_use_proj": True,
    "type_vocab_size": 2,
    "use_rms_norm": False,
    "vocab_size": 20,
}


def test_released_nomic_bert_has_gpt_2_fields(tmp_path, no_warning):
    model = save_with_transformers("nomic_bert", "plain", "ForMaskedLM", tmp_path)
    config = checkpoints.open_checkpoint(tmp_path).config
    path = tmp_path / "model.safetensors"
    tensors = {re.sub("^nomic_bert[.]", "bert.", name): x for name, x in load_file(path).items()}
    assert any(name.startswith("bert.") for name in tensors)
    save_file(tensors, path, metadata={"format": "pt"})
    (tmp_path / "config.json").write_text(json.dumps(RELEASED_NOMIC_BERT))
    task = MaskedLM.from_preset(tmp_path)
    assert task.config == config.replace(dropout=0.2)
    inputs = make_inputs(task.config)
    logits = compute_outputs(task, {**inputs, "mask_positions": np.array([[1, 3]] * 3)})
    expected = tensor_to_numpy(reference_outputs(model, inputs).logits)
    np.testing.assert_allclose(logits, expected[:, [1, 3]], atol=1e-5)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"prenorm": True}, "prenorm must be False"),
        ({"rotary_emb_fraction": 0.5}, "rotary_emb_fraction must be 1.0"),
        ({"num_experts": 8}, "num_experts must be 0"),
        ({"activation_function": "gelu"}, "must be one of swiglu, geglu. Received: 'gelu'"),
        ({"n_embd": None}, "the fields hidden_size are missing"),
    ],
)
def test_unsupported_nomic_bert_raises(changes, message, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({**RELEASED_NOMIC_BERT, **changes}))
    with pytest.raises(CheckpointError, match=message):
        checkpoints.open_checkpoint(tmp_path)


def test_nomic_bert_keeps_training_positions(tmp_path):
    released = RELEASED_NOMIC_BERT | {"rotary_scaling_factor": 2, "n_positions": 8192}
    (tmp_path / "config.json").write_text(json.dumps(released))
    config = checkpoints.open_checkpoint(tmp_path, weights=False).config
    assert (config.max_sequence_length, config.rotary_scale) == (2048, 1)


@pytest.mark.parametrize(("family", "shape"), select_cases("ForMaskedLM"))
def test_tagger_dropout_matches_transformers(family, shape, tmp_path):
    if family == "eurobert":
        pytest.skip("EuroBERT's taggers have no dropout")
    model = save_with_transformers(family, shape, "ForTokenClassification", tmp_path)
    config = checkpoints.open_checkpoint(tmp_path).config
    dropout = model.drop if family == "modernbert" else model.dropout
    assert TokenClassifier(Backbone(config), 2).dropout == dropout.p


def select_rows(outputs, expected, mask):
    return outputs, expected.logits


def select_tokens(outputs, expected, mask):
    return outputs[mask], expected.logits[mask]


def select_spans(outputs, expected, mask):
    names = ("start_logits", "end_logits")
    return [np.stack([output[name][mask] for name in names]) for output in (outputs, expected)]


def select_masked_positions(outputs, expected, mask):
    return outputs, expected.logits[:, MASK_POSITIONS[0]]


def select_sentence_order(outputs, expected, mask):
    return outputs["next_sentence_logits"], expected.sop_logits


MASK_POSITIONS = np.array([[1, 3]] * 3)
# The task of each class, and the function that selects corresponding outputs
HEADS = {
    "ForSequenceClassification": (TextClassifier, select_rows),
    "ForTokenClassification": (TokenClassifier, select_tokens),
    "ForQuestionAnswering": (QuestionAnswerer, select_spans),
    "ForMultipleChoice": (MultipleChoice, select_rows),
    "ForMaskedLM": (MaskedLM, select_masked_positions),
}
SENTENCE_HEADS = {
    "ForPreTraining": (Pretrainer, select_sentence_order),
    "ForNextSentencePrediction": (NextSentencePredictor, select_rows),
}


@pytest.mark.parametrize(
    ("family", "shape", "ending"),
    [
        *((*case, ending) for ending in list(HEADS)[:2] for case in CASES),
        *((*case, ending) for ending in list(HEADS)[2:] for case in select_cases(ending)),
        *(("albert", shape, "ForPreTraining") for shape in ("plain", "other")),
        ("bert", "plain", "ForNextSentencePrediction"),
    ],
)
def test_head_outputs_match_transformers(family, shape, ending, tmp_path, no_warning):
    task_class, select = {**HEADS, **SENTENCE_HEADS}[ending]
    labels = {"num_labels": 3} if ending.endswith("Classification") else {}
    model = save_with_transformers(family, shape, ending, tmp_path / "transformers", **labels)
    task = read_task(task_class, tmp_path / "transformers", *labels.values())
    inputs = make_inputs(task.config)
    mask = inputs["padding_mask"]
    if ending == "ForMultipleChoice":
        inputs = {name: values[None] for name, values in inputs.items()}
    mask_positions = {"mask_positions": MASK_POSITIONS} if "masked_lm" in task.heads else {}
    outputs = compute_outputs(task, {**inputs, **mask_positions})
    checkpoints.save_hugging_face(task, tmp_path / "saved")
    assert_same_tensors(tmp_path)
    # transformers must also read the files that were written.
    for reference in (model, type(model).from_pretrained(tmp_path / "saved").eval()):
        expected = reference_outputs(reference, inputs)
        np.testing.assert_allclose(*select(outputs, expected, mask), atol=1e-5)


def test_roberta_classifier_ignores_encoder_pooler(tmp_path):
    """A file can also have the encoder's pooler, but `classifier.dense` pools the output."""
    model = save_with_transformers("roberta", "plain", "ForSequenceClassification", tmp_path)
    path = tmp_path / "model.safetensors"
    rng = np.random.default_rng(3)
    pooler = {
        f"roberta.pooler.dense.{name}": rng.normal(size=shape).astype("float32")
        for name, shape in (("weight", (8, 8)), ("bias", (8,)))
    }
    save_file({**load_file(path), **pooler}, path, metadata={"format": "pt"})
    checkpoint = checkpoints.open_checkpoint(tmp_path)
    backbone = checkpoint.new_backbone()
    checkpoint.load_into(backbone)
    task = TextClassifier(backbone, model.config.num_labels)
    checkpoint.load_head("classifier", task.head)
    assert checkpoint.unused() == sorted(pooler)
    inputs = make_inputs(backbone.config)
    logits = reference_outputs(model, inputs).logits
    np.testing.assert_allclose(compute_outputs(task, inputs), tensor_to_numpy(logits), atol=1e-5)


def test_untied_masked_lm_trains_and_saves(tmp_path):
    save_with_transformers("eurobert", "plain", "ForMaskedLM", tmp_path / "transformers")
    task = MaskedLM.from_preset(tmp_path / "transformers")
    names = [variable.path for variable in task.trainable_variables]
    assert not any("bias" in name for name in names if "masked_lm" in name)
    inputs = make_inputs(task.config) | {"mask_positions": np.array([[1, 3]] * 3)}
    before = compute_outputs(task, inputs)
    task.compile("sgd")
    task.fit(inputs, np.array([[7, 9]] * 3), epochs=3, verbose=0)
    (decoder,) = task.heads["masked_lm"]
    table = load_file(tmp_path / "transformers" / "model.safetensors")
    assert not np.allclose(variable_to_numpy(decoder.kernel), table["lm_head.weight"].T)
    trained = compute_outputs(task, inputs)
    assert abs(trained - before).max() > 1e-4
    for save, name in (
        (checkpoints.save_preset, "preset"),
        (checkpoints.save_hugging_face, "saved_again"),
    ):
        save(task.backbone, tmp_path / name, heads=task.heads)
        restored = MaskedLM.from_preset(tmp_path / name)
        np.testing.assert_allclose(compute_outputs(restored, inputs), trained, atol=1e-6)
    task.save(tmp_path / "model.keras")
    restored = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_allclose(compute_outputs(restored, inputs), trained, atol=1e-6)
    restored = transformers.EuroBertForMaskedLM.from_pretrained(tmp_path / "saved_again").eval()
    logits = tensor_to_numpy(reference_outputs(restored, inputs).logits)
    np.testing.assert_allclose(trained, logits[:, [1, 3]], atol=1e-5)


def get_copied_names(family):
    """Returns a file's tensor names for the token embeddings and the masked LM's bias."""
    names = FAMILIES[family].hugging_face
    table = names.encoder["token_embedding.embeddings"]
    bias = names.heads["masked_lm"]["output_bias"]
    return [FAMILIES[family].scope + table.names[0], *table.copies], [*bias.names, bias.instead]


def add_tensor(directory, name, like, difference):
    """Adds a tensor to the file in a directory that differs from a tensor in the file."""
    tensors = load_file(directory / "model.safetensors")
    save_file({**tensors, name: tensors[like] + difference}, directory / "model.safetensors")


@pytest.mark.parametrize("family", [name for name in CONFIGS if name != "eurobert"])
def test_masked_lm_with_separate_decoder_raises(family, tmp_path):
    model = save_with_transformers(family, "plain", "ForMaskedLM", tmp_path)
    (table, decoder), _ = get_copied_names(family)
    add_tensor(tmp_path, decoder, table, 0.5)
    # transformers uses the decoder although the config does not specify that it is untied.
    loaded = type(model).from_pretrained(tmp_path)
    assert (loaded.get_output_embeddings().weight > model.get_output_embeddings().weight).all()
    with pytest.raises(
        CheckpointError,
        match=rf"masked LM's decoder must be the token embeddings. Received: .*{decoder} "
        rf"differs from {table}",
    ):
        MaskedLM.from_preset(tmp_path)
    checkpoint = checkpoints.open_checkpoint(tmp_path)
    checkpoint.load_into(Backbone(checkpoint.config), pooler_is_used=False)
    assert decoder in checkpoint.unused()


def test_untied_decoder_must_equal_embeddings(tmp_path):
    save_with_transformers("bert", "plain", "ForMaskedLM", tmp_path)
    edit_json(tmp_path / "config.json", tie_word_embeddings=False)
    with pytest.raises(CheckpointError, match="tie_word_embeddings is false"):
        MaskedLM.from_preset(tmp_path)
    (table, decoder), _ = get_copied_names("bert")
    add_tensor(tmp_path, decoder, table, 0)
    with warnings.catch_warnings(action="error", category=checkpoints.CheckpointWarning):
        MaskedLM.from_preset(tmp_path)


@pytest.mark.parametrize("family", ["bert", "roberta", "albert"])
@pytest.mark.parametrize("difference", [0, 2])
def test_decoder_bias_takes_precedence(family, difference, tmp_path):
    model = save_with_transformers(family, "plain", "ForMaskedLM", tmp_path)
    _, (bias, decoder_name) = get_copied_names(family)
    add_tensor(tmp_path, decoder_name, bias, np.arange(20, dtype="float32") * difference)
    model = type(model).from_pretrained(tmp_path).eval()
    with warnings.catch_warnings(record=True, category=checkpoints.CheckpointWarning) as warned:
        warnings.simplefilter("always", checkpoints.CheckpointWarning)
        task = MaskedLM.from_preset(tmp_path)
    unused = [str(warning.message) for warning in warned]
    assert unused == ([f"{tmp_path} has unused weights: {bias}."] if difference else [])
    inputs = make_inputs(task.config)
    logits = compute_outputs(task, {**inputs, "mask_positions": np.tile(np.arange(6), (3, 1))})
    expected = tensor_to_numpy(reference_outputs(model, inputs).logits)
    np.testing.assert_allclose(logits, expected, atol=1e-5)


@pytest.mark.parametrize(
    ("ending", "pooler"),
    [
        ("ForSequenceClassification", "classifier.dense"),
        ("ForMultipleChoice", "sequence_summary.summary"),
    ],
)
def test_electra_pooler_matches_its_class(ending, pooler, tmp_path):
    save_with_transformers("electra", "plain", ending, tmp_path)
    for other in ("classifier.dense", "sequence_summary.summary"):
        if other != pooler:
            add_tensor(tmp_path, f"{other}.weight", f"{pooler}.weight", 1)
            add_tensor(tmp_path, f"{other}.bias", f"{pooler}.bias", 1)
    tensors = load_file(tmp_path / "model.safetensors")
    checkpoint = checkpoints.open_checkpoint(tmp_path)
    task = MultipleChoice(Backbone(checkpoint.config))
    assert checkpoint.load_head("pooler", task.pooler)
    dense = task.pooler.dense
    np.testing.assert_array_equal(variable_to_numpy(dense.bias), tensors[f"{pooler}.bias"])
    np.testing.assert_array_equal(variable_to_numpy(dense.kernel), tensors[f"{pooler}.weight"].T)


@pytest.mark.parametrize("shape", ["plain", "other"])
def test_electra_replaced_token_head(shape, tmp_path, no_warning):
    model = save_with_transformers("electra", shape, "ForPreTraining", tmp_path / "transformers")
    checkpoint = checkpoints.open_checkpoint(tmp_path / "transformers")
    config = checkpoint.config
    backbone, head = Backbone(config), ReplacedTokenHead(config.activation)
    head.build((None, None, config.hidden_dim))
    checkpoint.load_into(backbone)
    assert checkpoint.load_head("replaced_token", head)
    assert checkpoint.unused() == []
    inputs = make_inputs(config)
    logits = compute_outputs(head, backbone(inputs)["sequence_output"])
    np.testing.assert_allclose(
        logits, tensor_to_numpy(reference_outputs(model, inputs).logits), atol=1e-5
    )
    checkpoints.save_hugging_face(backbone, tmp_path / "saved", heads={"replaced_token": head})
    assert_same_tensors(tmp_path)


def assert_same_tensors(directory):
    tensors = load_file(directory / "saved" / "model.safetensors")
    expected = load_file(directory / "transformers" / "model.safetensors")
    assert tensors.keys() == expected.keys()
    for name, tensor in expected.items():
        np.testing.assert_array_equal(tensors[name], tensor)


@pytest.mark.parametrize("family", ["modernbert", "eurobert"])
def test_special_token_ids_match_saved_tokenizer(family, tmp_path):
    """transformers' default ids match the released vocabularies."""
    save_with_transformers(family, "plain", "Model", tmp_path / "transformers")
    backbone = Backbone.from_preset(tmp_path / "transformers")
    names = FAMILIES[family].tokenizer["special_tokens"]
    vocabulary = [*"abc", *dict.fromkeys(names.values())]
    tokenizer = {
        "kind": "byte_pair",
        "vocabulary": vocabulary,
        "merges": [],
        "special_tokens": names,
    }
    for directory, saved_tokenizer in (("with", tokenizer), ("without", None)):
        checkpoints.save_hugging_face(backbone, tmp_path / directory, tokenizer=saved_tokenizer)
        config = transformers.AutoConfig.from_pretrained(tmp_path / directory)
        for field, role in FAMILIES[family].config.token_ids.items():
            if saved_tokenizer or role != "mask":
                expected = vocabulary.index(names[role]) if saved_tokenizer else None
                assert getattr(config, field) == expected


def test_unsupported_architecture_lists_requirements(tmp_path):
    backbone = Backbone(small_config(layer_sharing="attention"))
    with pytest.raises(CheckpointError, match=r"bert requires layer_sharing='none'.*save_preset"):
        checkpoints.save_hugging_face(backbone, tmp_path)
