# SPDX-License-Identifier: Apache-2.0
"""Decides what `fit` trains on, validates on, skips and weights."""

from __future__ import annotations

import contextlib
import dataclasses
import random
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from keras_bert import checks
from keras_bert.data.adapters.base import InputAdapter
from keras_bert.data.adapters.reading import Features, Rows, adapter_class, no_rows
from keras_bert.data.adapters.text_batches import TextBatchesAdapter
from keras_bert.data.adapters.texts import TextAdapter
from keras_bert.data.batch_options import BatchOptions
from keras_bert.data.batches import Batches
from keras_bert.data.columns import is_dataset, label_column
from keras_bert.data.labels import validate_class_weight
from keras_bert.models.inputs import TEXT_OUTPUTS
from keras_bert.ops.keras_private import train_validation_split
from keras_bert.optimizers.fit_updates import micro_batches_per_update_of
from keras_bert.tasks.batch_feeder import BatchFeeder
from keras_bert.tasks.batch_plan import BatchPlan
from keras_bert.tasks.micro_batches import MicroBatches
from keras_bert.tasks.prediction import TextPredictor

# The `bucketing_window` that does not sort examples
_UNSORTED = 1


@dataclasses.dataclass(frozen=True, kw_only=True)
class FitArguments:
    """The arguments of `fit` that determine Keras' batches, see `TextTrainer.fit`.

    Args:
        keras_arguments: The `**kwargs` of `fit`, passed on to `keras.Model.fit`.
    """

    batch_size: int | None
    epochs: int
    validation_split: float
    validation_data: Any
    shuffle: bool | str
    class_weight: Any
    initial_batch: int
    bucketing_window: int | None
    keras_arguments: Mapping[str, Any]

    def __post_init__(self) -> None:
        checks.NON_NEGATIVE_INT.check(epochs=self.epochs, initial_batch=self.initial_batch)
        checks.PROPER_FRACTION.check(validation_split=self.validation_split)

    @property
    def initial_epoch(self) -> int:
        """Index of the first epoch."""
        epoch: int = self.keras_arguments.get("initial_epoch", 0)
        return epoch

    @property
    def steps_per_epoch(self) -> int | None:
        """Number of batches per epoch, or `None` for all."""
        return self.keras_arguments.get("steps_per_epoch")

    @property
    def validation_steps(self) -> int | None:
        """Number of batches to validate on, or `None` for all."""
        return self.keras_arguments.get("validation_steps")

    @property
    def validation_batch_size(self) -> int | None:
        """Number of examples per validation batch."""
        return self.keras_arguments.get("validation_batch_size") or self.batch_size


def training_options(task: TextPredictor, arguments: FitArguments) -> BatchOptions:
    """Returns the options of training batches.

    | `bucketing_window` | `steps_per_epoch` | `shuffle` | window |
    |---|---|---|---|
    | given | any | any | `bucketing_window` |
    | `None` | `None` | any | the default of `BatchOptions` |
    | `None` | given | `True` | the default of `BatchOptions` |
    | `None` | given | `False` | unsorted, to use the first examples instead of the shortest |
    """
    window = arguments.bucketing_window
    if window is None and arguments.steps_per_epoch and not arguments.shuffle:
        window = _UNSORTED
    return task._options(
        arguments.batch_size,
        is_shared=True,
        # `keras.utils.set_random_seed` seeds Python's generator.
        shuffle_seed=random.getrandbits(31) if arguments.shuffle else None,
        training=True,
        negative_fraction=task.negative_fraction,
        duplicate_factor=task.duplicate_factor,
        bucketing_window=window,
    )


def evaluation_options(
    task: TextPredictor, batch_size: int | None, num_batches: int | None
) -> BatchOptions:
    """Returns the options for evaluation on the first `num_batches` batches, or on all batches."""
    window = _UNSORTED if num_batches else None
    return task._options(batch_size, is_shared=True, bucketing_window=window)


@dataclasses.dataclass(frozen=True, eq=False)
class FitPlan:
    """The data for a call to `fit`.

    Attributes:
        task: The task to train.
        arguments: The arguments of `fit`.
        options: The options of training batches.
        train: The features to train on, or batches of them.
        validation: The features to validate on, or batches of them. `None` for no validation.
        validation_texts: The texts to validate on if they are read in windows. Then `validation`
            only has the shapes of their outputs.
        class_weight: The weight of each class ID. `None` for no class weights.
        batch_plan: Which batches to read and train on, and which share loss divisors.
        feed: Passes `train` to Keras.
        validation_feed: Passes `validation` to Keras.
    """

    task: TextPredictor
    arguments: FitArguments
    options: BatchOptions
    train: Features
    validation: Features | None
    validation_texts: TextAdapter | None
    class_weight: dict[int, float] | None
    batch_plan: BatchPlan
    feed: BatchFeeder
    validation_feed: BatchFeeder

    @contextlib.contextmanager
    def raising_errors(self) -> Iterator[None]:
        """Raises errors in the data unchanged, see `BatchFeeder.raising_errors`."""
        with self.feed.raising_errors(), self.validation_feed.raising_errors():
            yield

    def training_data(self) -> dict[str, Any]:
        """Returns the arguments of Keras' `fit` with the training data."""
        # Batches and generators have a fixed order. Keras would warn about `shuffle`.
        has_order = is_dataset(self.train.x) or isinstance(self.train.x, Batches | Iterator)
        data = {
            "x": self.feed.to_keras_data(),
            "y": self.train.y,
            "sample_weight": self.train.sample_weight,
            "batch_size": self.arguments.batch_size,
            "shuffle": not has_order and self.arguments.shuffle,
        }
        if self.batch_plan.batches_per_update == 1:
            return data
        return {"x": MicroBatches(self.task, self.batch_plan, **data)}

    def other_arguments(self) -> dict[str, Any]:
        """Returns the other arguments of Keras' `fit` that this plan determines."""
        arguments = self.arguments
        data = self.validation
        validation = None
        if data is not None:
            validation = (self.validation_feed.to_keras_data(), data.y, data.sample_weight)
        return {
            **arguments.keras_arguments,
            "epochs": arguments.epochs,
            "validation_data": validation,
            "validation_batch_size": arguments.validation_batch_size,
        }


def plan_fit(
    task: TextPredictor, x: Any, y: Any, sample_weight: Any, arguments: FitArguments
) -> FitPlan:
    """Reads the data for `fit` and decides which batches Keras trains and validates on.

    Args:
        task: The task to train.
        x: The `x` of `fit`.
        y: The `y` of `fit`.
        sample_weight: The `sample_weight` of `fit`.
        arguments: The other arguments of `fit`.
    """
    options = training_options(task, arguments)
    rows = task._read_labeled(x, y, sample_weight, options)
    if isinstance(rows, InputAdapter) and isinstance(arguments.shuffle, str):
        raise ValueError(
            f"shuffle must be True or False with text. Received: {arguments.shuffle!r}."
        )
    train_rows, validation, validation_texts = plan_validation(task, rows, arguments)
    class_weight = plan_class_weight(task, arguments.class_weight, options)
    train = task._as_features(train_rows, options)
    shares_divisors = task.compiled and task._has_loss_divisors()
    batch_plan = BatchPlan(
        arguments.initial_batch,
        arguments.steps_per_epoch,
        batches_per_update=micro_batches_per_update_of(task.optimizer) if shares_divisors else 1,
    )
    return FitPlan(
        task,
        arguments,
        options,
        train,
        validation,
        validation_texts,
        class_weight,
        batch_plan,
        BatchFeeder(
            train.x,
            epoch=arguments.initial_epoch,
            epochs=arguments.epochs - arguments.initial_epoch,
            plan=batch_plan,
        ),
        BatchFeeder(None if validation is None else validation.x, evaluated=task),
    )


def plan_class_weight(
    task: TextPredictor, class_weight: Any, options: BatchOptions
) -> dict[int, float] | None:
    """Returns the class weights by ID.

    | labels are class IDs | `class_weight` | result |
    |---|---|---|
    | yes or no | `None` | `None` |
    | no | `{}` | `None` |
    | no | `{1: 2.0}` | `ValueError` |
    | yes | `{1: 2.0}` or `{"good": 2.0}` | `{1: 2.0}` |
    """
    if class_weight is None:
        return None
    if not task.supports_class_weight:
        if not class_weight:
            return None
        raise ValueError(
            "class_weight must be None if labels are not class IDs, as for this "
            f"{type(task).__name__}. Received: {class_weight}. Use sample_weight instead."
        )
    rules = task._label_rules(options)
    return validate_class_weight(class_weight, rules.num_ids, rules.class_names)


def plan_validation(
    task: TextPredictor, rows: Rows, arguments: FitArguments
) -> tuple[Rows, Features | None, TextAdapter | None]:
    """Returns the training data, the validation data, and its texts if they have windows.

    | `validation_data` | `validation_split` | training | validation |
    |---|---|---|---|
    | given | any | all examples | `validation_data` |
    | `None` | 0 | all examples | `None` |
    | `None` | 0.2 | the first 80% | the last 20% |
    """
    options = evaluation_options(task, arguments.validation_batch_size, arguments.validation_steps)
    if arguments.validation_data is not None:
        parts = unpack_validation_data(task, arguments.validation_data)
        validation_rows = task._read_labeled(*parts, options)
        if isinstance(validation_rows, TextBatchesAdapter):
            validation_rows.dataset.keep()  # It is evaluated in each epoch.
        return rows, *_validation(task, validation_rows, arguments, options)
    if not arguments.validation_split:
        return rows, None, None
    train_rows, held_out = split_rows(rows, arguments.validation_split)
    return train_rows, *_validation(task, held_out, arguments, options)


def _validation(
    task: TextPredictor, rows: Any, arguments: FitArguments, options: BatchOptions
) -> tuple[Features, TextAdapter | None]:
    """Returns the features to validate on, and texts in memory if they are read in windows."""
    if not task._reads_windows(rows):
        return task._as_features(rows, options), None
    texts = rows.to_memory(task.preprocessor, options, arguments.validation_steps)
    if not len(texts):
        raise no_rows()
    # Keras reads these features once, and `TextTrainer.evaluate` then computes the outputs.
    outputs = np.zeros((len(texts), *task.output.shape[1:]), "float32")
    return Features({TEXT_OUTPUTS: outputs}, texts.labels, texts.weights), texts


def unpack_validation_data(task: TextPredictor, data: Any) -> tuple[Any, Any, Any]:
    """Returns the `x`, `y` and `sample_weight` of validation data.

    | `validation_data` | x, y, sample_weight |
    |---|---|
    | text with labels, for example a table with a `label` column | data, `None`, `None` |
    | questions | data, `None`, `None` |
    | text for a task without labels, unless it is a tuple | data, `None`, `None` |
    | a tuple or list `(x, y)` or `(x, y, sample_weight)` | its elements |
    | other data with batches, for example a dataset | data, `None`, `None` |
    | other data in memory, for example text without labels | `ValueError` |
    """
    kind = adapter_class(task.adapters, data)
    if kind is not None and (
        kind.has_own_labels
        or label_column(data) is not None
        or not (task.needs_labels or isinstance(data, tuple))
    ):
        return data, None, None
    if isinstance(data, (tuple, list)) and len(data) in (2, 3):
        return (*data, None)[:3]
    if isinstance(data, (tuple, list, str, bytes, Mapping, np.ndarray)):
        forms = "(x, y), (x, y, sample_weight)" if task.needs_labels else "x, (x, None)"
        length = f" of {len(data)}" if isinstance(data, (tuple, list)) else ""
        raise ValueError(
            f"validation_data must be {forms} or a dataset. Received: a "
            f"{type(data).__name__}{length}."
        )
    return data, None, None


def split_rows(rows: Rows, share: float) -> tuple[Any, Any]:
    """Splits examples in memory for training and validation. Validation examples are at the end."""
    if isinstance(rows, Features):
        # Keras' `fit` cannot split batches with loss divisors.
        arrays = (rows.x, rows.y, rows.sample_weight)
        train, held_out = train_validation_split(arrays, share)
        return Features(*train), Features(*held_out)
    if not rows.in_memory:
        raise ValueError("validation_split requires examples in memory. Received: a dataset")
    return rows.split(share)
