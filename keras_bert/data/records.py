# SPDX-License-Identifier: Apache-2.0
"""Pre-training instances to TFRecords with the feature names of BERT's released code."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from keras_bert.atomic import atomic_path
from keras_bert.data.instances import Instance
from keras_bert.data.static_masking import Flags, StaticMasker
from keras_bert.data.token_store import Ids
from keras_bert.text.wordpiece import SUFFIX


class InstanceEncoder:
    """Turns instances into records, masked or to be masked in training.

    With a masker, records are those of the released code, which can train on them: `input_ids`,
    `input_mask` and `segment_ids` `(sequence_length,)`, `masked_lm_positions`, `masked_lm_ids` and
    `masked_lm_weights` `(max_predictions,)`, `next_sentence_labels` `(1,)`, padded with 0. The
    weights are float32, the rest int64. The label of rows without a second segment is then 0.

    Without one, records have `input_ids`, `segment_ids` and `word_starts` (1 where a word begins)
    of the row's own length, and `next_sentence_labels` where the row has one.

    Args:
        vocabulary: The tokens.
        special_token_ids: The ids that are no text: `[CLS]` and `[SEP]`.
        sequence_length: The length to pad to; of no effect without a masker.
        masker: What draws the masks, or `None`.
        continuation_token_ids: The ids that go on with the word before them; `None` takes
            WordPiece's, which begin with `##`.

    Call arguments:
        instance: A row.
        rng: What masks are drawn from.

    Returns:
        The serialized `tf.train.Example`.
    """

    def __init__(
        self,
        vocabulary: Sequence[str],
        special_token_ids: Sequence[int],
        sequence_length: int,
        masker: StaticMasker | None = None,
        continuation_token_ids: Sequence[int] | None = None,
    ) -> None:
        if continuation_token_ids is None:
            tokens = enumerate(vocabulary)
            continuation_token_ids = [index for index, token in tokens if token.startswith(SUFFIX)]
        self.sequence_length = sequence_length
        self.masker = masker
        self._is_special = np.zeros(len(vocabulary), bool)
        self._is_special[list(special_token_ids)] = True
        self._is_continuation = np.zeros(len(vocabulary), bool)
        self._is_continuation[list(continuation_token_ids)] = True

    def __call__(self, instance: Instance, rng: np.random.Generator) -> bytes:
        if self.masker is None:
            features = self._unmasked(instance)
        else:
            features = self._masked(instance, self.masker, rng)
        example = tf.train.Example()
        for name, values in features.items():
            feature = example.features.feature[name]
            values_of_type = (
                feature.float_list if name == "masked_lm_weights" else feature.int64_list
            )
            values_of_type.value.extend(values)
        return bytes(example.SerializeToString(deterministic=True))

    def _unmasked(self, instance: Instance) -> dict[str, list[Any]]:
        features = {
            "input_ids": instance.token_ids.tolist(),
            "segment_ids": instance.segment_ids.tolist(),
            "word_starts": self._word_starts(instance.token_ids).astype(int).tolist(),
        }
        if instance.label is not None:
            features["next_sentence_labels"] = [instance.label]
        return features

    def _masked(
        self, instance: Instance, masker: StaticMasker, rng: np.random.Generator
    ) -> dict[str, list[Any]]:
        ids = instance.token_ids
        masked = masker(ids, self._word_starts(ids), ~self._is_special[ids], rng)
        length, slots = self.sequence_length, masker.max_predictions
        return {
            "input_ids": _padded(masked.token_ids, length),
            "input_mask": _padded(np.ones_like(ids), length),
            "segment_ids": _padded(instance.segment_ids, length),
            "masked_lm_positions": _padded(masked.positions, slots),
            "masked_lm_ids": _padded(masked.ids, slots),
            "masked_lm_weights": _padded(np.ones(len(masked.ids), np.float32), slots),
            "next_sentence_labels": [instance.label or 0],
        }

    def _word_starts(self, ids: Ids) -> Flags:
        """A piece that opens a segment, as truncation may leave one, begins a word there."""
        starts: Flags = ~self._is_continuation[ids]
        starts[0] = True
        starts[1:] |= self._is_special[ids[:-1]]
        return starts


def write_records(path: str | os.PathLike[str], records: Iterable[bytes]) -> int:
    """Writes a TFRecord file atomically.

    Args:
        path: The file; an existing one is replaced.
        records: Serialized examples.

    Returns:
        How many there were.
    """
    path = Path(path)
    count = 0
    with atomic_path(path) as temporary, tf.io.TFRecordWriter(os.fspath(temporary)) as writer:
        for record in records:
            writer.write(record)
            count += 1
    return count


def _padded(values: Any, length: int) -> list[Any]:
    # np.pad alone would take half of the time that goes into a record.
    return [*values.tolist(), *[0] * (length - len(values))]
