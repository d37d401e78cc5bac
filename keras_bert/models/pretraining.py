# SPDX-License-Identifier: Apache-2.0
"""The encoder with its pre-training heads: masked-LM and next-sentence logits."""

from __future__ import annotations

from typing import Any, Self

import keras

from keras_bert.layers import ClassificationHead, MaskedLMTransform, VocabularyBias
from keras_bert.models.backbone import Backbone
from keras_bert.models.inputs import INPUT_NAMES, TokenModel, token_inputs


def masked_lm_logits(backbone: Backbone, sequence_output: Any, mask_positions: Any) -> Any:
    """Logits over the vocabulary for the masked positions, with the tied token table.

    Args:
        backbone: The encoder whose token table is shared.
        sequence_output: Symbolic, `(batch, length, hidden)`.
        mask_positions: Symbolic, int `(batch, slots)`.

    Returns:
        Symbolic float32 logits `(batch, slots, vocabulary)`.

    Reference:
        [BERT](https://arxiv.org/abs/1810.04805), section 3.1, task 1.
    """
    config, policy = backbone.config, backbone.dtype_policy
    transform = MaskedLMTransform(
        config.activation,
        layer_norm_epsilon=config.layer_norm_epsilon,
        initializer_range=config.initializer_range,
        dtype=policy,
        name="masked_lm_transform",
    )
    hidden = transform(sequence_output, mask_positions)
    logits = backbone.token_embedding(hidden, reverse=True)
    return VocabularyBias(name="masked_lm_bias")(logits)


@keras.saving.register_keras_serializable(package="keras_bert")
class PretrainingModel(TokenModel):
    """The encoder with the heads of the paper's pre-training.

    Args:
        backbone: The encoder.
        next_sentence: Whether the next-sentence head is there (0 = IsNext).
        name: The model's name.

    Call arguments:
        inputs: The backbone's dict of inputs, and in it `mask_positions`: int `(batch, slots)`,
            the positions to predict.

    Returns:
        A dict of float32 logits: `masked_lm_logits` `(batch, slots, vocabulary)`, and
        `next_sentence_logits` `(batch, 2)` if the head is there.

    Reference:
        [BERT](https://arxiv.org/abs/1810.04805), section 3.1.
    """

    def __init__(
        self,
        backbone: Backbone,
        next_sentence: bool = True,
        name: str = "pretraining",
        **kwargs: Any,
    ) -> None:
        inputs = {
            **token_inputs(),
            "mask_positions": keras.Input((None,), dtype="int32", name="mask_positions"),
        }
        encoded = backbone({name: inputs[name] for name in INPUT_NAMES})
        outputs = {
            "masked_lm_logits": masked_lm_logits(
                backbone, encoded["sequence_output"], inputs["mask_positions"]
            )
        }
        if next_sentence:
            head = ClassificationHead(
                2, initializer_range=backbone.config.initializer_range, name="next_sentence"
            )
            outputs["next_sentence_logits"] = head(encoded["pooled_output"])
        super().__init__(inputs=inputs, outputs=outputs, name=name, **kwargs)
        self.config = backbone.config
        self.backbone = backbone
        self.next_sentence = next_sentence

    def get_config(self) -> dict[str, Any]:
        # Keras' own record of the graph would untie the token table: it names the layer twice.
        return {
            "backbone": keras.saving.serialize_keras_object(self.backbone),
            "next_sentence": self.next_sentence,
            "name": self.name,
            "trainable": self.trainable,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: Any = None) -> Self:
        backbone = keras.saving.deserialize_keras_object(config["backbone"], custom_objects)
        model = cls(backbone, config["next_sentence"], name=config["name"])
        if not config.get("trainable", True):  # True would thaw what is frozen inside
            model.trainable = False
        return model


def pretraining_model(backbone: Backbone, next_sentence: bool = True) -> PretrainingModel:
    """The encoder with the heads of the paper's pre-training; see `PretrainingModel`."""
    return PretrainingModel(backbone, next_sentence)
