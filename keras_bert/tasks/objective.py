# SPDX-License-Identifier: Apache-2.0
"""The objective of a task: its losses and metrics, over all rows or tokens whatever the batches."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

import keras
from keras import ops

from keras_bert.metrics import ClassAccuracy, ElementMean
from keras_bert.models.backbone import Backbone
from keras_bert.models.inputs import TokenModel
from keras_bert.ops.annotations import Tensor
from keras_bert.ops.optimizer_updates import num_replicas
from keras_bert.optimizers import AdamW


class ObjectiveModel(TokenModel):
    """A functional model on an encoder that is compiled with the losses and metrics of its class.

    What `fit` and `evaluate` report are means over all rows or tokens, each by its weight. Keras
    reports means of the batches' means, which depend on how the rows fall into batches.
    """

    backbone: Backbone
    # Of the optimizer that `compile` takes where none is given
    default_learning_rate: float = 2e-5
    # Whether the loss is the sum of one for each output
    sums_losses_of_outputs: ClassVar[bool] = True
    # Whether the labels are ids of classes, which `class_weight` may weigh
    weighs_classes: bool = False
    # Whether the outputs depend on the encoder's pooler. If not, training leaves it alone: it would
    # get no gradient, of which TensorFlow warns, and on JAX its weights would decay.
    uses_pooler: bool = True

    def __init__(self, *args: Any, backbone: Backbone, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.backbone = backbone
        # The mean of each output's loss; a single output's is reported as the loss itself.
        outputs = self.output if isinstance(self.output, Mapping) else [""]
        self._loss_means = (
            {name: ElementMean(name=f"{name}_loss") for name in outputs}
            if self.sums_losses_of_outputs
            else {}
        )
        self._output_losses: dict[str, tuple[keras.losses.Loss, float]] | None = None

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
        y_pred: Tensor = None,
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

    def _loss_takes_ids(self, name: str = "") -> bool:
        """Whether the targets of an output are ids, by the loss that `compile` was given."""
        loss = getattr(self, "loss", None)
        return _takes_ids(loss.get(name) if isinstance(loss, Mapping) else loss)

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
                    keras.Variable(ops.zeros(found[0]), dtype=found[1], trainable=True)
                    if isinstance(found, list)
                    else variables[found]
                    for found in positions
                ]
            )


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


class CustomObjective:
    """A mixin for tasks that compute their losses and metrics themselves."""

    sums_losses_of_outputs: ClassVar[bool] = False
    _means: dict[str, ElementMean]

    def _report(self, names: Iterable[str]) -> None:
        """Makes the means that are reported under these names."""
        self._means = {name: ElementMean(name=name) for name in names}

    def _loss_parts(self) -> Mapping[str, float]:
        """Which of the means the loss is the sum of, and the coefficient of each."""
        raise NotImplementedError

    def get_metrics_result(self) -> dict[str, Any]:
        """All metrics. The loss is that of all that was seen, whatever the batches."""
        logs: dict[str, Any] = super().get_metrics_result()  # type: ignore[misc]
        parts = [weight * logs[name] for name, weight in self._loss_parts().items()]
        return {**logs, "loss": sum(parts)}

    def _reported(self, seen: Mapping[str, tuple[Any, Any]]) -> dict[str, Any]:
        """Adds values, each with its weights, to the means; returns all metrics."""
        for name, (values, weights) in seen.items():
            self._means[name].update_state(values, weights)
        return self.get_metrics_result()

    def compile(self, optimizer: Any = None, loss: Any = None, **kwargs: Any) -> None:
        """`keras.Model.compile` with defaults. The losses and metrics are the objective's own.

        Args:
            optimizer: `None` takes `keras_bert.optimizers.AdamW`, at a learning rate of 2e-5 for
                classifiers and 1e-4 for pre-training.
            loss: Must be `None`.
            **kwargs: As in Keras.

        Raises:
            ValueError: If a loss or metrics are given.
        """
        names = ("loss_weights", "metrics", "weighted_metrics")
        choices = {"loss": loss, **{name: kwargs.get(name) for name in names}}
        given = [name for name, value in choices.items() if value is not None]
        if given:
            raise ValueError(
                f"{', '.join(given)} cannot be chosen: the losses and metrics of a "
                f"{type(self).__name__} are its own, and the weights between its losses are "
                "arguments of the class."
            )
        super().compile(optimizer, **kwargs)  # type: ignore[misc]

    def _default_loss(self) -> None:
        return None

    def _default_metrics(self) -> None:
        return None


def slot_targets(x: Any, y: Any, sample_weight: Any) -> tuple[Any, Any]:
    """The original ids of masked tokens and their weights, int32 and float32 `(batch, slots)`.

    Args:
        x: Features with `mask_positions`.
        y: The ids, or a dict of `masked_lm_logits`, as `Pretrainer` takes them.
        sample_weight: The same; `None` leaves out the slots at position 0.
    """
    ids, weights = (
        part["masked_lm_logits"] if isinstance(part, Mapping) else part
        for part in (y, sample_weight)
    )
    if weights is None:
        weights = ops.not_equal(x["mask_positions"], 0)
    return ops.cast(ids, "int32"), ops.cast(weights, "float32")


def token_weights(x: Any, slot_weights: Any) -> Any:
    """What each token weighs: as much as the heaviest slot of its row, and padding nothing.

    Args:
        x: Features.
        slot_weights: `(batch, slots)`.

    Returns:
        float32 `(batch, length)`.
    """
    of_rows = ops.max(slot_weights, axis=1, keepdims=True)
    mask = x.get("padding_mask")
    mask = x.get("sequence_ids") if mask is None else mask
    mask = ops.ones_like(x["token_ids"]) if mask is None else mask
    return of_rows * ops.cast(ops.not_equal(ops.cast(mask, "int32"), 0), "float32")
