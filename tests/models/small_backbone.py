# SPDX-License-Identifier: Apache-2.0
"""A small encoder for tests, and inputs for it."""

from typing import Any

import numpy as np
from keras import ops

from keras_bert.config import BertConfig
from keras_bert.ops import BatchLayout

SMALL = BertConfig(
    vocabulary_size=50,
    num_layers=2,
    num_heads=2,
    hidden_dim=16,
    intermediate_dim=32,
    max_sequence_length=12,
)
WITHOUT_DROPOUT = SMALL.replace(dropout=0.0, attention_dropout=0.0)


def token_ids(batch: int = 3, length: int = 7, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(1, 50, (batch, length)).astype("int32")


def features(batch: int = 3, length: int = 7, seed: int = 0) -> dict[str, np.ndarray]:
    """Sentence pairs. All rows but the first are padded."""
    lengths = np.maximum(2, length - np.arange(batch) * 2)
    columns = np.arange(length)
    mask = columns < lengths[:, None]
    return {
        "token_ids": token_ids(batch, length, seed) * mask,
        "segment_ids": ((columns >= 2) & mask).astype("int32"),
        "padding_mask": mask,
    }


def random_weights(model: Any, seed: int = 0, stddev: float = 0.3) -> None:
    """Assigns weights far from initial values, so that no bias or LayerNorm weight is neutral."""
    random = np.random.default_rng(seed)
    for variable in model.weights:
        variable.assign(random.normal(0.0, stddev, variable.shape) + (variable.name == "gamma"))


def make_layout(**inputs: np.ndarray | None) -> BatchLayout:
    """Returns the layout of a batch with these masks."""
    tensors = {name: ops.convert_to_tensor(x) for name, x in inputs.items() if x is not None}
    return BatchLayout(**tensors)


def to_numpy(tensor: Any) -> np.ndarray:
    """Converts any backend's tensor. bfloat16 becomes float32, because NumPy has no bfloat16."""
    return ops.convert_to_numpy(ops.cast(tensor, "float32"))
