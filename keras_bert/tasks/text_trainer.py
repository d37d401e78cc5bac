# SPDX-License-Identifier: Apache-2.0
"""`compile`, `fit`, `evaluate` and `predict` of Keras' trainer, for text as well as arrays."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import random
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, ClassVar, TypeVar, cast

import keras
import numpy as np
from keras import ops
from keras.src.trainers.data_adapters import array_slicing

from keras_bert import checks
from keras_bert.aliases import refuse_aliases
from keras_bert.config import BertConfig
from keras_bert.data.adapters.base import BatchOutputs, InputAdapter
from keras_bert.data.adapters.reading import Features, adapter_class, input_forms, read_input
from keras_bert.data.adapters.text_batches import TextBatchesAdapter, TextDatasetAdapter
from keras_bert.data.adapters.texts import TextAdapter
from keras_bert.data.columns import as_array, column_names, is_dataset, label_column
from keras_bert.data.labels import LabelRules, checked_class_weight, checked_ids, may_be_ids
from keras_bert.data.loader import DEFAULT_BATCH_SIZE, Batches, BatchOptions, Loader
from keras_bert.data.texts import TextClassifierPreprocessor
from keras_bert.metrics import ElementMean, class_ids, compiled_metric, weights_like
from keras_bert.models.backbone import Backbone
from keras_bert.models.inputs import REAL_ROWS
from keras_bert.models.threads import check_process, turn
from keras_bert.models.token_model import TokenModel
from keras_bert.ops.annotations import Tensor
from keras_bert.ops.dispatch import compiles_each_shape
from keras_bert.ops.object_variables import ObjectVariable
from keras_bert.ops.optimizer_updates import num_replicas
from keras_bert.optimizers import AdamW
from keras_bert.optimizers.fit_updates import steps_in_update, with_fit_updates
from keras_bert.tasks.devices import (
    ArrayBatches,
    batches_for_more_lengths,
    filled_up,
    num_devices,
    process_shard,
    shard_over_devices,
    shared_predictions,
    sharing,
)
from keras_bert.tasks.feeding import Feed, MicroBatches
from keras_bert.tasks.objective import (
    LogDirections,
    Objective,
    class_accuracy,
    class_loss,
    computes_in_float16,
    fine_tuning_rate,
    joined_metrics,
    loss_name,
    new_objective,
    takes_ids,
    without,
)
from keras_bert.tasks.presets import check_preprocessor

# The `bucketing_window` if only some batches are used: they have the first rows, not the shortest.
IN_ORDER = 1

Method = TypeVar("Method", bound=Callable[..., Any])

# Whether a method with `tells_cut_rows` is running
_counts_cut_rows = ObjectVariable("_counts_cut_rows")


def tells_cut_rows(method: Method) -> Method:
    """Makes a method of a `TextTrainer` warn, once for each model, if it cuts rows."""

    @functools.wraps(method)
    def wrapped(self: TextTrainer, *args: Any, **kwargs: Any) -> Any:
        if _counts_cut_rows.get(self):  # as in the validation of `fit`
            return method(self, *args, **kwargs)
        rows, cut = self._num_cut_rows()
        with _counts_cut_rows.assigned(self, True):
            result = method(self, *args, **kwargs)
        if self._num_cut_rows()[1] > cut and not self.preprocessor.cut_rows.is_told:
            self.preprocessor.cut_rows.is_told = True
            warnings.warn(self.preprocessor.cut_rows.message(rows, cut), stacklevel=2)
        return result

    return cast(Method, wrapped)


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


class TextTrainer(TokenModel):
    """A model whose `fit`, `evaluate` and `predict` take text as well as arrays of token ids.

    A kind of input is an adapter, which reads rows and converts them to batches by the preprocessor
    of the model. Inputs without an adapter are features, which are checked and left to Keras.

    `compile` has the default losses and metrics of the class. The values that `fit` and `evaluate`
    report are weighted means over all rows or tokens, and do not depend on the batches.
    """

    seconds_waited: float = 0.0
    """How long `fit` has waited for batches of text until now, in seconds."""

    # The kinds of input besides features
    adapters: ClassVar[tuple[type[InputAdapter], ...]] = (
        TextAdapter,
        TextDatasetAdapter,
        TextBatchesAdapter,
    )
    # The class of its preprocessors
    preprocessor_class: ClassVar[type[Any]] = TextClassifierPreprocessor
    # Whether text needs labels to be trained on or evaluated
    needs_labels: bool = True

    backbone: Backbone
    # The learning rate of the default optimizer of `compile`; `None` is `fine_tuning_rate`
    default_learning_rate: float | None = None
    # The fraction of the windows without answers that `fit` trains on; see `QuestionAnswerer`
    negative_share: float = 1.0
    # Whether labels are class ids, so that `class_weight` applies
    supports_class_weight: bool = False
    # The weight of each class id in the loss of a running `fit`; the last is for all other ids
    _class_weight: tuple[float, ...] | None = None
    # Whether the outputs depend on the encoder's pooler. If not, it is not trained: it would have
    # no gradient, about which TensorFlow warns, and on JAX its weights would decay.
    uses_pooler: bool = True

    def __init__(
        self, *args: Any, backbone: Backbone | None, preprocessor: Any = None, **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        if backbone is not None:  # An ensemble has several.
            self.backbone = backbone
        # The mean of the loss of each output; that of a single output is reported as `loss`.
        self._loss_means = {
            name: ElementMean(name=f"{name}_loss") for name in self._outputs_with_losses()
        }
        for mean in self._loss_means.values():
            mean._direction = "down"
        self._layer_losses = ElementMean(name="layer_losses")
        self._log_directions = LogDirections(self)
        self._objective: Objective | None = None
        if preprocessor is not None and backbone is not None:
            check_preprocessor(preprocessor, backbone.config)
        # A config becomes a preprocessor on first use: a model that only takes ids never needs one.
        self._preprocessor = checks.plain(preprocessor)

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
        """Returns how many rows were read until now, and how many of them were cut."""
        counts = getattr(self._preprocessor, "cut_rows", None)
        return (0, 0) if counts is None else (counts.num_rows, counts.num_cut)

    def _preprocessor_config(self) -> dict[str, Any] | None:
        """Returns the config of the preprocessor; `None` without one."""
        preprocessor = self._preprocessor
        is_config = preprocessor is None or isinstance(preprocessor, dict)
        config: dict[str, Any] | None = preprocessor if is_config else preprocessor.get_config()
        return config

    # === Losses and metrics ===

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
        """Configures the model for training, with the defaults of its class.

        Args:
            optimizer: See `keras.Model.compile`. Defaults to `keras_bert.optimizers.AdamW`. In
                fine-tuning its learning rate is chosen by the size of the encoder: 1.5e-4 for a
                `hidden_dim` below 512, 1e-4 below 768, 3e-5 below 1024 (BERT base), and 2e-5 from
                there on (BERT large). It is 1e-4 in pre-training and 2e-5 for a `TextEmbedder`.
            loss: See `keras.Model.compile`. Defaults to the loss of the class.
            loss_weights: See `keras.Model.compile`. Defaults to the weights of the class with
                its default loss.
            metrics: See `keras.Model.compile`, but sample weights apply as in `weighted_metrics`:
                they exclude padding, ignored labels, and padding rows. For two classes,
                `"precision"`, `"recall"`, `"f1"` and `"auc"` are those of the second class. Metrics
                of Keras for classes get labels and probabilities in the form that they take.
            weighted_metrics: See `keras.Model.compile`. If it and `metrics` are `None`, the metrics
                of the class are used.
            auto_scale_loss: Whether to use loss scaling if the encoder computes in float16, so that
                small gradients do not underflow.
            **kwargs: Other arguments of `keras.Model.compile`.

        Raises:
            ValueError: If only one of `metrics` and `weighted_metrics` is a dict by output, a
                metric is not for the labels of the task, or a loss takes probabilities: outputs are
                logits.
        """
        refuse_aliases(self.compile, kwargs, "compile")
        weighted_metrics = joined_metrics(metrics, weighted_metrics)
        if weighted_metrics is None:
            weighted_metrics = self._default_metrics()
        if loss is None:
            loss = self._default_loss()
            loss_weights = loss_weights or self._default_loss_weights()
        if optimizer is None:
            rate = self.default_learning_rate
            optimizer = AdamW(
                fine_tuning_rate(self.backbone.config.hidden_dim) if rate is None else rate
            )
        optimizer = keras.optimizers.get(optimizer)
        scales_loss = isinstance(optimizer, keras.optimizers.LossScaleOptimizer)
        if auto_scale_loss and not scales_loss and computes_in_float16(self.backbone):
            # Keras only checks the policy of the model, but an encoder has its own.
            optimizer = keras.optimizers.LossScaleOptimizer(optimizer, name="loss_scale_optimizer")
        self._check_loss(loss)
        super().compile(
            optimizer=optimizer,
            loss=loss,
            loss_weights=loss_weights,
            weighted_metrics=self._compiled_metrics(weighted_metrics, loss),
            auto_scale_loss=auto_scale_loss,
            **kwargs,
        )
        self._objective = new_objective(loss, loss_weights, self._loss_means)
        if self._objective is not None:
            # It computes nothing here. But to build it, Keras would call the model symbolically at
            # each `train_on_batch`.
            self._compile_loss.built = True

    def _compiled_metrics(self, metrics: Any, loss: Any, name: str = "") -> Any:
        """Returns metrics in the form for the labels and logits of the outputs."""
        if isinstance(metrics, Mapping):
            losses = loss if isinstance(loss, Mapping) else dict.fromkeys(metrics, loss)
            return {
                name: self._compiled_metrics(part, losses.get(name), name)
                for name, part in metrics.items()
            }
        if isinstance(metrics, (list, tuple)):
            return [self._compiled_metrics(metric, loss, name) for metric in metrics]
        outputs = self.output if isinstance(self.output, Mapping) else {"": self.output}
        num_classes = outputs[name].shape[-1] if name in outputs else None
        return None if metrics is None else self._compiled_metric(metrics, loss, num_classes)

    def _compiled_metric(self, metric: Any, loss: Any, num_classes: int | None) -> Any:
        """Returns a metric in the form for the labels and logits of an output."""
        return compiled_metric(metric, num_classes, takes_ids=takes_ids(loss))

    def compute_loss(
        self,
        x: Any = None,
        y: Any = None,
        y_pred: Tensor = None,
        sample_weight: Any = None,
        training: bool = True,
    ) -> Any:
        """Computes the sum of the losses of the outputs; see `keras.Model.compute_loss`.

        It also updates a weighted mean of each loss over all rows or tokens, so that the reported
        values do not depend on the batches.
        """
        y, y_pred, sample_weight = self._compared(x, y, y_pred, sample_weight, training)
        if training:
            sample_weight = self._weighted_by_class(y, sample_weight)
        if self._objective is None:
            if isinstance(x, Mapping) and REAL_ROWS in x:
                raise ValueError(
                    "The loss must be a function or an object of keras.losses without its own "
                    "`__call__`, one for each output: rows that only fill up a batch do not count. "
                    f"Received: {self.loss!r}."
                )
            return super().compute_loss(x, y, y_pred, sample_weight, training)
        loss = self._objective.loss(x, y, y_pred, sample_weight, training)
        return self._with_layer_losses(loss, x)

    def _with_layer_losses(self, loss: Any, x: Any) -> Any:
        """Adds the losses of layers, such as those of regularizers, and updates their mean."""
        layer_losses = self.losses
        if not layer_losses:
            return loss
        total = sum(map(self._aggregate_additional_loss, layer_losses))
        (num_rows,) = ops.shape(keras.tree.flatten(x)[0])[:1]
        # On TensorFlow, each replica has its share.
        mean = ops.stop_gradient(total) * num_replicas()
        self._layer_losses.update_state(mean, ops.cast(num_rows, "float32"))
        return loss + total

    def batch_loss(self, y: Any, y_pred: Tensor, sample_weight: Any = None) -> Any:
        """Computes the loss of a batch, and does not update the reported means.

        Args:
            y: The targets of the outputs.
            y_pred: The outputs.
            sample_weight: The sample weights, or `None`.

        Returns:
            The weighted sum of the losses of the outputs, a float32 scalar.

        Raises:
            ValueError: If the losses are not objects of `keras.losses`, as the defaults are.
        """
        objective = self._objective
        if objective is None and not self.compiled:
            objective = new_objective(
                self._default_loss(), self._default_loss_weights(), self._loss_means
            )
        if objective is None:
            raise ValueError(
                f"This {type(self).__name__} computes its loss itself, or was compiled with "
                f"{getattr(self, 'loss', None)!r}; expected one object of keras.losses for each "
                "output, such as the default."
            )
        return objective.batch_loss(y, y_pred, sample_weight)

    def compute_metrics(
        self, x: Tensor, y: Tensor, y_pred: Tensor, sample_weight: Tensor | None = None
    ) -> dict[str, Any]:
        """Updates the metrics, and returns all of them."""
        y, y_pred, weights = self._compared(x, y, y_pred, sample_weight, training=False)
        if not isinstance(y, Mapping):
            weights = self._counted(y, weights)
        elif any(self._ignored_class(name) is not None for name in y):
            given = weights if isinstance(weights, Mapping) else dict.fromkeys(y, weights)
            weights = {name: self._counted(y[name], given.get(name), name) for name in y}
        metrics: dict[str, Any] = super().compute_metrics(x, y, y_pred, weights)
        return metrics

    def _counted(self, y: Any, weights: Any, name: str = "") -> Any:
        """Returns the weights for metrics, which Keras counts labels in that its loss ignores."""
        ignored = self._ignored_class(name)
        if ignored is None:
            return weights
        has_class = ops.cast(ops.not_equal(y, ignored), "float32")
        return has_class if weights is None else has_class * weights_like(weights, ops.shape(y))

    def get_metrics_result(self) -> dict[str, Any]:
        """Returns all metrics by name, including the mean losses since the last reset."""
        hidden_ids = {id(mean) for mean in (*self._loss_means.values(), self._layer_losses)}
        logs: dict[str, Any] = {}
        for metric in self.metrics:
            if id(metric) not in hidden_ids:
                result = metric.result()
                logs.update(result if isinstance(result, dict) else {metric.name: result})
        if self._objective is not None:
            logs |= self._objective.logs()
            logs["loss"] += self._layer_losses.result()
        return logs

    def _compared(
        self, x: Any, y: Any, y_pred: Tensor, sample_weight: Any, training: bool
    ) -> tuple[Any, Any, Any]:
        """Returns the targets, outputs and weights for losses and metrics."""
        return y, y_pred, sample_weight

    def _has_loss_divisors(self) -> bool:
        """Returns whether the losses are means over the rows or tokens of all micro-batches.

        Those that are left to Keras are means of the micro-batches.
        """
        return self._objective is not None

    def _loss_divisors(self, x: Any, y: Any, sample_weight: Any) -> Any:
        """Returns the divisors of the losses of a batch in `compute_loss`, float32 `(losses,)`."""
        y, _, sample_weight = self._compared(x, y, None, sample_weight, training=True)
        sample_weight = self._weighted_by_class(y, sample_weight)
        objective: Any = self._objective  # `MicroBatches` asks only where there is one.
        return objective.divisors(x, y, self.output, sample_weight)

    @contextlib.contextmanager
    def _weighing_classes(self, class_weight: Mapping[int, float] | None) -> Iterator[None]:
        """Weighs classes in the loss of training, and not in metrics.

        Args:
            class_weight: The weight of each class id; 1 for ids that are not in it.
        """
        if not class_weight:
            yield
            return
        with turn(self):
            ids = range(max(class_weight) + 1)
            self._class_weight = (*(class_weight.get(index, 1.0) for index in ids), 1.0)
            # The weights are constants of the compiled step.
            self.train_function = None
            try:
                yield
            finally:
                self._class_weight = None
                self.train_function = None

    def _weighted_by_class(self, y: Any, sample_weight: Any) -> Any:
        """Multiplies sample weights by the weights of the classes `y`, if `fit` was given any."""
        if self._class_weight is None or y is None:
            return sample_weight
        ids = (
            ops.cast(y, "int32") if isinstance(self.output, Mapping) else class_ids(y, self.output)
        )
        others = len(self._class_weight) - 1
        ids = ops.where((ids < 0) | (ids > others), others, ids)
        weights = ops.take(ops.convert_to_tensor(self._class_weight, "float32"), ids, axis=0)
        if sample_weight is None:
            return weights
        return weights * weights_like(ops.cast(sample_weight, "float32"), ops.shape(weights))

    def _outputs_with_losses(self) -> Iterable[str]:
        """Returns the names of the outputs with a loss in the sum; "" names a single output."""
        return self.output if isinstance(self.output, Mapping) else ("",)

    def _check_loss(self, loss: Any) -> None:
        """Checks that no cross-entropy takes probabilities, which logits would be mistaken for."""
        for part in keras.tree.flatten(loss):
            takes_logits = getattr(part, "from_logits", False) is True
            name = part if isinstance(part, str) else getattr(part, "__name__", type(part).__name__)
            if loss_name(part).endswith("crossentropy") and not takes_logits:
                raise ValueError(
                    f"The loss {name} takes probabilities, but the outputs of a "
                    f"{type(self).__name__} are logits. Pass an object such as "
                    "keras.losses.SparseCategoricalCrossentropy(from_logits=True), or no loss for "
                    "the default."
                )

    def _default_loss(self) -> Any:
        """Returns the default loss of `compile`."""
        return self._by_output(class_loss)

    def _default_loss_weights(self) -> Any:
        """Returns the loss weights of the default loss, for several outputs."""
        return None

    def _default_metrics(self) -> Any:
        """Returns the default metrics of `compile`."""
        return self._by_output(lambda: [class_accuracy()])

    def _by_output(self, make: Callable[[], Any]) -> Any:
        """Makes something for each output, a dict if the model has several."""
        return {name: make() for name in self.output} if isinstance(self.output, dict) else make()

    def _loss_takes_ids(self, name: str = "") -> bool:
        """Returns whether the targets of an output are ids, according to the compiled loss."""
        loss = getattr(self, "loss", None)
        return takes_ids(loss.get(name) if isinstance(loss, Mapping) else loss)

    @property
    def trainable_variables(self) -> list[Any]:
        return self._trained(self.variables)

    @property
    def trainable_weights(self) -> list[Any]:
        return self._trained(self.weights)

    @property
    def non_trainable_variables(self) -> list[Any]:
        return without(self.variables, self.trainable_variables)

    @property
    def non_trainable_weights(self) -> list[Any]:
        return without(self.weights, self.trainable_weights)

    def _trained(self, variables: list[Any]) -> list[Any]:
        # As Keras does, and not by `super()`, whose properties `torch.compile` cannot trace
        if not self.trainable:
            return []
        trainable = [variable for variable in variables if variable.trainable]
        if self.uses_pooler or not hasattr(self, "backbone") or self.backbone.pooler is None:
            return trainable
        return without(trainable, self.backbone.pooler.variables)

    def get_compile_config(self) -> dict[str, Any]:
        """Returns the arguments of `compile`, and which variables the optimizer was built for.

        These are in `optimizer_variables` if they are not the current trainable variables: if the
        optimizer was not built, or was built before layers were frozen or quantized. Each is an
        index in `variables`, or the shape and dtype of a variable that quantization replaced.
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
        # Keras does not compile a loaded model whose class overrides `compile`.
        config = dict(config)
        positions = config.pop("optimizer_variables", None)
        self.compile(**keras.saving.deserialize_keras_object(config))
        if positions is None:
            self.optimizer.build(self.trainable_variables)
        elif positions:
            self.optimizer.build(
                [
                    keras.Variable(ops.zeros(position[0]), dtype=position[1], trainable=True)
                    if isinstance(position, list)
                    else self.variables[position]
                    for position in positions
                ]
            )

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

    @tells_cut_rows
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
        if process_shard()[1] > 1:
            return self._predict_arrays(rows, batch_size, verbose, **kwargs)
        return super().predict(rows.x, batch_size=batch_size, verbose=verbose, **kwargs)

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
        options = self._options(batch_size, negative_share=self.negative_share)
        counts = [
            np.sum(features["padding_mask"], axis=-1, dtype="int64").reshape(-1)
            for features, *_ in self._batches(rows, options)
        ]
        lengths = np.concatenate([np.zeros(0, "int64"), *counts])
        return lengths[lengths > 0]  # without padding rows

    # === Text to batches ===

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
            raise ValueError(
                f"x is a {type(features.x).__name__} of features, in one of {process_shard()[1]} "
                "processes; expected text, or arrays of which each process has all rows."
            )
        batches = ArrayBatches(features.x, batch_size or DEFAULT_BATCH_SIZE)
        _, outputs = self._joined_outputs(batches, verbose, **kwargs)
        # Only the last batch has padding rows.
        return keras.tree.map_structure(lambda rows: rows[: batches.num_rows], outputs)

    def _joined_outputs(
        self, batches: Batches, verbose: int | str, **kwargs: Any
    ) -> tuple[np.ndarray[Any, Any], Any]:
        """Returns the indices of the rows of all batches, with padding rows, and their outputs."""
        if num_devices() > 1:
            batches = shared_predictions(batches, num_devices(), process_shard())
        elif batches.num_batches in (1, None) and not kwargs and self._num_replicas() == 1:
            # For one batch, such as one sentence, Keras' loop takes longer than the model. At the
            # end of an unknown number, it would warn.
            parts = [part[1:] for part in self._outputs_of_batches(batches, verbose)]
            joined: tuple[Any, Any] = keras.tree.map_structure(
                lambda *arrays: np.concatenate(arrays), *parts
            )
            return joined
        feed = Feed(batches, with_targets=False)
        with feed.raising_errors():
            outputs = super().predict(feed.for_keras(), verbose=verbose, **kwargs)
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
            inputs = filled_up(features, num_devices()) if compiles else features
            outputs = predict(shard_over_devices(inputs))
            yield (
                features,
                rest,
                keras.tree.map_structure(
                    lambda x, num_rows=num_rows: keras.ops.convert_to_numpy(x)[:num_rows], outputs
                ),
            )
            progress.add(1)

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

    def _build(self, source: Feed | MicroBatches) -> None:
        """Builds metrics, losses and the optimizer before Keras would read batches for it."""
        is_needed = keras.backend.backend() != "tensorflow" or self._strategy is not None
        if is_needed and self.compiled and source.example is not None:
            self.build_by_example(source.example)

    def _batches(self, rows: InputAdapter, options: BatchOptions) -> Batches:
        """Returns batches of features, labels and weights."""
        return rows.batches(self.preprocessor, options)

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

    def _options(
        self, batch_size: int | None, *, is_shared: bool = False, **options: Any
    ) -> BatchOptions:
        """Returns the batching options of evaluation and prediction, with some others."""
        return BatchOptions(
            batch_size,
            **options,
            compiles=self._compiles_each_shape(),
            batches_for_more_lengths=batches_for_more_lengths(),
            num_replicas=self._num_replicas() if is_shared else 1,
            **(sharing() if is_shared else {}),
        )

    def _num_replicas(self) -> int:
        """Returns the number of devices of this process that share each batch.

        They come from the model's `tf.distribute.Strategy` on TensorFlow, and from the current
        `keras.distribution` on JAX.
        """
        if self._strategy is not None:
            return int(self._strategy.num_replicas_in_sync)
        return num_devices() // process_shard()[1]

    @property
    def _strategy(self) -> Any:
        """The `tf.distribute.Strategy` of the model, which only models on TensorFlow have."""
        return getattr(self, "distribute_strategy", None)

    def _compiles_each_shape(self) -> bool:
        """Returns whether each new batch shape is compiled, which takes seconds."""
        return compiles_each_shape() or bool(self.jit_compile)

    # === Labels and features ===

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

    def _ignored_class(self, name: str = "") -> int | None:
        """Returns the id that the compiled loss of an output ignores."""
        loss = getattr(self, "loss", None)
        return getattr(loss.get(name) if isinstance(loss, Mapping) else loss, "ignore_class", None)
