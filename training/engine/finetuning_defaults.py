# SPDX-License-Identifier: Apache-2.0
"""Default learning rate, and number of epochs for classification, tagging and multiple choice.

The number of updates matters most. With MiniLM L6-H384, three epochs at 5e-5 learn nothing from 100
rows of SST-2, CoLA or STS-B, and little from 800; ten epochs at 1.5e-4 learn STS-B from 800 rows.
The measured scores are in docs/measurements/fine_tuning.md.
Tagging and multiple choice take the same, which was measured for text classification only.
`python -m training.research.defaults_sweep` repeats the measurement, for other encoders too.
"""

from __future__ import annotations

import dataclasses
from typing import TypeVar

from absl import logging

from keras_bert import checkpoints
from keras_bert.tasks.objective import fine_tuning_rate

from .options import LabeledFilesConfig

Config = TypeVar("Config", bound=LabeledFilesConfig)

# The epochs are chosen so that at least _ROWS_SEEN rows are seen, within the limits on epochs.
_ROWS_SEEN = 8_000
_MAX_EPOCHS = 20
_MIN_EPOCHS = 3


def choose(num_rows: int, hidden_dim: int) -> tuple[float, int]:
    """Chooses a peak learning rate, with linear decay, and a number of epochs, for batches of 32.

    The rate is that of `compile()`, see `keras_bert.tasks.objective.fine_tuning_rate`.

    The number of epochs is 3, as in BERT's paper, or as many as process 8,000 rows in total, up to
    20: on small data three epochs are too few updates, for large encoders too (Mosbach et al.,
    2021; Zhang et al., 2021). With MiniLM, up to 10 epochs were measured.

    Args:
        num_rows: Number of training rows.
        hidden_dim: The encoder's hidden size.

    Returns:
        The peak learning rate and the number of epochs.

    Example:

    >>> choose(800, hidden_dim=384)
    (0.00015, 10)
    >>> choose(67_349, hidden_dim=768)
    (3e-05, 3)

    Reference:

    - [Mosbach et al., 2021](https://arxiv.org/abs/2006.04884).
    - [Zhang et al., 2021](https://arxiv.org/abs/2006.05987).
    """
    epochs = min(max(-(-_ROWS_SEEN // max(num_rows, 1)), _MIN_EPOCHS), _MAX_EPOCHS)
    return fine_tuning_rate(hidden_dim), epochs


def complete(config: Config, num_rows: int, preset: str) -> Config:
    """Returns the config with defaults for a learning rate or epochs of `None`, and logs them.

    Args:
        config: The config as given by the user.
        num_rows: Number of training rows.
        preset: The checkpoint, whose config gives the hidden size.
    """
    if config.learning_rate is not None and config.epochs is not None:
        return config
    hidden_dim = checkpoints.open_checkpoint(preset, weights=config.pretrained).config.hidden_dim
    rate, epochs = choose(num_rows, hidden_dim)
    changes: dict[str, float] = {}
    if config.learning_rate is None:
        changes["learning_rate"] = rate
    if config.epochs is None:
        changes["epochs"] = epochs
    chosen = " and ".join(f"--{name}={value:g}" for name, value in changes.items())
    logging.info(
        "defaults: %s, for %d training rows and hidden size %d", chosen, num_rows, hidden_dim
    )
    return dataclasses.replace(config, **changes)
