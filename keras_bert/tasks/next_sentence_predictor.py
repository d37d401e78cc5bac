# SPDX-License-Identifier: Apache-2.0
"""Next sentence prediction and sentence order prediction for text pairs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras

from keras_bert.checkpoints import Checkpoint
from keras_bert.data.texts import TextClassifierPreprocessor, TextPairPreprocessor
from keras_bert.models.backbone import Backbone
from keras_bert.models.pretraining import default_pair_format
from keras_bert.tasks.text_classifier import TextClassifier

NEXT_SENTENCE = ("is_next", "not_next")
SENTENCE_ORDER = ("in_order", "swapped")


@keras.saving.register_keras_serializable(package="keras_bert")
class NextSentencePredictor(TextClassifier):
    """An encoder with the sentence-pair head of its pre-training: does text B follow text A?

    ```python
    predictor = keras_bert.NextSentencePredictor.from_preset("hf://google-bert/bert-base-uncased")
    predictor.classify([("The sun was setting.", "The sky turned red.")])
    # A dict for each pair, with the label is_next or not_next and its score
    ```

    It is a `TextClassifier` for text pairs with two classes. The head is the one that a
    `Pretrainer` trains: next sentence prediction (NSP) in BERT, and sentence order prediction (SOP)
    in ALBERT. `compile()`, `fit` and `evaluate` use pairs with the label 0 (the second text
    follows) or 1, or their names.

    Args:
        backbone: The encoder, a `Backbone`.
        preprocessor: A `TextClassifierPreprocessor` or its config. Without it, the task only
            accepts token IDs.
        class_names: Names of class 0 and class 1. `from_preset` defaults to `("in_order",
            "swapped")` for ALBERT, whose head predicts the order of two segments, and for a
            `Pretrainer` with the `sequence_format` `"sentence_order"`. Otherwise, the default is
            `("is_next", "not_next")`.
        min_score: The lowest probability at which `classify` predicts a class, see `abstain`.
        dropout: Dropout rate on the pooled output. Defaults to the rate in the encoder's config.
        name: Name of the model.

    Call arguments:
        inputs: The backbone's inputs.

    Output shape:
        Logits `(batch, 2)`, float32.

    Raises:
        ValueError: If `class_names` does not have two names.

    Reference:
        [BERT](https://arxiv.org/abs/1810.04805), section 3.1, task 2;
        [ALBERT](https://arxiv.org/abs/1909.11942), section 3.1, sentence order prediction.
    """

    fields = ("text", "text_pair")
    optional_fields = ()
    options = ("class_names", "min_score", "dropout")
    preset_options = ("class_names", "min_score", "dropout")
    head_name = "next_sentence"
    preprocessor_class = TextPairPreprocessor

    def __init__(
        self,
        backbone: Backbone,
        preprocessor: TextClassifierPreprocessor | dict[str, Any] | None = None,
        *,
        class_names: Sequence[str] = NEXT_SENTENCE,
        min_score: float | None = None,
        dropout: float | None = None,
        name: str = "next_sentence_predictor",
        **kwargs: Any,
    ) -> None:
        super().__init__(
            backbone,
            2,
            preprocessor,
            class_names=class_names,
            min_score=min_score,
            dropout=dropout,
            name=name,
            **kwargs,
        )

    @classmethod
    def options_of_checkpoint(cls, checkpoint: Checkpoint) -> dict[str, Any]:
        options = super().options_of_checkpoint(checkpoint)
        # A preset of a `Pretrainer` contains the format.
        pairs = options.get("sequence_format") or default_pair_format(checkpoint.config)
        names = SENTENCE_ORDER if pairs == "sentence_order" else NEXT_SENTENCE
        return {**options, "class_names": checkpoint.class_names or names}
