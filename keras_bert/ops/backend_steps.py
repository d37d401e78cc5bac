# SPDX-License-Identifier: Apache-2.0
"""Base class for what a backend changes in Keras' training loop. By default, it changes nothing."""

from __future__ import annotations

import contextlib
from typing import Any


class BackendSteps:
    """Keras' own steps. Each backend has a subclass that replaces the steps it needs to change.

    | | JAX | PyTorch | TensorFlow |
    |---|---|---|---|
    | `train_function` | survives an interruption | compiled in one piece | Keras' |
    | `test_function` | survives an interruption | Keras' | Keras' |
    | `predict_function` | survives an interruption | Keras' | traced once for all batch shapes |
    | `calls_move_variables` | yes | no | no |
    """

    calls_move_variables = False
    """Whether a call moves the variables out of the model while it runs, and back afterwards."""

    def train_function(self, model: Any) -> Any:
        """Returns the function for `model.train_function`, or `None` to use Keras'."""
        return None

    def test_function(self, model: Any) -> Any:
        """Returns the function for `model.test_function`, or `None` to use Keras'."""
        return None

    def predict_function(self, model: Any) -> Any:
        """Returns the function for `model.predict_function`, or `None` to use Keras'."""
        return None

    def put_variables_back(self, model: Any) -> contextlib.AbstractContextManager[None]:
        """Ensures that calls in the block leave the variables in the model, even if interrupted."""
        return contextlib.nullcontext()
