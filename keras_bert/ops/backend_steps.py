# SPDX-License-Identifier: Apache-2.0
"""What a backend changes in Keras' training loop, and the defaults: nothing."""

from __future__ import annotations

import contextlib
from typing import Any


class BackendSteps:
    """Keras' own steps; each backend has a subclass with the steps that it needs instead.

    | | JAX | PyTorch | TensorFlow |
    |---|---|---|---|
    | `train_function` | survives an interruption | is compiled in one piece | Keras' |
    | `test_function` | survives an interruption | Keras' | Keras' |
    | `predict_function` | survives an interruption | Keras' | is traced once for all sizes |
    | `calls_move_variables` | yes | no | no |
    """

    calls_move_variables = False
    """Whether a call takes the variables out of the model while it runs, and puts them back."""

    def train_function(self, model: Any) -> Any:
        """Returns the function for `model.train_function`; `None` for Keras' own."""
        return None

    def test_function(self, model: Any) -> Any:
        """Returns the function for `model.test_function`; `None` for Keras' own."""
        return None

    def predict_function(self, model: Any) -> Any:
        """Returns the function for `model.predict_function`; `None` for Keras' own."""
        return None

    def put_variables_back(self, model: Any) -> contextlib.AbstractContextManager[None]:
        """Has a call within the block leave its variables in the model, even if interrupted."""
        return contextlib.nullcontext()
