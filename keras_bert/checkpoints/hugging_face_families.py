# SPDX-License-Identifier: Apache-2.0
"""How Hugging Face's layout stores each family: names of tensors, heads and classes."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping

from keras_bert.checkpoints import bert_json
from keras_bert.checkpoints.bert_json import JsonFields
from keras_bert.checkpoints.layouts import Layout, Stored
from keras_bert.checkpoints.weights import POOLER_WEIGHTS, block_weight_names
from keras_bert.config import BertConfig


@dataclasses.dataclass(frozen=True)
class Family:
    """One family's layout. Names are without the scope.

    Args:
        model_type: What `config.json` calls it.
        class_prefix: What the names of its classes begin with.
        scope: What the encoder's tensors begin with in classes that have a head.
        json: The fields of its `config.json`.
        embeddings: The tensor of each weight outside the blocks.
        block: The name of each layer of a block, with the weights of ours that it holds.
        block_scope: From the index of a block's owner to what its tensors begin with.
        heads: The tensors of each head.
        classes: The heads of each class, by what its name ends in.
        poolers: Where a class keeps the pooler if not where the encoder would, by what its name
            ends in.
    """

    model_type: str
    class_prefix: str
    scope: str
    json: JsonFields
    embeddings: Layout
    block: Mapping[str, str]
    block_scope: Callable[[int, BertConfig], str]
    heads: Mapping[str, Layout]
    classes: Mapping[str, tuple[str, ...]]
    poolers: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def backbone_layout(self, config: BertConfig) -> dict[str, Stored]:
        """The encoder's tensors."""
        layout = {name: stored for name, stored in self.embeddings.items() if _has(config, name)}
        for index, name in block_weight_names(config):
            stored = _block_weight(self.block_scope(index, config), name, self.block)
            layout[f"blocks.{index}.{name}"] = stored
        return layout

    def class_heads(self, class_name: str) -> tuple[str, ...] | None:
        """The heads of a class of the `transformers` library, `None` if it is not the family's."""
        return self.classes.get(class_name.removeprefix(self.class_prefix))


def _has(config: BertConfig, name: str) -> bool:
    if name.startswith("embedding_projection"):
        return config.embedding_dim is not None
    if name in POOLER_WEIGHTS:
        return config.pooler
    return "segment" not in name or config.num_segments > 0


def _dense(name: str, *copies: str) -> dict[str, Stored]:
    """The kernel, (output, input) there, and the bias of a product."""
    return {
        "kernel": Stored((f"{name}.weight",), True, tuple(f"{copy}.weight" for copy in copies)),
        "bias": Stored((f"{name}.bias",), False, tuple(f"{copy}.bias" for copy in copies)),
    }


def _scoped(scope: str, layout: Layout) -> dict[str, Stored]:
    return {f"{scope}.{name}": stored for name, stored in layout.items()}


# Which of a block's layers there holds which weight of ours.
_OUTPUTS = {
    "attention_output.kernel": "output",
    "attention_norm.bias": "output",
    "attention_norm.gamma": "attention_norm",
    "attention_norm.beta": "attention_norm",
    "intermediate.kernel": "intermediate",
    "intermediate_activation.bias": "intermediate",
    "feed_forward_output.kernel": "feed_forward_output",
    "feed_forward_norm.bias": "feed_forward_output",
    "feed_forward_norm.gamma": "feed_forward_norm",
    "feed_forward_norm.beta": "feed_forward_norm",
}
_KINDS = {"kernel": "weight", "gamma": "weight", "bias": "bias", "beta": "bias"}


def _block_weight(scope: str, ours: str, layers: Mapping[str, str]) -> Stored:
    kind = ours.rpartition(".")[2]
    parts = (_OUTPUTS[ours],) if ours in _OUTPUTS else ("query", "key", "value")
    names = tuple(f"{scope}{layers[part]}.{_KINDS[kind]}" for part in parts)
    return Stored(names, transposed=kind == "kernel")


def _block(
    attention: str, norm: str, feed_forward: str, others: Mapping[str, str]
) -> dict[str, str]:
    """The names of a block's layers; of query, key and value by a pattern."""
    return {
        **{part: attention.format(part, part[0]) for part in ("query", "key", "value")},
        "attention_norm": norm,
        "intermediate": feed_forward,
        **others,
    }


def _embeddings(decoder: str, projection: str = "") -> dict[str, Stored]:
    """The tables and their LayerNorm.

    Args:
        decoder: The tied decoder: some files hold the table twice, or under its name alone.
        projection: The product behind them, where the family has one.
    """
    return {
        "token_embedding.embeddings": Stored(
            ("embeddings.word_embeddings.weight",), copies=(f"{decoder}.weight",)
        ),
        "embeddings.position_embeddings": Stored(("embeddings.position_embeddings.weight",)),
        "embeddings.segment_embeddings": Stored(("embeddings.token_type_embeddings.weight",)),
        "embeddings.gamma": Stored(("embeddings.LayerNorm.weight",)),
        "embeddings.beta": Stored(("embeddings.LayerNorm.bias",)),
        **(_scoped("embedding_projection", _dense(projection)) if projection else {}),
    }


def _masked_lm(dense: str, norm: str, bias: str, *bias_copies: str) -> dict[str, Stored]:
    return {
        **_scoped("dense", _dense(dense)),
        "gamma": Stored((f"{norm}.weight",)),
        "beta": Stored((f"{norm}.bias",)),
        "output_bias": Stored((bias,), copies=bias_copies),
    }


CLASSIFIERS = ("classifier", "token_classifier", "multiple_choice")


def _task_heads(classifier: str = "classifier") -> dict[str, Layout]:
    return {
        "question_answerer": _dense("qa_outputs"),
        "classifier": _dense(classifier),
        "token_classifier": _dense("classifier"),
        "multiple_choice": _dense("classifier"),
    }


_TASK_CLASSES: dict[str, tuple[str, ...]] = {
    "ForSequenceClassification": ("classifier",),
    "ForTokenClassification": ("token_classifier",),
    "ForMultipleChoice": ("multiple_choice",),
    "ForQuestionAnswering": ("question_answerer",),
}
_BERT_BLOCK = _block(
    "attention.self.{}",
    "attention.output.LayerNorm",
    "intermediate.dense",
    {
        "output": "attention.output.dense",
        "feed_forward_output": "output.dense",
        "feed_forward_norm": "output.LayerNorm",
    },
)
_POOLER = _scoped("pooler.dense", _dense("pooler.dense"))


def _layer(index: int, config: BertConfig) -> str:
    return f"encoder.layer.{index}."


BERT = Family(
    "bert",
    "Bert",
    "bert.",
    bert_json.BERT,
    {**_embeddings("cls.predictions.decoder"), **_POOLER},
    _BERT_BLOCK,
    _layer,
    {
        "masked_lm": _masked_lm(
            "cls.predictions.transform.dense",
            "cls.predictions.transform.LayerNorm",
            "cls.predictions.bias",
            "cls.predictions.decoder.bias",
        ),
        "next_sentence": _dense("cls.seq_relationship"),
        **_task_heads(),
    },
    {
        "Model": (),
        "ForPreTraining": ("masked_lm", "next_sentence"),
        "ForMaskedLM": ("masked_lm",),
        "LMHeadModel": ("masked_lm",),
        "ForNextSentencePrediction": ("next_sentence",),
        **_TASK_CLASSES,
    },
)

ROBERTA = Family(
    "roberta",
    "Roberta",
    "roberta.",
    bert_json.ROBERTA,
    {
        **_embeddings("lm_head.decoder"),
        # The classifier's own first layer is the same computation.
        **_scoped("pooler.dense", _dense("pooler.dense", "classifier.dense")),
    },
    _BERT_BLOCK,
    _layer,
    {
        "masked_lm": _masked_lm(
            "lm_head.dense", "lm_head.layer_norm", "lm_head.bias", "lm_head.decoder.bias"
        ),
        **_task_heads("classifier.out_proj"),
    },
    {
        "Model": (),
        "ForMaskedLM": ("masked_lm",),
        "ForCausalLM": ("masked_lm",),
        **_TASK_CLASSES,
    },
    {"ForSequenceClassification": "classifier.dense"},
)


def _group(index: int, config: BertConfig) -> str:
    group = sorted(set(config.attention_owners)).index(index)
    return f"encoder.albert_layer_groups.{group}.albert_layers.0."


ALBERT = Family(
    "albert",
    "Albert",
    "albert.",
    bert_json.ALBERT,
    {
        **_embeddings("predictions.decoder", "encoder.embedding_hidden_mapping_in"),
        **_scoped("pooler.dense", _dense("pooler")),
    },
    _block(
        "attention.{}",
        "attention.LayerNorm",
        "ffn",
        {
            "output": "attention.dense",
            "feed_forward_output": "ffn_output",
            "feed_forward_norm": "full_layer_layer_norm",
        },
    ),
    _group,
    {
        "masked_lm": _masked_lm(
            "predictions.dense",
            "predictions.LayerNorm",
            "predictions.bias",
            "predictions.decoder.bias",
        ),
        "next_sentence": _dense("sop_classifier.classifier"),
        **_task_heads(),
    },
    {
        "Model": (),
        "ForPreTraining": ("masked_lm", "next_sentence"),
        "ForMaskedLM": ("masked_lm",),
        **_TASK_CLASSES,
    },
)

ELECTRA = Family(
    "electra",
    "Electra",
    "electra.",
    bert_json.ELECTRA,
    _embeddings("generator_lm_head", "embeddings_project"),
    _BERT_BLOCK,
    _layer,
    {
        "masked_lm": _masked_lm(
            "generator_predictions.dense",
            "generator_predictions.LayerNorm",
            "generator_lm_head.bias",
        ),
        "replaced_token": {
            **_scoped("dense", _dense("discriminator_predictions.dense")),
            **_dense("discriminator_predictions.dense_prediction"),
        },
        "pooler": _dense("classifier.dense", "sequence_summary.summary"),
        **_task_heads("classifier.out_proj"),
    },
    {
        "Model": (),
        "ForPreTraining": ("replaced_token",),
        "ForMaskedLM": ("masked_lm",),
        "ForCausalLM": ("masked_lm",),
        **_TASK_CLASSES,
    },
    {
        "ForSequenceClassification": "classifier.dense",
        "ForMultipleChoice": "sequence_summary.summary",
    },
)


def _transformer_layer(index: int, config: BertConfig) -> str:
    return f"transformer.layer.{index}."


DISTILBERT = Family(
    "distilbert",
    "DistilBert",
    "distilbert.",
    bert_json.DISTILBERT,
    _embeddings("vocab_projector"),
    _block(
        "attention.{1}_lin",
        "sa_layer_norm",
        "ffn.lin1",
        {
            "output": "attention.out_lin",
            "feed_forward_output": "ffn.lin2",
            "feed_forward_norm": "output_layer_norm",
        },
    ),
    _transformer_layer,
    {
        "masked_lm": _masked_lm("vocab_transform", "vocab_layer_norm", "vocab_projector.bias"),
        "pooler": _dense("pre_classifier"),
        **_task_heads(),
    },
    {"Model": (), "ForMaskedLM": ("masked_lm",), **_TASK_CLASSES},
    {"ForSequenceClassification": "pre_classifier", "ForMultipleChoice": "pre_classifier"},
)

FAMILIES = {family.model_type: family for family in (BERT, ROBERTA, ALBERT, ELECTRA, DISTILBERT)}
