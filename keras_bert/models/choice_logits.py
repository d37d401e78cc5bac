# SPDX-License-Identifier: Apache-2.0
"""Multiple choice: one logit for each of several sequences."""

from __future__ import annotations

from typing import Any

import keras

from keras_bert.layers.choice_folding import FoldChoices, UnfoldChoices
from keras_bert.layers.heads import Pooler
from keras_bert.models.backbone import Backbone
from keras_bert.ops.annotations import Tensor


def choice_inputs() -> dict[str, Any]:
    """Creates the symbolic inputs of a multiple-choice model, each `(batch, choices, length)`."""
    shape = (None, None)
    return {
        "token_ids": keras.Input(shape, dtype="int32", name="token_ids"),
        "segment_ids": keras.Input(shape, dtype="int32", name="segment_ids", optional=True),
        "padding_mask": keras.Input(shape, dtype="bool", name="padding_mask", optional=True),
    }


def choice_logits(
    backbone: Backbone, inputs: dict[str, Tensor], head: keras.layers.Layer, pooler: Pooler | None
) -> Tensor:
    """Encodes each choice independently, and computes a logit from its pooled output.

    Args:
        backbone: The encoder.
        inputs: The symbolic inputs that `choice_inputs` returned.
        head: A layer from `(rows, hidden)` to `(rows, 1)`.
        pooler: The pooler of the task; `None` for that of the encoder.

    Returns:
        Symbolic float32 logits `(batch, choices)`.

    Reference:
        [BERT](https://arxiv.org/abs/1810.04805), section 4.4.
    """
    token_ids, masks = inputs["token_ids"], {"padding_mask": inputs["padding_mask"]}
    rows = FoldChoices(name="fold_choices")(token_ids, segment_ids=inputs["segment_ids"], **masks)
    scores = head(backbone.pool(rows, pooler))
    return UnfoldChoices(name="unfold_choices")(scores, token_ids=token_ids, **masks)
