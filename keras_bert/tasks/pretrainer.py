# SPDX-License-Identifier: Apache-2.0
"""The paper's pre-training: masked tokens and next sentences at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import keras

from keras_bert.models.backbone import Backbone, task_pooler
from keras_bert.models.pretraining import (
    encode_masked,
    masked_lm_logits,
    next_sentence_logits,
    pretraining_inputs,
)
from keras_bert.tasks.masked_lm import MaskedTokenTask, masked_token_metrics
from keras_bert.tasks.objective import class_accuracy, class_loss
from keras_bert.tasks.presets import pooler_head
from keras_bert.tasks.rows import is_text

if TYPE_CHECKING:
    from keras_bert.data.text_batches import TextClassifierPreprocessor


@keras.saving.register_keras_serializable(package="keras_bert")
class Pretrainer(MaskedTokenTask):
    """BERT with both heads of its pre-training.

    The second objective is about two segments, and has two classes: whether the second one
    follows the first (0) or comes from elsewhere (1), or whether their order is right (0) or
    swapped (1). Which of them is the data's matter: `fit` takes ids, such as
    `keras_bert.data.pretraining_batches` reads from records, and no text.
    `compile()` takes AdamW at 1e-4; the sum of two cross-entropies, of the masked tokens, divided
    by their number, and of the pairs, divided by theirs; and accuracies and perplexity.

    Args:
        backbone: The encoder.
        preprocessor: Text to features, or the config of what makes them; without one the task
            takes ids.
        next_sentence: Whether the second objective is there.
        name: The model's name.

    Call arguments:
        inputs: The backbone's inputs, and `mask_positions`: int `(batch, slots)`, the positions
            to predict.

    Returns:
        A dict of float32 logits: `masked_lm_logits` `(batch, slots, vocabulary)`, and
        `next_sentence_logits` `(batch, 2)` if that head is there. `y` of `fit` is a dict with
        these names, and so is `sample_weight`.

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
        [ALBERT](https://arxiv.org/abs/1909.11942), section 3.1, the order of sentences.
    """

    input_kinds = ()
    options = ("next_sentence",)

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
        if not self.next_sentence:
            return super().heads
        return {
            **super().heads,
            "next_sentence": self.get_layer("next_sentence"),
            **pooler_head(self.pooler),
        }

    def _default_loss(self) -> dict[str, keras.losses.Loss]:
        return {name: class_loss() for name in self.output}

    def _default_metrics(self) -> dict[str, list[keras.metrics.Metric]]:
        metrics = {"masked_lm_logits": masked_token_metrics()}
        if self.next_sentence:
            metrics["next_sentence_logits"] = [class_accuracy()]
        return metrics

    def _num_targets(self, x: Any) -> dict[str, int]:
        next_sentence = {"next_sentence_logits": 2} if self.next_sentence else {}
        return {**super()._num_targets(x), **next_sentence}

    def _check_ids(self, x: Any) -> None:
        if is_text(x):
            raise ValueError(
                "A Pretrainer takes ids and no text: its pairs of sentences are made of whole "
                "documents. Make records by `python -m training.create_pretraining_data`, or "
                "with keras_bert.data.InstanceMaker, and give `fit` the batches that "
                "keras_bert.data.pretraining_batches reads. A MaskedLM learns from text as it is."
            )
        super()._check_ids(x)
