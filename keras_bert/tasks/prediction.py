# SPDX-License-Identifier: Apache-2.0
"""Reads input, makes batches, and predicts in the order of the input.

`fit_plan` and `evaluate` also read their data with `TextPredictor._read_labeled`.
"""

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
from keras_bert.models.inputs import ROWS_OF_TUPLES
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
    """Makes a method of a `TextPredictor` warn, once per model, if it truncates examples."""

    @functools.wraps(method)
    def wrapped(self: TextPredictor, *args: Any, **kwargs: Any) -> Any:
        if _counts_truncated_rows.get(self):  # For example, in the validation of `fit`
            return method(self, *args, **kwargs)
        rows, truncated = self._num_truncated_rows()
        with _counts_truncated_rows.set(self, True):
            result = method(self, *args, **kwargs)
        if (
            self._num_truncated_rows()[1] > truncated
            and not self.preprocessor.truncated_rows.is_reported
        ):
            self.preprocessor.truncated_rows.is_reported = True
            warnings.warn(self.preprocessor.truncated_rows.message(rows, truncated), stacklevel=2)
        return result

    return cast(Method, wrapped)


class TextPredictor(CompiledModel):
    """A model whose `predict` accepts text as well as arrays of token IDs.

    For each type of text input, there is an adapter that reads it and converts it to batches with
    the model's preprocessor. Inputs without an adapter are features. They are checked and passed on
    to Keras.
    """

    # The adapters for all inputs except features
    adapters: ClassVar[tuple[type[InputAdapter], ...]] = (
        TextAdapter,
        TextDatasetAdapter,
        TextBatchesAdapter,
    )
    # Whether training and evaluation on text require labels
    needs_labels: bool = True
    # Whether long texts can be split into windows, see `TextClassifierPreprocessor`
    supports_windows: ClassVar[bool] = False
    # The class of the task's preprocessor
    preprocessor_class: ClassVar[type[Any]] = TextClassifierPreprocessor
    # The fraction of windows without answers to train on, see `QuestionAnswerer`
    negative_fraction: float = 1.0
    # The number of times that training uses each document, see `Pretrainer`
    duplicate_factor: int = 1

    def __init__(
        self, *args: Any, backbone: Backbone | None, preprocessor: Any = None, **kwargs: Any
    ) -> None:
        super().__init__(*args, backbone=backbone, **kwargs)
        if preprocessor is not None and backbone is not None:
            check_preprocessor(preprocessor, backbone.config)
            self._check_long_texts(preprocessor)
        # A config is converted on first use, because a model that only accepts IDs never needs it.
        self._preprocessor = checks.plain(preprocessor)

    def _check_long_texts(self, preprocessor: Any) -> None:
        config = preprocessor if isinstance(preprocessor, dict) else vars(preprocessor)
        long_texts = config.get("long_texts", "truncate")
        if long_texts != "truncate" and not self.supports_windows:
            raise ValueError(
                f"long_texts must be 'truncate' for a {type(self).__name__}. Received: "
                f"{long_texts!r}. Only TextClassifier and TextEmbedder split texts into windows."
            )

    @property
    def preprocessor(self) -> Any:
        """The preprocessor that converts text to features.

        Raises:
            ValueError: If the task was created without a preprocessor.
            RuntimeError: If this process was forked after its parent created a model.
        """
        check_process()
        if isinstance(self._preprocessor, dict):
            self._preprocessor = self.preprocessor_class.from_config(self._preprocessor)
        if self._preprocessor is None:
            raise ValueError(
                f"A {type(self).__name__} must have a preprocessor to accept text. Received: a "
                "task without one, which only accepts token IDs. Pass `preprocessor`, or load the "
                "task with `from_preset` from a checkpoint that has a vocabulary."
            )
        return self._preprocessor

    @property
    def tokenizer_config(self) -> dict[str, Any] | None:
        """The tokenizer's config, or `None` without a preprocessor."""
        config: dict[str, Any] | None = (self._preprocessor_config() or {}).get("tokenizer")
        return config

    def merge_windows(self, outputs: Any, counts: Any) -> Any:
        """Returns each text's output, see `TextClassifierPreprocessor.merge_windows`."""
        merged: Any = self.preprocessor.merge_windows(outputs, counts)
        return merged

    def _reads_windows(self, rows: Rows) -> bool:
        """Returns whether training and evaluation split long texts into windows."""
        return self._splits_texts and not isinstance(rows, Features)

    @property
    def _splits_texts(self) -> bool:
        """Whether long texts are split into windows. `False` without a preprocessor."""
        has_windows = self.supports_windows and self._preprocessor is not None
        return has_windows and bool(self.preprocessor.splits_texts)

    def _num_windows(self, rows: Any) -> np.ndarray[Any, Any]:
        """Returns the number of windows of each text, int64 `(texts,)`."""
        if isinstance(rows, Features):
            raise ValueError(
                f"x must be text, {input_forms(self.adapters)}, to count its windows. Received: "
                f"{type(rows.x).__name__}"
            )
        texts = rows.to_memory(self.preprocessor, self._options(None))
        if not self.preprocessor.splits_texts:
            return np.ones(len(texts), "int64")
        counts: np.ndarray[Any, Any] = texts.examples(self.preprocessor).windows.counts
        return counts

    def _num_truncated_rows(self) -> tuple[int, int]:
        """Returns how many examples were read so far, and how many of them were truncated."""
        counts = getattr(self._preprocessor, "truncated_rows", None)
        return (0, 0) if counts is None else (counts.num_rows, counts.num_truncated)

    def _preprocessor_config(self) -> dict[str, Any] | None:
        """Returns the preprocessor's config, or `None` without a preprocessor."""
        preprocessor = self._preprocessor
        is_config = preprocessor is None or isinstance(preprocessor, dict)
        config: dict[str, Any] | None = preprocessor if is_config else preprocessor.get_config()
        return config

    @warn_if_truncated
    def predict(
        self, x: Any, batch_size: int | None = None, verbose: int | str = "auto", **kwargs: Any
    ) -> Any:
        """Computes the model's outputs like `keras.Model.predict`, and also accepts text.

        Args:
            x: Text in any form that `fit` accepts, or features. Labels in a dataset are ignored.
            batch_size: Number of examples per batch. Defaults to 32.
            verbose: See `keras.Model.predict`.
            **kwargs: Other arguments of `keras.Model.predict`. With text, `steps` is only supported
                if the input is already batched.

        Returns:
            Float32 outputs in the order of the input. See the class for their shapes. If the shape
            varies between examples, for example with the number of words in a sentence, the outputs
            for text are nested like the input.

        If a `keras.distribution` on JAX has multiple processes, each process calls this method with
        the same examples, computes its shard of each batch, and returns the outputs for all
        examples.

        Raises:
            ValueError: If features are not arrays in memory and there are multiple processes.
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
        # Batches of text are sorted by length, so `steps` would select arbitrary examples. For some
        # types of text, Keras' `predict` is not called, so its other arguments are not supported.
        if isinstance(rows, TextBatchesAdapter):
            rows = dataclasses.replace(rows, steps=kwargs.get("steps"))
        elif kwargs.get("steps") is not None or (kwargs and not rows.outputs_are_joined):
            raise ValueError(f"With text, `predict` does not support {', '.join(kwargs)}.")
        # The replicas of a `tf.distribute.Strategy` share the batches of `predict`, but not of
        # `predict_on_batch`. The devices of a `keras.distribution` share batches below.
        is_shared = rows.outputs_are_joined and self._strategy is not None
        options = self._options(batch_size, is_shared=is_shared, merge_windows=self.merge_windows)
        batches, restore = rows.prediction_batches(self.preprocessor, options)
        if not rows.outputs_are_joined:
            return restore(self._outputs_of_batches(batches, verbose), self.output_shape)
        if batches.example() is None:
            return restore([], self.output_shape)
        # With a single call to Keras' `predict`, batches of all lengths share a trace.
        index, outputs = self._joined_outputs(batches, verbose, **kwargs)
        return restore([(None, index, outputs)], self.output_shape)

    def _predict_arrays(
        self, features: Features, batch_size: int | None, verbose: int | str, **kwargs: Any
    ) -> Any:
        """Computes the outputs for features. Every process must have all examples."""
        if not features.are_arrays:
            _, count = distribution.process_shard()
            raise ValueError(
                f"In one of {count} processes, x must be text, or arrays that have all examples in "
                f"each process. Received: features in a {type(features.x).__name__}"
            )
        batches = distribution.ArrayBatches(features.x, batch_size or DEFAULT_BATCH_SIZE)
        _, outputs = self._joined_outputs(batches, verbose, **kwargs)
        # Only the last batch has padding examples.
        return keras.tree.map_structure(lambda rows: rows[: batches.num_rows], outputs)

    def _joined_outputs(
        self, batches: Batches, verbose: int | str, **kwargs: Any
    ) -> tuple[np.ndarray[Any, Any], Any]:
        """Returns the example indices in all batches, with padding examples, and their outputs."""
        if distribution.num_devices() > 1:
            shard = distribution.process_shard()
            batches = distribution.shared_predictions(batches, distribution.num_devices(), shard)
        elif batches.num_batches in (1, None) and not kwargs and self._num_replicas() == 1:
            # For one batch, for example one sentence, Keras' loop takes longer than the model. For
            # an unknown number of batches, Keras would warn at the end.
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
        """Yields each batch's features, example indices and outputs.

        The outputs are NumPy arrays. Keras' `predict` would concatenate outputs of different
        lengths. `model` defaults to the task.
        """
        progress = keras.utils.Progbar(batches.num_batches, verbose=int(verbose != 0))
        compiles = self._compiles_each_shape()
        predict = (model or self).predict_on_batch
        for features, rest in batches:
            num_rows = len(features["token_ids"])
            # On TensorFlow, `predict_on_batch` runs on a single device.
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
        """Counts the tokens in the sequences that text is converted to.

        An example may become multiple sequences, for example one per choice, or one per window of
        the context. Their lengths determine the cost of training.

        Args:
            x: Text in any form that `fit` accepts.
            batch_size: Number of examples to tokenize at a time. Defaults to 32.

        Returns:
            The number of tokens in each sequence, with special tokens and after truncation, int64
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
                f"x must be text, {input_forms(self.adapters)}, to count its tokens. Received: "
                f"{type(x).__name__}"
            )
        options = self._options(batch_size, negative_fraction=self.negative_fraction)
        counts = [np.zeros(0, "int64")]
        for features, *_ in self._batches(rows, options):
            count = np.sum(features["padding_mask"], axis=-1, dtype="int64")
            if ROWS_OF_TUPLES in features:  # A text in multiple tuples is encoded once.
                count = count[features[ROWS_OF_TUPLES]]
            counts.append(count.reshape(-1))
        lengths = np.concatenate(counts)
        return lengths[lengths > 0]  # Padding examples have length 0.

    # === Input to batches ===

    def _read(self, x: Any, y: Any, sample_weight: Any, options: BatchOptions) -> Rows:
        """Reads and checks data for training or evaluation."""
        rules = self._label_rules(options)
        rows = read_input(self.adapters, x, y, sample_weight, rules, needs_labels=self.needs_labels)
        if not isinstance(rows, Features):
            return rows
        # Check the inputs here, because Keras converts arrays to tensors before `__call__`.
        self.check_inputs(rows.inputs)
        self._check_targets(rows, rules)
        return rows.validate_weights()

    def _read_labeled(self, x: Any, y: Any, sample_weight: Any, options: BatchOptions) -> Rows:
        """Reads and checks data, and requires labels if the losses need them."""
        rows = self._read(x, y, sample_weight, options)
        if rows.has_labels or not self.needs_labels:
            return rows
        # The columns of features are inputs, not labels.
        columns = set() if isinstance(rows, Features) else set(column_names(x) or ())
        others = sorted(map(str, columns - {"text", "text_pair"}))
        raise ValueError(
            f"y must have labels to train and evaluate a {type(self).__name__}. Received: None. "
            f"Pass `y`{', such as x[' + repr(others[0]) + ']' if others else ''}, or a dataset of "
            "(x, y)."
        )

    def _label_rules(self, options: BatchOptions) -> LabelRules:
        """Returns the rules for labels of text. Tasks with classes override it."""
        return LabelRules()

    def _batches(self, rows: InputAdapter, options: BatchOptions) -> Batches:
        """Returns the batches to train on: features, labels and weights."""
        return self._packed_batches(rows, options, self.preprocessor)

    def _packed_batches(
        self, rows: InputAdapter, options: BatchOptions, preprocessor: Any
    ) -> Batches:
        """Returns batches of packed sequences, before the objective changes them, as in masking.

        `insight.model_inputs` also packs the sources of the tokens with it.
        """
        return rows.batches(preprocessor, options)

    def _as_features(self, rows: Rows, options: BatchOptions) -> Features:
        """Converts text to `Features` whose `x` is `Batches`. Other data is already `Features`."""
        return rows if isinstance(rows, Features) else Features(self._batches(rows, options))

    def _options(
        self, batch_size: int | None, *, is_shared: bool = False, **options: Any
    ) -> BatchOptions:
        """Returns the batch options for this backend and these devices.

        Args:
            batch_size: Number of examples per batch, or `None` for the default.
            is_shared: Whether all devices and processes compute a part of each batch, as in `fit`.
                Otherwise, only this process computes it.
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
        """Returns the number of devices in this process that share each batch.

        On TensorFlow, they belong to the model's `tf.distribute.Strategy`, and on JAX to the
        current `keras.distribution`.
        """
        if self._strategy is not None:
            return int(self._strategy.num_replicas_in_sync)
        return distribution.num_devices() // distribution.process_shard()[1]

    @property
    def _strategy(self) -> Any:
        """The model's `tf.distribute.Strategy` on TensorFlow, otherwise `None`."""
        return getattr(self, "distribute_strategy", None)

    def _compiles_each_shape(self) -> bool:
        """Returns whether each new batch shape triggers a compilation that takes seconds."""
        return compiles_each_shape() or bool(self.jit_compile)
