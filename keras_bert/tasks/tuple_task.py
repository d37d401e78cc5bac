# SPDX-License-Identifier: Apache-2.0
"""Base class of tasks that learn from tuples of a query, a relevant text and hard negatives."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Iterator, Mapping
from typing import Any

import keras
from keras import ops

from keras_bert import checks
from keras_bert.data.adapters.base import InputAdapter
from keras_bert.data.adapters.reading import Rows
from keras_bert.data.adapters.text_batches import TextBatchesAdapter, TextDatasetAdapter
from keras_bert.data.adapters.texts import TextAdapter, is_text
from keras_bert.data.adapters.tuples import PrebatchedTuples, TextTupleAdapter
from keras_bert.data.batch_options import BatchOptions
from keras_bert.data.batches import Batches
from keras_bert.data.labels import LabelRules
from keras_bert.data.tuples import TupleOptions
from keras_bert.losses import MatryoshkaLoss, TupleLoss, compares_scores, outputs_for
from keras_bert.models.inputs import ROWS_OF_TUPLES, fill_inputs, given_outputs
from keras_bert.models.threads import model_lock
from keras_bert.ops import dispatch
from keras_bert.ops.annotations import Tensor
from keras_bert.ops.mini_batches import map_mini_batches, map_similar_lengths
from keras_bert.ops.seeds import SeedGenerator
from keras_bert.tasks import distribution
from keras_bert.tasks.prediction import warn_if_truncated
from keras_bert.tasks.prompted_task import PromptedTask


class TupleTask(PromptedTask):
    """A task that encodes each text of a tuple on its own, and whose losses compare the outputs.

    In training and evaluation, features have the shape `(batch, texts, length)`, and outputs the
    shape `(batch, texts, ...)`. `losses.TupleLoss` receives them, and losses of scores, such as
    `losses.MarginMSELoss`, receive the candidates' scores `(batch, texts - 1)`.
    """

    # The number of texts that `fit` encodes at a time. `None` encodes all texts of a batch.
    _mini_batch_size: int | None = None
    # Whether `fit` or `evaluate` adds the model's prompts
    _adds_prompts: bool = False

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
        if (outputs := given_outputs(inputs)) is not None:
            return outputs
        inputs = fill_inputs(inputs, self.input)
        if len(inputs["token_ids"].shape) != 3:
            return self._encode(inputs, training, mask)
        batch, texts, length = ops.shape(inputs["token_ids"])
        # (batch, texts, length) -> (batch * texts, length)
        flat = {
            name: None if x is None else ops.reshape(x, (-1, length)) for name, x in inputs.items()
        }
        outputs = self._encode(flat, training, mask)
        return ops.reshape(outputs, (batch, texts, *outputs.shape[1:]))

    def _encode(
        self, inputs: Mapping[str, Tensor], training: bool | None, mask: Tensor | None
    ) -> Tensor:
        """Computes the outputs of inputs `(rows, length)`, in mini-batches if `fit` has a size."""
        call, size = super().call, self._mini_batch_size
        given = {name: x for name, x in inputs.items() if x is not None}

        def encode(part: Mapping[str, Tensor]) -> Tensor:
            return call({**dict.fromkeys(inputs), **part}, training=training, mask=mask)

        if size is not None and inputs["token_ids"].shape[0] > size:
            seeds = self._dropout_seeds()
            return map_mini_batches(encode, given, size, seeds, training=bool(training))
        if training and not self.jit_compile and dispatch.is_torch_on_cpu(inputs["token_ids"]):
            return map_similar_lengths(encode, given)
        return encode(given)

    def _dropout_seeds(self) -> list[SeedGenerator]:
        """Returns the seed generators of all layers."""
        found = (
            value
            for layer in self._flatten_layers()
            for value in getattr(layer, "_seed_generators", ())
        )
        unique = {id(value): value for value in found if isinstance(value, SeedGenerator)}
        return list(unique.values())

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

    # === Training ===

    def _default_metrics(self) -> None:
        return None

    def _compiled_metric(self, metric: Any, loss: Any, num_classes: int | None) -> Any:
        return metric  # The outputs are not logits of classes.

    @warn_if_truncated
    def fit(
        self,
        x: Any = None,
        y: Any = None,
        batch_size: int | None = None,
        epochs: int = 1,
        *args: Any,
        mini_batch_size: int | None = None,
        add_prompts: bool = False,
        **kwargs: Any,
    ) -> keras.callbacks.History:
        """Trains the model like the `fit` of other tasks, with two more options.

        Args:
            x: Tuples of texts, in any form that `TextClassifier.fit` accepts: a query, a relevant
                text and any number of hard negatives. A dict has them in `text`, `text_pair` and
                `negatives`. For a loss that compares each output with `y`, single texts.
            y: Scores, one for each tuple or for each candidate. Most losses need none.
            batch_size: Number of tuples per batch. Defaults to 32.
            epochs: See `keras.Model.fit`.
            *args: See `TextClassifier.fit`.
            mini_batch_size: Number of texts to encode at a time, so that a large batch fits in
                memory (GradCache). The loss still compares all texts of the batch, and the
                gradients are the same as without it. The encoder computes each text twice, so a
                step takes about a third longer. Not supported on TensorFlow, with `jit_compile` on
                PyTorch, or on multiple devices. Defaults to all texts of a batch.
            add_prompts: Whether to add the model's prompts for queries and documents, as
                `embed_queries` and `embed_documents` do. In a tuple, the first text is the query.
            **kwargs: See `TextClassifier.fit`.

        Returns:
            A `keras.callbacks.History`.

        Raises:
            ValueError: See `TextClassifier.fit`. Also if `mini_batch_size` is not supported, or if
                the model has no prompts to add.

        Example:

        ```python
        embedder.fit(pairs, batch_size=1024, mini_batch_size=64, add_prompts=True)
        ```

        Reference:
            [Gao et al., 2021](https://arxiv.org/abs/2101.06983), section 3, `mini_batch_size`.
        """
        checks.POSITIVE_INT.check_optional(mini_batch_size=mini_batch_size)
        if mini_batch_size is not None:
            self._check_mini_batches(mini_batch_size)
        with self._tuple_arguments(mini_batch_size, add_prompts):
            return super().fit(x, y, batch_size, epochs, *args, **kwargs)

    @warn_if_truncated
    def evaluate(
        self,
        x: Any = None,
        y: Any = None,
        batch_size: int | None = None,
        *args: Any,
        add_prompts: bool | None = None,
        **kwargs: Any,
    ) -> Any:
        """Evaluates the model like the `evaluate` of other tasks, optionally with prompts.

        Args:
            x: See `fit`.
            y: See `fit`.
            batch_size: Number of tuples per batch. Defaults to 32.
            *args: See `TextClassifier.evaluate`.
            add_prompts: See `fit`. Defaults to the value of a running `fit`, for its validation and
                callbacks. Otherwise defaults to `False`.
            **kwargs: See `TextClassifier.evaluate`.

        Returns:
            The loss and the metrics, see `keras.Model.evaluate`.
        """
        if add_prompts is None:
            add_prompts = self._adds_prompts
        with self._tuple_arguments(self._mini_batch_size, add_prompts):
            return super().evaluate(x, y, batch_size, *args, **kwargs)

    def _check_mini_batches(self, size: int) -> None:
        devices = max(self._num_replicas(), distribution.num_devices())
        is_compiled = keras.backend.backend() == "torch" and bool(self.jit_compile)
        where = "on TensorFlow" if keras.backend.backend() == "tensorflow" else ""
        where = where or ("with jit_compile on PyTorch" if is_compiled else "")
        where = where or (f"on {devices} devices" if devices > 1 else "")
        if where:
            raise ValueError(
                f"mini_batch_size must be None {where}. Received: {size}. Use a smaller batch_size."
            )

    @contextlib.contextmanager
    def _tuple_arguments(self, mini_batch_size: int | None, add_prompts: bool) -> Iterator[None]:
        """Sets the options of `fit` and `evaluate` for tuples within the block."""
        if add_prompts and not (self._all_prompts.query_name or self._all_prompts.document_name):
            raise ValueError(
                "add_prompts must be False, because the model has no prompts for queries or "
                f"documents. Received: add_prompts={add_prompts} and prompts="
                f"{dict(self._all_prompts.texts)}. Pass `prompts` to from_preset."
            )
        before = self._mini_batch_size, self._adds_prompts
        with model_lock(self):
            self._set_tuple_arguments(mini_batch_size, add_prompts)
            try:
                yield
            finally:
                self._set_tuple_arguments(*before)

    def _set_tuple_arguments(self, mini_batch_size: int | None, add_prompts: bool) -> None:
        if mini_batch_size != self._mini_batch_size:
            # The size is a constant of the compiled steps.
            self.train_function = self.test_function = None
        self._mini_batch_size, self._adds_prompts = mini_batch_size, add_prompts

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
    def _loss_outputs(self) -> Any:
        # A loss of tuples has a value for each tuple, even if texts have a vector for each token.
        return keras.KerasTensor((None, 1)) if self._learns_tuples else self.output

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

    def _reads_windows(self, rows: Rows) -> bool:
        return super()._reads_windows(rows) and not self._learns_tuples

    def _read(self, x: Any, y: Any, sample_weight: Any, options: BatchOptions) -> Rows:
        loss = self._part_loss
        name = loss if isinstance(loss, str) else type(loss).__name__
        if not self._learns_tuples and TextTupleAdapter.matches(x):
            raise ValueError(
                f"x must be single texts for the loss {name}, which compares each output with `y`. "
                "Received: pairs of texts. For pairs and tuples, compile with a loss such as "
                "InBatchNegatives."
            )
        if not self._learns_tuples and self._adds_prompts:
            raise ValueError(
                f"add_prompts must be False for the loss {name}, which learns single texts. "
                "Received: True. Add the prompt to each text."
            )
        if self._learns_tuples and y is not None and is_text(y):
            raise ValueError(
                "y must be None or scores. Received: texts. Pass the columns of tuples as one "
                "argument x, for example fit((queries, documents)) and "
                "validation_data=((queries, documents), None)."
            )
        rows = super()._read(x, y, sample_weight, options)
        if not self._learns_tuples or not isinstance(rows, TextAdapter):
            return rows
        if not isinstance(rows, TextTupleAdapter):
            raise ValueError(
                f"x must be {TextTupleAdapter.forms}, for the loss {name}. Received: single texts"
            )
        return rows

    def _check_tuples(
        self,
        columns: Mapping[str, Any],
        is_first: bool = True,
        *,
        training: bool,
        batch_size: int | None = None,
    ) -> None:
        """Checks that tuples fit the loss.

        Args:
            columns: All tuples in memory, or the tuples in a batch.
            is_first: Whether the tuples are in memory or in the first batch. Later batches may have
                no negatives or a single pair.
            training: Whether the tuples are for training.
            batch_size: Maximum number of these tuples in a batch. Defaults to all of them.
        """
        loss = self._part_loss
        name = type(loss).__name__
        has_negatives = any(map(len, columns.get("negatives") or ()))
        if has_negatives and getattr(loss, "needs_pairs", False):
            raise ValueError(
                f"x must be pairs of texts for the loss {name}. Received: tuples with hard "
                "negatives"
            )
        if has_negatives or not is_first:
            return
        if compares_scores(loss) or getattr(loss, "needs_negatives", False):
            raise ValueError(
                f"x must have hard negatives for the loss {name}. Received: pairs of texts. Pass "
                '(query, relevant text, hard negative) tuples, or a dict with "negatives".'
            )
        size = min(len(columns["text"]), batch_size or len(columns["text"]))
        if training and size < 2 and not self.needs_labels:
            raise ValueError(
                "A batch must have two or more pairs, because the second texts of the other pairs "
                f"are the negatives. Received: {size}"
            )

    def _packed_batches(
        self, rows: InputAdapter, options: BatchOptions, preprocessor: Any
    ) -> Batches:
        if isinstance(rows, TextDatasetAdapter) and rows.rules is not None and self._learns_tuples:
            return PrebatchedTuples(
                rows,
                preprocessor,
                options,
                self._tuple_options(),
                functools.partial(self._check_tuples, training=options.training),
            )
        if not isinstance(rows, TextTupleAdapter):
            return super()._packed_batches(rows, options, preprocessor)
        self._check_tuples(
            rows.columns, training=options.training, batch_size=options.rows_in_batch
        )
        rows = dataclasses.replace(rows, options=self._tuple_options())
        return super()._packed_batches(rows, options, preprocessor)

    def _tuple_options(self) -> TupleOptions:
        """Returns how training and evaluation pack tuples."""
        # TensorFlow compiles operations for each number of tokens.
        multiple_of = 8 if dispatch.is_tensorflow_on_cpu() else 1
        if not self._adds_prompts:
            return TupleOptions(multiple_of=multiple_of)
        prompts = self._all_prompts
        return TupleOptions(
            prompts.text(prompts.query_name),
            prompts.text(prompts.document_name),
            getattr(self, "include_prompt", True),
            multiple_of,
        )
