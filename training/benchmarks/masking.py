# SPDX-License-Identifier: Apache-2.0
"""Benchmarks dynamic masking in keras_bert and KerasHub on the same batches of ids.

KerasHub uses its `MaskedLMMaskGenerator`. All maskers run in `tf.data.Dataset.map` with the same
number of threads, on random sequences `[CLS] ... [SEP]` without padding.
"""

from __future__ import annotations

from collections.abc import Callable

import keras_hub
import numpy as np
import tensorflow as tf

from keras_bert.data import MaskedLMMaskGenerator
from keras_bert.data.pretraining.static_masking import UNITS

from .subject import Function
from .workload import Workload

VOCABULARY_SIZE = 30522
PADDING, CLASSIFY, SEPARATE, MASK = 0, 101, 102, 103
SPECIAL = [PADDING, CLASSIFY, SEPARATE, MASK]
# The first whole word id and the first continuation id. A fifth of the ids are continuations.
FIRST_WORD, FIRST_PIECE = 1000, 24618


def masking_subjects(workload: Workload) -> list[Function]:
    """Returns keras_bert's maskers for all masking units, and KerasHub's masker."""
    tokens = workload.steps * workload.batch_size * workload.sequence_length
    return [
        Function(name, lambda dataset=dataset: _read(dataset, tokens), workload.steps)
        for name, dataset in masked_batches(workload).items()
    ]


def _read(dataset: tf.data.Dataset, tokens: int) -> int:
    for _ in dataset:
        pass
    return tokens


def masked_batches(workload: Workload) -> dict[str, tf.data.Dataset]:
    """Returns each masker's dataset."""
    shape = (workload.steps, workload.batch_size, workload.sequence_length)
    ids = np.random.default_rng(0).integers(FIRST_WORD, VOCABULARY_SIZE, shape, np.int32)
    ids[..., 0], ids[..., -1] = CLASSIFY, SEPARATE
    batches = tf.data.Dataset.from_tensor_slices(ids).enumerate()
    maskers = {f"keras_bert, {unit}": _keras_bert(unit) for unit in UNITS}
    maskers["keras_hub"] = _keras_hub(workload.num_predictions)
    return {
        name: batches.map(mask, num_parallel_calls=workload.clients)
        for name, mask in maskers.items()
    }


def _keras_bert(unit: str) -> Callable[[tf.Tensor, tf.Tensor], dict[str, tf.Tensor]]:
    masker = MaskedLMMaskGenerator(
        VOCABULARY_SIZE,
        MASK,
        SPECIAL,
        unit=unit,
        continuation_token_ids=range(FIRST_PIECE, VOCABULARY_SIZE),
    )
    return lambda step, ids: masker(ids, step)


def _keras_hub(num_predictions: int) -> Callable[[tf.Tensor, tf.Tensor], dict[str, tf.Tensor]]:
    masker = keras_hub.layers.MaskedLMMaskGenerator(
        VOCABULARY_SIZE,
        mask_selection_rate=0.15,
        mask_token_id=MASK,
        mask_selection_length=num_predictions,
        unselectable_token_ids=SPECIAL,
    )
    return lambda step, ids: masker(ids)
