# SPDX-License-Identifier: Apache-2.0
"""`compile` with the defaults of a task, and losses and metrics over all rows."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import keras
from keras import ops

from keras_bert.config import BertConfig
from keras_bert.data.adapters.reading import Features
from keras_bert.data.columns import as_array
from keras_bert.data.labels import LabelRules, may_be_ids, validate_ids
from keras_bert.metrics import ElementMean, class_ids, compiled_metric, weights_like
from keras_bert.migration_hints import reject_aliases
from keras_bert.models.backbone import Backbone
from keras_bert.models.inputs import REAL_ROWS
from keras_bert.models.threads import model_lock
from keras_bert.models.token_model import TokenModel
from keras_bert.ops.annotations import Tensor
from keras_bert.ops.optimizer_updates import num_replicas
from keras_bert.optimizers import AdamW
from keras_bert.tasks import objective


class CompiledModel(TokenModel):
    """A model whose `compile` has the default losses and metrics of its class.

    The losses and metrics that `fit` and `evaluate` report are weighted means over all rows or
    tokens, so they do not depend on the batches.
    """

    backbone: Backbone
    # The learning rate of the default optimizer of `compile`; `None` is `fine_tuning_rate`
    default_learning_rate: float | None = None
    # Whether labels are class ids, so that `class_weight` applies
    supports_class_weight: bool = False
    # The weight of each class id in the loss of a running `fit`; the last is for all other ids
    _class_weight: tuple[float, ...] | None = None
    # Whether the outputs depend on the encoder's pooler. If not, it is not trained: it would have
    # no gradient, about which TensorFlow warns, and on JAX its weights would decay.
    uses_pooler: bool = True

    def __init__(self, *args: Any, backbone: Backbone | None, **kwargs: Any) -> None:
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
        self._log_directions = objective.LogDirections(self)
        self._objective: objective.Objective | None = None

    @property
    def config(self) -> BertConfig:
        """The `BertConfig` of the encoder."""
        return self.backbone.config

    # === Compilation ===

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
                logits. A `Distiller` and a `ReplacedTokenDetector` have their own losses and
                metrics, so for them any of these arguments is an error.
        """
        reject_aliases(self.compile, kwargs, "compile")
        self._check_loss(
            loss, loss_weights=loss_weights, metrics=metrics, weighted_metrics=weighted_metrics
        )
        weighted_metrics = objective.joined_metrics(metrics, weighted_metrics)
        if weighted_metrics is None:
            weighted_metrics = self._default_metrics()
        if loss is None:
            loss = self._default_loss()
            loss_weights = loss_weights or self._default_loss_weights()
        if optimizer is None:
            rate = self.default_learning_rate
            if rate is None:
                rate = objective.fine_tuning_rate(self.backbone.config.hidden_dim)
            optimizer = AdamW(rate)
        optimizer = keras.optimizers.get(optimizer)
        scales_loss = isinstance(optimizer, keras.optimizers.LossScaleOptimizer)
        if auto_scale_loss and not scales_loss and objective.computes_in_float16(self.backbone):
            # Keras only checks the policy of the model, but an encoder has its own.
            optimizer = keras.optimizers.LossScaleOptimizer(optimizer, name="loss_scale_optimizer")
        super().compile(
            optimizer=optimizer,
            loss=loss,
            loss_weights=loss_weights,
            weighted_metrics=self._compiled_metrics(weighted_metrics, loss),
            auto_scale_loss=auto_scale_loss,
            **kwargs,
        )
        self._objective = objective.new_objective(loss, loss_weights, self._loss_means)
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
        return compiled_metric(metric, num_classes, takes_ids=objective.takes_ids(loss))

    def _check_loss(self, loss: Any, **others: Any) -> None:
        """Checks that no cross-entropy takes probabilities, which logits would be mistaken for.

        Args:
            loss: The `loss` of `compile`.
            **others: Its other arguments on losses and metrics, which not every class takes.
        """
        for part in keras.tree.flatten(loss):
            takes_logits = getattr(part, "from_logits", False) is True
            name = part if isinstance(part, str) else getattr(part, "__name__", type(part).__name__)
            if objective.loss_name(part).endswith("crossentropy") and not takes_logits:
                raise ValueError(
                    f"The loss {name} takes probabilities, but the outputs of a "
                    f"{type(self).__name__} are logits. Pass an object such as "
                    "keras.losses.SparseCategoricalCrossentropy(from_logits=True), or no loss for "
                    "the default."
                )

    def _default_loss(self) -> Any:
        """Returns the default loss of `compile`."""
        return self._map_outputs(objective.class_loss)

    def _default_loss_weights(self) -> Any:
        """Returns the loss weights of the default loss, for several outputs."""
        return None

    def _default_metrics(self) -> Any:
        """Returns the default metrics of `compile`."""
        return self._map_outputs(lambda: [objective.class_accuracy()])

    def _map_outputs(self, make: Callable[[], Any]) -> Any:
        """Makes something for each output, a dict if the model has several."""
        return {name: make() for name in self.output} if isinstance(self.output, dict) else make()

    def _outputs_with_losses(self) -> Iterable[str]:
        """Returns the names of the outputs with a loss in the sum; "" names a single output."""
        return self.output if isinstance(self.output, Mapping) else ("",)

    # === Losses and metrics ===

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

    def _compared(
        self, x: Any, y: Any, y_pred: Tensor, sample_weight: Any, training: bool
    ) -> tuple[Any, Any, Any]:
        """Returns the targets, outputs and weights that losses and metrics compare.

        Tasks override it. For example, a `TokenClassifier` gives padding the weight 0.
        """
        return y, y_pred, sample_weight

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
        compiled = self._objective
        if compiled is None and not self.compiled:
            compiled = objective.new_objective(
                self._default_loss(), self._default_loss_weights(), self._loss_means
            )
        if compiled is None:
            raise ValueError(
                f"This {type(self).__name__} computes its loss itself, or was compiled with "
                f"{getattr(self, 'loss', None)!r}; expected one object of keras.losses for each "
                "output, such as the default."
            )
        return compiled.batch_loss(y, y_pred, sample_weight)

    def _has_loss_divisors(self) -> bool:
        """Returns whether the losses are means over the rows or tokens of all micro-batches.

        Those that are left to Keras are means of the micro-batches.
        """
        return self._objective is not None

    def _loss_divisors(self, x: Any, y: Any, sample_weight: Any) -> Any:
        """Returns the divisors of the losses of a batch in `compute_loss`, float32 `(losses,)`."""
        y, _, sample_weight = self._compared(x, y, None, sample_weight, training=True)
        sample_weight = self._weighted_by_class(y, sample_weight)
        compiled: Any = self._objective  # `MicroBatches` asks only where there is one.
        return compiled.divisors(x, y, self.output, sample_weight)

    def compute_metrics(
        self, x: Tensor, y: Tensor, y_pred: Tensor, sample_weight: Tensor | None = None
    ) -> dict[str, Any]:
        """Updates the metrics, and returns all of them."""
        y, y_pred, weights = self._compared(x, y, y_pred, sample_weight, training=False)
        if not isinstance(y, Mapping):
            weights = self._metric_weights(y, weights)
        elif any(self._ignored_class(name) is not None for name in y):
            given = weights if isinstance(weights, Mapping) else dict.fromkeys(y, weights)
            weights = {name: self._metric_weights(y[name], given.get(name), name) for name in y}
        metrics: dict[str, Any] = super().compute_metrics(x, y, y_pred, weights)
        return metrics

    def _metric_weights(self, y: Any, weights: Any, name: str = "") -> Any:
        """Returns the weights for metrics: 0 for labels that the loss of the output ignores.

        Only the losses of Keras have an `ignore_class`; its metrics would count these labels.
        """
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

    # === Targets ===

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
            validate_ids(
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

    def _loss_takes_ids(self, name: str = "") -> bool:
        """Returns whether the targets of an output are ids, according to the compiled loss."""
        loss = getattr(self, "loss", None)
        return objective.takes_ids(loss.get(name) if isinstance(loss, Mapping) else loss)

    def _ignored_class(self, name: str = "") -> int | None:
        """Returns the id that the compiled loss of an output ignores."""
        loss = getattr(self, "loss", None)
        return getattr(loss.get(name) if isinstance(loss, Mapping) else loss, "ignore_class", None)

    # === Class weights ===

    @contextlib.contextmanager
    def _weighing_classes(self, class_weight: Mapping[int, float] | None) -> Iterator[None]:
        """Weighs classes in the loss of training, and not in metrics.

        Args:
            class_weight: The weight of each class id; 1 for ids that are not in it.
        """
        if not class_weight:
            yield
            return
        with model_lock(self):
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

    # === Trained variables ===

    @property
    def trainable_variables(self) -> list[Any]:
        return self._trained(self.variables)

    @property
    def trainable_weights(self) -> list[Any]:
        return self._trained(self.weights)

    @property
    def non_trainable_variables(self) -> list[Any]:
        return objective.exclude_variables(self.variables, self.trainable_variables)

    @property
    def non_trainable_weights(self) -> list[Any]:
        return objective.exclude_variables(self.weights, self.trainable_weights)

    def _trained(self, variables: list[Any]) -> list[Any]:
        # As Keras does, and not by `super()`, whose properties `torch.compile` cannot trace
        if not self.trainable:
            return []
        trainable = [variable for variable in variables if variable.trainable]
        if self.uses_pooler or not hasattr(self, "backbone") or self.backbone.pooler is None:
            return trainable
        return objective.exclude_variables(trainable, self.backbone.pooler.variables)

    # === Configuration ===

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
