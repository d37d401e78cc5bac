# SPDX-License-Identifier: Apache-2.0
"""The families of released models, with one record each for all checkpoint formats.

A record has the fields of the family's configuration files, the values that are constant in its
code, and the names of its weights in each format. A new family is a new record.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from keras_bert.checkpoints import (
    deberta_v2_fields,
    modern_bert_fields,
    rotary_fields,
)
from keras_bert.checkpoints.config_fields import (
    REQUIRED,
    REQUIRED_WITHOUT_SEGMENTS,
    ConfigFields,
)
from keras_bert.checkpoints.layouts import Stored
from keras_bert.checkpoints.weight_names import (
    CLASSIFIERS,
    HF_BLOCK,
    HF_TASK_CLASSES,
    HUB_BLOCK,
    HUB_HEADS,
    HUB_POOLER,
    HUB_PROJECTION,
    HUB_TABLES,
    HUB_TABLES_WITHOUT_SEGMENTS,
    TF1_BLOCK,
    TF1_ENDINGS,
    TF1_HEADS,
    WeightNames,
    block_layout,
    hf_block,
    hf_dense,
    hf_embeddings,
    hf_masked_lm,
    hf_task_heads,
    keras_dense,
    scoped,
    tf1_encoder,
)
from keras_bert.config import BertConfig
from keras_bert.vocabularies import fairseq_ids
from keras_bert.vocabularies.tokenizer_settings import WORDPIECE_TOKENS


@dataclasses.dataclass(frozen=True)
class TF1Release(WeightNames):
    """The release of a family by Google, as TensorFlow 1 checkpoints.

    Args:
        config: The fields of its configuration file.
        config_file: The name of its configuration file; `None` if the architecture is inferred from
            the variables.
        prefix: The prefix of the names of the checkpoint files.
        activations: The name in `BertConfig` of each activation of the release.
    """

    config: ConfigFields
    config_file: str | None
    prefix: str
    activations: Mapping[str, str]


@dataclasses.dataclass(frozen=True)
class KerasHubModels(WeightNames):
    """The models of a family in KerasHub; the names of weights are paths of attributes.

    Args:
        config: The arguments of its encoder.
        masked_lm_activation: The activation of its masked LM head; `None` if there is no such head.
    """

    config: ConfigFields
    masked_lm_activation: str | None = "gelu_erf"


@dataclasses.dataclass(frozen=True)
class Family:
    """A family of released models.

    Args:
        name: Its `model_type` in `transformers`.
        class_prefix: The prefix of the names of its classes in `transformers` and in KerasHub.
        config: The fields of its configuration files of Hugging Face and of the TF1 release.
        hugging_face: The names of its tensors in Hugging Face's format, for the encoder without
            their scope.
        classes: The heads of each class of `transformers`, by the suffix of the name of the class.
        poolers: For each class that has the pooler in its head, by suffix: the pooler's dense
            layer.
        can_be_causal: Whether `transformers` supports causal attention for its classes.
        encoder_scope: The scope of the encoder's tensors in classes with a head; by default `name`.
        released_name: Another `model_type`, which released files have.
        released_scope: Another scope of the encoder's tensors, in released files.
        tokenizer: For new vocabularies, the arguments of its tokenizer that differ from the
            defaults.
        keras_hub: Its models in KerasHub; `None` if there are none.
        google_tf1: Its TF1 release; `None` if there is none.
    """

    name: str
    class_prefix: str
    config: ConfigFields
    hugging_face: WeightNames
    classes: Mapping[str, tuple[str, ...]]
    poolers: Mapping[str, str] = dataclasses.field(default_factory=dict)
    can_be_causal: bool = False
    encoder_scope: str = ""
    released_name: str = ""
    released_scope: str = ""
    tokenizer: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    keras_hub: KerasHubModels | None = None
    google_tf1: TF1Release | None = None

    @property
    def scope(self) -> str:
        """The prefix of the names of the encoder's tensors in classes with a head."""
        return f"{self.encoder_scope or self.name}."

    @property
    def scopes(self) -> tuple[str, ...]:
        """All prefixes in files: `scope`, and that of released files."""
        return (self.scope, *([f"{self.released_scope}."] if self.released_scope else []))


ACTIVATIONS = {
    "gelu": "gelu_erf",
    "gelu_python": "gelu_erf",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_python_tanh": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu_accurate": "gelu_tanh",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
    "tanh": "tanh",
}
"""The activations of `BertConfig` by their names in Hugging Face's files."""

# Fields of config.json and of the configuration files of the TF1 releases
_OPTIONAL = {
    "dropout": "hidden_dropout_prob",
    "attention_dropout": "attention_probs_dropout_prob",
    "classifier_dropout": "classifier_dropout",
    "layer_norm_epsilon": "layer_norm_eps",
    "initializer_range": "initializer_range",
    "pad_token_id": "pad_token_id",
}

# "gelu" is the tanh approximation; the exact GELU is not supported.
_TF1_TANH_GELU = {"gelu": "gelu_tanh", "relu": "relu", "tanh": "tanh"}

_HUB_FIELDS = {
    name: name
    for name in (
        "vocabulary_size",
        "num_layers",
        "num_heads",
        "hidden_dim",
        "intermediate_dim",
        "dropout",
        "max_sequence_length",
    )
}
_HUB_SEGMENT_FIELDS = {**_HUB_FIELDS, "num_segments": "num_segments"}
_HUB_TANH_GELU = {"activation": "gelu_tanh", "layer_norm_epsilon": 1e-12}

_BOS_AND_EOS = {"bos_token_id": "cls", "eos_token_id": "sep"}
# The classes without a head and with the masked LM head, which most families have
_MASKED_LM_CLASSES: dict[str, tuple[str, ...]] = {"Model": (), "ForMaskedLM": ("masked_lm",)}
# For families with classes that can be causal
_CAN_BE_CAUSAL: dict[str, tuple[Any, ...]] = {"is_decoder": (False, True)}
_BERT_CONFIG = ConfigFields(REQUIRED, _OPTIONAL, needed=_CAN_BE_CAUSAL)
BERT = Family(
    name="bert",
    class_prefix="Bert",
    config=_BERT_CONFIG,
    hugging_face=WeightNames(
        {
            **hf_embeddings("cls.predictions.decoder"),
            **scoped("pooler.dense", hf_dense("pooler.dense")),
        },
        HF_BLOCK,
        "encoder.layer.{layer}.",
        {
            "masked_lm": hf_masked_lm(
                "cls.predictions.transform.dense",
                "cls.predictions.transform.LayerNorm",
                "cls.predictions.bias",
                "cls.predictions.decoder.bias",
            ),
            "next_sentence": hf_dense("cls.seq_relationship"),
            **hf_task_heads(),
        },
    ),
    classes={
        "Model": (),
        "ForPreTraining": ("masked_lm", "next_sentence"),
        "ForMaskedLM": ("masked_lm",),
        "LMHeadModel": ("masked_lm",),
        "ForNextSentencePrediction": ("next_sentence",),
        **HF_TASK_CLASSES,
    },
    can_be_causal=True,
    keras_hub=KerasHubModels(
        {**HUB_TABLES, **scoped("pooler.dense", HUB_POOLER)},
        HUB_BLOCK,
        "transformer_layers.{layer}.",
        HUB_HEADS,
        config=ConfigFields(_HUB_SEGMENT_FIELDS, fixed=_HUB_TANH_GELU),
    ),
    google_tf1=TF1Release(
        tf1_encoder("bert"),
        TF1_BLOCK,
        "bert/encoder/layer_{layer}/",
        TF1_HEADS,
        config=_BERT_CONFIG,
        config_file="bert_config.json",
        prefix="bert_model.ckpt",
        activations=_TF1_TANH_GELU,
    ),
)

ROBERTA = Family(
    name="roberta",
    class_prefix="Roberta",
    config=ConfigFields(
        REQUIRED,
        _OPTIONAL,
        defaults={"pad_token_id": 1},
        needed=_CAN_BE_CAUSAL,
        token_ids=_BOS_AND_EOS,
        fixed={
            "masked_lm_activation": "gelu_erf",
            "pooler_dropout": 0.1,
            "tokenizer": "byte_pair",
        },
        positions_follow_padding=True,
    ),
    hugging_face=WeightNames(
        {
            **hf_embeddings("lm_head.decoder"),
            # The first layer of the classification head is a pooler. Some files of classifiers also
            # have the encoder's, which the classifiers ignore.
            **scoped("pooler.dense", hf_dense("pooler.dense", instead="classifier.dense")),
        },
        HF_BLOCK,
        "encoder.layer.{layer}.",
        {
            "masked_lm": hf_masked_lm(
                "lm_head.dense", "lm_head.layer_norm", "lm_head.bias", "lm_head.decoder.bias"
            ),
            **hf_task_heads("classifier.out_proj"),
        },
    ),
    classes={
        "Model": (),
        "ForMaskedLM": ("masked_lm",),
        "ForCausalLM": ("masked_lm",),
        **HF_TASK_CLASSES,
    },
    poolers={"ForSequenceClassification": "classifier.dense"},
    can_be_causal=True,
    keras_hub=KerasHubModels(
        {**HUB_TABLES_WITHOUT_SEGMENTS, **scoped("pooler.dense", HUB_POOLER)},
        HUB_BLOCK,
        "transformer_layers.{layer}.",
        {**HUB_HEADS, "pooler": HUB_POOLER},
        config=ConfigFields(
            _HUB_FIELDS,
            # Positions include padding, and the segment embedding is part of the position
            # embeddings.
            fixed={
                "num_segments": 0,
                "pad_token_id": 1,
                "layer_norm_epsilon": 1e-5,
                "pooler_dropout": 0.1,
                "tokenizer": "byte_pair",
            },
        ),
    ),
)

_ALBERT_CONFIG = ConfigFields(
    {**REQUIRED, "embedding_dim": "embedding_size"},
    {
        **_OPTIONAL,
        "classifier_dropout": "classifier_dropout_prob",
        "num_layer_groups": "num_hidden_groups",
    },
    defaults={"dropout": 0.0, "attention_dropout": 0.0, "classifier_dropout": 0.1},
    needed={"inner_group_num": (1,)},
    token_ids=_BOS_AND_EOS,
    fixed={"layer_sharing": "all", "tokenizer": "sentence_piece"},
    always_projects=True,
)
ALBERT = Family(
    name="albert",
    class_prefix="Albert",
    config=_ALBERT_CONFIG,
    hugging_face=WeightNames(
        {
            **hf_embeddings("predictions.decoder", "encoder.embedding_hidden_mapping_in"),
            **scoped("pooler.dense", hf_dense("pooler")),
        },
        hf_block(
            ("attention.query", "attention.key", "attention.value"),
            output="attention.dense",
            norm="attention.LayerNorm",
            intermediate="ffn",
            feed_forward_output="ffn_output",
            feed_forward_norm="full_layer_layer_norm",
        ),
        "encoder.albert_layer_groups.{group}.albert_layers.0.",
        {
            "masked_lm": hf_masked_lm(
                "predictions.dense",
                "predictions.LayerNorm",
                "predictions.bias",
                "predictions.decoder.bias",
            ),
            "next_sentence": hf_dense("sop_classifier.classifier"),
            **hf_task_heads(),
        },
    ),
    classes={
        "Model": (),
        "ForPreTraining": ("masked_lm", "next_sentence"),
        "ForMaskedLM": ("masked_lm",),
        **HF_TASK_CLASSES,
    },
    keras_hub=KerasHubModels(
        {**HUB_TABLES, **HUB_PROJECTION, **scoped("pooler.dense", HUB_POOLER)},
        HUB_BLOCK,
        "transformer_layers.{group}.0.",
        HUB_HEADS,
        config=ConfigFields(
            {
                **_HUB_SEGMENT_FIELDS,
                "embedding_dim": "embedding_dim",
                "num_layer_groups": "num_groups",
            },
            fixed={
                **_HUB_TANH_GELU,
                "layer_sharing": "all",
                "classifier_dropout": 0.1,
                "tokenizer": "sentence_piece",
            },
            always_projects=True,
        ),
        masked_lm_activation="gelu_tanh",
    ),
    google_tf1=TF1Release(
        tf1_encoder("bert", "bert/encoder/embedding_hidden_mapping_in"),
        block_layout(
            TF1_ENDINGS,
            ("attention_1/self/query", "attention_1/self/key", "attention_1/self/value"),
            output="attention_1/output/dense",
            norm="LayerNorm",
            intermediate="ffn_1/intermediate/dense",
            feed_forward_output="ffn_1/intermediate/output/dense",
            feed_forward_norm="LayerNorm_1",
        ),
        "bert/encoder/transformer/group_{group}/inner_group_0/",
        TF1_HEADS,
        config=_ALBERT_CONFIG,
        config_file="albert_config.json",
        prefix="model.ckpt-best",
        activations=_TF1_TANH_GELU,
    ),
)

_ELECTRA_CONFIG = ConfigFields(
    {**REQUIRED, "embedding_dim": "embedding_size"},
    _OPTIONAL,
    needed={
        **_CAN_BE_CAUSAL,
        "summary_type": ("first",),
        "summary_use_proj": (True,),
        "summary_activation": ("gelu",),
        "summary_proj_to_labels": (False,),
    },
    fixed={
        "masked_lm_activation": "gelu_erf",
        "pooler": False,
        "pooler_activation": "gelu_erf",
        "pooler_dropout": 0.1,
    },
)
ELECTRA = Family(
    name="electra",
    class_prefix="Electra",
    config=_ELECTRA_CONFIG,
    hugging_face=WeightNames(
        hf_embeddings("generator_lm_head", "embeddings_project"),
        HF_BLOCK,
        "encoder.layer.{layer}.",
        {
            "masked_lm": hf_masked_lm(
                "generator_predictions.dense",
                "generator_predictions.LayerNorm",
                "generator_lm_head.bias",
            ),
            "replaced_token": {
                **scoped("dense", hf_dense("discriminator_predictions.dense")),
                **hf_dense("discriminator_predictions.dense_prediction"),
            },
            "pooler": hf_dense("classifier.dense", "sequence_summary.summary"),
            **hf_task_heads("classifier.out_proj"),
        },
    ),
    classes={
        "Model": (),
        "ForPreTraining": ("replaced_token",),
        "ForMaskedLM": ("masked_lm",),
        "ForCausalLM": ("masked_lm",),
        **HF_TASK_CLASSES,
    },
    poolers={
        "ForSequenceClassification": "classifier.dense",
        "ForMultipleChoice": "sequence_summary.summary",
    },
    can_be_causal=True,
    # KerasHub's encoder has a pooler, unlike the original.
    keras_hub=KerasHubModels(
        {**HUB_TABLES, **HUB_PROJECTION, **scoped("pooler.dense", HUB_POOLER)},
        HUB_BLOCK,
        "transformer_layers.{layer}.",
        HUB_HEADS,
        config=ConfigFields(
            {
                **_HUB_SEGMENT_FIELDS,
                "vocabulary_size": "vocab_size",
                "embedding_dim": "embedding_dim",
            },
            fixed=_HUB_TANH_GELU,
        ),
        masked_lm_activation=None,
    ),
    google_tf1=TF1Release(
        tf1_encoder("electra", "electra/embeddings_project", pooler=False),
        TF1_BLOCK,
        "electra/encoder/layer_{layer}/",
        {
            "replaced_token": {
                **scoped("dense", keras_dense("discriminator_predictions/dense", "/")),
                **keras_dense("discriminator_predictions/dense_1", "/"),
            }
        },
        config=_ELECTRA_CONFIG,
        config_file=None,
        prefix="electra",
        activations={"gelu": "gelu_erf"},
    ),
)


def _distilbert_fields(
    fields: Mapping[str, Any], path: Path, activations: Mapping[str, str]
) -> dict[str, Any]:
    """Returns the fields of a file, in which BERT's names of three of them take precedence."""
    names = {
        "hidden_size": "dim",
        "num_attention_heads": "n_heads",
        "num_hidden_layers": "n_layers",
    }
    return {**fields, **{names[name]: fields[name] for name in names if name in fields}}


DISTILBERT = Family(
    name="distilbert",
    class_prefix="DistilBert",
    config=ConfigFields(
        {
            "vocabulary_size": "vocab_size",
            "num_layers": "n_layers",
            "num_heads": "n_heads",
            "hidden_dim": "dim",
            "intermediate_dim": "hidden_dim",
            "max_sequence_length": "max_position_embeddings",
        },
        {
            "token_dropout": "dropout",
            "dropout": "dropout",
            "attention_dropout": "attention_dropout",
            "classifier_dropout": "seq_classif_dropout",
            "answer_dropout": "qa_dropout",
            "initializer_range": "initializer_range",
            "pad_token_id": "pad_token_id",
        },
        defaults={"token_dropout": 0.1, "classifier_dropout": 0.2, "answer_dropout": 0.1},
        to_flat=_distilbert_fields,
        fixed={
            "num_segments": 0,
            "pooler": False,
            "pooler_activation": "relu",
            "layer_norm_epsilon": 1e-12,
        },
        activation="activation",
    ),
    hugging_face=WeightNames(
        hf_embeddings("vocab_projector"),
        hf_block(
            ("attention.q_lin", "attention.k_lin", "attention.v_lin"),
            output="attention.out_lin",
            norm="sa_layer_norm",
            intermediate="ffn.lin1",
            feed_forward_output="ffn.lin2",
            feed_forward_norm="output_layer_norm",
        ),
        "transformer.layer.{layer}.",
        {
            "masked_lm": hf_masked_lm(
                "vocab_transform", "vocab_layer_norm", "vocab_projector.bias"
            ),
            "pooler": hf_dense("pre_classifier"),
            **hf_task_heads(),
        },
    ),
    classes={**_MASKED_LM_CLASSES, **HF_TASK_CLASSES},
    poolers={
        "ForSequenceClassification": "pre_classifier",
        "ForMultipleChoice": "pre_classifier",
    },
    keras_hub=KerasHubModels(
        {**HUB_TABLES_WITHOUT_SEGMENTS, **scoped("pooler.dense", HUB_POOLER)},
        HUB_BLOCK,
        "transformer_layers.{layer}.",
        {**HUB_HEADS, "pooler": HUB_POOLER},
        config=ConfigFields(
            {"token_dropout": "dropout", **_HUB_FIELDS},
            fixed={
                "num_segments": 0,
                "pooler": False,
                "pooler_activation": "relu",
                "layer_norm_epsilon": 1e-12,
                "classifier_dropout": 0.2,
                "answer_dropout": 0.1,
            },
        ),
    ),
)

_MODERNBERT_HEAD = {
    **scoped("dense", hf_dense("head.dense")),
    "gamma": Stored(("head.norm.weight",)),
    "beta": Stored(("head.norm.bias",)),
}
MODERNBERT = Family(
    name="modernbert",
    class_prefix="ModernBert",
    config=modern_bert_fields.FIELDS,
    hugging_face=WeightNames(
        {
            "token_embedding.embeddings": Stored(
                ("embeddings.tok_embeddings.weight",), copies=("decoder.weight",)
            ),
            "embeddings.gamma": Stored(("embeddings.norm.weight",)),
            "embeddings.beta": Stored(("embeddings.norm.bias",)),
            "final_norm.gamma": Stored(("final_norm.weight",)),
            "final_norm.beta": Stored(("final_norm.bias",)),
        },
        hf_block(
            ("attn.Wqkv",),
            output="attn.Wo",
            norm="attn_norm",
            intermediate="mlp.Wi",
            feed_forward_output="mlp.Wo",
            feed_forward_norm="mlp_norm",
        ),
        "layers.{layer}.",
        {
            "masked_lm": {**_MODERNBERT_HEAD, "output_bias": Stored(("decoder.bias",))},
            "pooler": {ours.removeprefix("dense."): at for ours, at in _MODERNBERT_HEAD.items()},
            **dict.fromkeys((*CLASSIFIERS, "question_answerer"), hf_dense("classifier")),
        },
    ),
    classes={**_MASKED_LM_CLASSES, **HF_TASK_CLASSES},
    encoder_scope="model",
    tokenizer={
        "special_tokens": WORDPIECE_TOKENS,
        "pair_separators": 1,
        "compose": True,
        "space_before_first_word": False,
    },
)

_ROPE: dict[str, tuple[Any, ...]] = {"position_embedding_type": ("absolute", "rope")}
_ROTARY = {"rotary_base": rotary_fields.BASE, "rotary_scale": rotary_fields.SCALE}
# The only tasks that `transformers` has for some families
_CLASSIFIER_CLASSES = {
    ending: HF_TASK_CLASSES[ending]
    for ending in ("ForSequenceClassification", "ForTokenClassification")
}
NOMIC_BERT = Family(
    name="nomic_bert",
    class_prefix="NomicBert",
    config=ConfigFields(
        REQUIRED,
        {**_OPTIONAL, **_ROTARY},
        defaults={"dropout": 0.0, "attention_dropout": 0.0},
        needed={**_ROPE, **rotary_fields.NOMIC_BERT_NEEDED},
        fixed={
            "positions": "rotary",
            "feed_forward": "gated",
            "attention_bias": False,
            "feed_forward_bias": False,
            "pooler": False,
        },
        to_flat=rotary_fields.nomic_bert_to_flat,
        from_flat=rotary_fields.from_flat,
    ),
    hugging_face=WeightNames(
        {
            **hf_embeddings("cls.predictions.decoder"),
            "embeddings.gamma": Stored(("emb_ln.weight",)),
            "embeddings.beta": Stored(("emb_ln.bias",)),
        },
        hf_block(
            ("attn.Wqkv",),
            output="attn.out_proj",
            norm="norm1",
            # The first one is activated, and the second one is the gate.
            intermediate=("mlp.fc12", "mlp.fc11"),
            feed_forward_output="mlp.fc2",
            feed_forward_norm="norm2",
        ),
        "encoder.layers.{layer}.",
        {
            "masked_lm": hf_masked_lm(
                "cls.predictions.transform.dense",
                "cls.predictions.transform.layer_norm",
                "cls.predictions.bias",
                "cls.predictions.decoder.bias",
            ),
            "pooler": hf_dense("pooler.dense"),
            **hf_task_heads(),
        },
    ),
    poolers={"ForSequenceClassification": "nomic_bert.pooler.dense"},
    released_scope="bert",
    classes={**_MASKED_LM_CLASSES, **_CLASSIFIER_CLASSES},
)

_GTE_BLOCK = hf_block(
    ("attention.qkv_proj",),
    output="attention.o_proj",
    norm="attn_ln",
    intermediate="mlp.up_gate_proj",
    feed_forward_output="mlp.down_proj",
    feed_forward_norm="mlp_ln",
)
# Text is not lowercased, and pairs have no segments.
_XLM_ROBERTA_TOKENIZER = {
    "special_tokens": fairseq_ids.SPECIAL_TOKENS,
    "lowercase": False,
    "keep_accents": True,
    "albert_rules": False,
    "pair_separators": 2,
    "num_segments": 1,
}
# Pairs have no segments, as in RoBERTa.
_MPNET_TOKENIZER = {
    "special_tokens": {
        "cls": "<s>",
        "pad": "<pad>",
        "sep": "</s>",
        "unk": "[UNK]",
        "mask": "<mask>",
    },
    "pair_separators": 2,
    "num_segments": 1,
}
# Only the SentencePiece model normalizes text, as in pre-training.
_DEBERTA_TOKENIZER = {
    "special_tokens": {
        "pad": "[PAD]",
        "cls": "[CLS]",
        "sep": "[SEP]",
        "unk": "[UNK]",
        "mask": "[MASK]",
    },
    "lowercase": False,
    "keep_accents": True,
    "albert_rules": False,
}
GTE = dataclasses.replace(
    NOMIC_BERT,
    name="gte",
    class_prefix="Gte",
    released_name="new",
    released_scope="new",
    poolers={"ForSequenceClassification": "gte.pooler.dense"},
    config=ConfigFields(
        REQUIRED,
        {**_OPTIONAL, **_ROTARY},
        defaults={"attention_dropout": 0.0, "pad_token_id": 1},
        # The fields besides RoPE's are those of the released code.
        needed={**_ROPE, "layer_norm_type": ("layer_norm",), "logn_attention_scale": (False,)},
        fixed={
            "masked_lm_activation": "gelu_erf",
            "positions": "rotary",
            "feed_forward": "gated",
            "intermediate_bias": False,
            "pooler": False,
            "tokenizer": "sentence_piece",
        },
        to_flat=functools.partial(rotary_fields.to_flat, default=160_000.0),
        from_flat=rotary_fields.from_flat,
    ),
    hugging_face=WeightNames(
        hf_embeddings("lm_head.decoder"),
        {
            **_GTE_BLOCK,
            # The gate, and then the activated half
            "feed_forward.intermediate.kernel": dataclasses.replace(
                _GTE_BLOCK["feed_forward.intermediate.kernel"], halves_swapped=True
            ),
        },
        "encoder.layer.{layer}.",
        {
            "masked_lm": hf_masked_lm("lm_head.dense", "lm_head.norm", "lm_head.decoder.bias"),
            "pooler": hf_dense("pooler.dense"),
            **hf_task_heads(),
        },
    ),
    tokenizer=_XLM_ROBERTA_TOKENIZER,
)

EUROBERT = Family(
    name="eurobert",
    class_prefix="EuroBert",
    config=ConfigFields(
        REQUIRED_WITHOUT_SEGMENTS,
        {
            "num_key_value_heads": "num_key_value_heads",
            "attention_dropout": "attention_dropout",
            "attention_bias": "attention_bias",
            "masked_lm_bias": "mlp_bias",
            "feed_forward_bias": "mlp_bias",
            "layer_norm_epsilon": "rms_norm_eps",
            "initializer_range": "initializer_range",
            **_ROTARY,
            "pooling": "classifier_pooling",
            "pad_token_id": "pad_token_id",
        },
        defaults={
            "attention_dropout": 0.0,
            "attention_bias": False,
            "masked_lm_bias": False,
            "feed_forward_bias": False,
            "layer_norm_epsilon": 1e-5,
            "pad_token_id": 128_001,
        },
        # The released code calls the pooling `clf_pooling`.
        needed={**_ROPE, "tie_word_embeddings": (False,), "clf_pooling": ("late",)},
        token_ids={**_BOS_AND_EOS, "mask_token_id": "mask"},
        fixed={
            "num_segments": 0,
            "positions": "rotary",
            "feed_forward": "gated",
            "norm": "rms_norm",
            "norm_placement": "pre",
            "embedding_norm": False,
            "pooler": False,
            "pooler_activation": "gelu_erf",
            "masked_lm_head": "linear",
            "dropout": 0.0,
            "tokenizer": "byte_pair",
        },
        to_flat=rotary_fields.eurobert_to_flat,
        from_flat=rotary_fields.eurobert_from_flat,
    ),
    hugging_face=WeightNames(
        {
            "token_embedding.embeddings": Stored(("embed_tokens.weight",)),
            "final_norm.gamma": Stored(("norm.weight",)),
        },
        hf_block(
            ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
            output="self_attn.o_proj",
            norm="input_layernorm",
            # The first one is activated, and the second one is the gate.
            intermediate=("mlp.gate_proj", "mlp.up_proj"),
            feed_forward_output="mlp.down_proj",
            feed_forward_norm="post_attention_layernorm",
        ),
        "layers.{layer}.",
        {
            "masked_lm": {
                "decoder.kernel": Stored(("lm_head.weight",), transposed=True),
                "output_bias": Stored(("lm_head.bias",)),
            },
            "pooler": hf_dense("dense"),
            **dict.fromkeys(CLASSIFIERS, hf_dense("classifier")),
        },
    ),
    classes={**_MASKED_LM_CLASSES, **_CLASSIFIER_CLASSES},
    encoder_scope="model",
    tokenizer={
        # The released tokenizer pads with the end-of-text token; ours has a token of its own.
        "special_tokens": {
            "pad": "<|pad|>",
            "unk": "<|end_of_text|>",
            "cls": "<|begin_of_text|>",
            "sep": "<|end_of_text|>",
            "mask": "<|mask|>",
        },
        "pair_separators": 1,
        "mask_takes_space": False,
        "word_pattern": "llama3",
        "ignore_merges": True,
        "space_before_first_word": False,
    },
)

# RoBERTa's architecture and weight names, with SentencePiece
XLM_ROBERTA, CAMEMBERT = (
    dataclasses.replace(
        ROBERTA,
        name=name,
        class_prefix=prefix,
        encoder_scope="roberta",
        config=dataclasses.replace(
            ROBERTA.config, fixed={**ROBERTA.config.fixed, "tokenizer": "sentence_piece"}
        ),
        keras_hub=None,
        tokenizer=_XLM_ROBERTA_TOKENIZER,
    )
    for name, prefix in (("xlm-roberta", "XLMRoberta"), ("camembert", "Camembert"))
)

_MPNET_BLOCK = hf_block(
    ("attention.attn.q", "attention.attn.k", "attention.attn.v"),
    output="attention.attn.o",
    norm="attention.LayerNorm",
    intermediate="intermediate.dense",
    feed_forward_output="output.dense",
    feed_forward_norm="output.LayerNorm",
)
MPNET = dataclasses.replace(
    ROBERTA,
    name="mpnet",
    class_prefix="MPNet",
    config=dataclasses.replace(
        ROBERTA.config,
        required=REQUIRED_WITHOUT_SEGMENTS,
        # Whatever the file says, the code has 32 buckets, and positions begin after padding id 1.
        needed={"relative_attention_num_buckets": (32,), "pad_token_id": (1,)},
        fixed={
            "num_segments": 0,
            "relative_positions": "bucketed",
            "masked_lm_activation": "gelu_erf",
            "pooler_dropout": 0.1,
        },
    ),
    hugging_face=dataclasses.replace(
        ROBERTA.hugging_face,
        encoder={
            **ROBERTA.hugging_face.encoder,
            "relative_embeddings.embeddings": Stored(("encoder.relative_attention_bias.weight",)),
        },
        block=_MPNET_BLOCK,
    ),
    classes={**_MASKED_LM_CLASSES, **HF_TASK_CLASSES},
    can_be_causal=False,
    keras_hub=None,
    tokenizer=_MPNET_TOKENIZER,
)

DEBERTA_V2 = Family(
    name="deberta-v2",
    class_prefix="DebertaV2",
    config=ConfigFields(
        {
            **REQUIRED_WITHOUT_SEGMENTS,
            "relative_buckets": "position_buckets",
            "relative_distance": "max_relative_positions",
        },
        {
            "token_dropout": "hidden_dropout_prob",
            **_OPTIONAL,
            "classifier_dropout": "cls_dropout",
            "pooler_dropout": "pooler_dropout",
        },
        defaults={"token_dropout": 0.1, "layer_norm_epsilon": 1e-7},
        needed=deberta_v2_fields.NEEDED,
        fixed={
            "positions": "none",
            "num_segments": 0,
            "relative_positions": "disentangled",
            "pooler": False,
            "pooler_activation": "gelu_erf",
            "tokenizer": "sentence_piece",
        },
        to_flat=deberta_v2_fields.to_flat,
        from_flat=deberta_v2_fields.from_flat,
    ),
    hugging_face=WeightNames(
        {
            **hf_embeddings("cls.predictions.decoder"),
            "relative_embeddings.embeddings": Stored(("encoder.rel_embeddings.weight",)),
            "relative_embeddings.gamma": Stored(("encoder.LayerNorm.weight",)),
            "relative_embeddings.beta": Stored(("encoder.LayerNorm.bias",)),
        },
        {
            **HF_BLOCK,
            **{
                name: dataclasses.replace(
                    HF_BLOCK[name],
                    names=tuple(
                        f"attention.self.{projection}_proj.{kind}"
                        for projection in ("query", "key", "value")
                    ),
                )
                for name, kind in (
                    ("attention.query_key_value.kernel", "weight"),
                    ("attention.query_key_value.bias", "bias"),
                )
            },
        },
        "encoder.layer.{layer}.",
        {
            "masked_lm": {
                ours: dataclasses.replace(stored, instead=f"lm_predictions.lm_head.{ending}")
                for (ours, stored), ending in zip(
                    hf_masked_lm(
                        "cls.predictions.transform.dense",
                        "cls.predictions.transform.LayerNorm",
                        "cls.predictions.bias",
                    ).items(),
                    ("dense.weight", "dense.bias", "LayerNorm.weight", "LayerNorm.bias", "bias"),
                    strict=True,
                )
            },
            "pooler": hf_dense("pooler.dense"),
            **hf_task_heads(),
        },
    ),
    classes={**_MASKED_LM_CLASSES, **HF_TASK_CLASSES},
    poolers={"ForSequenceClassification": "pooler.dense", "ForMultipleChoice": "pooler.dense"},
    encoder_scope="deberta",
    tokenizer=_DEBERTA_TOKENIZER,
)

FAMILIES = {
    family.name: family
    for family in (
        BERT,
        ROBERTA,
        ALBERT,
        ELECTRA,
        DISTILBERT,
        XLM_ROBERTA,
        CAMEMBERT,
        MODERNBERT,
        NOMIC_BERT,
        GTE,
        EUROBERT,
        MPNET,
        DEBERTA_V2,
    )
}
"""The families by name.

An architecture is saved as the first family that can represent it and has its kind of tokenizer.
"""
TF1_RELEASES = tuple(family.google_tf1 for family in FAMILIES.values() if family.google_tf1)
"""The TF1 releases. An architecture is saved as the first one that can represent it."""


def fitting_families(config: BertConfig, masked_lm: bool = True) -> list[Family]:
    """Returns the families that can represent an architecture, those with its tokenizer first."""
    fitting = [
        family
        for family in FAMILIES.values()
        if not family.config.misfits(config, ACTIVATIONS, masked_lm)
        and (not config.causal or family.can_be_causal)
    ]
    return sorted(
        fitting,
        key=lambda family: family.config.fixed.get("tokenizer", "wordpiece") != config.tokenizer,
    )
