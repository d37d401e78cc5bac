# SPDX-License-Identifier: Apache-2.0
"""`fit` and `evaluate` for text and arrays."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import Any

import keras
from keras import ops

from keras_bert import checks
from keras_bert.data.adapters.reading import Features, adapter_class, no_rows, read_input
from keras_bert.data.adapters.text_batches import WindowBatches
from keras_bert.data.adapters.texts import TextAdapter
from keras_bert.data.batch_options import BatchOptions
from keras_bert.data.batches import Batches
from keras_bert.data.loader import Loader
from keras_bert.migration_hints import reject_aliases
from keras_bert.models.inputs import TEXT_OUTPUTS
from keras_bert.models.threads import check_is_not_evaluated
from keras_bert.ops.object_variables import ObjectVariable
from keras_bert.optimizers.fit_updates import micro_batches_per_update_of, with_fit_updates
from keras_bert.tasks import fit_plan
from keras_bert.tasks.batch_feeder import BatchFeeder
from keras_bert.tasks.batch_plan import BatchPlan
from keras_bert.tasks.distribution import process_shard
from keras_bert.tasks.micro_batches import MicroBatches
from keras_bert.tasks.prediction import TextPredictor, warn_if_truncated

# The texts to validate on if they are read in windows, while `fit` runs
_validation_texts = ObjectVariable("_validation_texts")


class TextTrainer(TextPredictor):
    """A model whose `fit` and `evaluate` accept text as well as arrays of token IDs."""

    seconds_waited: float = 0.0
    """How long `fit` has waited for batches of text so far, in seconds."""

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
        """Trains the model like `keras.Model.fit`, and also accepts text.

        A thread tokenizes text ahead of training. Texts of similar lengths are batched together, so
        that there is little padding.

        Args:
            x: Text, batches of text, or features. Text is a list of strings, a list of (a, b)
                pairs, a tuple of two lists, a dict or table (pandas, polars, Arrow, Hugging Face
                `datasets`) with `text` and `text_pair`, or a `tf.data.Dataset` of `(text, label)`.
                A dataset without batches is batched by length. Batches of text are used unchanged,
                in tuples with their labels and weights. They come from a `keras.utils.PyDataset`, a
                PyTorch `DataLoader`, or a generator (multiple epochs require `steps_per_epoch`).
                Features are as in `keras.Model.fit`.
            y: Labels, one for each example in `x`. If the task requires labels, defaults to the
                `label` column in a dict or table. If a Hugging Face dataset has label names and the
                task has `class_names`, label IDs are converted by name.
            batch_size: Number of examples per batch. Ignored if `x` is already batched. Defaults to
                32.
            epochs: See `keras.Model.fit`.
            verbose: See `keras.Model.fit`.
            callbacks: See `keras.Model.fit`.
            validation_split: Fraction of the examples, from the end, to use for validation. Ignored
                if `validation_data` is given.
            validation_data: `(x, y)`, `(x, y, sample_weight)` or a dataset, with text or features.
                Batches of text from a generator are kept, so that each epoch is evaluated on the
                same data.
            shuffle: Whether to shuffle the examples in each epoch, including those in a
                `tf.data.Dataset` of single texts, and the batches of a `PyDataset`. A dataset is
                shuffled in a buffer of 1,024 batches, so if its examples are sorted, also call its
                `shuffle`. Without shuffling, the batches in a `bucketing_window` are sorted by
                length. `"batch"` is only supported for features.
            class_weight: A dict with the weight of each class. Keys are class IDs or class names.
                They apply to the training loss, but not to the metrics.
            sample_weight: See `keras.Model.fit`. Weights must not be negative.
            initial_batch: Number of batches to skip, from text or a `tf.data.Dataset`. It must be
                less than the number of batches. Together with `initial_epoch`, it resumes training
                in the middle of the last epoch.
            bucketing_window: Number of text batches to sort by length together. With 1, examples
                are not sorted, so there is more padding, but each batch is a random sample.
                Defaults to 64. If examples are shuffled, the default is at most a sixteenth of the
                epoch. With only a few windows per epoch, long and short examples would never be in
                the same batch, and the model would learn less. The default is 1 for
                `steps_per_epoch` with `shuffle=False`, and for `validation_steps`. Otherwise only
                the shortest examples would be used instead of the first.
            **kwargs: Other arguments of `keras.Model.fit`.

        If the bias of the head is 0, as in a new head, it is first set to the best constant output:
        the log odds of each label (with `multi_label`), the mean score (regression) or the log
        frequency of each tag (`TokenClassifier`). Heads with one class per text start at 0. Labels
        are counted over all examples in memory, over the first 1,024 examples in a
        `tf.data.Dataset` of single texts, or over the first examples in other batches. This is not
        done for datasets and generators of features.

        With gradient accumulation, an optimizer step is the same as for one batch with all examples
        or tokens of its micro-batches, except that in-batch negatives come from one micro-batch.
        The micro-batches left at the end of an epoch also make a step.

        There is a warning if the learning rate schedule ends before the training does. Another
        warning, once per model and also in `evaluate` and `predict`, reports how many examples are
        truncated to `sequence_length`.

        Returns:
            A `keras.callbacks.History`.

        Raises:
            ValueError: If an example, a label or an argument is invalid. The message includes the
                example's index. Also if the learning rate schedule has already ended, so that no
                weight would change.
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
        with (
            self._weighing_classes(plan.class_weight),
            plan.raising_errors(),
            _validation_texts.set(self, plan.validation_texts),
        ):
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
        """Evaluates the model like `keras.Model.evaluate`, and also accepts text.

        Losses and metrics are means over all examples or tokens, so they do not depend on the
        batches. A loss with the reduction `"sum"` is the sum over all of them. If `long_texts`
        splits texts into windows, each text counts once, with the output of `predict`.

        Args:
            x: Text in any form that `fit` accepts, or features.
            y: Labels, one for each example in `x`.
            batch_size: Number of examples per batch. Defaults to 32.
            verbose: See `keras.Model.evaluate`.
            sample_weight: See `keras.Model.evaluate`. Weights must not be negative.
            **kwargs: Other arguments of `keras.Model.evaluate`. `steps` evaluates the first
                examples.

        Returns:
            The loss and the metrics, see `keras.Model.evaluate`.
        """
        check_is_not_evaluated(self)
        options = fit_plan.evaluation_options(self, batch_size, kwargs.get("steps"))
        # In `fit`, Keras passes on the features of `FitPlan.validation`.
        is_validation = kwargs.get("_use_cached_eval_dataset", False)
        texts = _validation_texts.get(self) if is_validation else None
        if texts is None:
            rows: Any = self._read_labeled(x, y, sample_weight, options)
            if self._reads_windows(rows):
                texts = rows.to_memory(self.preprocessor, options, kwargs.get("steps"))
        if texts is not None:
            return self._evaluate_texts(
                texts, batch_size, verbose, 0 if is_validation else verbose, **kwargs
            )
        data = self._as_features(rows, options)
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

    def _evaluate_texts(
        self,
        texts: TextAdapter,
        batch_size: int | None,
        verbose: int | str,
        prediction_verbose: int | str,
        **kwargs: Any,
    ) -> Any:
        """Evaluates the outputs of whole texts instead of their windows."""
        if not len(texts):
            raise no_rows()
        others = {
            name: value
            for name, value in kwargs.items()
            if name not in ("steps", "_use_cached_eval_dataset")
        }
        outputs = self._predict_rows(texts, batch_size, prediction_verbose)
        return super().evaluate(
            {TEXT_OUTPUTS: outputs},
            texts.labels,
            batch_size=batch_size,
            verbose=verbose,
            sample_weight=texts.weights,
            **others,
        )

    def evaluation_batches(
        self, x: Any, y: Any = None, sample_weight: Any = None, batch_size: int | None = None
    ) -> Batches:
        """Converts text to the batches that `evaluate` uses.

        If `long_texts` splits texts into windows, the batches contain the windows, each with the
        label of its text.

        Args:
            x: Text in any form that `fit` accepts.
            y: Labels, one for each example in `x`.
            sample_weight: See `keras.Model.evaluate`. Weights must not be negative.
            batch_size: Number of examples per batch. Defaults to 32.

        Returns:
            An iterable of tuples `(features, labels, weights)` of NumPy arrays. Missing labels or
            weights are left out. You can iterate over it multiple times. Its length is the number
            of batches, unless it is unknown.

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
                f"x must be text in a form that `evaluate` accepts. Received: {type(x).__name__}"
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
        """Counts the optimizer steps that `fit` makes, for example for a learning rate schedule.

        A batch contains texts, choices or features, one per example. For questions and words, a
        batch contains windows, and a long context has multiple windows.

        Args:
            x: Data in any form that `fit` accepts. Labels are not required. A `tf.data.Dataset` of
                unknown size is read once.
            batch_size: See `fit`. Defaults to 32.
            epochs: See `fit`.
            validation_split: See `fit`.
            gradient_accumulation_steps: Number of batches per optimizer step. Defaults to the
                compiled optimizer's value, or to 1 before `compile`.

        Returns:
            The number of optimizer steps.

        Raises:
            ValueError: If `x` is an infinite dataset, or a generator (counting would consume it).

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
        # The user's own batches are counted without reading any.
        kind = adapter_class(self.adapters, x)
        rows: Any = Features(x) if kind is None else kind.read(x)
        options = self._options(
            batch_size,
            negative_fraction=self.negative_fraction,
            duplicate_factor=self.duplicate_factor,
        )
        is_streamed = not (isinstance(x, Generator) or getattr(rows, "in_memory", False))
        if self.supports_windows and is_streamed:
            # Windows are counted by reading. Without rules, labels might be read as texts.
            read = read_input(self.adapters, x, rules=self._label_rules(options))
            rows = read if self._reads_windows(read) else rows
        if validation_split:
            rows, _ = fit_plan.split_rows(rows, validation_split)
        batches = self._as_features(rows, options).x
        count = batches.num_batches if isinstance(batches, Batches) else None
        if isinstance(batches, WindowBatches):
            rows.check_is_finite()
            count = sum(1 for _ in batches)
        if count is None:
            count = rows.count_batches(options.rows_in_batch)
        return epochs * -(-count // micro_batches_per_update)

    def _build(self, feed: BatchFeeder, x: Any = None) -> None:
        """Builds metrics, losses and the optimizer, so that Keras reads no batch to build them.

        | data | built by |
        |---|---|
        | any, on TensorFlow without a strategy | Keras, in the first step |
        | text | a small batch |
        | micro-batches of features, without a strategy | their first batch |
        | other features | Keras, from a batch that it reads |
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
        """Sets a new head's bias to the best constant output for the labels in memory."""
        # Some tasks have no head, and some heads have no dense layer.
        dense = getattr(getattr(self, "head", None), "dense", None)
        bias = getattr(dense, "bias", None)
        if bias is None or not bias.trainable or ops.any(ops.not_equal(bias, 0)):
            return
        labels, weights = self._labels_in_memory(data)
        if labels is None or isinstance(labels, Mapping):
            return
        labels = ops.convert_to_numpy(labels)
        _, _, weights = self._targets_and_weights(data.x, labels, None, weights, training=True)
        weights = self._weighted_by_class(labels, weights)
        weights = None if weights is None else ops.convert_to_numpy(weights)
        value = self._label_rules(options).best_constant(labels, weights)
        if value is not None and value.shape == bias.shape:
            bias.assign(value)

    def _labels_in_memory(self, data: Features) -> tuple[Any, Any]:
        """Returns the first or all labels and their weights, or `None` if processes differ."""
        # Each process has different examples in other batches, and would initialize its head
        # differently.
        if process_shard()[1] > 1 and not isinstance(data.x, Loader):
            return None, None
        return (
            data.x.first_targets() if isinstance(data.x, Batches) else (data.y, data.sample_weight)
        )
