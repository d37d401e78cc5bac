# SPDX-License-Identifier: Apache-2.0
"""A model with `fit`, `evaluate` and `predict` for text as well as arrays."""

from __future__ import annotations

import dataclasses
import functools
import random
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar, TypeVar, cast

import keras
import numpy as np
from keras.src.trainers.data_adapters import array_slicing

from keras_bert import checks
from keras_bert.aliases import refuse_aliases
from keras_bert.config import BertConfig
from keras_bert.data.given_batches import BatchedText, opened
from keras_bert.data.input_forms import (
    check_input_form,
    check_weights,
    checked_generator,
    column_names,
    is_dataset,
    is_text,
    label_column,
)
from keras_bert.data.loader import DEFAULT_BATCH_SIZE, Batches, BatchOptions
from keras_bert.data.texts import TextClassifierPreprocessor
from keras_bert.models.backbone import Backbone
from keras_bert.models.thread_safe import check_process
from keras_bert.optimizers.fit_updates import steps_in_update, with_fit_updates
from keras_bert.tasks.adapters import (
    BatchOutputs,
    InputAdapter,
    TextAdapter,
    TextBatchesAdapter,
    TextDatasetAdapter,
)
from keras_bert.tasks.class_labels import (
    LabelRules,
    checked_class_weight,
    checked_ids,
)
from keras_bert.tasks.features import (
    ArrayBatches,
    are_arrays,
    filled_up,
    lacks_labels,
    num_batches_of_features,
    rows_of_process,
    shared_predictions,
    without_first,
)
from keras_bert.tasks.feeding import Feed, MicroBatches, no_rows
from keras_bert.tasks.objective import ObjectiveModel
from keras_bert.tasks.presets import check_preprocessor

# The number of batches in an epoch from which on, on a CPU, more lengths are compiled for
_BATCHES_ON_CPU = 512


Method = TypeVar("Method", bound=Callable[..., Any])


def tells_cut_rows(method: Method) -> Method:
    """Has a method of a `TextModel` warn of rows that it cuts, once for each model."""

    @functools.wraps(method)
    def wrapped(self: TextModel, *args: Any, **kwargs: Any) -> Any:
        if self._counts_cut_rows:  # as in the validation of `fit`
            return method(self, *args, **kwargs)
        self._counts_cut_rows = True
        rows, cut = self._num_cut_rows()
        try:
            result = method(self, *args, **kwargs)
        finally:
            self._counts_cut_rows = False
        if self._num_cut_rows()[1] > cut and not self.preprocessor.cut_rows.is_told:
            self.preprocessor.cut_rows.is_told = True
            warnings.warn(self.preprocessor.cut_rows.message(rows, cut), stacklevel=2)
        return result

    return cast(Method, wrapped)


class TextModel(ObjectiveModel):
    """A model that takes text wherever methods of `keras.Model` take arrays of token ids.

    A kind of input is an adapter, which reads rows and converts them to batches by the preprocessor
    of the model. Inputs without an adapter are features, which are checked and left to Keras.
    """

    seconds_waited: float = 0.0
    """How long `fit` has waited for batches of text until now, in seconds."""

    # Whether a method runs that tells how many rows it cuts
    _counts_cut_rows: bool = False

    # The kinds of input besides features
    adapters: ClassVar[tuple[type[InputAdapter], ...]] = (
        TextAdapter,
        TextDatasetAdapter,
        TextBatchesAdapter,
    )
    # The class of its preprocessors
    preprocessor_class: ClassVar[type[Any]] = TextClassifierPreprocessor
    # Whether text needs labels to be trained on or evaluated
    needs_labels: ClassVar[bool] = True

    def __init__(
        self, *args: Any, backbone: Backbone | None, preprocessor: Any = None, **kwargs: Any
    ) -> None:
        super().__init__(*args, backbone=backbone, **kwargs)
        if preprocessor is not None and backbone is not None:
            check_preprocessor(preprocessor, backbone.config)
        # A config becomes a preprocessor on first use: models that take ids do not need that its
        # rows fit.
        self._preprocessor = preprocessor

    @property
    def config(self) -> BertConfig:
        """The `BertConfig` of the encoder."""
        return self.backbone.config

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

    def _num_cut_rows(self) -> tuple[int, int]:
        """Returns the number of rows until now, and of those that were cut."""
        counts = getattr(self._preprocessor, "cut_rows", None)
        return (0, 0) if counts is None else (counts.num_rows, counts.num_cut)

    def _preprocessor_config(self) -> dict[str, Any] | None:
        """Returns the config of the preprocessor; `None` without one."""
        preprocessor = self._preprocessor
        is_config = preprocessor is None or isinstance(preprocessor, dict)
        config: dict[str, Any] | None = preprocessor if is_config else preprocessor.get_config()
        return config

    # === Training, evaluation, prediction ===

    @tells_cut_rows
    def fit(
        self,
        x: Any = None,
        y: Any = None,
        batch_size: int | None = None,
        epochs: int = 1,
        verbose: int | str = "auto",
        callbacks: Any = None,
        validation_split: float = 0.0,
        validation_data: Any = None,
        shuffle: bool = True,
        class_weight: Any = None,
        sample_weight: Any = None,
        bucketing_window: int | None = None,
        initial_batch: int = 0,
        **kwargs: Any,
    ) -> keras.callbacks.History:
        """Trains the model like `keras.Model.fit`, which it extends to text.

        A thread tokenizes text ahead of the training, and rows of similar lengths are batched
        together, so that there is little padding.

        Args:
            x: Text: a list of strings, a list of (a, b) pairs, a tuple of two lists, a dict or
                table (pandas, polars, Arrow, Hugging Face `datasets`) of `text` and `text_pair`, or
                a `tf.data.Dataset` of `(text, label)`, which is batched by length if it is not
                batched. Or batches of text that are left as they are, in tuples with their labels
                and weights: a `keras.utils.PyDataset`, a PyTorch `DataLoader`, or a generator,
                which several epochs need `steps_per_epoch` for. Or features, as in
                `keras.Model.fit`.
            y: Labels, one for each row of `x`. Defaults to the column `label` of a dict or table,
                if the task needs labels. If a Hugging Face data set has names for its ids, and the
                task has `class_names`, the names count.
            batch_size: Number of rows in a batch; ignored for batches that are given. Defaults to
                32.
            epochs: See `keras.Model.fit`.
            verbose: See `keras.Model.fit`.
            callbacks: See `keras.Model.fit`.
            validation_split: Fraction of the rows to hold out for validation, from the end;
                ignored with `validation_data`.
            validation_data: `(x, y)`, `(x, y, sample_weight)` or a dataset, of text or features.
            shuffle: Whether to shuffle the rows in each epoch, also of a `tf.data.Dataset` if
                it is of single texts, and the batches of a `PyDataset`. Of a dataset that does not
                know its size, 1,024 batches of rows are in memory for it. Without, the batches of a
                `bucketing_window` are sorted by length.
            class_weight: A dict of the weight of each class; the keys are ids, or names of
                classes. They weigh the loss of training alone, and not the metrics.
            sample_weight: See `keras.Model.fit`; each is at least 0.
            bucketing_window: Number of batches of text that are sorted by length together.
                1 does not sort rows: there is more padding, but each batch is a random sample.
                Defaults to 64; if rows are shuffled, to a sixteenth of an epoch if that is less:
                with only a few windows in an epoch, long and short rows would never be in the same
                batch, and the model learns less.
            initial_batch: Number of batches of text, or of a `tf.data.Dataset`, to skip. Together
                with `initial_epoch`, it resumes training in the middle of the last epoch.
            **kwargs: Other arguments of `keras.Model.fit`.

        With gradient accumulation, an update is the same as for one batch of all rows or tokens of
        its micro-batches, except that in-batch negatives come from one micro-batch. The
        micro-batches that remain at the end of an epoch make an update too. If a learning rate
        schedule ends before the training, there is a warning; and once if rows are cut to
        `sequence_length`, with their number, also by `evaluate` and `predict`.

        Returns:
            A `keras.callbacks.History`.

        Raises:
            ValueError: If a row, a label or an argument is invalid; the message names the row. Or
                if the learning rate schedule has ended before, so that no weight would change.
        """
        refuse_aliases(self.fit, kwargs, "fit")
        checks.NON_NEGATIVE_INT.check(epochs=epochs, initial_batch=initial_batch)
        checks.PROPER_FRACTION.check(validation_split=validation_split)
        x = opened(x)
        if class_weight is not None and self.supports_class_weight:
            rules = self._label_rules(self._options(batch_size))
            class_weight = checked_class_weight(class_weight, rules.num_ids, rules.class_names)
        has_class_ids = self.supports_class_weight and self._loss_takes_ids()
        # Those of one-hot labels of features are left to Keras, which knows one label for each row.
        is_of_tokens = self.supports_class_weight and len(getattr(self.output, "shape", ())) > 2
        is_for_keras = self._adapter_class(x) is None and not is_of_tokens
        if class_weight and not has_class_ids and not is_for_keras:
            raise ValueError(
                f"class_weight is {class_weight}, but the labels of this {type(self).__name__} are "
                "not class ids. Use sample_weight instead."
            )
        options = BatchOptions(
            batch_size,
            compiles=self._compiles_each_shape(),
            batches_for_more_lengths=_batches_for_more_lengths(),
            # Python's generator is seeded by keras.utils.set_random_seed
            shuffle_seed=random.getrandbits(31) if shuffle else None,
            training=True,
            bucketing_window=bucketing_window,
            num_replicas=self._num_replicas(),
            **_sharing(),
        )
        held_out = None
        rows = self._read(x, y, sample_weight, options)
        if validation_split and validation_data is None and rows is not None and rows.in_memory:
            rows, held_out = rows.split(validation_split)
            validation_split = 0.0
        x, y, sample_weight = self._model_data(rows, x, y, sample_weight, options)
        first_epoch = kwargs.get("initial_epoch", 0)
        in_update = steps_in_update(self.optimizer) if self.compiled else 1
        # Micro-batches that an update had before this training are read, but not trained on.
        skipped = initial_batch % in_update
        if initial_batch:
            x = without_first(x, initial_batch, epochs - first_epoch, skipped)
        validation_batch_size = kwargs.get("validation_batch_size") or batch_size
        if held_out is None:
            if validation_split and validation_data is None and in_update > 1:
                # As Keras does; it could not split what `MicroBatches` are made of.
                (x, y, sample_weight), validation_data = array_slicing.train_validation_split(
                    (x, y, sample_weight), validation_split=validation_split
                )
                validation_split = 0.0
            validation = self._validation_data(validation_data, validation_batch_size)
        else:
            validation = self._batches(
                held_out, self._options(validation_batch_size, is_shared=True)
            )
        training_feed = Feed(x, epoch=first_epoch, first=initial_batch - skipped)
        validation_feed = Feed(validation)
        with (
            self._weighing_classes(class_weight if has_class_ids else None),
            training_feed.raising_errors(),
            validation_feed.raising_errors(),
        ):
            data: dict[str, Any] = {
                "x": training_feed.for_keras(),
                "y": y,
                "sample_weight": sample_weight,
                "batch_size": None if rows is not None else batch_size,
                # Batches and generators have their own order; Keras would warn about `shuffle`.
                "shuffle": shuffle
                and rows is None
                and not (is_dataset(x) or isinstance(x, Batches | Iterator)),
                "class_weight": None if has_class_ids else class_weight,
            }
            if in_update > 1 and self._has_loss_divisors():
                steps = kwargs.get("steps_per_epoch")
                data = {"x": MicroBatches(self, in_update, steps, skipped, **data)}
            return super().fit(
                **data,
                epochs=epochs,
                verbose=verbose,
                callbacks=with_fit_updates(callbacks, self, training_feed),
                validation_split=validation_split,
                validation_data=validation_feed.for_keras(),
                **kwargs,
            )

    @tells_cut_rows
    def evaluate(
        self,
        x: Any = None,
        y: Any = None,
        batch_size: int | None = None,
        verbose: int | str = "auto",
        sample_weight: Any = None,
        **kwargs: Any,
    ) -> Any:
        """Evaluates the model like `keras.Model.evaluate`, which it extends to text.

        Losses and metrics are means over all rows or tokens, and do not depend on the batches.

        Args:
            x: Text in any form that `fit` takes, or features.
            y: Labels, one for each row of `x`.
            batch_size: Number of rows in a batch. Defaults to 32.
            verbose: See `keras.Model.evaluate`.
            sample_weight: See `keras.Model.evaluate`; each is at least 0.
            **kwargs: Other arguments of `keras.Model.evaluate`.

        Returns:
            The loss and the metrics; see `keras.Model.evaluate`.
        """
        x = opened(x)
        options = self._options(batch_size, is_shared=True)
        rows = self._read(x, y, sample_weight, options)
        x, y, sample_weight = self._model_data(rows, x, y, sample_weight, options)
        feed = Feed(x)
        with feed.raising_errors():
            return super().evaluate(
                feed.for_keras(),
                y,
                batch_size=None if rows is not None else batch_size,
                verbose=verbose,
                sample_weight=sample_weight,
                **kwargs,
            )

    def evaluation_batches(
        self, x: Any, y: Any = None, sample_weight: Any = None, batch_size: int | None = None
    ) -> Batches:
        """Converts text to the batches that `evaluate` computes.

        Args:
            x: Text in any form that `fit` takes.
            y: Labels, one for each row of `x`.
            sample_weight: See `keras.Model.evaluate`; each is at least 0.
            batch_size: Number of rows in a batch. Defaults to 32.

        Returns:
            An iterable of `(features, labels, weights)`, NumPy arrays, without labels or weights if
            there are none. It may be read several times, and its length is the number of batches,
            unless that is unknown.

        Raises:
            ValueError: If `x` is not text.

        Example:

        ```python
        for features, labels in classifier.evaluation_batches(texts, labels):
            loss = classifier.batch_loss(labels, classifier(features))
        ```
        """
        x = opened(x)
        options = self._options(batch_size)
        rows = self._read(x, y, sample_weight, options)
        if rows is None:
            raise ValueError(
                f"Received {type(x).__name__}; expected text in a form that `evaluate` takes."
            )
        return self._batches(rows, options)

    @tells_cut_rows
    def predict(
        self, x: Any, batch_size: int | None = None, verbose: int | str = "auto", **kwargs: Any
    ) -> Any:
        """Computes the outputs of the model like `keras.Model.predict`, which it extends to text.

        Args:
            x: Text in any form that `fit` takes, or features. Labels in a dataset are ignored.
            batch_size: Number of rows in a batch. Defaults to 32.
            verbose: See `keras.Model.predict`.
            **kwargs: Other arguments of `keras.Model.predict`; of text, `steps` is for batches that
                are given.

        Returns:
            Float32 outputs in the order of the input; see the class for their shapes. If these
            depend on the row, such as on the number of words of a sentence, the outputs for text
            are nested like the input.

        If there are several processes in a `keras.distribution` on JAX, each calls this method with
        the same rows, computes its shard of each batch, and returns the outputs of all rows.

        Raises:
            ValueError: If features are no arrays in memory, and there are several processes.
        """
        x = opened(x)
        kind = self._adapter_class(x)
        if kind is not None:
            return self._predict_rows(kind.read(x), batch_size, verbose, **kwargs)
        self._check_ids(x)
        if _shard()[1] > 1:
            return self._predict_arrays(x, batch_size, verbose, **kwargs)
        return super().predict(
            checked_generator(x), batch_size=batch_size, verbose=verbose, **kwargs
        )

    def num_steps(
        self,
        x: Any,
        batch_size: int | None = None,
        epochs: int = 1,
        validation_split: float = 0.0,
    ) -> int:
        """Counts the updates that `fit` makes, for the steps of a learning rate schedule.

        A batch has rows of text, choices or features, but windows of questions and of words, of
        which a long passage has several.

        Args:
            x: Rows in any form that `fit` takes; labels are not needed. A `tf.data.Dataset` of
                unknown size is read once.
            batch_size: Number of rows in an update; with gradient accumulation, the `batch_size`
                of `fit` times `gradient_accumulation_steps`. Ignored for batched datasets.
                Defaults to 32.
            epochs: Number of epochs.
            validation_split: Fraction of the rows that `fit` holds out.

        Returns:
            The number of updates.

        Raises:
            ValueError: If `x` is an infinite dataset, or a generator, which would be used up.

        Example:

        ```python
        steps = classifier.num_steps(texts, batch_size=32, epochs=3)
        classifier.compile(keras_bert.optimizers.AdamW(2e-5, steps, num_warmup_steps=steps // 10))
        classifier.fit(texts, labels, batch_size=32, epochs=3)
        ```
        """
        checks.NON_NEGATIVE_INT.check(epochs=epochs)
        checks.PROPER_FRACTION.check(validation_split=validation_split)
        size = BatchOptions(batch_size).rows_in_batch
        kind = self._adapter_class(x)
        if kind is None:
            return epochs * num_batches_of_features(x, size, validation_split)
        rows = kind.read(x)
        if validation_split:
            if not rows.in_memory:
                raise ValueError("validation_split needs rows in memory; received a dataset.")
            rows, _ = rows.split(validation_split)
        return epochs * rows.num_batches(self.preprocessor, size)

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
        x = opened(x)
        kind = self._adapter_class(x)
        if kind is None:
            raise ValueError(
                f"x must be text, {self._input_forms()}, to have its tokens counted; "
                f"received {type(x).__name__}."
            )
        rows = kind.read(x)
        batches, _ = rows.prediction_batches(self.preprocessor, self._options(batch_size))
        counts = [
            np.sum(features["padding_mask"], axis=-1, dtype="int64").reshape(-1)
            for features, _ in batches
        ]
        lengths = np.concatenate([np.zeros(0, "int64"), *counts])
        return lengths[lengths > 0]  # without the filler of batches

    # === Text to batches ===

    def _predict_rows(
        self, rows: InputAdapter, batch_size: int | None, verbose: int | str, **kwargs: Any
    ) -> Any:
        # Batches of text are not in its order; and Keras' `predict` may not be what is called.
        if isinstance(rows, TextBatchesAdapter):
            rows = dataclasses.replace(rows, steps=kwargs.get("steps"))
        elif kwargs.get("steps") is not None or (kwargs and not rows.outputs_are_joined):
            raise ValueError(f"With text, `predict` does not take {', '.join(kwargs)}.")
        # On TensorFlow, each replica has a share of the batches of `predict`, but all of those of
        # `predict_on_batch`. On JAX, batches are shared below.
        on_jax = keras.backend.backend() == "jax"
        options = self._options(batch_size, is_shared=rows.outputs_are_joined and not on_jax)
        batches, restore = rows.prediction_batches(self.preprocessor, options)
        if not rows.outputs_are_joined:
            return restore(self._outputs_of_batches(batches, verbose), self.output_shape)
        if batches.example() is None:
            return restore([], self.output_shape)
        # With a single call of Keras' `predict`, batches of all lengths share one trace.
        index, outputs = self._joined_outputs(batches, verbose, **kwargs)
        return restore([(None, index, outputs)], self.output_shape)

    def _predict_arrays(
        self, x: Any, batch_size: int | None, verbose: int | str, **kwargs: Any
    ) -> Any:
        """Predicts features that every process has in full."""
        if not are_arrays(x):
            raise ValueError(
                f"x is a {type(x).__name__} of features, in one of {_shard()[1]} processes; "
                "expected text, or arrays of which each process has all rows."
            )
        batches = ArrayBatches(x, batch_size or DEFAULT_BATCH_SIZE)
        _, outputs = self._joined_outputs(batches, verbose, **kwargs)
        # Only the last batch has filler.
        return keras.tree.map_structure(lambda rows: rows[: batches.num_rows], outputs)

    def _joined_outputs(
        self, batches: Batches, verbose: int | str, **kwargs: Any
    ) -> tuple[np.ndarray[Any, Any], Any]:
        """Returns the indices of the rows of all batches, with padding rows, and their outputs."""
        if _num_devices() > 1:
            batches = shared_predictions(batches, _num_devices(), _shard())
        feed = Feed(batches, with_targets=False)
        with feed.raising_errors():
            outputs = super().predict(feed.for_keras(), verbose=verbose, **kwargs)
        return np.concatenate(feed.targets), outputs

    def _outputs_of_batches(
        self, batches: Batches, verbose: int | str, model: keras.Model | None = None
    ) -> Iterator[BatchOutputs]:
        """Yields the outputs of each batch; `predict` would concatenate outputs of all lengths.

        Args:
            batches: Batches of `(features, rest)`.
            verbose: Whether to show a progress bar.
            model: The model to apply. Defaults to the task.

        Yields:
            Tuples of the features of a batch, the rest of it, and the outputs, as NumPy arrays.
        """
        progress = keras.utils.Progbar(batches.num_batches, verbose=int(verbose != 0))
        compiles = self._compiles_each_shape()
        predict = (model or self).predict_on_batch
        for features, rest in batches:
            num_rows = len(features["token_ids"])
            # On TensorFlow, `predict_on_batch` runs on one device.
            filled = filled_up(features, _num_devices()) if compiles else features
            outputs = predict(_shared_among_devices(filled))
            yield (
                features,
                rest,
                keras.tree.map_structure(
                    lambda x, num_rows=num_rows: keras.ops.convert_to_numpy(x)[:num_rows], outputs
                ),
            )
            progress.add(1)

    def _adapter_class(self, x: Any) -> type[InputAdapter] | None:
        """Returns the kind of text that `x` is; `None` for features."""
        return next((kind for kind in self.adapters if kind.matches(x)), None)

    def _read(
        self, x: Any, y: Any, sample_weight: Any, options: BatchOptions
    ) -> InputAdapter | None:
        """Reads text with its labels and weights; returns `None` for features."""
        kind = self._adapter_class(x)
        rules = self._label_rules(options)
        if kind is not None and y is None and self.needs_labels:
            y = label_column(x, rules.class_names)
        rows = None if kind is None else kind.read(x, y, sample_weight, rules)
        if rows is not None and rows.in_memory and not len(rows):
            raise no_rows()
        return rows

    def _batches(self, rows: InputAdapter, options: BatchOptions) -> Batches:
        """Returns batches of features, labels and weights."""
        return rows.batches(self.preprocessor, options)

    def _model_data(
        self, rows: InputAdapter | None, x: Any, y: Any, sample_weight: Any, options: BatchOptions
    ) -> tuple[Any, Any, Any]:
        """Checks data, and converts text to batches with labels and weights.

        Args:
            rows: The rows that `_read` returned for the other arguments; `None` for features.
            x: The input of `_read`.
            y: The labels.
            sample_weight: The sample weights.
            options: The options of batching.

        Returns:
            A tuple `(x, y, sample_weight)`.

        Raises:
            ValueError: If there are no labels, but losses of outputs, which need some.
        """
        if rows is None:
            x, y, sample_weight = self._checked_features(x, y, sample_weight, options)
        # (Batches of rows without labels may have weights in second place.)
        has_none = lacks_labels(x, y) if rows is None else not rows.has_labels
        if has_none and self.needs_labels and self._output_losses is not None:
            columns = set(column_names(x) or ())
            others = sorted(map(str, columns - {"text", "text_pair"})) if rows is not None else []
            raise ValueError(
                f"There are no labels, with which a {type(self).__name__} is trained and "
                f"evaluated: pass `y`{', such as x[' + repr(others[0]) + ']' if others else ''}, "
                "or a dataset of (x, y)."
            )
        if rows is not None:
            return self._batches(rows, options), None, None
        return x, y, sample_weight

    def _validation_data(self, data: Any, batch_size: int | None) -> Any:
        """Converts validation data to the argument of Keras' `fit`, text to batches."""
        options = self._options(batch_size, is_shared=True)
        if data is None:
            return None
        data = opened(data)
        x, y, sample_weight = data, None, None
        kind = self._adapter_class(data)
        if kind is None or not kind.has_own_labels:
            has_labels = not self.needs_labels or label_column(data) is not None
            if has_labels and kind is not None and not isinstance(data, tuple):
                pass  # `x` alone
            elif isinstance(data, (tuple, list)) and len(data) in (2, 3):
                x, y, sample_weight = (*data, None)[:3]
            elif isinstance(data, (tuple, list, str, bytes, Mapping, np.ndarray)):
                length = f" of {len(data)}" if isinstance(data, (tuple, list)) else ""
                forms = "(x, y), (x, y, sample_weight)" if self.needs_labels else "x, (x, None)"
                raise ValueError(
                    f"validation_data must be {forms} or a dataset; received a "
                    f"{type(data).__name__}{length}."
                )
        rows = self._read(x, y, sample_weight, options)
        parts = self._model_data(rows, x, y, sample_weight, options)
        # Without separate labels, `x` is batches or a dataset.
        return parts[0] if parts[1] is None else tuple(p for p in parts if p is not None)

    def _options(self, batch_size: int | None, *, is_shared: bool = False) -> BatchOptions:
        """Returns the options of batching of evaluation and prediction.

        Args:
            batch_size: Number of rows in a batch; `None` for the default.
            is_shared: Whether the replicas of a strategy share each batch.
        """
        return BatchOptions(
            batch_size,
            compiles=self._compiles_each_shape(),
            batches_for_more_lengths=_batches_for_more_lengths(),
            num_replicas=self._num_replicas() if is_shared else 1,
            **(_sharing() if is_shared else {}),
        )

    def _num_replicas(self) -> int:
        """Returns the number of devices of this process that share each batch.

        They come from the model's `tf.distribute.Strategy` on TensorFlow, and from the current
        `keras.distribution` on JAX.
        """
        if keras.backend.backend() == "tensorflow":
            return int(self.distribute_strategy.num_replicas_in_sync)
        return _num_devices() // _shard()[1]

    def _compiles_each_shape(self) -> bool:
        """Returns whether each new batch shape is compiled, which takes seconds."""
        return keras.backend.backend() == "jax" or bool(self.jit_compile)

    # === Labels and features ===

    def _label_rules(self, options: BatchOptions) -> LabelRules:
        """Returns the rules for labels of text; overridden by tasks with classes."""
        return LabelRules()

    def _num_targets(self, x: Any) -> Mapping[str, int | None]:
        """Returns the number of target ids of each output that has ids; `None` if unknown.

        Args:
            x: Features.
        """
        return {}

    def _checked_features(
        self, x: Any, y: Any, sample_weight: Any, options: BatchOptions
    ) -> tuple[Any, Any, Any]:
        """Checks features, labels and weights, and converts them to arguments of Keras' methods."""
        self._check_ids(x)
        self._check_targets(x, y, sample_weight, options)
        check_weights(sample_weight)
        if is_dataset(x):
            from keras_bert.data.tfdata.text_datasets import with_checked_weights

            return with_checked_weights(x), y, sample_weight
        return checked_generator(x), y, sample_weight

    def _check_ids(self, x: Any) -> None:
        """Checks arrays of ids; `__call__` cannot, since Keras converts them to tensors before.

        Raises:
            ValueError: If an id is out of range, or `x` is neither features nor text in a form that
                the task takes.
        """
        forms = self._input_forms()
        check_input_form(x, forms)
        if is_text(x) or isinstance(x, BatchedText):
            raise ValueError(
                f"A {type(self).__name__} takes {forms}, or features; received "
                f"{type(x).__name__} of text in another form."
            )
        self.check_inputs(x if isinstance(x, dict) else {"token_ids": x})

    @classmethod
    def _input_forms(cls) -> str:
        return ", or ".join(dict.fromkeys(kind.forms for kind in cls.adapters)) or "ids"

    def _check_targets(self, x: Any, y: Any, sample_weight: Any, options: BatchOptions) -> None:
        """Checks targets of features, since JAX does not raise errors for ids out of range."""
        if y is None:
            return
        rules = self._label_rules(options)
        if rules.is_score:
            rules.read(y)
        for name, num_ids in self._num_targets(x).items():
            if num_ids is not None and self._loss_takes_ids(name):
                target, weight = (
                    part.get(name) if isinstance(part, Mapping) else part
                    for part in (y, sample_weight)
                )
                if target is not None:
                    checked_ids(target, num_ids, lowest=rules.lowest, weights=weight, name=name)


def _batches_for_more_lengths() -> int | None:
    """Returns the number of batches from which on compiling for more lengths saves time.

    On a CPU, compiling for a length takes as long as ten steps, and there are two to three times as
    many lengths, which leave out a fifth of the tokens or more. An accelerator executes hundreds of
    steps meanwhile.
    """
    if keras.backend.backend() == "torch":  # It has no such list, and compiles for any length.
        return None
    devices = keras.distribution.list_devices()
    return _BATCHES_ON_CPU if all(device.startswith("cpu") for device in devices) else None


def _num_devices() -> int:
    """Returns the number of devices of all processes that share each batch on JAX."""
    distribution = keras.distribution.distribution()
    return 1 if distribution is None else int(distribution.num_model_replicas)


def _shared_among_devices(features: dict[str, np.ndarray]) -> dict[str, Any]:
    """Shards rows that every process has in full over the devices of a `keras.distribution`."""
    if keras.distribution.distribution() is None:
        return features
    from keras_bert.ops.jax_steps import shared_among_devices

    shared: dict[str, Any] = shared_among_devices(rows_of_process(features, _shard()))
    return shared


def _sharing() -> dict[str, Any]:
    """Returns the options of batching for batches that several processes share."""
    shard = _shard()
    if shard[1] == 1:
        return {}
    from keras_bert.ops.jax_steps import sharded_map

    return {"shard": shard, "sharded_map": sharded_map}


def _shard() -> tuple[int, int]:
    """Returns the index of this process, and the number of those that share each batch.

    There are several in a `keras.distribution`. Its own sharding of data is for `tf.data` only.
    """
    distribution = keras.distribution.distribution()
    if distribution is None or distribution.num_processes == 1:
        return 0, 1
    count = min(distribution.num_model_replicas, distribution.num_processes)
    return distribution.data_shard_id, count
