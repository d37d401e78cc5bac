# SPDX-License-Identifier: Apache-2.0
"""Creates next-token targets for training left-to-right language models."""

from __future__ import annotations

from typing import Any

from keras_bert.data.pretraining.masking import dense_features, non_padding_tokens


class NextTokenTargets:
    """Adds the next token as the target of every position, without masking.

    It has the same interface as `MaskedLMMaskGenerator` and returns the same features, so a
    `MaskedLM` or `Pretrainer` can use either. It is deterministic. The encoder must be causal (see
    `BertConfig`), because a bidirectional encoder can see the token that it predicts.

    Args:
        pad_token_id: The id of `[PAD]`. Defaults to 0.

    Call arguments:
        features: A dict with `token_ids`, int `(batch, length)` or `(length,)`, or just the ids.
            Optional keys are `padding_mask` and `sequence_ids` for packed rows, because a
            sequence's last token has no target. Without `padding_mask`, tokens with a
            `sequence_ids` value of 0 are padding, or without `sequence_ids`, the `pad_token_id`.
        step: Ignored.

    Returns:
        A dict with the features except for `word_starts`, and with:

        - `mask_positions`: Positions that predict a token, int32 `(batch, length - 1)`.
        - `mask_ids`: The next token of each position, int32 `(batch, length - 1)`.
        - `mask_weights`: 0 without a next token, otherwise 1, float32 `(batch, length - 1)`.

    Example:

    >>> from keras_bert.data import NextTokenTargets
    >>> targets = NextTokenTargets()({"token_ids": [[2, 5, 6, 3, 0]]})
    >>> targets["mask_positions"].tolist()
    [[0, 1, 2, 0]]
    >>> targets["mask_ids"].tolist(), targets["mask_weights"].tolist()
    ([[5, 6, 3, 0]], [[1.0, 1.0, 1.0, 0.0]])

    Reference:
        [BERT](https://arxiv.org/abs/1810.04805), section 5.1, "LTR & No NSP".
    """

    masks_rows_alone = True
    """Whether a row's result is independent of the other rows in its batch."""

    def __init__(self, *, pad_token_id: int = 0) -> None:
        self.pad_token_id = pad_token_id

    def __call__(self, features: Any, step: Any = None) -> dict[str, Any]:
        """Adds the targets to a batch or a single row."""
        xp, features = dense_features(features)
        if len(features["token_ids"].shape) == 1:
            rows = {name: value[None] for name, value in features.items()}
            return {name: value[0] for name, value in self(rows).items()}
        features.pop("word_starts", None)
        ids = features["token_ids"]
        follows = non_padding_tokens(xp, features, self.pad_token_id)
        follows = follows[:, 1:] & follows[:, :-1]
        if "sequence_ids" in features:
            sequence_ids = features["sequence_ids"]
            follows = follows & (sequence_ids[:, 1:] == sequence_ids[:, :-1])
        weights = xp.cast(follows, "int32")
        return {
            **features,
            "mask_positions": xp.cast(xp.arange(xp.size(weights, 1)), "int32") * weights,
            "mask_ids": ids[:, 1:] * weights,
            "mask_weights": xp.cast(follows, "float32"),
        }

    def mask_dataset(self, dataset: Any, first_step: int = 0) -> Any:
        """Adds targets to `tf.data.Dataset` batches. See `MaskedLMMaskGenerator.mask_dataset`.

        Args:
            dataset: A dataset of features or tuples. In tuples, the features are first.
            first_step: Ignored.

        Returns:
            A dataset of the same structure.
        """
        from keras_bert.data.tfdata.pretraining import masked_dataset

        return masked_dataset(self, dataset, first_step)

    def num_predictions(self, length: int) -> int:
        """Returns the number of positions with targets in a row of `length` tokens."""
        return length - 1
