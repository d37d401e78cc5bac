# SPDX-License-Identifier: Apache-2.0
"""`predict` for text as well as arrays, in the order of the input and in several processes."""

from __future__ import annotations

import dataclasses
import functools
import warnings
from collections.abc import Callable, Iterator
from typing import Any, ClassVar, TypeVar, cast

import keras
import numpy as np

from keras_bert import checks
from keras_bert.data.adapters.base import BatchOutputs, InputAdapter
from keras_bert.data.adapters.reading import Features, Rows, input_forms, read_input
from keras_bert.data.adapters.text_batches import TextBatchesAdapter, TextDatasetAdapter
from keras_bert.data.adapters.texts import TextAdapter
from keras_bert.data.batch_options import DEFAULT_BATCH_SIZE, BatchOptions
from keras_bert.data.batches import Batches
from keras_bert.data.columns import column_names
from keras_bert.data.labels import LabelRules
from keras_bert.data.texts import TextClassifierPreprocessor
from keras_bert.models.backbone import Backbone
from keras_bert.models.threads import check_process
from keras_bert.ops.dispatch import compiles_each_shape
from keras_bert.ops.object_variables import ObjectVariable
from keras_bert.tasks import distribution
from keras_bert.tasks.batch_feeder import BatchFeeder
from keras_bert.tasks.compiled_model import CompiledModel
from keras_bert.tasks.presets import check_preprocessor

Method = TypeVar("Method", bound=Callable[..., Any])

# Whether a method with `warn_if_truncated` is running
_counts_truncated_rows = ObjectVariable("_counts_truncated_rows")


def warn_if_truncated(method: Method) -> Method:
    """Makes a method of a `TextPredictor` warn, once for each model, if it cuts rows."""

    @functools.wraps(method)
    def wrapped(self: TextPredictor, *args: Any, **kwargs: Any) -> Any:
        if _counts_truncated_rows.get(self):  # as in the validation of `fit`
            return method(self, *args, **kwargs)
        rows, cut = self._num_truncated_rows()
        with _counts_truncated_rows.set(self, True):
            result = method(self, *args, **kwargs)
        if self._num_truncated_rows()[1] > cut and not self.preprocessor.truncated_rows.is_reported:
            self.preprocessor.truncated_rows.is_reported = True
            warnings.warn(self.preprocessor.truncated_rows.message(rows, cut), stacklevel=2)
        return result

    return cast(Method, wrapped)


class TextPredictor(CompiledModel):
    """A model whose `predict` takes text as well as arrays of token ids.

    A kind of input is an adapter, which reads rows and converts them to batches by the preprocessor
    of the model. Inputs without an adapter are features, which are checked and left to Keras.
    """

    # The kinds of input besides features
    adapters: ClassVar[tuple[type[InputAdapter], ...]] = (
        TextAdapter,
        TextDatasetAdapter,
        TextBatchesAdapter,
    )
    # Whether text needs labels to be trained on or evaluated
    needs_labels: bool = True
    # The class of its preprocessors
    preprocessor_class: ClassVar[type[Any]] = TextClassifierPreprocessor
    # The fraction of the windows without answers that `fit` trains on; see `QuestionAnswerer`
    negative_fraction: float = 1.0

    def __init__(
        self, *args: Any, backbone: Backbone | None, preprocessor: Any = None, **kwargs: Any
    ) -> None:
        super().__init__(*args, backbone=backbone, **kwargs)
        if preprocessor is not None and backbone is not None:
            check_preprocessor(preprocessor, backbone.config)
        # A config becomes a preprocessor on first use: a model that only takes ids never needs one.
        self._preprocessor = checks.plain(preprocessor)

    @property
    def preprocessor(self) -> Any:
        """The preprocessor, which converts text to features.

        Raises:
            ValueError: If the task was created without a preprocessor.
            RuntimeError: If this process was forked after a model had been created.
        """
        check_process()
        if isinstance(self._preprocessor, dict):
            self._preprocessor = self.preprocessor_class.from_config(self._preprocessor)
        if self._preprocessor is None:
            raise ValueError(
                f"This {type(self).__name__} has no preprocessor, so it takes token ids and no "
                "text. Pass one (`preprocessor=`), or load the task with `from_preset` from a "
                "checkpoint that has a vocabulary."
            )
        return self._preprocessor

    @property
    def tokenizer_config(self) -> dict[str, Any] | None:
        """The config of the tokenizer; `None` without a preprocessor."""
        config: dict[str, Any] | None = (self._preprocessor_config() or {}).get("tokenizer")
        return config

    def _num_truncated_rows(self) -> tuple[int, int]:
        """Returns how many rows were read until now, and how many of them were cut."""
        counts = getattr(self._preprocessor, "truncated_rows", None)
        return (0, 0) if counts is None else (counts.num_rows, counts.num_cut)

    def _preprocessor_config(self) -> dict[str, Any] | None:
        """Returns the config of the preprocessor; `None` without one."""
        preprocessor = self._preprocessor
        is_config = preprocessor is None or isinstance(preprocessor, dict)
        config: dict[str, Any] | None = preprocessor if is_config else preprocessor.get_config()
        return config

    @warn_if_truncated
    def predict(
        self, x: Any, batch_size: int | None = None, verbose: int | str = "auto", **kwargs: Any
    ) -> Any:
        """Computes the outputs of the model like `keras.Model.predict`, which it extends to text.

        Args:
            x: Text in any form that `fit` takes, or features. Labels in a dataset are ignored.
            batch_size: Number of rows in a batch. Defaults to 32.
            verbose: See `keras.Model.predict`.
            **kwargs: Other arguments of `keras.Model.predict`; of text, `steps` is only for input
                that has batches.

        Returns:
            Float32 outputs in the order of the input; see the class for their shapes. If these
            depend on the row, such as on the number of words of a sentence, the outputs for text
            are nested like the input.

        If there are several processes in a `keras.distribution` on JAX, each calls this method with
        the same rows, computes its shard of each batch, and returns the outputs of all rows.

        Raises:
            ValueError: If features are not arrays in memory, and there are several processes.
        """
        rows = read_input(self.adapters, x)
        if not isinstance(rows, Features):
            return self._predict_rows(rows, batch_size, verbose, **kwargs)
        self.check_inputs(rows.inputs)
        if distribution.process_shard()[1] > 1:
            return self._predict_arrays(rows, batch_size, verbose, **kwargs)
        return super().predict(rows.x, batch_size=batch_size, verbose=verbose, **kwargs)

    def _predict_rows(
        self, rows: InputAdapter, batch_size: int | None, verbose: int | str, **kwargs: Any
    ) -> Any:
        # `steps` would cut text anywhere, since its batches are sorted by length; and for some
        # kinds of text, Keras' `predict`, which takes the other arguments, is not called.
        if isinstance(rows, TextBatchesAdapter):
            rows = dataclasses.replace(rows, steps=kwargs.get("steps"))
        elif kwargs.get("steps") is not None or (kwargs and not rows.outputs_are_joined):
            raise ValueError(f"With text, `predict` does not take {', '.join(kwargs)}.")
        # The replicas of a `tf.distribute.Strategy` share the batches of `predict`, but not those
        # of `predict_on_batch`. The devices of a `keras.distribution` share batches below.
        is_shared = rows.outputs_are_joined and self._strategy is not None
        options = self._options(batch_size, is_shared=is_shared)
        batches, restore = rows.prediction_batches(self.preprocessor, options)
        if not rows.outputs_are_joined:
            return restore(self._outputs_of_batches(batches, verbose), self.output_shape)
        if batches.example() is None:
            return restore([], self.output_shape)
        # With a single call of Keras' `predict`, batches of all lengths share one trace.
        index, outputs = self._joined_outputs(batches, verbose, **kwargs)
        return restore([(None, index, outputs)], self.output_shape)

    def _predict_arrays(
        self, features: Features, batch_size: int | None, verbose: int | str, **kwargs: Any
    ) -> Any:
        """Predicts features that every process has in full."""
        if not features.are_arrays:
            _, count = distribution.process_shard()
            raise ValueError(
                f"x is a {type(features.x).__name__} of features, in one of {count} processes; "
                "expected text, or arrays of which each process has all rows."
            )
        batches = distribution.ArrayBatches(features.x, batch_size or DEFAULT_BATCH_SIZE)
        _, outputs = self._joined_outputs(batches, verbose, **kwargs)
        # Only the last batch has padding rows.
        return keras.tree.map_structure(lambda rows: rows[: batches.num_rows], outputs)

    def _joined_outputs(
        self, batches: Batches, verbose: int | str, **kwargs: Any
    ) -> tuple[np.ndarray[Any, Any], Any]:
        """Returns the indices of the rows of all batches, with padding rows, and their outputs."""
        if distribution.num_devices() > 1:
            shard = distribution.process_shard()
            batches = distribution.shared_predictions(batches, distribution.num_devices(), shard)
        elif batches.num_batches in (1, None) and not kwargs and self._num_replicas() == 1:
            # For one batch, such as one sentence, Keras' loop takes longer than the model. At the
            # end of an unknown number, it would warn.
            parts = [part[1:] for part in self._outputs_of_batches(batches, verbose)]
            joined: tuple[Any, Any] = keras.tree.map_structure(
                lambda *arrays: np.concatenate(arrays), *parts
            )
            return joined
        feed = BatchFeeder(batches, with_targets=False)
        with feed.raising_errors():
            outputs = super().predict(feed.to_keras_data(), verbose=verbose, **kwargs)
        return np.concatenate(feed.targets), outputs

    def _outputs_of_batches(
        self, batches: Batches, verbose: int | str, model: keras.Model | None = None
    ) -> Iterator[BatchOutputs]:
        """Yields the features of each batch, the rest of it, and the outputs, as NumPy arrays.

        `predict` would concatenate outputs of all lengths. The model defaults to the task.
        """
        progress = keras.utils.Progbar(batches.num_batches, verbose=int(verbose != 0))
        compiles = self._compiles_each_shape()
        predict = (model or self).predict_on_batch
        for features, rest in batches:
            num_rows = len(features["token_ids"])
            # On TensorFlow, `predict_on_batch` runs on one device.
            inputs = (
                distribution.pad_to_power_of_two(features, distribution.num_devices())
                if compiles
                else features
            )
            outputs = predict(distribution.shard_over_devices(inputs))
            yield (
                features,
                rest,
                keras.tree.map_structure(
                    lambda x, num_rows=num_rows: keras.ops.convert_to_numpy(x)[:num_rows], outputs
                ),
            )
            progress.add(1)

    def sequence_lengths(self, x: Any, batch_size: int | None = None) -> np.ndarray[Any, Any]:
        """Counts the tokens of the sequences that text becomes.

        A row is one sequence, or several: the windows of a long passage or sentence, or one for
        each choice. Their lengths determine the cost of training on them.

        Args:
            x: Text in any form that `fit` takes.
            batch_size: Number of rows to tokenize at a time. Defaults to 32.

        Returns:
            The number of tokens of each sequence, with special tokens and after truncation, int64
            `(sequences,)`, in no particular order.

        Raises:
            ValueError: If `x` is not text.

        Example:

        ```python
        classifier.sequence_lengths(["a film", "a gripping film"])  # array([4, 5])
        ```
        """
        rows = read_input(self.adapters, x)
        if isinstance(rows, Features):
            raise ValueError(
                f"x must be text, {input_forms(self.adapters)}, to have its tokens counted; "
                f"received {type(x).__name__}."
            )
        options = self._options(batch_size, negative_fraction=self.negative_fraction)
        counts = [
            np.sum(features["padding_mask"], axis=-1, dtype="int64").reshape(-1)
            for features, *_ in self._batches(rows, options)
        ]
        lengths = np.concatenate([np.zeros(0, "int64"), *counts])
        return lengths[lengths > 0]  # without padding rows

    # === Input to batches ===

    def _read(self, x: Any, y: Any, sample_weight: Any, options: BatchOptions) -> Rows:
        """Reads and checks input of training or evaluation."""
        rules = self._label_rules(options)
        rows = read_input(self.adapters, x, y, sample_weight, rules, needs_labels=self.needs_labels)
        if not isinstance(rows, Features):
            return rows
        # Here, since Keras converts arrays to tensors before `__call__`.
        self.check_inputs(rows.inputs)
        self._check_targets(rows, rules)
        return rows.validate_weights()

    def _read_labeled(self, x: Any, y: Any, sample_weight: Any, options: BatchOptions) -> Rows:
        """Reads and checks input, which must have labels if the losses need them."""
        rows = self._read(x, y, sample_weight, options)
        if rows.has_labels or not self.needs_labels:
            return rows
        # The columns of features are inputs.
        columns = set() if isinstance(rows, Features) else set(column_names(x) or ())
        others = sorted(map(str, columns - {"text", "text_pair"}))
        raise ValueError(
            f"There are no labels, with which a {type(self).__name__} is trained and "
            f"evaluated: pass `y`{', such as x[' + repr(others[0]) + ']' if others else ''}, "
            "or a dataset of (x, y)."
        )

    def _label_rules(self, options: BatchOptions) -> LabelRules:
        """Returns the rules for labels of text; overridden by tasks with classes."""
        return LabelRules()

    def _batches(self, rows: InputAdapter, options: BatchOptions) -> Batches:
        """Returns batches of features, labels and weights."""
        return rows.batches(self.preprocessor, options)

    def _as_features(self, rows: Rows, options: BatchOptions) -> Features:
        """Returns text as `Features` whose `x` is `Batches`; other rows are `Features` already."""
        return rows if isinstance(rows, Features) else Features(self._batches(rows, options))

    def _options(
        self, batch_size: int | None, *, is_shared: bool = False, **options: Any
    ) -> BatchOptions:
        """Returns the options of batches on this backend and these devices.

        Args:
            batch_size: Number of rows in a batch; `None` for the default.
            is_shared: Whether all devices and processes compute a part of each batch, as in `fit`.
                Otherwise, this process computes each batch by itself.
            **options: Other options of `BatchOptions`.
        """
        return BatchOptions(
            batch_size,
            **options,
            compiles=self._compiles_each_shape(),
            batches_for_more_lengths=distribution.batches_for_more_lengths(),
            num_replicas=self._num_replicas() if is_shared else 1,
            **(distribution.sharing() if is_shared else {}),
        )

    def _num_replicas(self) -> int:
        """Returns the number of devices of this process that share each batch.

        They come from the model's `tf.distribute.Strategy` on TensorFlow, and from the current
        `keras.distribution` on JAX.
        """
        if self._strategy is not None:
            return int(self._strategy.num_replicas_in_sync)
        return distribution.num_devices() // distribution.process_shard()[1]

    @property
    def _strategy(self) -> Any:
        """The `tf.distribute.Strategy` of the model, which only models on TensorFlow have."""
        return getattr(self, "distribute_strategy", None)

    def _compiles_each_shape(self) -> bool:
        """Returns whether each new batch shape is compiled, which takes seconds."""
        return compiles_each_shape() or bool(self.jit_compile)
