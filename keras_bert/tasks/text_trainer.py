# SPDX-License-Identifier: Apache-2.0
"""`fit` and `evaluate` for text as well as arrays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import keras
from keras import ops

from keras_bert import checks
from keras_bert.data.adapters.reading import Features, adapter_class
from keras_bert.data.batch_options import BatchOptions
from keras_bert.data.batches import Batches
from keras_bert.data.loader import Loader
from keras_bert.migration_hints import reject_aliases
from keras_bert.models.threads import check_is_not_evaluated
from keras_bert.optimizers.fit_updates import micro_batches_per_update_of, with_fit_updates
from keras_bert.tasks import fit_plan
from keras_bert.tasks.batch_feeder import BatchFeeder
from keras_bert.tasks.batch_plan import BatchPlan
from keras_bert.tasks.distribution import process_shard
from keras_bert.tasks.micro_batches import MicroBatches
from keras_bert.tasks.prediction import TextPredictor, warn_if_truncated


class TextTrainer(TextPredictor):
    """A model whose `fit` and `evaluate` take text as well as arrays of token ids."""

    seconds_waited: float = 0.0
    """How long `fit` has waited for batches of text until now, in seconds."""

    @warn_if_truncated
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
        initial_batch: int = 0,
        bucketing_window: int | None = None,
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
            initial_batch: Number of batches of text, or of a `tf.data.Dataset`, to skip; less than
                all. Together with `initial_epoch`, it resumes training in the middle of the last
                epoch.
            bucketing_window: Number of batches of text that are sorted by length together. 1 does
                not sort rows: there is more padding, but each batch is a random sample. Defaults to
                64, or to a sixteenth of an epoch if rows are shuffled and that is less: with only a
                few windows in an epoch, long and short rows would never be in the same batch, and
                the model learns less. It is 1 with `steps_per_epoch` without shuffling, and in a
                validation with `validation_steps`: the first rows are used, and not the shortest.
            **kwargs: Other arguments of `keras.Model.fit`.

        The bias of a new head, which is 0, is first set to the log frequency of each tag, to the
        log odds of each label (with several labels) or to the mean score. They are counted over all
        rows in memory, over the first 1,024 of a `tf.data.Dataset` of single texts, or over the
        first of other batches; not in datasets and generators of features.

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
        reject_aliases(self.fit, kwargs, "fit")
        arguments = fit_plan.FitArguments(
            batch_size=batch_size,
            epochs=epochs,
            validation_split=validation_split,
            validation_data=validation_data,
            shuffle=shuffle,
            class_weight=class_weight,
            initial_batch=initial_batch,
            bucketing_window=bucketing_window,
            keras_arguments=kwargs,
        )
        plan = fit_plan.plan_fit(self, x, y, sample_weight, arguments)
        with self._weighing_classes(plan.class_weight), plan.raising_errors():
            data = plan.training_data()
            self._build(plan.feed, data["x"])
            self._start_head(plan.train, plan.options)
            return super().fit(
                **data,
                verbose=verbose,
                callbacks=with_fit_updates(callbacks, self, plan.feed),
                **plan.other_arguments(),
            )

    @warn_if_truncated
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
        check_is_not_evaluated(self)
        options = fit_plan.evaluation_options(self, batch_size, kwargs.get("steps"))
        data = self._as_features(self._read_labeled(x, y, sample_weight, options), options)
        plan = BatchPlan(steps_per_epoch=kwargs.get("steps"))
        feed = BatchFeeder(data.x, plan=plan, evaluated=self)
        with feed.raising_errors():
            self._build(feed)
            return super().evaluate(
                feed.to_keras_data(),
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
        checks.POSITIVE_INT.check_optional(gradient_accumulation_steps=gradient_accumulation_steps)
        micro_batches_per_update = gradient_accumulation_steps
        if micro_batches_per_update is None:
            micro_batches_per_update = (
                micro_batches_per_update_of(self.optimizer) if self.compiled else 1
            )
        # Batches that the user makes are counted without reading any.
        kind = adapter_class(self.adapters, x)
        rows = Features(x) if kind is None else kind.read(x)
        if validation_split:
            rows, _ = fit_plan.split_rows(rows, validation_split)
        options = self._options(batch_size, negative_fraction=self.negative_fraction)
        batches = self._as_features(rows, options).x
        count = batches.num_batches if isinstance(batches, Batches) else None
        if count is None:
            count = rows.count_batches(options.rows_in_batch)
        return epochs * -(-count // micro_batches_per_update)

    def _build(self, feed: BatchFeeder, x: Any = None) -> None:
        """Builds metrics, losses and the optimizer, so that Keras reads no batch to build them.

        | data | built by |
        |---|---|
        | any, on TensorFlow without a strategy | Keras, in the first step |
        | text | a batch of few rows |
        | micro-batches of features, without a strategy | their first batch |
        | other features | Keras, which reads a batch |
        """
        is_built_by_keras = keras.backend.backend() == "tensorflow" and self._strategy is None
        if is_built_by_keras or not self.compiled:
            return
        example = feed.example
        if example is None and isinstance(x, MicroBatches) and self._strategy is None:
            example = x.example
        if example is not None:
            self.build_by_example(example)

    def _start_head(self, data: Features, options: BatchOptions) -> None:
        """Sets the bias of a new head to the best constant output for the labels in memory."""
        # Not every task has a head, and not every head a dense layer.
        dense = getattr(getattr(self, "head", None), "dense", None)
        bias = getattr(dense, "bias", None)
        if bias is None or not bias.trainable or ops.any(ops.not_equal(bias, 0)):
            return
        labels, weights = self._labels_in_memory(data)
        if labels is None or isinstance(labels, Mapping):
            return
        labels = ops.convert_to_numpy(labels)
        _, _, weights = self._compared(data.x, labels, None, weights, training=True)
        weights = self._weighted_by_class(labels, weights)
        weights = None if weights is None else ops.convert_to_numpy(weights)
        value = self._label_rules(options).best_constant(labels, weights)
        if value is not None and value.shape == bias.shape:
            bias.assign(value)

    def _labels_in_memory(self, data: Features) -> tuple[Any, Any]:
        """Returns labels and weights that every process has, or `None`: if possible, all."""
        # Each process has its own rows of other batches, and would start its head differently.
        if process_shard()[1] > 1 and not isinstance(data.x, Loader):
            return None, None
        return (
            data.x.first_targets() if isinstance(data.x, Batches) else (data.y, data.sample_weight)
        )
