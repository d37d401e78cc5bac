# SPDX-License-Identifier: Apache-2.0
"""Base class of tasks that learn from tuples of a query, a relevant text and hard negatives."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import keras
from keras import ops

from keras_bert.data.adapters.base import InputAdapter
from keras_bert.data.adapters.reading import Rows
from keras_bert.data.adapters.text_batches import TextBatchesAdapter, TextDatasetAdapter
from keras_bert.data.adapters.texts import TextAdapter
from keras_bert.data.adapters.tuples import PrebatchedTuples, TextTupleAdapter
from keras_bert.data.batch_options import BatchOptions
from keras_bert.data.batches import Batches
from keras_bert.data.labels import LabelRules
from keras_bert.data.tuples import TupleOptions
from keras_bert.losses import MatryoshkaLoss, TupleLoss, compares_scores, outputs_for
from keras_bert.models.inputs import ROWS_OF_TUPLES, fill_inputs
from keras_bert.ops import dispatch
from keras_bert.ops.annotations import Tensor
from keras_bert.tasks.prompted_task import PromptedTask


class TupleTask(PromptedTask):
    """A task that encodes each text of a tuple on its own, and whose losses compare the outputs.

    In training and evaluation, features have the shape `(batch, texts, length)`, and outputs the
    shape `(batch, texts, ...)`. `losses.TupleLoss` receives them, and losses of scores, such as
    `losses.MarginMSELoss`, receive the candidates' scores `(batch, texts - 1)`.
    """

    adapters = (TextTupleAdapter, TextAdapter, TextDatasetAdapter, TextBatchesAdapter)

    # === Model ===

    @property
    def input_spec(self) -> None:
        """`None`, because inputs have two or three axes. `Functional.call` checks them."""

    @input_spec.setter
    def input_spec(self, value: Any) -> None:
        pass

    def call(
        self, inputs: Tensor, training: bool | None = None, mask: Tensor | None = None
    ) -> Tensor:
        inputs = fill_inputs(inputs, self.input)
        if len(inputs["token_ids"].shape) != 3:
            return super().call(inputs, training=training, mask=mask)
        batch, texts, length = ops.shape(inputs["token_ids"])
        # (batch, texts, length) -> (batch * texts, length)
        flat = {
            name: None if x is None else ops.reshape(x, (-1, length)) for name, x in inputs.items()
        }
        outputs = super().call(flat, training=training, mask=mask)
        return ops.reshape(outputs, (batch, texts, *outputs.shape[1:]))

    def compute_output_spec(
        self, inputs: Tensor, training: bool | None = None, mask: Tensor | None = None
    ) -> Tensor:
        batch, *texts, length = inputs["token_ids"].shape
        if not texts:
            return super().compute_output_spec(inputs, training=training, mask=mask)
        flat = {
            name: None if x is None else keras.KerasTensor((None, length), x.dtype)
            for name, x in inputs.items()
        }
        outputs = super().compute_output_spec(flat, training=training, mask=mask)
        return keras.KerasTensor((batch, *texts, *outputs.shape[1:]), outputs.dtype)

    # === Losses ===

    @property
    def _loss(self) -> Any:
        """The compiled loss, or the default loss."""
        loss = getattr(self, "loss", None)
        return self._default_loss() if loss is None else loss

    @property
    def _learns_tuples(self) -> bool:
        """Whether the loss compares the texts of tuples. Otherwise `y` has an output per text."""
        return isinstance(self._loss, TupleLoss) or compares_scores(self._loss)

    @property
    def needs_labels(self) -> bool:  # type: ignore[override]
        """Whether training and evaluation on text require labels."""
        return not getattr(self._loss, "has_id_targets", False)

    @property
    def _part_loss(self) -> Any:
        """The loss, or the loss within a `MatryoshkaLoss`."""
        loss = self._loss
        return loss.loss if isinstance(loss, MatryoshkaLoss) else loss

    def _label_rules(self, options: BatchOptions) -> LabelRules:
        loss = self._part_loss
        is_score = isinstance(loss, TupleLoss) and self.needs_labels
        return LabelRules(is_score=is_score, may_be_numbers=compares_scores(loss))

    def _targets_and_weights(
        self, x: Any, y: Any, y_pred: Tensor, sample_weight: Any, training: bool
    ) -> tuple[Any, Any, Any]:
        if y_pred is None:
            return y, y_pred, sample_weight
        if isinstance(x, Mapping) and ROWS_OF_TUPLES in x:
            y_pred = ops.take(y_pred, x[ROWS_OF_TUPLES], axis=0)
        if not self._learns_tuples:
            return y, y_pred, sample_weight
        if compares_scores(self._part_loss):
            # The scores have as many columns as the tuple with most texts.
            y = y[:, : ops.shape(y_pred)[1] - 1]
        return y, outputs_for(self._loss, y_pred), sample_weight

    # === Data ===

    def _read(self, x: Any, y: Any, sample_weight: Any, options: BatchOptions) -> Rows:
        loss = self._part_loss
        name = loss if isinstance(loss, str) else type(loss).__name__
        if not self._learns_tuples and TextTupleAdapter.matches(x):
            raise ValueError(
                f"x must be single texts for the loss {name}, which compares each output with `y`. "
                "Received: pairs of texts. For pairs and tuples, compile with a loss such as "
                "InBatchNegatives."
            )
        rows = super()._read(x, y, sample_weight, options)
        if not self._learns_tuples or not isinstance(rows, TextAdapter):
            return rows
        if not isinstance(rows, TextTupleAdapter):
            raise ValueError(
                f"x must be {TextTupleAdapter.forms}, for the loss {name}. Received: single texts"
            )
        has_negatives = "negatives" in rows.columns
        if has_negatives and getattr(loss, "needs_pairs", False):
            raise ValueError(
                f"x must be pairs of texts for the loss {name}. Received: tuples with hard "
                "negatives"
            )
        needs_negatives = compares_scores(loss) or getattr(loss, "needs_negatives", False)
        if needs_negatives and not has_negatives:
            raise ValueError(
                f"x must have hard negatives for the loss {name}. Received: pairs of texts. Pass "
                '(query, relevant text, hard negative) tuples, or a dict with "negatives".'
            )
        return rows

    def _packed_batches(
        self, rows: InputAdapter, options: BatchOptions, preprocessor: Any
    ) -> Batches:
        if isinstance(rows, TextDatasetAdapter) and rows.rules is not None and self._learns_tuples:
            return PrebatchedTuples(rows, preprocessor, options, self._tuple_options())
        if not isinstance(rows, TextTupleAdapter):
            return super()._packed_batches(rows, options, preprocessor)
        size = min(len(rows), options.rows_in_batch)
        if (
            options.training
            and size < 2
            and rows.labels is None
            and "negatives" not in rows.columns
        ):
            raise ValueError(
                "A batch must have two or more pairs, because the second texts of the other pairs "
                f"are the negatives. Received: {size}"
            )
        rows = dataclasses.replace(rows, options=self._tuple_options())
        return super()._packed_batches(rows, options, preprocessor)

    def _tuple_options(self) -> TupleOptions:
        """Returns how training and evaluation pack tuples."""
        # TensorFlow compiles operations for each number of tokens.
        return TupleOptions(multiple_of=8 if dispatch.is_tensorflow_on_cpu() else 1)
