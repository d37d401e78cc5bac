# SPDX-License-Identifier: Apache-2.0
"""What tasks take from a checkpoint besides weights."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from keras_bert.checkpoints import Checkpoint
    from keras_bert.data.preprocessors import TextClassifierPreprocessor


def preprocessor_for(
    checkpoint: Checkpoint, sequence_length: int | None
) -> TextClassifierPreprocessor:
    """The preprocessor for a checkpoint's vocabulary.

    Args:
        checkpoint: What it is for.
        sequence_length: The longest row in tokens; `None` takes the encoder's maximum.

    Raises:
        keras_bert.checkpoints.CheckpointError: If the checkpoint has no vocabulary.
    """
    from keras_bert.data.preprocessors import TextClassifierPreprocessor
    from keras_bert.text.wordpiece import WordPieceTokenizer

    tokenizer = WordPieceTokenizer(
        checkpoint.require_vocabulary(), lowercase=bool(checkpoint.lowercase)
    )
    return TextClassifierPreprocessor(
        tokenizer, sequence_length or checkpoint.config.max_sequence_length
    )
