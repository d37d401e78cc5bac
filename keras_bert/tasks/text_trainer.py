# SPDX-License-Identifier: Apache-2.0
"""`fit` and `evaluate` for text as well as arrays."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from typing import Any

import keras
import numpy as np
from keras import ops
from keras.src.trainers.data_adapters import array_slicing

from keras_bert import checks
from keras_bert.aliases import refuse_aliases
from keras_bert.data.adapters.base import InputAdapter
from keras_bert.data.adapters.reading import Features, adapter_class, read_input
from keras_bert.data.adapters.text_batches import TextBatchesAdapter
from keras_bert.data.columns import as_array, column_names, is_dataset, label_column
from keras_bert.data.labels import LabelRules, checked_class_weight, checked_ids, may_be_ids
from keras_bert.data.loader import Batches, BatchOptions, Loader
from keras_bert.optimizers.fit_updates import steps_in_update, with_fit_updates
from keras_bert.tasks.devices import process_shard
from keras_bert.tasks.feeding import Feed, MicroBatches
from keras_bert.tasks.prediction import TextPredictor, tells_cut_rows

# The `bucketing_window` if only some batches are used: they have the first rows, not the shortest.
IN_ORDER = 1


def split_rows(rows: Any, share: float) -> tuple[Any, Any]:
    """Splits off a share of the rows, the last ones, for validation: the others, and these."""
    if isinstance(rows, Features):
        # Keras' `fit` cannot, of batches with the divisors of their losses.
        arrays = (rows.x, rows.y, rows.sample_weight)
        train, held_out = array_slicing.train_validation_split(arrays, share)
        return Features(*train), Features(*held_out)
    if not rows.in_memory:
        raise ValueError("validation_split needs rows in memory; received a dataset.")
    parts: tuple[Any, Any] = rows.split(share)
    return parts


class TextTrainer(TextPredictor):
    """A model whose `fit` and `evaluate` take text as well as arrays of token ids."""

    seconds_waited: float = 0.0
    """How long `fit` has waited for batches of text until now, in seconds."""

    # Whether text needs labels to be trained on or evaluated
    needs_labels: bool = True

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
        shuffle: bool | str = True,
        class_weight: Any = None,
        sample_weight: Any = None,
        *,
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
                and weights: a `keras.utils.PyDataset`, a PyTorch `DataLoader`, or a generator
                (several epochs need `steps_per_epoch`). Or features, as in `keras.Model.fit`.
            y: Labels, one for each row of `x`. Defaults to the column `label` of a dict or table,
                if the task needs labels. The ids of a Hugging Face data set with names for them
                become those of the same names in the task's `class_names`, if it has any.
            batch_size: Number of rows in a batch; ignored if `x` has batches. Defaults to 32.
            epochs: See `keras.Model.fit`.
            verbose: See `keras.Model.fit`.
            callbacks: See `keras.Model.fit`.
            validation_split: Fraction of the rows, from the end, to use for validation; ignored
                with `validation_data`.
            validation_data: `(x, y)`, `(x, y, sample_weight)` or a dataset, of text or features. A
                generator's batches of text are kept, so that each epoch is evaluated on the same.
            shuffle: Whether to shuffle the rows in each epoch, including those of a
                `tf.data.Dataset` of single texts, and the batches of a `PyDataset`. A dataset is
                shuffled in a buffer of 1,024 batches: call its `shuffle` too if its rows are
                sorted. Without shuffling, the batches of a `bucketing_window` are sorted by length.
                `"batch"` is for features only.
            class_weight: A dict of the weight of each class; the keys are ids, or names of
                classes. They weigh the loss of training alone, and not the metrics.
            sample_weight: See `keras.Model.fit`; each is at least 0.
            bucketing_window: Number of batches of text that are sorted by length together.
                1 does not sort rows: there is more padding, but each batch is a random sample.
                Defaults to 64; if rows are shuffled, to a sixteenth of an epoch if that is less:
                with only a few windows in an epoch, long and short rows would never be in the same
                batch, and the model learns less.
            initial_batch: Number of batches of text, or of a `tf.data.Dataset`, to skip; less than
                all. Together with `initial_epoch`, it resumes training in the middle of the last
                epoch.
            **kwargs: Other arguments of `keras.Model.fit`. With `steps_per_epoch` and without
                shuffling, and with `validation_steps`, the first rows are used, and not the
                shortest: `bucketing_window` is 1.

        The bias of a new head, which is 0, is first set to the log odds of each label (with several
        labels) or to the mean score: AdamW would need hundreds of steps to move it that far. They
        are counted over all rows in memory, over the first 1,024 of a `tf.data.Dataset` of single
        texts, or over the first of other batches; not in datasets and generators of features.

        With gradient accumulation, an update is the same as for one batch of all rows or tokens of
        its micro-batches, except that in-batch negatives come from one micro-batch. The
        micro-batches that remain at the end of an epoch make an update too. There is a warning if a
        learning rate schedule ends before the training does. Another one, once for a model and in
        `evaluate` and `predict` too, says how many rows are cut to `sequence_length`.

        Returns:
            A `keras.callbacks.History`.

        Raises:
            ValueError: If a row, a label or an argument is invalid; the message names the row. Or
                if the learning rate schedule has ended already, so that no weight would change.
        """
        refuse_aliases(self.fit, kwargs, "fit")
        checks.NON_NEGATIVE_INT.check(epochs=epochs, initial_batch=initial_batch)
        checks.PROPER_FRACTION.check(validation_split=validation_split)
        steps, first_epoch = kwargs.get("steps_per_epoch"), kwargs.get("initial_epoch", 0)
        if bucketing_window is None and steps and not shuffle:
            bucketing_window = IN_ORDER
        options = self._options(
            batch_size,
            is_shared=True,
            # Python's generator is seeded by keras.utils.set_random_seed
            shuffle_seed=random.getrandbits(31) if shuffle else None,
            training=True,
            negative_share=self.negative_share,
            bucketing_window=bucketing_window,
        )
        validation_options = self._options(
            kwargs.pop("validation_batch_size", None) or batch_size,
            is_shared=True,
            bucketing_window=IN_ORDER if kwargs.get("validation_steps") else None,
        )
        all_rows, validation = self._read(x, y, sample_weight, options), None
        if validation_data is not None:
            rows, validation = all_rows, self._read_validation(validation_data, validation_options)
        elif validation_split:
            rows, held_out = split_rows(all_rows, validation_split)
            validation = self._model_data(held_out, x, validation_options)
        else:
            rows = all_rows
        if isinstance(rows, InputAdapter) and isinstance(shuffle, str):
            raise ValueError(f"shuffle must be True or False with text. Received: {shuffle!r}.")
        class_weight = self._checked_class_weight(class_weight, options)
        train = self._model_data(rows, x, options)
        # Batches and generators have their own order; Keras would warn about `shuffle`.
        has_order = is_dataset(train.x) or isinstance(train.x, Batches | Iterator)
        in_update = steps_in_update(self.optimizer) if self.compiled else 1
        # If `initial_batch` is within an update, its earlier micro-batches are read, but not
        # trained on.
        skipped = initial_batch % in_update
        training_feed = Feed(
            train.x,
            epoch=first_epoch,
            epochs=epochs - first_epoch,
            first=initial_batch,
            read=skipped,
            steps_per_epoch=kwargs.get("steps_per_epoch"),
        )
        validation_feed = Feed(None if validation is None else validation.x)
        with (
            self._weighing_classes(class_weight),
            training_feed.raising_errors(),
            validation_feed.raising_errors(),
        ):
            self._build(training_feed)
            self._start_head(train.x, train.y, train.sample_weight, options)
            data: dict[str, Any] = {
                "x": training_feed.for_keras(),
                "y": train.y,
                "sample_weight": train.sample_weight,
                "batch_size": options.batch_size,
                "shuffle": not has_order and shuffle,
            }
            if in_update > 1 and self._has_loss_divisors():
                micro_batches = MicroBatches(self, in_update, steps, skipped, **data)
                if training_feed.example is None and self._strategy is None:
                    self._build(micro_batches)
                data = {"x": micro_batches}
            return super().fit(
                **data,
                epochs=epochs,
                verbose=verbose,
                callbacks=with_fit_updates(callbacks, self, training_feed),
                validation_data=None
                if validation is None
                else (validation_feed.for_keras(), validation.y, validation.sample_weight),
                validation_batch_size=validation_options.batch_size,
                **kwargs,
            )

    def _checked_class_weight(
        self, class_weight: Any, options: BatchOptions
    ) -> dict[int, float] | None:
        """Checks the weights of classes, and returns them by id."""
        if self.supports_class_weight and class_weight is not None:
            rules = self._label_rules(options)
            return checked_class_weight(class_weight, rules.num_ids, rules.class_names)
        if not class_weight:
            return None
        raise ValueError(
            f"class_weight is {class_weight}, but the labels of this {type(self).__name__} are "
            "not class ids. Use sample_weight instead."
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

        Losses and metrics are means over all rows or tokens, and do not depend on the batches. A
        loss with the reduction `"sum"` is the sum over all of them.

        Args:
            x: Text in any form that `fit` takes, or features.
            y: Labels, one for each row of `x`.
            batch_size: Number of rows in a batch. Defaults to 32.
            verbose: See `keras.Model.evaluate`.
            sample_weight: See `keras.Model.evaluate`; each is at least 0.
            **kwargs: Other arguments of `keras.Model.evaluate`. `steps` evaluates the first rows.

        Returns:
            The loss and the metrics; see `keras.Model.evaluate`.
        """
        window = IN_ORDER if kwargs.get("steps") else None
        options = self._options(batch_size, is_shared=True, bucketing_window=window)
        data = self._model_data(self._read(x, y, sample_weight, options), x, options)
        feed = Feed(data.x, steps_per_epoch=kwargs.get("steps"))
        with feed.raising_errors():
            self._build(feed)
            return super().evaluate(
                feed.for_keras(),
                data.y,
                batch_size=batch_size,
                verbose=verbose,
                sample_weight=data.sample_weight,
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
        options = self._options(batch_size)
        rows = self._read(x, y, sample_weight, options)
        if isinstance(rows, Features):
            raise ValueError(
                f"Received {type(x).__name__}; expected text in a form that `evaluate` takes."
            )
        return self._batches(rows, options)

    def _read(
        self, x: Any, y: Any, sample_weight: Any, options: BatchOptions
    ) -> InputAdapter | Features:
        """Reads and checks input of training or evaluation."""
        rules = self._label_rules(options)
        rows = read_input(self.adapters, x, y, sample_weight, rules, needs_labels=self.needs_labels)
        if not isinstance(rows, Features):
            return rows
        # Here, since Keras converts arrays to tensors before `__call__`.
        self.check_inputs(rows.inputs)
        self._check_targets(rows, rules)
        return rows.with_checked_weights()

    def num_steps(
        self,
        x: Any,
        batch_size: int | None = None,
        epochs: int = 1,
        validation_split: float = 0.0,
        gradient_accumulation_steps: int | None = None,
    ) -> int:
        """Counts the updates that `fit` makes, for the steps of a learning rate schedule.

        A batch has rows of text, choices or features. Of questions and words it has windows, and a
        long passage has several.

        Args:
            x: Rows in any form that `fit` takes; labels are not needed. A `tf.data.Dataset` of
                unknown size is read once.
            batch_size: See `fit`. Defaults to 32.
            epochs: See `fit`.
            validation_split: See `fit`.
            gradient_accumulation_steps: Number of batches in an update. Defaults to the compiled
                optimizer's; 1 before `compile`.

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
        checks.POSITIVE_INT.check_given(gradient_accumulation_steps=gradient_accumulation_steps)
        in_update = gradient_accumulation_steps
        if in_update is None:
            in_update = steps_in_update(self.optimizer) if self.compiled else 1
        kind = adapter_class(self.adapters, x)
        rows = Features(x) if kind is None else kind.read(x)
        if validation_split:
            rows, _ = split_rows(rows, validation_split)
        options = self._options(batch_size, negative_share=self.negative_share)
        if isinstance(rows, Features):
            count = rows.num_batches(options.rows_in_batch)
        else:
            known = self._batches(rows, options).num_batches
            count = rows.count_batches(options.rows_in_batch) if known is None else known
        return epochs * -(-count // in_update)

    def _read_validation(self, data: Any, options: BatchOptions) -> Features:
        """Reads the `validation_data` of `fit`."""
        x, y, sample_weight = self._unpacked(data)
        rows = self._read(x, y, sample_weight, options)
        if isinstance(rows, TextBatchesAdapter):
            rows.dataset.keep()  # They are evaluated in each epoch.
        return self._model_data(rows, x, options)

    def _unpacked(self, data: Any) -> tuple[Any, Any, Any]:
        """Returns `x`, `y` and `sample_weight` of validation data."""
        kind = adapter_class(self.adapters, data)
        is_labeled = not self.needs_labels or label_column(data) is not None
        is_rows = kind is not None and is_labeled and not isinstance(data, tuple)
        if is_rows or (kind is not None and kind.has_own_labels):
            return data, None, None
        if isinstance(data, (tuple, list)) and len(data) in (2, 3):
            return (*data, None)[:3]
        if isinstance(data, (tuple, list, str, bytes, Mapping, np.ndarray)):
            forms = "(x, y), (x, y, sample_weight)" if self.needs_labels else "x, (x, None)"
            length = f" of {len(data)}" if isinstance(data, (tuple, list)) else ""
            raise ValueError(
                f"validation_data must be {forms} or a dataset; received a "
                f"{type(data).__name__}{length}."
            )
        return data, None, None

    def _model_data(self, rows: InputAdapter | Features, x: Any, options: BatchOptions) -> Features:
        """Returns features for Keras, or batches of them, of rows that were read from `x`.

        Raises:
            ValueError: If there are no labels, and the losses need them.
        """
        if not rows.has_labels and self.needs_labels:
            columns = set(column_names(x) or ())
            if isinstance(rows, Features):
                columns.clear()  # They are inputs.
            others = sorted(map(str, columns - {"text", "text_pair"}))
            raise ValueError(
                f"There are no labels, with which a {type(self).__name__} is trained and "
                f"evaluated: pass `y`{', such as x[' + repr(others[0]) + ']' if others else ''}, "
                "or a dataset of (x, y)."
            )
        return rows if isinstance(rows, Features) else Features(self._batches(rows, options))

    def _build(self, source: Feed | MicroBatches) -> None:
        """Builds metrics, losses and the optimizer before Keras would read batches for it."""
        is_needed = keras.backend.backend() != "tensorflow" or self._strategy is not None
        if is_needed and self.compiled and source.example is not None:
            self.build_by_example(source.example)

    def _start_head(self, x: Any, y: Any, sample_weight: Any, options: BatchOptions) -> None:
        """Sets the bias of a new head to the best constant output for the labels in memory."""
        bias = getattr(getattr(getattr(self, "head", None), "dense", None), "bias", None)
        if bias is None or not bias.trainable or ops.any(ops.not_equal(bias, 0)):
            return
        if process_shard()[1] > 1 and not isinstance(x, Loader):
            return  # Other processes may have other rows.
        labels, weights = x.first_targets() if isinstance(x, Batches) else (y, sample_weight)
        if labels is None or isinstance(labels, Mapping):
            return
        labels, weights = (
            None if part is None else ops.convert_to_numpy(part) for part in (labels, weights)
        )
        value = self._label_rules(options).best_constant(labels, weights)
        if value is not None and value.shape == bias.shape:
            bias.assign(value)

    def _label_rules(self, options: BatchOptions) -> LabelRules:
        """Returns the rules for labels of text; overridden by tasks with classes."""
        return LabelRules()

    def _num_targets(self, x: Any) -> Mapping[str, int | None]:
        """Returns the number of target ids of each output that has ids; `None` if unknown."""
        return {}

    def _check_targets(self, features: Features, rules: LabelRules) -> None:
        """Checks targets of features, since JAX does not raise errors for ids out of range."""
        if features.y is None:
            return
        if rules.is_score:
            rules.read(features.y)
        for name, num_ids in self._num_targets(features.x).items():
            target, weight, output = (
                part.get(name) if isinstance(part, Mapping) else part
                for part in (features.y, features.sample_weight, self.output)
            )
            if num_ids is None or target is None or not self._are_ids(target, output, name):
                continue
            ignored = self._ignored_class(name)
            checked_ids(
                target, num_ids, lowest=rules.lowest, ignored=ignored, weights=weight, name=name
            )

    def _are_ids(self, target: Any, output: Any, name: str) -> bool:
        """Returns whether the targets of an output are ids, and not numbers for each class.

        Their shape tells. Only of losses for ids, all must be whole numbers.
        """
        array = as_array(target)
        if array.ndim == len(output.shape) and array.shape[-1] != 1:
            return False
        return self._loss_takes_ids(name) or may_be_ids(array.reshape(-1))
