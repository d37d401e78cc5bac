# SPDX-License-Identifier: Apache-2.0
"""BERT pre-training: masked language modeling and next sentence prediction."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Never

import keras

from keras_bert.data.adapters.reading import Rows
from keras_bert.data.adapters.texts import TextAdapter, is_text
from keras_bert.data.batch_options import BatchOptions
from keras_bert.data.batches import Batches
from keras_bert.data.pretraining.stream import pretraining_examples
from keras_bert.data.texts import TextClassifierPreprocessor
from keras_bert.models.backbone import Backbone, task_pooler
from keras_bert.models.pretraining import (
    encode_masked,
    masked_lm_logits,
    next_sentence_logits,
    pretraining_inputs,
)
from keras_bert.tasks.masked_lm import MaskedTokenTask, masked_token_metrics


class _UnsupportedText(TextAdapter):
    """Rejects text, because segment pairs are not created from it."""

    forms = "ids"

    @classmethod
    def matches(cls, x: object) -> bool:
        return is_text(x)

    @classmethod
    def read(cls, *args: Any, **kwargs: Any) -> Never:
        raise ValueError(
            "A Pretrainer requires records, because its segment pairs are created from whole "
            "documents. Received: text. Create records with `keras-bert create-pretraining-data`, "
            "or with keras_bert.data.InstanceGenerator and keras_bert.data.write_records, and pass "
            "keras_bert.data.pretraining_batches(files, batch_size=32, sequence_length=128) to "
            "`fit`. A MaskedLM can train on text."
        )


@keras.saving.register_keras_serializable(package="keras_bert")
class Pretrainer(MaskedTokenTask):
    """An encoder with both pre-training heads: masked LM and sentence prediction (NSP or SOP).

    The sentence objective classifies two segments. In next sentence prediction (NSP), class 0 means
    that the second segment follows the first, and class 1 means that it is from a different
    document. In sentence order prediction (SOP), class 0 means that the segments are in the correct
    order, and class 1 that they are swapped. The data determines which objective is trained. `fit`
    and `evaluate` accept batches from a `keras_bert.data.PretrainingStream` or
    `keras_bert.data.pretraining_batches`, or arrays of token IDs. They do not accept text. To use
    the trained heads on text, load the checkpoint as a `MaskedLM` or a `NextSentencePredictor`.

    `compile()` defaults to AdamW with a learning rate of 1e-4, the summed cross-entropies for
    masked tokens and sentence pairs (each divided by the sum of its sample weights), accuracies and
    perplexity.

    Args:
        backbone: The encoder, a `Backbone`.
        preprocessor: A `TextClassifierPreprocessor` or its config. It is saved with presets.
        next_sentence: Whether the model has a head for the sentence objective. Defaults to `True`.
        name: Name of the model.

    Call arguments:
        inputs: A dict with the backbone's inputs and `mask_positions`, int `(batch, slots)`, the
            positions to predict.

    Returns:
        A dict of float32 logits: `masked_lm_logits` `(batch, slots, vocabulary)`, and with
        `next_sentence` also `next_sentence_logits` `(batch, 2)`. The `y` and `sample_weight` of
        `fit` are dicts with the same keys.

    Example:

    >>> from keras_bert import Backbone, BertConfig, Pretrainer
    >>> config = BertConfig(num_layers=1, hidden_dim=8, num_heads=2, intermediate_dim=16)
    >>> pretrainer = Pretrainer(Backbone(config))
    >>> pretrainer.compile()
    >>> x = {"token_ids": np.array([[101, 103, 102]]), "mask_positions": np.array([[1]])}
    >>> y = {"masked_lm_logits": np.array([[7]]), "next_sentence_logits": np.array([0])}
    >>> weights = {"masked_lm_logits": np.ones((1, 1)), "next_sentence_logits": np.ones(1)}
    >>> history = pretrainer.fit(x, y, sample_weight=weights, verbose=0)

    Reference:
        [BERT](https://arxiv.org/abs/1810.04805), section 3.1;
        [ALBERT](https://arxiv.org/abs/1909.11942), section 3.1, sentence order prediction.
    """

    adapters = (_UnsupportedText,)

    def __init__(
        self,
        backbone: Backbone,
        preprocessor: TextClassifierPreprocessor | dict[str, Any] | None = None,
        *,
        next_sentence: bool = True,
        name: str = "pretrainer",
        **kwargs: Any,
    ) -> None:
        inputs = pretraining_inputs(backbone)
        hidden, encoded = encode_masked(backbone, inputs, pooled=next_sentence)
        outputs = {"masked_lm_logits": masked_lm_logits(backbone, hidden)}
        pooler = task_pooler(backbone) if next_sentence else None
        if next_sentence:
            pooled = backbone.pool(inputs, pooler, encoded)
            outputs["next_sentence_logits"] = next_sentence_logits(backbone, pooled)
        super().__init__(
            inputs=inputs,
            outputs=outputs,
            backbone=backbone,
            preprocessor=preprocessor,
            name=name,
            **kwargs,
        )
        self.next_sentence = next_sentence
        self.pooler = pooler
        self.uses_pooler = next_sentence

    @property
    def heads(self) -> dict[str, Any]:
        heads = super().heads
        if self.next_sentence:
            heads["next_sentence"] = self.get_layer("next_sentence")
        return heads if self.pooler is None else {**heads, "pooler": self.pooler}

    def _read(self, x: Any, y: Any, sample_weight: Any, options: BatchOptions) -> Rows:
        # A batch of records is a dict that contains both features and targets.
        if isinstance(x, Batches) and isinstance(x.example(), Mapping):
            x = pretraining_examples(x, self.next_sentence)
        return super()._read(x, y, sample_weight, options)

    def _default_metrics(self) -> dict[str, list[keras.metrics.Metric]]:
        return {**super()._default_metrics(), "masked_lm_logits": masked_token_metrics()}

    def _num_targets(self, x: Any) -> dict[str, int | None]:
        next_sentence = {"next_sentence_logits": 2} if self.next_sentence else {}
        return {**super()._num_targets(x), **next_sentence}
