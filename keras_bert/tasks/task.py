# SPDX-License-Identifier: Apache-2.0
"""What all tasks share: a model that `fit`, `evaluate` and `predict` feed with text."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Self

import keras
import numpy as np
from keras import ops

from keras_bert.metrics import ClassAccuracy, ElementMean
from keras_bert.models.backbone import Backbone
from keras_bert.models.inputs import TokenModel, check_ids
from keras_bert.models.layer_states import layer_states, restore_layer_states
from keras_bert.ops.optimizer_updates import num_replicas
from keras_bert.optimizers import AdamW
from keras_bert.tasks.class_labels import checked_ids, class_weights_of
from keras_bert.tasks.presets import check_preprocessor
from keras_bert.tasks.text_arguments import (
    TEXT_FORMS,
    checked_generator,
    is_dataset,
    is_text,
    refuse_other_rows,
    text_columns,
)

if TYPE_CHECKING:
    from keras_bert.data.batching import BatchOptions

DEFAULT_BATCH_SIZE = 32


@dataclasses.dataclass(frozen=True)
class Batching:
    """How the rows of one call of `fit`, `evaluate` or `predict` become batches.

    Args:
        batch_size: Rows in a batch; `None` takes the default.
        compiles: Whether a batch of a new shape costs seconds of compilation.
        shuffle: Whether the order of the rows is random.
        reshuffle: Whether it is another one in each iteration.
        training: Whether the rows are `fit`'s own. Their last batch is filled up where one of
            another size costs seconds.
        length_window: How many batches are sorted by length among themselves; `None` takes the
            default.
        class_weight: What a label of each class id weighs; `None` for 1.
        allow_unlabelled: Whether a label may be -1, or NaN of a regression, for none.
    """

    batch_size: int | None = None
    compiles: bool = False
    shuffle: bool = False
    reshuffle: bool = True
    training: bool = False
    length_window: int | None = None
    class_weight: Mapping[int, float] | None = None
    allow_unlabelled: bool = False

    def options(self) -> BatchOptions:
        """What the pipelines of `keras_bert.data` take."""
        options: BatchOptions = {
            "batch_size": self.batch_size or DEFAULT_BATCH_SIZE,
            # From Python's generator, which keras.utils.set_random_seed seeds
            "shuffle_seed": random.getrandbits(31) if self.shuffle else None,
            "reshuffle": self.reshuffle,
            "coarse_buckets": self.compiles,
            "pad_last_batch": self.compiles and self.training,
        }
        if self.length_window is not None:
            options["window_batches"] = self.length_window
        return options


class Task(TokenModel):
    """An encoder, a head, and a preprocessor that makes the model's features of text.

    Subclasses build the functional model and hand it over with its `backbone`. Wherever Keras' own
    methods take arrays of ids, this class also takes text.
    """

    # What the task takes besides features, for errors
    input_forms: ClassVar[str] = TEXT_FORMS
    # Of the optimizer that `compile` takes where none is given
    default_learning_rate: float = 2e-5
    # Whether the loss is the sum of one for each output
    sums_losses_of_outputs: bool = True
    # Whether the labels are ids of classes, which `class_weight` may weigh
    weighs_classes: bool = False

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
        # The mean of each output's loss; a single output's is reported as the loss itself.
        outputs = self.output if isinstance(self.output, Mapping) else [""]
        self._loss_means = (
            {name: ElementMean(name=f"{name}_loss") for name in outputs}
            if self.sums_losses_of_outputs
            else {}
        )
        self._output_losses: dict[str, tuple[keras.losses.Loss, float]] | None = None
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
        from keras_bert.data.text_batches import TextClassifierPreprocessor

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
    def tokenizer_config(self) -> dict[str, Any] | None:
        """The config of the preprocessor's tokenizer; `None` without a preprocessor."""
        if self._preprocessor is not None:
            config: dict[str, Any] = self._preprocessor.tokenizer.get_config()
            return config
        return (self._preprocessor_config or {}).get("tokenizer")

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
        auto_scale_loss: bool = True,
        **kwargs: Any,
    ) -> None:
        """`keras.Model.compile` with the defaults that the class names.

        Args:
            optimizer: `None` takes `keras_bert.optimizers.AdamW` at the class's default rate.
            loss: `None` takes the class's.
            loss_weights: As in Keras; where there are several outputs, the default loss has its
                own.
            metrics: As in Keras, but weighted like `weighted_metrics`: weights leave out padding,
                labels that are ignored, and rows that only fill a batch up.
            weighted_metrics: As in Keras. If this and `metrics` are `None`: the class's.
            auto_scale_loss: Whether the loss is scaled where the encoder computes in float16, so
                that small gradients do not become 0.
            **kwargs: As in Keras.
        """
        weighted_metrics = _joined(metrics, weighted_metrics)
        if weighted_metrics is None:
            weighted_metrics = self._default_metrics()
        if loss is None:
            loss = self._default_loss()
            loss_weights = loss_weights or self._default_loss_weights()
        optimizer = keras.optimizers.get(
            AdamW(self.default_learning_rate) if optimizer is None else optimizer
        )
        scaled = isinstance(optimizer, keras.optimizers.LossScaleOptimizer)
        if auto_scale_loss and not scaled and _computes_in_float16(self.backbone):
            # Keras looks at the policy of the model alone, and an encoder has its own.
            optimizer = keras.optimizers.LossScaleOptimizer(optimizer, name="loss_scale_optimizer")
        super().compile(
            optimizer=optimizer,
            loss=loss,
            loss_weights=loss_weights,
            weighted_metrics=_class_accuracies(weighted_metrics, loss),
            auto_scale_loss=auto_scale_loss,
            **kwargs,
        )
        self._output_losses = _losses_of_outputs(loss, loss_weights, self._loss_means)

    def compute_loss(
        self,
        x: Any = None,
        y: Any = None,
        y_pred: Any = None,
        sample_weight: Any = None,
        training: bool = True,
    ) -> Any:
        """The sum of the outputs' losses, as `keras.Model.compute_loss`.

        Each loss also enters a mean over all that was seen, by what the loss was divided by: rows
        or tokens with their weights. Keras' own mean is one of batches, so that what it reports
        depends on the batches.
        """
        if self._output_losses is None or self.losses:
            self._output_losses = None
            return super().compute_loss(x, y, y_pred, sample_weight, training)
        total = 0
        for name, (loss, weight) in self._output_losses.items():
            target, output, weights = (
                part[name] if isinstance(part, Mapping) else part
                for part in (y, y_pred, sample_weight)
            )
            value = ops.cast(loss(target, output, weights), "float32")
            self._loss_means[name].update_state(
                ops.stop_gradient(value) * num_replicas(), _divisor(loss, output, weights)
            )
            total = total + (value if weight == 1 else value * weight)
        return total

    def get_metrics_result(self) -> dict[str, Any]:
        """All metrics by name, with the losses over all that was seen since the last reset."""
        means = self._loss_means
        shown = self._output_losses is not None and len(means) > 1
        hidden = set() if shown else {id(mean) for mean in means.values()}
        logs: dict[str, Any] = {}
        for metric in self.metrics:
            if id(metric) not in hidden:
                result = metric.result()
                logs.update(result if isinstance(result, dict) else {metric.name: result})
        if self._output_losses is not None:
            logs["loss"] = sum(
                weight * means[name].result() for name, (_, weight) in self._output_losses.items()
            )
        return logs

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
        initial_batch: int = 0,
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
            length_window: How many batches of text are sorted by length among themselves. 1 makes
                batches of rows as they come: more padding, but each batch is like all data. By
                default 64, or a sixteenth of an epoch where that is less: in an epoch of a few
                windows long and short rows never meet in a batch, and less is learned.
            initial_batch: Batches of text, or of a `tf.data.Dataset`, that are passed over: with
                `initial_epoch`, training goes on in the middle of the one epoch that is left.
            epochs, verbose, callbacks, class_weight, sample_weight, **kwargs: As in Keras.

        Returns:
            Keras' history of losses and metrics.
        """
        if length_window is not None and length_window < 1:
            raise ValueError(f"length_window is {length_window}; it must be at least 1.")
        if validation_split and self._has_rows(x):
            x, y, sample_weight, validation_data = self._held_out(
                x, y, sample_weight, validation_split
            )
            validation_split = 0.0
        num_epochs = epochs - kwargs.get("initial_epoch", 0)
        has_text = self._has_text(x)
        if class_weight and has_text and not self.weighs_classes:
            raise ValueError(
                f"class_weight is {class_weight}, but the labels of this {type(self).__name__} are "
                "no class ids. Give sample_weight instead."
            )
        # Those of datasets and generators of features are left to Keras.
        is_applied = self.weighs_classes and (
            has_text or (y is not None and self._loss_takes_ids())
        )
        batching = Batching(
            batch_size,
            self._compiles_each_shape(),
            shuffle,
            # One epoch has one order, whether or not Keras looks at a batch before it.
            reshuffle=num_epochs != 1,
            training=True,
            length_window=length_window,
            class_weight=class_weight if is_applied else None,
        )
        x, y, sample_weight = self._model_data(x, y, sample_weight, batching)
        if initial_batch:
            x = _without_first(x, initial_batch, num_epochs)
        return super().fit(
            x,
            y,
            batch_size=None if has_text else batch_size,
            epochs=epochs,
            verbose=verbose,
            callbacks=callbacks,
            validation_split=validation_split,
            validation_data=self._validation_data(
                validation_data, kwargs.get("validation_batch_size") or batch_size
            ),
            # Datasets and generators have their own order, and Keras warns of being asked.
            shuffle=shuffle and not (is_dataset(x) or isinstance(x, Iterator)),
            class_weight=None if is_applied else class_weight,
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
        """`keras.Model.evaluate`, which also takes text in the forms of `fit`.

        Losses and metrics are those of all rows or tokens, whatever the batches.
        """
        has_text = self._has_text(x)
        x, y, sample_weight = self._model_data(x, y, sample_weight, self._batching(batch_size))
        return super().evaluate(
            x,
            y,
            batch_size=None if has_text else batch_size,
            verbose=verbose,
            sample_weight=sample_weight,
            **kwargs,
        )

    def predict(
        self, x: Any, batch_size: int | None = None, verbose: Any = "auto", **kwargs: Any
    ) -> Any:
        """Logits, float32, in the order of the input; takes text in the forms of `fit`.

        Labels in a dataset are passed over, as in Keras.
        """
        if not is_text(x):
            self._check_ids(x)
            return super().predict(
                checked_generator(x), batch_size=batch_size, verbose=verbose, **kwargs
            )
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
        from keras_bert.data import text_batches

        if not is_dataset(x):
            x = text_batches.rows_from_columns(text_columns(x))
        elif text_batches.is_batched(x):
            x = x.unbatch()
        return text_batches.batches_from_rows(
            # An element that is no tuple arrives whole, a tuple as several arguments
            x.enumerate().map(lambda index, row: (_without_labels(row), index)),
            self.preprocessor,
            **self._batching(batch_size).options(),
        )

    def _batching(self, batch_size: int | None) -> Batching:
        """How rows become batches that are only read."""
        return Batching(batch_size, self._compiles_each_shape())

    def _outputs_of_batches(
        self, batches: Any, verbose: Any, model: keras.Model | None = None
    ) -> Iterator[tuple[Any, Any, Any]]:
        """Outputs batch by batch: `predict` would join those of several lengths.

        Args:
            batches: A dataset of `(features, *rest)`.
            verbose: Whether a progress bar is shown.
            model: Whose outputs; `None` takes the task's own.

        Yields:
            The features of a batch, the rest of it, and the outputs, NumPy arrays all.
        """
        progress = keras.utils.Progbar(int(batches.cardinality()), verbose=int(verbose != 0))
        compiles = self._compiles_each_shape()
        predict = (model or self).predict_on_batch
        for features, *rest in batches.as_numpy_iterator():
            num_rows = len(features["token_ids"])
            outputs = predict(_filled_up(features) if compiles else features)
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

    def _has_text(self, x: Any) -> bool:
        """Whether `x` is what the task makes features of."""
        return is_text(x)

    def _has_rows(self, x: Any) -> bool:
        """Whether `x` is what the task makes features of, in memory, so that it can be split."""
        return self._has_text(x) and not is_dataset(x)

    def _held_out(self, x: Any, y: Any, sample_weight: Any, share: float) -> tuple[Any, ...]:
        """Rows, labels and weights without the last ones, and these as validation data."""
        return _split_off_validation(x, y, sample_weight, share)

    def _validation_data(self, data: Any, batch_size: int | None) -> Any:
        """Validation data as Keras takes them: text becomes a dataset."""
        batching = self._batching(batch_size)
        if data is None:
            return None
        if isinstance(data, (tuple, list)):
            if len(data) not in (2, 3):
                raise ValueError(
                    "validation_data must be (x, y), (x, y, sample_weight) or a dataset; received "
                    f"a {type(data).__name__} of {len(data)}."
                )
            x, y, *weight = data
            parts = self._model_data(x, y, weight[0] if weight else None, batching)
            # Without labels and weights `x` is a dataset, which has its own.
            return parts[0] if parts[1] is None else tuple(p for p in parts if p is not None)
        if isinstance(data, (str, bytes, Mapping, np.ndarray)):
            raise ValueError(
                "validation_data must be (x, y), (x, y, sample_weight) or a dataset; received "
                f"{type(data).__name__}."
            )
        return self._model_data(data, None, None, batching)[0]

    def _model_data(
        self, x: Any, y: Any, sample_weight: Any, batching: Batching
    ) -> tuple[Any, Any, Any]:
        """The arguments for Keras: text becomes a dataset, which has labels and weights in it."""
        if not is_text(x):
            self._check_ids(x)
            self._check_targets(x, y, sample_weight, batching)
            if y is not None and batching.class_weight:
                sample_weight = class_weights_of(as_array(y), batching.class_weight, sample_weight)
            return checked_generator(x), y, sample_weight
        from keras_bert.data import text_batches

        if is_dataset(x):
            if y is not None:
                raise ValueError("`y` must be left out: a dataset of text brings its labels.")
            x = text_batches.with_checked_labels(
                x, self._num_labels(), batching.class_weight, batching.allow_unlabelled
            )
            if text_batches.is_batched(x):
                return text_batches.batches_from_batched_rows(x, self.preprocessor), None, None
            batches = text_batches.batches_from_rows(x, self.preprocessor, **batching.options())
            return batches, None, None
        columns = text_columns(x)
        rest = [] if y is None else [self._labels(y, allow_unlabelled=batching.allow_unlabelled)]
        weights = None if sample_weight is None else np.asarray(sample_weight, "float32")
        for values in (*rest, *([] if weights is None else [weights])):
            if len(values) != len(columns["text"]):
                raise ValueError(
                    f"There are {len(columns['text'])} texts and {len(values)} labels or weights; "
                    "each text needs one."
                )
        if rest and batching.class_weight:
            if rest[0].ndim != 1:
                raise ValueError(
                    f"class_weight needs class ids (rows,); the labels are {rest[0].shape}."
                )
            weights = class_weights_of(rest[0], batching.class_weight, weights)
        rest += [] if weights is None else [weights]
        dataset = text_batches.batches_from_rows(
            text_batches.rows_from_columns(columns, rest), self.preprocessor, **batching.options()
        )
        return dataset, None, None

    def _labels(self, y: Any, *, allow_unlabelled: bool = False) -> np.ndarray:
        """Labels as the loss wants them; tasks with classes override this."""
        return np.asarray(y)

    def _num_labels(self) -> int | None:
        """How many class ids the labels of a row of text may be; `None` where they are no ids."""
        return None

    def _num_targets(self, x: Any) -> Mapping[str, int]:
        """How many ids each output's targets may be, for outputs whose targets are ids.

        Args:
            x: Features.
        """
        return {}

    def _check_targets(self, x: Any, y: Any, sample_weight: Any, batching: Batching) -> None:
        """Checks targets that came with arrays of ids: JAX is silent where they fit no loss."""
        if y is None:
            return
        lowest = -1 if batching.allow_unlabelled else 0
        for name, num_ids in self._num_targets(x).items():
            if self._loss_takes_ids(name):
                target, weight = (
                    part.get(name) if isinstance(part, Mapping) else part
                    for part in (y, sample_weight)
                )
                if target is not None:
                    target, weight = as_array(target), as_array(weight)
                    checked_ids(target, num_ids, lowest=lowest, weights=weight, name=name)

    def _loss_takes_ids(self, name: str = "") -> bool:
        """Whether the targets of an output are ids, by the loss that `compile` was given."""
        loss = getattr(self, "loss", None)
        return _takes_ids(loss.get(name) if isinstance(loss, Mapping) else loss)

    def _sequence_axis(self, x: Any) -> int | None:
        """The size of axis 1 of features: positions of a row, or choices; `None` if unknown."""
        shape: Any = getattr(x.get("token_ids") if isinstance(x, dict) else x, "shape", ())
        return int(shape[1]) if len(shape) > 1 else None

    def _check_ids(self, x: Any) -> None:
        """Checks arrays of ids, which Keras hands over as tensors, past the check in `__call__`.

        Raises:
            ValueError: If an id is out of range, or `x` holds rows that are no features.
        """
        refuse_other_rows(x, self.input_forms)
        inputs = x if isinstance(x, dict) else {"token_ids": x}
        check_ids("token_ids", inputs.get("token_ids"), self.config.vocabulary_size)
        if self.config.num_segments:
            check_ids("segment_ids", inputs.get("segment_ids"), self.config.num_segments)

    def get_compile_config(self) -> dict[str, Any]:
        """The arguments of `compile`, and what the optimizer's state is of.

        That is `optimizer_variables` where the optimizer has not been built for the variables that
        are trained now: not at all, or before layers were frozen or quantized. Each is a position
        in `variables`, or the shape and dtype of one that quantization replaced.
        """
        config: dict[str, Any] = super().get_compile_config()
        if config:
            built_for = [id(variable) for variable in self.optimizer._trainable_variables]
            if built_for != [id(variable) for variable in self.trainable_variables]:
                positions = {id(variable): row for row, variable in enumerate(self.variables)}
                config["optimizer_variables"] = [
                    positions.get(id(variable), [list(variable.shape), variable.dtype])
                    for variable in self.optimizer._trainable_variables
                ]
        return config

    def compile_from_config(self, config: dict[str, Any]) -> None:
        # Keras leaves a loaded model uncompiled if its class has a `compile` of its own.
        config = dict(config)
        positions = config.pop("optimizer_variables", None)
        self.compile(**keras.saving.deserialize_keras_object(config))
        if positions is None:
            self.optimizer.build(self.trainable_variables)
        elif positions:
            variables = self.variables
            self.optimizer.build(
                [
                    keras.Variable(keras.ops.zeros(found[0]), dtype=found[1], trainable=True)
                    if isinstance(found, list)
                    else variables[found]
                    for found in positions
                ]
            )

    def get_config(self) -> dict[str, Any]:
        preprocessor = self._preprocessor_config
        if self._preprocessor is not None:
            preprocessor = self._preprocessor.get_config()
        return {
            "backbone": keras.saving.serialize_keras_object(self.backbone),
            "preprocessor": preprocessor,
            "name": self.name,
            "trainable": self.trainable,
            **self._layer_states(),
        }

    @property
    def _parts_with_states(self) -> tuple[keras.Model, ...]:
        """The models in the task that keep the states of their layers themselves."""
        return (self.backbone,)

    def _layer_states(self) -> dict[str, Any]:
        """The field of the config that says what was done to the task's own layers, if it was."""
        states = layer_states(self, self._parts_with_states)
        return {"layer_states": states} if states else {}

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: Any = None) -> Self:
        config = dict(config)
        trainable = config.pop("trainable", True)
        states = config.pop("layer_states", {})
        config["backbone"] = keras.saving.deserialize_keras_object(
            config["backbone"], custom_objects=custom_objects
        )
        task = cls(**config)
        restore_layer_states(task, states, task._parts_with_states)
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
    """The share of class ids whose logit is the largest, each by its weight."""
    return ClassAccuracy(name="accuracy")


def as_array(values: Any) -> Any:
    """Values of any backend, or of pandas, as an array of NumPy."""
    if keras.ops.is_tensor(values):
        return ops.convert_to_numpy(values)
    return None if values is None else np.asarray(values)


def _takes_ids(loss: Any) -> bool:
    """Whether the targets of a loss are ids; `None` is the class's own, whose targets are."""
    return loss is None or _loss_name(loss).startswith("sparse")


def _loss_name(loss: Any) -> str:
    """The name of one of Keras' losses in lower case without underscores, however it is given."""
    name = loss if isinstance(loss, str) else getattr(loss, "__name__", type(loss).__name__)
    return name.lower().replace("_", "")


def _computes_in_float16(backbone: Backbone) -> bool:
    policy = backbone.dtype_policy
    return bool(policy.compute_dtype == "float16" and policy.variable_dtype != "float16")


def _joined(metrics: Any, weighted: Any) -> Any:
    """Metrics of both arguments of `compile`, by output where there are several."""
    if metrics is None or weighted is None:
        return weighted if metrics is None else metrics
    if isinstance(metrics, Mapping) and isinstance(weighted, Mapping):
        names = dict.fromkeys([*metrics, *weighted])
        return {name: _joined(metrics.get(name), weighted.get(name)) for name in names}
    parts = [part if isinstance(part, (list, tuple)) else [part] for part in (metrics, weighted)]
    if any(isinstance(item, Mapping) for part in parts for item in part):
        raise ValueError(
            "metrics and weighted_metrics must both be dicts by output, or neither; received "
            f"{type(metrics).__name__} and {type(weighted).__name__}."
        )
    return [item for part in parts for item in part]


def _class_accuracies(metrics: Any, loss: Any) -> Any:
    """Metrics with our accuracy for the word `accuracy` where the labels are class ids.

    Keras' own averages over the length of a batch first. It is right where labels are one-hot.
    """
    if isinstance(metrics, Mapping):
        return {
            name: _class_accuracies(part, loss.get(name) if isinstance(loss, Mapping) else loss)
            for name, part in metrics.items()
        }
    if isinstance(metrics, (list, tuple)):
        return [_class_accuracies(metric, loss) for metric in metrics]
    if _takes_ids(loss) and isinstance(metrics, str) and metrics.lower() in ("accuracy", "acc"):
        return ClassAccuracy(name=metrics)
    one_hot = _loss_name(loss).startswith(("categorical", "binary"))
    return "accuracy" if one_hot and isinstance(metrics, ClassAccuracy) else metrics


def _losses_of_outputs(
    loss: Any, weights: Any, outputs: Mapping[str, Any]
) -> dict[str, tuple[keras.losses.Loss, float]] | None:
    """The loss of each output and its coefficient; `None` for forms that Keras alone knows."""
    losses = loss if isinstance(loss, Mapping) else {"": loss}
    coefficients = weights if isinstance(weights, Mapping) else {"": weights}
    if set(losses) != set(outputs) or not set(coefficients) <= {*outputs, ""}:
        return None
    if not all(isinstance(part, keras.losses.Loss) for part in losses.values()):
        return None
    if any(isinstance(value, Sequence) for value in coefficients.values()):
        return None
    shared = coefficients.get("")
    # In the order of Keras' own sum
    return {
        name: (
            losses[name],
            float(next((w for w in (coefficients.get(name), shared) if w is not None), 1.0)),
        )
        for name in sorted(losses)
    }


def _divisor(loss: keras.losses.Loss, output: Any, weights: Any) -> Any:
    """What a loss was divided by: the sum of the weights, or the number of rows or tokens."""
    if loss.reduction == "mean_with_sample_weight" and weights is not None:
        return ops.sum(ops.cast(weights, "float32"))
    count = ops.prod(ops.convert_to_tensor(ops.shape(output)[:-1], dtype="int32"))
    return ops.cast(count, "float32")


def _others(variables: list[Any], known: list[Any]) -> list[Any]:
    """Those variables that are not among the known ones, in their order."""
    # Compared with ==, variables would compare their values.
    known_ids = {id(variable) for variable in known}
    return [variable for variable in variables if id(variable) not in known_ids]


def _filled_up(features: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Features with rows repeated up to a power of two: few sizes for a compiler to meet."""
    num_rows = 1 << (len(features["token_ids"]) - 1).bit_length()
    return {name: np.resize(x, (num_rows, *x.shape[1:])) for name, x in features.items()}


def _without_first(batches: Any, count: int, epochs: int) -> Any:
    """Batches from one on, for one epoch."""
    if count < 0 or epochs != 1 or not is_dataset(batches):
        raise ValueError(
            f"initial_batch is {count}, with {epochs} epochs of {type(batches).__name__}; expected "
            "0 or more, with one epoch, of text or of a tf.data.Dataset."
        )
    return batches.skip(count)


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
