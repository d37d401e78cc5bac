# SPDX-License-Identifier: Apache-2.0
"""What all tasks share: a model that `fit`, `evaluate` and `predict` feed with text."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Self

import keras
import numpy as np

from keras_bert.models.backbone import Backbone
from keras_bert.models.inputs import TokenModel, check_ids
from keras_bert.optimizers import AdamW
from keras_bert.tasks.presets import check_preprocessor
from keras_bert.tasks.text_arguments import is_dataset, is_text, text_columns

if TYPE_CHECKING:
    from keras_bert.data.row_batches import BatchOptions

DEFAULT_BATCH_SIZE = 32


class Task(TokenModel):
    """An encoder, a head, and a preprocessor that makes the model's features of text.

    Subclasses build the functional model and hand it over with its `backbone`. Wherever Keras' own
    methods take arrays of ids, this class also takes text.
    """

    # Of the optimizer that `compile` takes where none is given
    default_learning_rate: float = 2e-5

    @property
    def uses_pooler(self) -> bool:
        """Whether the outputs depend on the encoder's pooler.

        If not, training leaves it alone. It would get no gradient, of which TensorFlow warns, and
        on JAX its weights would decay.
        """
        return True

    def __init__(
        self, *args: Any, backbone: Backbone, preprocessor: Any = None, **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        if preprocessor is not None:
            check_preprocessor(preprocessor, backbone.config)
        self.backbone = backbone
        self._length_window: int | None = None
        # A config becomes a preprocessor when one is asked for: ids need no TensorFlow.
        is_config = isinstance(preprocessor, dict)
        self._preprocessor = None if is_config else preprocessor
        self._preprocessor_config: dict[str, Any] | None = preprocessor if is_config else None

    @property
    def config(self) -> Any:
        """The encoder's `BertConfig`."""
        return self.backbone.config

    @staticmethod
    def preprocessor_from_config(config: dict[str, Any]) -> Any:
        """The preprocessor of a config; tasks that have another kind override this."""
        from keras_bert.data.preprocessors import TextClassifierPreprocessor

        return TextClassifierPreprocessor.from_config(config)

    @property
    def preprocessor(self) -> Any:
        """Text to features.

        Raises:
            ValueError: If the task was made without one.
        """
        if self._preprocessor is None and self._preprocessor_config is not None:
            self._preprocessor = self.preprocessor_from_config(self._preprocessor_config)
        if self._preprocessor is None:
            raise ValueError(
                f"This {type(self).__name__} has no preprocessor, so it takes token ids and no "
                "text. Give it one (`preprocessor=`), or load it with `from_preset` from a "
                "checkpoint that has a vocabulary."
            )
        return self._preprocessor

    @property
    def trainable_variables(self) -> list[Any]:
        return self._without_idle(super().trainable_variables)

    @property
    def trainable_weights(self) -> list[Any]:
        return self._without_idle(super().trainable_weights)

    @property
    def non_trainable_variables(self) -> list[Any]:
        return _others(self.variables, self.trainable_variables)

    @property
    def non_trainable_weights(self) -> list[Any]:
        return _others(self.weights, self.trainable_weights)

    def _without_idle(self, variables: list[Any]) -> list[Any]:
        if self.uses_pooler or not hasattr(self, "backbone") or self.backbone.pooler is None:
            return variables
        return _others(variables, self.backbone.pooler.variables)

    def compile(
        self,
        optimizer: Any = None,
        loss: Any = None,
        *,
        loss_weights: Any = None,
        metrics: Any = None,
        weighted_metrics: Any = None,
        **kwargs: Any,
    ) -> None:
        """`keras.Model.compile` with the defaults that the class names.

        Args:
            optimizer: `None` takes `keras_bert.optimizers.AdamW` at the class's default rate.
            loss: `None` takes the class's.
            loss_weights: As in Keras; where there are several outputs, the default loss has its
                own.
            metrics: As in Keras.
            weighted_metrics: If this and `metrics` are `None`: the class's. Weighted, so that
                rows which only fill a batch up do not count.
            **kwargs: As in Keras.
        """
        if metrics is None and weighted_metrics is None:
            weighted_metrics = self._default_metrics()
        if loss is None:
            loss = self._default_loss()
            loss_weights = loss_weights or self._default_loss_weights()
        super().compile(
            optimizer=AdamW(self.default_learning_rate) if optimizer is None else optimizer,
            loss=loss,
            loss_weights=loss_weights,
            metrics=metrics,
            weighted_metrics=weighted_metrics,
            **kwargs,
        )

    def _default_loss(self) -> Any:
        """What `compile` takes where no loss is given."""
        return class_loss()

    def _default_loss_weights(self) -> Any:
        """What goes with the default loss where there are several."""
        return None

    def _default_metrics(self) -> Any:
        """What `compile` takes where no metrics are given."""
        return [class_accuracy()]

    def fit(
        self,
        x: Any = None,
        y: Any = None,
        batch_size: int | None = None,
        epochs: int = 1,
        verbose: Any = "auto",
        callbacks: Any = None,
        validation_split: float = 0.0,
        validation_data: Any = None,
        shuffle: bool = True,
        class_weight: Any = None,
        sample_weight: Any = None,
        length_window: int | None = None,
        **kwargs: Any,
    ) -> keras.callbacks.History:
        """`keras.Model.fit`, which also takes text.

        Text is tokenized in a `tf.data` pipeline and batched by length, so that short texts do
        not pay for long ones.

        Args:
            x: Text: a list of strings, a list of (a, b) pairs, a tuple of two lists, a dict of
                `text` and `text_pair`, or a `tf.data.Dataset` of `(text, label)`, where an
                unbatched one is batched by length. Or features, as `keras.Model.fit` takes them.
            y: Labels, one for each row of `x`.
            batch_size: Rows in a batch (32), for everything but batched datasets.
            validation_split: Share of the rows at the end that is held out.
            validation_data: `(x, y)` or `(x, y, sample_weight)` or a dataset, text or features.
            shuffle: Whether rows in memory are shuffled in each epoch.
            length_window: How many batches of text are sorted by length among themselves (64). 1
                makes batches of rows as they come: more padding, but each batch is like all data,
                from which some small data sets learn better.
            epochs, verbose, callbacks, class_weight, sample_weight, **kwargs: As in Keras.

        Returns:
            Keras' history of losses and metrics.
        """
        if validation_split and self._has_rows(x):
            x, y, sample_weight, validation_data = self._held_out(
                x, y, sample_weight, validation_split
            )
            validation_split = 0.0
        if length_window is not None and length_window < 1:
            raise ValueError(f"length_window is {length_window}; it must be at least 1.")
        self._length_window = length_window
        x, y, sample_weight, batch_size = self._model_data(
            x, y, sample_weight, batch_size, shuffle=shuffle, training=True
        )
        return super().fit(
            x,
            y,
            batch_size=batch_size,
            epochs=epochs,
            verbose=verbose,
            callbacks=callbacks,
            validation_split=validation_split,
            validation_data=self._validation_data(validation_data, kwargs),
            # Datasets arrive shuffled, and Keras warns of being asked to.
            shuffle=shuffle and not is_dataset(x),
            class_weight=class_weight,
            sample_weight=sample_weight,
            **kwargs,
        )

    def evaluate(
        self,
        x: Any = None,
        y: Any = None,
        batch_size: int | None = None,
        verbose: Any = "auto",
        sample_weight: Any = None,
        **kwargs: Any,
    ) -> Any:
        """`keras.Model.evaluate`, which also takes text in the forms of `fit`."""
        x, y, sample_weight, batch_size = self._model_data(x, y, sample_weight, batch_size)
        return super().evaluate(
            x, y, batch_size=batch_size, verbose=verbose, sample_weight=sample_weight, **kwargs
        )

    def predict(
        self, x: Any, batch_size: int | None = None, verbose: Any = "auto", **kwargs: Any
    ) -> Any:
        """Logits, float32, in the order of the input; takes text in the forms of `fit`.

        Labels in a dataset are passed over, as in Keras.
        """
        if not is_text(x):
            self._check_ids(x)
            return super().predict(x, batch_size=batch_size, verbose=verbose, **kwargs)
        from tensorflow.data.experimental import assert_cardinality

        batches = self._numbered_batches(x, batch_size)
        # Tokenized twice, which is a hundredth of the model's work: handed to Keras as one
        # dataset, batches of all lengths share one trace.
        order = [rows for _, rows in batches.as_numpy_iterator()]
        if not order:
            return np.zeros((0, *self.output_shape[1:]), "float32")
        features = batches.map(lambda features, rows: (features,))
        # A dataset of unknown length is counted now, and gets its progress bar.
        features = features.apply(assert_cardinality(len(order)))
        logits = super().predict(features, verbose=verbose, **kwargs)
        restored = np.empty_like(logits)
        restored[np.concatenate(order)] = logits
        return restored

    def _numbered_batches(self, x: Any, batch_size: int | None) -> Any:
        """A dataset of features, and which rows of the input are in each batch."""
        from keras_bert.data import text_rows

        if not is_dataset(x):
            x = text_rows.rows_from_columns(text_columns(x))
        elif text_rows.is_batched(x):
            x = x.unbatch()
        return text_rows.batches_from_rows(
            # An element that is no tuple arrives whole, a tuple as several arguments
            x.enumerate().map(lambda index, row: (_without_labels(row), index)),
            self.preprocessor,
            **self._batch_options(batch_size),
        )

    def _batch_options(
        self, batch_size: int | None, shuffle: bool = False, *, training: bool = False
    ) -> BatchOptions:
        """How rows become batches.

        Args:
            batch_size: Rows in a batch; `None` takes the default.
            shuffle: Whether their order is another one in each iteration.
            training: Whether they are `fit`'s, sorted as far as it was told; their last batch is
                filled up where one of another size costs seconds.
        """
        compiles = self._compiles_each_shape()
        options: BatchOptions = {
            "batch_size": batch_size or DEFAULT_BATCH_SIZE,
            # From Python's generator, which keras.utils.set_random_seed seeds
            "shuffle_seed": random.getrandbits(31) if shuffle else None,
            "coarse_buckets": compiles,
            "pad_last_batch": compiles and training,
        }
        if training and self._length_window is not None:
            options["window_batches"] = self._length_window
        return options

    def _outputs_of_batches(self, batches: Any, verbose: Any) -> Iterator[tuple[Any, Any, Any]]:
        """Outputs batch by batch: `predict` would join those of several lengths.

        Args:
            batches: A dataset of `(features, *rest)`.
            verbose: Whether a progress bar is shown.

        Yields:
            The features of a batch, the rest of it, and the outputs, NumPy arrays all.
        """
        progress = keras.utils.Progbar(int(batches.cardinality()), verbose=int(verbose != 0))
        compiles = self._compiles_each_shape()
        for features, *rest in batches.as_numpy_iterator():
            num_rows = len(features["token_ids"])
            outputs = self.predict_on_batch(_filled_up(features) if compiles else features)
            yield (
                features,
                rest,
                keras.tree.map_structure(
                    lambda x, num_rows=num_rows: keras.ops.convert_to_numpy(x)[:num_rows], outputs
                ),
            )
            progress.add(1)

    def _compiles_each_shape(self) -> bool:
        """Whether a batch of a new length costs seconds of compilation."""
        return keras.backend.backend() == "jax" or bool(self.jit_compile)

    def _has_rows(self, x: Any) -> bool:
        """Whether `x` is what the task makes features of, in memory, so that it can be split."""
        return is_text(x) and not is_dataset(x)

    def _held_out(self, x: Any, y: Any, sample_weight: Any, share: float) -> tuple[Any, ...]:
        """Rows, labels and weights without the last ones, and these as validation data."""
        return _split_off_validation(x, y, sample_weight, share)

    def _validation_data(self, data: Any, fit_arguments: dict[str, Any]) -> Any:
        if data is None:
            return None
        batch_size = fit_arguments.get("validation_batch_size")
        if is_dataset(data):
            return self._model_data(data, None, None, batch_size)[0]
        if not (isinstance(data, (tuple, list)) and len(data) in (2, 3)):
            raise ValueError(
                "validation_data must be (x, y), (x, y, sample_weight) or a dataset; received "
                f"{type(data).__name__}."
            )
        x, y, *weight = data
        dataset, y, sample_weight, _ = self._model_data(
            x, y, weight[0] if weight else None, batch_size
        )
        return dataset if y is None else (dataset, y, *([sample_weight] if weight else []))

    def _model_data(
        self,
        x: Any,
        y: Any,
        sample_weight: Any,
        batch_size: int | None,
        *,
        shuffle: bool = False,
        training: bool = False,
    ) -> tuple[Any, Any, Any, int | None]:
        """The arguments for Keras: text becomes a dataset, everything else stays."""
        if not is_text(x):
            self._check_ids(x)
            return x, y, sample_weight, batch_size
        from keras_bert.data import text_rows

        options = self._batch_options(batch_size, shuffle, training=training)
        if is_dataset(x):
            if y is not None:
                raise ValueError("`y` must be left out: a dataset of text brings its labels.")
            if text_rows.is_batched(x):
                return text_rows.batches_from_batched_rows(x, self.preprocessor), None, None, None
            return text_rows.batches_from_rows(x, self.preprocessor, **options), None, None, None
        columns = text_columns(x)
        rest = [self._labels(y)] if y is not None else []
        if sample_weight is not None:
            rest.append(np.asarray(sample_weight, "float32"))
        for values in rest:
            if len(values) != len(columns["text"]):
                raise ValueError(
                    f"There are {len(columns['text'])} texts and {len(values)} labels or weights; "
                    "each text needs one."
                )
        dataset = text_rows.batches_from_rows(
            text_rows.rows_from_columns(columns, rest), self.preprocessor, **options
        )
        return dataset, None, None, None

    def _labels(self, y: Any) -> np.ndarray:
        """Labels as the loss wants them; tasks with named classes override this."""
        return np.asarray(y)

    def _check_ids(self, x: Any) -> None:
        """Checks arrays of ids, which Keras hands over as tensors, past the check in `__call__`."""
        inputs = x if isinstance(x, dict) else {"token_ids": x}
        check_ids("token_ids", inputs.get("token_ids"), self.config.vocabulary_size)
        if self.config.num_segments:
            check_ids("segment_ids", inputs.get("segment_ids"), self.config.num_segments)

    def compile_from_config(self, config: dict[str, Any]) -> None:
        # Keras leaves a loaded model uncompiled if its class has a `compile` of its own.
        self.compile(**keras.saving.deserialize_keras_object(config))
        self.optimizer.build(self.trainable_variables)

    def get_config(self) -> dict[str, Any]:
        preprocessor = self._preprocessor_config
        if self._preprocessor is not None:
            preprocessor = self._preprocessor.get_config()
        return {
            "backbone": keras.saving.serialize_keras_object(self.backbone),
            "preprocessor": preprocessor,
            "name": self.name,
            "trainable": self.trainable,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: Any = None) -> Self:
        config = dict(config)
        trainable = config.pop("trainable", True)
        config["backbone"] = keras.saving.deserialize_keras_object(
            config["backbone"], custom_objects=custom_objects
        )
        task = cls(**config)
        if not trainable:  # True would thaw what is frozen inside
            task.trainable = False
        return task


def class_loss() -> keras.losses.Loss:
    """The cross-entropy of logits for class ids.

    It is divided by the sum of the weights and not by their number: rows may only fill a batch
    up, and most tokens of a tagger's are no first piece of a word.
    """
    return keras.losses.SparseCategoricalCrossentropy(
        from_logits=True, reduction="mean_with_sample_weight"
    )


def class_accuracy() -> keras.metrics.Metric:
    """The share of class ids whose logit is the largest."""
    return keras.metrics.SparseCategoricalAccuracy(name="accuracy")


def _others(variables: list[Any], known: list[Any]) -> list[Any]:
    """Those variables that are not among the known ones, in their order."""
    # Compared with ==, variables would compare their values.
    known_ids = {id(variable) for variable in known}
    return [variable for variable in variables if id(variable) not in known_ids]


def _filled_up(features: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Features with rows repeated up to a power of two: few sizes for a compiler to meet."""
    num_rows = 1 << (len(features["token_ids"]) - 1).bit_length()
    return {name: np.resize(x, (num_rows, *x.shape[1:])) for name, x in features.items()}


def _split_off_validation(
    x: Any, y: Any, sample_weight: Any, share: float
) -> tuple[Any, Any, Any, tuple[Any, ...]]:
    """Holds the last rows out, as Keras does for arrays."""
    columns = text_columns(x)
    start = int(len(columns["text"]) * (1 - share))

    def parts(values: Any) -> tuple[Any, Any]:
        return (None, None) if values is None else (values[:start], values[start:])

    train = {name: column[:start] for name, column in columns.items()}
    held_out = {name: column[start:] for name, column in columns.items()}
    (train_y, held_out_y), (train_weight, held_out_weight) = parts(y), parts(sample_weight)
    validation: tuple[Any, ...] = (held_out, held_out_y)
    if sample_weight is not None:
        validation = (*validation, held_out_weight)
    return train, train_y, train_weight, validation


def _without_labels(row: Any) -> Any:
    """The `x` of a dataset's element.

    Raises:
        ValueError: If the element could be a pair as well as a text with its label.
    """
    if not isinstance(row, tuple):
        return row
    if len(row) == 2 and all(getattr(part, "dtype", None) == "string" for part in row):
        raise ValueError(
            "An element of two strings may be a pair of texts or a text and its label. "
            'Name the parts of a pair: {"text": ..., "text_pair": ...}.'
        )
    return row[0]
