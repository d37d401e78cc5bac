# SPDX-License-Identifier: Apache-2.0
"""A linear-chain conditional random field (CRF) on the logits of a tagger."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from keras_bert.layers.base import Layer
from keras_bert.ops import linear_chain
from keras_bert.ops.annotations import Shape, Tensor
from keras_bert.ops.linear_chain import Potentials

# With the learning rate of an encoder, a few hundred steps of Adam would change transitions by less
# than 0.1.
_RATE_FACTOR = 100.0


@keras.saving.register_keras_serializable(package="keras_bert")
class ConditionalRandomField(Layer):
    """A linear-chain conditional random field (CRF): scores for pairs of consecutive labels.

    Calling the layer returns the emissions, a tagger's logits, unchanged in float32, so that its
    weights become a part of the model. The methods compute the rest. The loss of a model is
    `keras_bert.losses.CRFLoss`.

    The weights start at 0, so that an untrained layer predicts the same as a softmax.
    `keras_bert.optimizers` train them with 100 times the learning rate.

    The methods accept a `mask`, bool `(batch, length)`, which defaults to all positions. Positions
    where it is False, such as padding and further subwords, are left out of the sequence. They may
    be anywhere.

    Input shape:
        Emissions `(batch, length, classes)`.

    Output shape:
        Same as the input, float32.

    Example:

    >>> crf = keras_bert.layers.ConditionalRandomField()
    >>> emissions = crf(np.array([[[0.0, 1.0], [2.0, 0.0], [0.0, 0.0]]]))
    >>> class_ids = crf.decode(emissions, np.array([[True, True, False]]))
    >>> keras.ops.convert_to_numpy(class_ids)
    array([[ 1,  0, -1]], dtype=int32)

    Reference:
        [Lafferty et al., 2001](https://repository.upenn.edu/cis_papers/159/);
        [Lample et al., 2016](https://arxiv.org/abs/1603.01360), section 2.2.
    """

    def __init__(self, **kwargs: Any) -> None:
        # Sums over long sequences need float32 under any policy.
        super().__init__(**{**kwargs, "dtype": "float32"})

    def build(self, input_shape: Shape) -> None:
        size = input_shape[-1]
        shapes = {"start_transitions": (size,), "transitions": (size, size)}
        for name, shape in {**shapes, "end_transitions": (size,)}.items():
            weight = self.add_weight(name=name, shape=shape, initializer="zeros")
            weight.learning_rate_factor = _RATE_FACTOR
            setattr(self, name, weight)

    @property
    def potentials(self) -> Potentials:
        """The weights: scores of the first label, of pairs of labels, and of the last label."""
        weights = self.start_transitions, self.transitions, self.end_transitions
        return Potentials(*map(ops.convert_to_tensor, weights))

    def reorder_classes(self, classes: Sequence[int]) -> None:
        """Changes the order of the classes. `classes` has the old index of each class."""
        for weight in (self.start_transitions, self.transitions, self.end_transitions):
            value = weight
            for axis in range(len(weight.shape)):
                value = ops.take(value, list(classes), axis=axis)
            weight.assign(value)

    def call(self, inputs: Tensor) -> Tensor:
        return inputs

    def compute_output_shape(self, input_shape: Shape) -> Any:
        return input_shape

    def log_likelihood(self, emissions: Tensor, labels: Tensor, mask: Tensor = None) -> Tensor:
        """Computes the log probability of each example's labels, float32 `(batch,)`.

        Args:
            emissions: The layer's outputs.
            labels: Class IDs, int `(batch, length)`.
            mask: See above.
        """
        mask = _mask_or_all(emissions, mask)
        return linear_chain.log_likelihood(emissions, labels, mask, self.potentials)

    def log_marginals(self, emissions: Tensor, mask: Tensor = None) -> Tensor:
        """Computes the log probability of each class at each position, given all emissions.

        Args:
            emissions: The layer's outputs.
            mask: See above.

        Returns:
            float32 `(batch, length, classes)`.
        """
        mask = _mask_or_all(emissions, mask)
        return linear_chain.log_marginals(emissions, mask, self.potentials)

    def decode(self, emissions: Tensor, mask: Tensor = None) -> Tensor:
        """Computes the most probable sequence of labels with the Viterbi algorithm.

        Args:
            emissions: The layer's outputs.
            mask: See above.

        Returns:
            Class IDs, int32 `(batch, length)`, and -1 where `mask` is False.
        """
        return linear_chain.decode(emissions, _mask_or_all(emissions, mask), self.potentials)


def _mask_or_all(emissions: Tensor, mask: Tensor) -> Tensor:
    if mask is None:
        return ops.ones(ops.shape(emissions)[:2], dtype="bool")
    return ops.convert_to_tensor(mask, dtype="bool")
