# SPDX-License-Identifier: Apache-2.0
"""The learning rate and the number of epochs of a run on text that was given neither.

What decides is how many updates there are. With MiniLM L6-H384 three epochs at 5e-5 learn nothing
from 100 rows of SST-2, CoLA and STS-B, and little from 800; ten epochs at 1.5e-4 learn STS-B from
800. The measured scores are in the README, under "Fine-tune on your own file";
`python -m training.defaults_sweep` measures more, and other encoders.
"""

from __future__ import annotations

import dataclasses
from typing import TypeVar

from absl import logging

from keras_bert import checkpoints

from .options import EncoderConfig

Config = TypeVar("Config", bound=EncoderConfig)

# So many rows are gone through at least, in so many epochs at most.
_ROWS_SEEN = 8_000
_MAX_EPOCHS = 20
_MIN_EPOCHS = 3
# By the least width of the encoder, the rate: MiniLM's is measured, that between is between, those
# of BASE and LARGE are among BERT's own (2e-5, 3e-5, 5e-5).
_RATES = ((1024, 2e-5), (768, 3e-5), (512, 1e-4), (0, 1.5e-4))


def choose(num_rows: int, hidden_dim: int) -> tuple[float, int]:
    """A learning rate and a number of epochs, for batches of 32 and a rate that decays linearly.

    | hidden_dim | learning rate | from |
    |---|---|---|
    | below 512 | 1.5e-4 | MiniLM on 100 and 800 rows of three GLUE tasks; the recipes |
    | 512 to 767 | 1e-4 | not measured |
    | 768 to 1023 | 3e-5 | BERT, appendix A.3; not measured here |
    | 1024 and more | 2e-5 | BERT, appendix A.3; not measured here |

    The epochs are 3, as BERT's, or as many as make 8,000 rows, but not more than 20: on small data
    three epochs are too few updates, for large encoders too (Mosbach et al., 2021; Zhang et al.,
    2021). With MiniLM up to 10 were measured.

    Args:
        num_rows: The rows to train on.
        hidden_dim: The encoder's width.

    Returns:
        The peak of the learning rate, and the passes over the rows.

    Example:

    >>> choose(800, hidden_dim=384)
    (0.00015, 10)
    >>> choose(67_349, hidden_dim=768)
    (3e-05, 3)

    Reference:

    - [Devlin et al., 2019](https://arxiv.org/abs/1810.04805), appendix A.3.
    - [Mosbach et al., 2021](https://arxiv.org/abs/2006.04884).
    - [Zhang et al., 2021](https://arxiv.org/abs/2006.05987).
    """
    rate = next(rate for least, rate in _RATES if hidden_dim >= least)
    return rate, min(max(-(-_ROWS_SEEN // max(num_rows, 1)), _MIN_EPOCHS), _MAX_EPOCHS)


def complete(config: Config, num_rows: int, preset: str) -> Config:
    """A config whose learning rate and epochs are chosen where they are `None`, which is logged.

    Args:
        config: What the user gave.
        num_rows: The rows to train on.
        preset: The checkpoint, whose config is read.
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
    logging.info("chosen %s: %d training rows, an encoder %d wide", chosen, num_rows, hidden_dim)
    return dataclasses.replace(config, **changes)
