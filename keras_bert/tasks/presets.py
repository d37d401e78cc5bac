# SPDX-License-Identifier: Apache-2.0
"""What tasks take from a checkpoint besides weights."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from keras_bert.config import BertConfig

if TYPE_CHECKING:
    from keras_bert.checkpoints import Checkpoint


def preprocessor_config(checkpoint: Checkpoint, sequence_length: int | None) -> dict[str, Any]:
    """The config of a preprocessor for a checkpoint's vocabulary.

    Args:
        checkpoint: What it is for.
        sequence_length: The longest row in tokens; `None` takes what a preset of ours was saved
            with, otherwise the encoder's maximum.

    Raises:
        keras_bert.checkpoints.CheckpointError: If the checkpoint has no vocabulary.
    """
    saved = (checkpoint.task or {}).get("sequence_length")
    return {
        "tokenizer": {
            "vocabulary": checkpoint.require_vocabulary(),
            "lowercase": bool(checkpoint.lowercase),
        },
        "sequence_length": sequence_length or saved or checkpoint.config.max_sequence_length,
    }


def check_preprocessor(preprocessor: Any, config: BertConfig) -> None:
    """Raises if a preprocessor, or the config of one, makes rows that an encoder cannot take.

    Raises:
        ValueError: If rows may be longer than the encoder's positions, or ids larger than its
            vocabulary.
    """
    values = preprocessor if isinstance(preprocessor, dict) else preprocessor.get_config()
    if values["sequence_length"] > config.max_sequence_length:
        raise ValueError(
            f"The preprocessor makes rows of up to {values['sequence_length']} tokens; the "
            f"encoder has positions for {config.max_sequence_length}."
        )
    vocabulary_size = len(values["tokenizer"]["vocabulary"])
    if vocabulary_size > config.vocabulary_size:
        raise ValueError(
            f"The preprocessor's vocabulary has {vocabulary_size} tokens; the encoder's has "
            f"{config.vocabulary_size}."
        )
