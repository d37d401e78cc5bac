# SPDX-License-Identifier: Apache-2.0
"""`compile` with a task's defaults, and losses and metrics over all examples."""

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
    """A model whose `compile` uses the default losses and metrics of its class.

    The losses and metrics reported by `fit` and `evaluate` are weighted means over all examples or
    tokens, so they do not depend on the batches.
    """

    backbone: Backbone
    # The default optimizer's learning rate. `None` uses `fine_tuning_rate`.
    default_learning_rate: float | None = None
    # Whether labels are class IDs, so that `class_weight` is supported
    supports_class_weight: bool = False
    # The loss weight of each class ID while `fit` runs. The last weight is for all other IDs.
    _class_weight: tuple[float, ...] | None = None
    # Whether the outputs depend on the encoder's pooler. If not, the pooler is not trained. It
    # would have no gradient, so TensorFlow would warn, and on JAX its weights would decay.
    uses_pooler: bool = True

    def __init__(self, *args: Any, backbone: Backbone | None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if backbone is not None:  # An ensemble has multiple encoders.
            self.backbone = backbone
        # The mean loss of each output. For a single output, it is reported as `loss`.
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
            optimizer: See `keras.Model.compile`. Defaults to `keras_bert.optimizers.AdamW`. For
                fine-tuning, its learning rate depends on the encoder's `hidden_dim`: 1.5e-4 below
                512, 1e-4 below 768, 3e-5 below 1024 (BERT base) and 2e-5 from 1024 (BERT large). It
                is 1e-4 for pre-training and 2e-5 for a `TextEmbedder`.
            loss: See `keras.Model.compile`. Defaults to the loss of the class.
            loss_weights: See `keras.Model.compile`. With the default loss, defaults to the weights
                of the class.
            metrics: See `keras.Model.compile`. Unlike there, sample weights are used as for
                `weighted_metrics`, so that padding, ignored labels and padding examples are
                excluded. With two classes, `"precision"`, `"recall"`, `"f1"` and `"auc"` are
                computed for the second class. Keras' classification metrics receive labels and
                probabilities in the form that they expect.
            weighted_metrics: See `keras.Model.compile`. If `metrics` and `weighted_metrics` are
                `None`, the metrics of the class are used.
            auto_scale_loss: Whether to use loss scaling if the encoder computes in float16, so that
                small gradients do not underflow.
            **kwargs: Other arguments of `keras.Model.compile`.

        Raises:
            ValueError: If only one of `metrics` and `weighted_metrics` is a dict by output, if a
                metric does not fit the task's labels, or if a loss expects probabilities, because
                outputs are logits. `Distiller` and `ReplacedTokenDetector` raise it for any
                `loss`, `loss_weights`, `metrics` or `weighted_metrics`, because they have a fixed
                loss and fixed metrics.
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
            # Keras only checks the model's dtype policy, but the encoder has its own.
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
            # Keras' loss is not used here. However, to build it, Keras would call the model
            # symbolically in each `train_on_batch`.
            self._compile_loss.built = True

    def _compiled_metrics(self, metrics: Any, loss: Any, name: str = "") -> Any:
        """Converts metrics to the form that fits the outputs' labels and logits."""
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
        """Converts a metric to the form that fits an output's labels and logits."""
        return compiled_metric(metric, num_classes, takes_ids=objective.takes_ids(loss))

    def _check_loss(self, loss: Any, **others: Any) -> None:
        """Checks that no cross-entropy expects probabilities, because outputs are logits.

        Args:
            loss: The `loss` of `compile`.
            **others: The other arguments for losses and metrics. Some classes do not support them.
        """
        for part in keras.tree.flatten(loss):
            takes_logits = getattr(part, "from_logits", False) is True
            name = part if isinstance(part, str) else getattr(part, "__name__", type(part).__name__)
            if objective.loss_name(part).endswith("crossentropy") and not takes_logits:
                raise ValueError(
                    f"The loss of a {type(self).__name__} must expect logits. Received: {name}, "
                    "which expects probabilities. Pass an object such as "
                    "keras.losses.SparseCategoricalCrossentropy(from_logits=True), or no loss for "
                    "the default."
                )

    def _default_loss(self) -> Any:
        """Returns the default loss of `compile`."""
        return self._map_outputs(objective.class_loss)

    def _default_loss_weights(self) -> Any:
        """Returns the weights of the default losses if the model has multiple outputs."""
        return None

    def _default_metrics(self) -> Any:
        """Returns the default metrics of `compile`."""
        return self._map_outputs(lambda: [objective.class_accuracy()])

    def _map_outputs(self, make: Callable[[], Any]) -> Any:
        """Calls a function for each output. Returns a dict for multiple outputs."""
        return {name: make() for name in self.output} if isinstance(self.output, dict) else make()

    def _outputs_with_losses(self) -> Iterable[str]:
        """Returns the names of the outputs that have a loss. A single output is called ""."""
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
        """Computes the sum of the outputs' losses, see `keras.Model.compute_loss`.

        It also updates the weighted mean of each loss over all examples or tokens, so that the
        reported values do not depend on the batches.
        """
        y, y_pred, sample_weight = self._targets_and_weights(x, y, y_pred, sample_weight, training)
        if training:
            sample_weight = self._weighted_by_class(y, sample_weight)
        if self._objective is None:
            if isinstance(x, Mapping) and REAL_ROWS in x:
                raise ValueError(
                    "The loss must be a function or an object of keras.losses without its own "
                    "`__call__`, one for each output, because examples that only fill a batch do "
                    f"not count. Received: {self.loss!r}."
                )
            return super().compute_loss(x, y, y_pred, sample_weight, training)
        loss = self._objective.loss(x, y, y_pred, sample_weight, training)
        return self._add_layer_losses(loss, x)

    def _targets_and_weights(
        self, x: Any, y: Any, y_pred: Tensor, sample_weight: Any, training: bool
    ) -> tuple[Any, Any, Any]:
        """Returns the targets, outputs and weights for losses and metrics.

        Tasks override it. For example, a `TokenClassifier` gives padding a weight of 0.
        """
        return y, y_pred, sample_weight

    def _add_layer_losses(self, loss: Any, x: Any) -> Any:
        """Adds the losses of layers, for example regularization losses, and updates their mean."""
        layer_losses = self.losses
        if not layer_losses:
            return loss
        total = sum(map(self._aggregate_additional_loss, layer_losses))
        (num_rows,) = ops.shape(keras.tree.flatten(x)[0])[:1]
        # On TensorFlow, each replica has a part.
        mean = ops.stop_gradient(total) * num_replicas()
        self._layer_losses.update_state(mean, ops.cast(num_rows, "float32"))
        return loss + total

    def batch_loss(self, y: Any, y_pred: Tensor, sample_weight: Any = None) -> Any:
        """Computes a batch's loss without updating the reported means.

        Args:
            y: Targets for the outputs.
            y_pred: The outputs.
            sample_weight: Sample weights, or `None`.

        Returns:
            The weighted sum of the outputs' losses, a float32 scalar.

        Raises:
            ValueError: If the losses are not objects of `keras.losses`, as the default losses are.
        """
        compiled = self._objective
        if compiled is None and not self.compiled:
            compiled = objective.new_objective(
                self._default_loss(), self._default_loss_weights(), self._loss_means
            )
        if compiled is None:
            raise ValueError(
                "batch_loss requires one object of keras.losses for each output, such as the "
                f"default loss. Received: a {type(self).__name__} that computes its own loss, or "
                f"was compiled with {getattr(self, 'loss', None)!r}"
            )
        return compiled.batch_loss(y, y_pred, sample_weight)

    def _has_loss_divisors(self) -> bool:
        """Returns whether the losses are means over the examples or tokens of all micro-batches.

        Losses that Keras computes are means per micro-batch.
        """
        return self._objective is not None

    def _loss_divisors(self, x: Any, y: Any, sample_weight: Any) -> Any:
        """Returns a batch's loss divisors, as in `compute_loss`, float32 `(losses,)`."""
        y, _, sample_weight = self._targets_and_weights(x, y, None, sample_weight, training=True)
        sample_weight = self._weighted_by_class(y, sample_weight)
        compiled: Any = self._objective  # `MicroBatches` only calls this with an objective.
        return compiled.divisors(x, y, self._loss_outputs, sample_weight)

    @property
    def _loss_outputs(self) -> Any:
        """Symbolic outputs. All axes except the last have values of the loss."""
        return self.output

    def compute_metrics(
        self, x: Tensor, y: Tensor, y_pred: Tensor, sample_weight: Tensor | None = None
    ) -> dict[str, Any]:
        """Updates the metrics and returns all results."""
        y, y_pred, weights = self._targets_and_weights(x, y, y_pred, sample_weight, training=False)
        if not isinstance(y, Mapping):
            weights = self._metric_weights(y, weights)
        elif any(self._ignored_class(name) is not None for name in y):
            given = weights if isinstance(weights, Mapping) else dict.fromkeys(y, weights)
            weights = {name: self._metric_weights(y[name], given.get(name), name) for name in y}
        metrics: dict[str, Any] = super().compute_metrics(x, y, y_pred, weights)
        return metrics

    def _metric_weights(self, y: Any, weights: Any, name: str = "") -> Any:
        """Returns the weights for metrics, with 0 for labels that the output's loss ignores.

        Only Keras' losses have an `ignore_class`. Its metrics would count these labels.
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
        """Returns the number of target IDs for each output with IDs, or `None` if unknown."""
        return {}

    def _check_targets(self, features: Features, rules: LabelRules) -> None:
        """Checks the targets of features, since JAX does not raise errors for invalid IDs."""
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
        """Returns whether an output's targets are IDs instead of numbers for each class.

        This depends on their shape. If the loss does not require IDs, all targets must be integers.
        """
        array = as_array(target)
        if array.ndim == len(output.shape) and array.shape[-1] != 1:
            return False
        return self._loss_takes_ids(name) or may_be_ids(array.reshape(-1))

    def _loss_takes_ids(self, name: str = "") -> bool:
        """Returns whether an output's targets are IDs, according to the compiled loss."""
        loss = getattr(self, "loss", None)
        return objective.takes_ids(loss.get(name) if isinstance(loss, Mapping) else loss)

    def _ignored_class(self, name: str = "") -> int | None:
        """Returns the ID that an output's compiled loss ignores."""
        loss = getattr(self, "loss", None)
        return getattr(loss.get(name) if isinstance(loss, Mapping) else loss, "ignore_class", None)

    # === Class weights ===

    @contextlib.contextmanager
    def _weighing_classes(self, class_weight: Mapping[int, float] | None) -> Iterator[None]:
        """Applies class weights to the training loss, but not to metrics.

        Args:
            class_weight: The weight of each class ID. Missing IDs have weight 1.
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
        """Multiplies sample weights by the weights of the classes `y`, if `fit` received any."""
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
        # Implemented like in Keras. `torch.compile` cannot trace properties called through
        # `super()`.
        if not self.trainable:
            return []
        trainable = [variable for variable in variables if variable.trainable]
        if self.uses_pooler or not hasattr(self, "backbone") or self.backbone.pooler is None:
            return trainable
        return objective.exclude_variables(trainable, self.backbone.pooler.variables)

    # === Configuration ===

    def get_compile_config(self) -> dict[str, Any]:
        """Returns the arguments of `compile`, and if necessary the optimizer's variables.

        If the variables that the optimizer was built for differ from the trainable variables, they
        are in `optimizer_variables`. This is the case if the optimizer was not built, or was built
        before layers were frozen or quantized. Each entry is an index in `variables`, or if
        quantization replaced the variable, its shape and dtype.
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
