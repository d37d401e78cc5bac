# SPDX-License-Identifier: Apache-2.0
"""BERT pre-training: masked language modeling and next sentence prediction."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import keras

from keras_bert import checks
from keras_bert.data.adapters.base import InputAdapter
from keras_bert.data.adapters.documents import DocumentsAdapter
from keras_bert.data.adapters.reading import Rows
from keras_bert.data.batch_options import BatchOptions
from keras_bert.data.batches import Batches, MappedBatches
from keras_bert.data.pretraining.instances import PAIR_FORMATS, SEQUENCE_FORMATS
from keras_bert.data.pretraining.stream import pretraining_example, pretraining_examples
from keras_bert.data.texts import TextClassifierPreprocessor
from keras_bert.models.backbone import Backbone, task_pooler
from keras_bert.models.pretraining import (
    default_pair_format,
    encode_masked,
    masked_lm_logits,
    next_sentence_logits,
    pretraining_inputs,
)
from keras_bert.tasks.masked_lm import MaskedTokenTask, masked_token_metrics, masking_options


@keras.saving.register_keras_serializable(package="keras_bert")
class Pretrainer(MaskedTokenTask):
    """An encoder with both pre-training heads: masked LM and sentence prediction (NSP or SOP).

    ```python
    documents = keras_bert.data.read_documents("corpus.txt")  # [["A sentence.", …], …]
    pretrainer = keras_bert.Pretrainer.from_preset("hf://google-bert/bert-base-uncased")
    pretrainer.compile()
    pretrainer.fit(documents, epochs=3)
    pretrainer.save_to_preset("my_bert")
    keras_bert.NextSentencePredictor.from_preset("my_bert").classify([("He ate.", "It was good.")])
    ```

    The sentence objective classifies two segments. In next sentence prediction (NSP), class 0 means
    that the second segment follows the first, and class 1 means that it is from a different
    document. In sentence order prediction (SOP), class 0 means that the segments are in the correct
    order, and class 1 that they are swapped. To use the trained heads on text, load the preset as a
    `MaskedLM` and as a `NextSentencePredictor`.

    `fit` and `evaluate` accept documents, each a list of sentences in order. In training, every
    document is split into `duplicate_factor` different sets of segment pairs, and every epoch uses
    all of them with new masks. In evaluation, there is one set, and the masks are always the same.
    For a corpus that does not fit in memory, pass batches of records from a
    `keras_bert.data.PretrainingStream`.

    `compile()` defaults to AdamW with a learning rate of 1e-4, the summed cross-entropies for
    masked tokens and sentence pairs (each divided by the sum of its sample weights), accuracies and
    perplexity.

    Args:
        backbone: The encoder, a `Backbone`.
        preprocessor: A `TextClassifierPreprocessor` or its config. It is saved with presets.
        next_sentence: Whether the model has a head for the sentence objective. Defaults to `True`.
        sequence_format: How sequences are created from documents, see
            `keras_bert.data.InstanceGenerator`. Defaults to `"next_sentence"`, for ALBERT to
            `"sentence_order"`, and without `next_sentence` to `"full_sentences"`.
        duplicate_factor: Number of times that each epoch uses each document, with different
            segment pairs. Defaults to 10, as in the original BERT code.
        masking: A dict of masking options, see `MaskedLM`.
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

    adapters = (DocumentsAdapter,)
    preset_options = ("sequence_format",)

    def __init__(
        self,
        backbone: Backbone,
        preprocessor: TextClassifierPreprocessor | dict[str, Any] | None = None,
        *,
        next_sentence: bool = True,
        sequence_format: str | None = None,
        duplicate_factor: int = 10,
        masking: dict[str, Any] | None = None,
        name: str = "pretrainer",
        **kwargs: Any,
    ) -> None:
        if sequence_format is None:
            sequence_format = default_pair_format(backbone.config)
            if not next_sentence:
                sequence_format = "full_sentences"
        checks.check_choice(SEQUENCE_FORMATS, sequence_format=sequence_format)
        checks.POSITIVE_INT.check(duplicate_factor=duplicate_factor)
        masking = masking_options(masking, backbone.config)
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
        self.sequence_format = sequence_format
        self.duplicate_factor = duplicate_factor
        self.masking = masking
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

    def _batches(self, rows: InputAdapter, options: BatchOptions) -> Batches:
        if self.next_sentence and self.sequence_format not in PAIR_FORMATS:
            raise ValueError(
                f"sequence_format must be one of {', '.join(PAIR_FORMATS)} to train the sentence "
                f"objective on documents. Received: {self.sequence_format!r}. Pass "
                "next_sentence=False to train only a masked LM."
            )

        def name_targets(batch: tuple[Any, Any, Any], _: int) -> tuple[Any, ...]:
            features, ids, weights = batch
            features = {**features, "mask_ids": ids, "mask_weights": weights}
            return pretraining_example(features, self.next_sentence)

        batches = super()._batches(rows, options)
        return MappedBatches(batches, name_targets, targets_have_length=True)

    def _packed_batches(
        self, rows: InputAdapter, options: BatchOptions, preprocessor: Any
    ) -> Batches:
        assert isinstance(rows, DocumentsAdapter)
        rows = dataclasses.replace(rows, sequence_format=self.sequence_format)
        return super()._packed_batches(rows, options, preprocessor)

    def _default_metrics(self) -> dict[str, list[keras.metrics.Metric]]:
        return {**super()._default_metrics(), "masked_lm_logits": masked_token_metrics()}

    def _num_targets(self, x: Any) -> dict[str, int | None]:
        next_sentence = {"next_sentence_logits": 2} if self.next_sentence else {}
        return {**super()._num_targets(x), **next_sentence}
