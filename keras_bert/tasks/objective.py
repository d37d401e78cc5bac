# SPDX-License-Identifier: Apache-2.0
"""The losses and metrics of tasks, which are means over rows or tokens, and not over batches."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import keras
from keras import ops
from keras.src.losses.losses import LossFunctionWrapper

from keras_bert.aliases import refuse_aliases
from keras_bert.metrics import ClassAccuracy, ElementMean
from keras_bert.models.backbone import Backbone
from keras_bert.models.inputs import LOSS_DIVISORS, TokenModel
from keras_bert.ops.annotations import Tensor
from keras_bert.ops.optimizer_updates import num_replicas, sum_over_replicas
from keras_bert.optimizers import AdamW

# (minimum hidden_dim, learning rate). MiniLM's rate was measured, the next is interpolated, and
# those of BASE and LARGE are among the paper's (2e-5, 3e-5, 5e-5).
_FINE_TUNING_RATES = ((1024, 2e-5), (768, 3e-5), (512, 1e-4), (0, 1.5e-4))


def fine_tuning_rate(hidden_dim: int) -> float:
    """Returns the default peak learning rate of fine-tuning, which small encoders need higher.

    | hidden_dim | learning rate | source |
    |---|---|---|
    | below 512 | 1.5e-4 | MiniLM on 100 and 800 rows of three GLUE tasks; the recipes |
    | 512 to 767 | 1e-4 | not measured |
    | 768 to 1023 | 3e-5 | BERT, appendix A.3; not measured here |
    | 1024 and more | 2e-5 | BERT, appendix A.3; not measured here |

    Args:
        hidden_dim: The hidden size of the encoder.

    Reference:
        [BERT](https://arxiv.org/abs/1810.04805), appendix A.3.

    Example:

    >>> from keras_bert.tasks.objective import fine_tuning_rate
    >>> fine_tuning_rate(384), fine_tuning_rate(768)
    (0.00015, 3e-05)
    """
    return next(rate for least, rate in _FINE_TUNING_RATES if hidden_dim >= least)


class ObjectiveModel(TokenModel):
    """A functional model on an encoder with default losses and metrics for `compile`.

    The values that `fit` and `evaluate` report are weighted means over all rows or tokens. Keras'
    are means of the means of batches, which depend on the batches.
    """

    backbone: Backbone
    # The learning rate of the default optimizer of `compile`; `None` is `fine_tuning_rate`
    default_learning_rate: float | None = None
    # Whether labels are class ids, so that `class_weight` applies
    supports_class_weight: bool = False
    # The weight of each class id in the loss of a running `fit`, and last that of other ids
    _class_weight: tuple[float, ...] | None = None
    # Whether the outputs depend on the encoder's pooler. If not, it is not trained: it would have
    # no gradient, about which TensorFlow warns, and on JAX its weights would decay.
    uses_pooler: bool = True

    def __init__(self, *args: Any, backbone: Backbone | None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if backbone is not None:  # as of an ensemble, which has several
            self.backbone = backbone
        # The mean of the loss of each output; that of a single output is reported as `loss`.
        self._loss_means = {
            name: ElementMean(name=f"{name}_loss") for name in self._outputs_with_losses()
        }
        self._output_losses: dict[str, tuple[keras.losses.Loss, float]] | None = None

    def _outputs_with_losses(self) -> Iterable[str]:
        """Returns the names of the outputs with a loss in the sum; "" is a single output."""
        return self.output if isinstance(self.output, Mapping) else ("",)

    @property
    def trainable_variables(self) -> list[Any]:
        return self._trained(self.variables)

    @property
    def trainable_weights(self) -> list[Any]:
        return self._trained(self.weights)

    @property
    def non_trainable_variables(self) -> list[Any]:
        return _others(self.variables, self.trainable_variables)

    @property
    def non_trainable_weights(self) -> list[Any]:
        return _others(self.weights, self.trainable_weights)

    def _trained(self, variables: list[Any]) -> list[Any]:
        # As Keras does, and not by `super()`, whose properties `torch.compile` cannot trace
        if not self.trainable:
            return []
        trained = [variable for variable in variables if variable.trainable]
        if self.uses_pooler or not hasattr(self, "backbone") or self.backbone.pooler is None:
            return trained
        return _others(trained, self.backbone.pooler.variables)

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
                they exclude padding, ignored labels, and padding rows.
            weighted_metrics: See `keras.Model.compile`. If it and `metrics` are `None`, the metrics
                of the class are used.
            auto_scale_loss: Whether to use loss scaling if the encoder computes in float16, so that
                small gradients do not underflow.
            **kwargs: Other arguments of `keras.Model.compile`.

        Raises:
            ValueError: If only one of `metrics` and `weighted_metrics` is a dict by output, or a
                loss takes probabilities: outputs are logits.
        """
        refuse_aliases(self.compile, kwargs, "compile")
        weighted_metrics = _joined(metrics, weighted_metrics)
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
        scaled = isinstance(optimizer, keras.optimizers.LossScaleOptimizer)
        if auto_scale_loss and not scaled and _computes_in_float16(self.backbone):
            # Keras only checks the policy of the model, but an encoder has its own.
            optimizer = keras.optimizers.LossScaleOptimizer(optimizer, name="loss_scale_optimizer")
        self._check_loss(loss)
        super().compile(
            optimizer=optimizer,
            loss=loss,
            loss_weights=loss_weights,
            weighted_metrics=_class_accuracies(weighted_metrics, loss),
            auto_scale_loss=auto_scale_loss,
            **kwargs,
        )
        self._output_losses = _losses_of_outputs(loss, loss_weights, self._loss_means)
        if self._output_losses is not None:
            # Nothing is computed by it. To build it, Keras would call the model symbolically at
            # each `train_on_batch`.
            self._compile_loss.built = True

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
        if self._output_losses is not None and self.losses:
            self._output_losses = None
            self._compile_loss.built = False
        if self._output_losses is None:
            return super().compute_loss(x, y, y_pred, sample_weight, training)
        total = 0
        of_update = _divisors_of_update(x, self._output_losses) if training else {}
        for name, (loss, weight) in self._output_losses.items():
            target, output, weights = _of_output(name, y, y_pred, sample_weight)
            shape = ops.shape(output)[:-1]
            weights = weights_of_targets(weights, shape)
            value = ops.cast(loss(target, output, weights), "float32")
            divisor = _divisor(loss, shape, weights)
            self._loss_means[name].update_state(ops.stop_gradient(value) * num_replicas(), divisor)
            if loss.reduction != "sum":
                value = _share_of_update(value, divisor, of_update.get(name))
            total = total + (value if weight == 1 else value * weight)
        return total

    def _has_loss_divisors(self) -> bool:
        """Returns whether the losses are means over the rows or tokens of all micro-batches.

        Those that are left to Keras are means of the micro-batches.
        """
        return self._output_losses is not None and not self.losses

    def _loss_divisors(self, x: Any, y: Any, sample_weight: Any) -> Any:
        """Returns the divisors of the losses of a batch in `compute_loss`, float32 `(losses,)`."""
        y, _, sample_weight = self._compared(x, y, None, sample_weight, training=True)
        sample_weight = self._weighted_by_class(y, sample_weight)
        divisors = []
        for name, (loss, _) in (self._output_losses or {}).items():
            target, output, weights = _of_output(name, y, self.output, sample_weight)
            shape = ops.shape(target)[: len(output.shape) - 1]
            divisors.append(_divisor(loss, shape, weights_of_targets(weights, shape)))
        return ops.stack(divisors)

    def compute_metrics(
        self, x: Tensor, y: Tensor, y_pred: Tensor, sample_weight: Tensor | None = None
    ) -> dict[str, Any]:
        """Updates the metrics, and returns all of them."""
        compared = self._compared(x, y, y_pred, sample_weight, training=False)
        metrics: dict[str, Any] = super().compute_metrics(x, *compared)
        return metrics

    def _compared(
        self, x: Any, y: Any, y_pred: Tensor, sample_weight: Any, training: bool
    ) -> tuple[Any, Any, Any]:
        """Returns the targets, outputs and weights that losses and metrics are computed of."""
        return y, y_pred, sample_weight

    @contextlib.contextmanager
    def _weighing_classes(self, class_weight: Mapping[int, float] | None) -> Iterator[None]:
        """Weighs classes in the loss of training, and not in metrics.

        Args:
            class_weight: The weight of each class id; 1 for ids that are not in it.
        """
        if not class_weight:
            yield
            return
        with self._turn():
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
        ids, others = ops.cast(y, "int32"), len(self._class_weight) - 1
        ids = ops.where((ids < 0) | (ids > others), others, ids)
        weights = ops.take(ops.convert_to_tensor(self._class_weight, "float32"), ids, axis=0)
        if sample_weight is None:
            return weights
        sample_weight = ops.cast(sample_weight, "float32")
        if len(sample_weight.shape) > len(weights.shape):
            raise ValueError(
                f"sample_weight has the shape {tuple(sample_weight.shape)}; expected that of the "
                f"labels, {tuple(weights.shape)}."
            )
        for _ in range(len(weights.shape) - len(sample_weight.shape)):
            sample_weight = ops.expand_dims(sample_weight, -1)
        return weights * sample_weight

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
        losses = self._output_losses
        if losses is None and not self.compiled:
            losses = _losses_of_outputs(
                self._default_loss(), self._default_loss_weights(), self._loss_means
            )
        if losses is None:
            raise ValueError(
                f"This {type(self).__name__} computes its loss itself, or was compiled with "
                f"{getattr(self, 'loss', None)!r}; expected one object of keras.losses for each "
                "output, such as the default."
            )
        total = 0
        for name, (loss, weight) in losses.items():
            target, output, weights = _of_output(name, y, y_pred, sample_weight)
            weights = weights_of_targets(weights, ops.shape(output)[:-1])
            value = loss(target, output, weights)
            total = total + weight * ops.cast(value, "float32")
        return total

    def get_metrics_result(self) -> dict[str, Any]:
        """Returns all metrics by name, including the mean losses since the last reset."""
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

    def _check_loss(self, loss: Any) -> None:
        """Checks that no cross-entropy takes probabilities, which logits would be mistaken for."""
        for part in keras.tree.flatten(loss):
            takes_logits = getattr(part, "from_logits", False) is True
            name = part if isinstance(part, str) else getattr(part, "__name__", type(part).__name__)
            if _loss_name(part).endswith("crossentropy") and not takes_logits:
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
        return _takes_ids(loss.get(name) if isinstance(loss, Mapping) else loss)

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
                    keras.Variable(ops.zeros(found[0]), dtype=found[1], trainable=True)
                    if isinstance(found, list)
                    else self.variables[found]
                    for found in positions
                ]
            )


def _of_output(name: str, *parts: Any) -> list[Any]:
    """Returns the targets, outputs or sample weights for one of the outputs of a model."""
    return [part[name] if isinstance(part, Mapping) else part for part in parts]


def weights_of_targets(weights: Any, shape: Sequence[Any]) -> Any:
    """Repeats the weight of each row for its targets, which may have a second axis.

    The divisor of a loss is the sum of the weights of all targets.
    """
    if weights is None or len(shape) < 2 or len(weights.shape) != 1:
        return weights
    return ops.broadcast_to(ops.reshape(weights, (-1, 1)), shape[:2])


def class_loss() -> keras.losses.Loss:
    """Returns the cross-entropy of logits for class ids.

    It is divided by the sum of the sample weights and not by their number, since padding rows, and
    tokens that are not the first subword of a word, have weight 0.
    """
    return keras.losses.SparseCategoricalCrossentropy(
        from_logits=True, reduction="mean_with_sample_weight"
    )


def class_accuracy() -> keras.metrics.Metric:
    """Returns the weighted accuracy of logits for class ids."""
    return ClassAccuracy(name="accuracy")


def _takes_ids(loss: Any) -> bool:
    """Returns whether the targets of a loss are ids; `None` is the default loss, with ids."""
    return loss is None or _loss_name(loss).startswith("sparse")


def _loss_name(loss: Any) -> str:
    """Returns the name of a Keras loss (a string, function or object), normalized."""
    name = loss if isinstance(loss, str) else getattr(loss, "__name__", type(loss).__name__)
    return name.lower().replace("_", "")


def _computes_in_float16(backbone: Backbone) -> bool:
    policy = backbone.dtype_policy
    return bool(policy.compute_dtype == "float16" and policy.variable_dtype != "float16")


def _joined(metrics: Any, weighted: Any) -> Any:
    """Joins the metrics of both arguments of `compile`, by output if they are dicts."""
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
    """Replaces `"accuracy"` with `ClassAccuracy` if labels are class ids.

    Keras' own accuracy averages over the length of a batch first. For one-hot labels, the reverse
    replacement is made.
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
    """Returns the loss and the loss weight of each output; `None` for forms left to Keras."""
    losses = dict(loss) if isinstance(loss, Mapping) else {"": loss}
    losses = {name: _as_loss(part) for name, part in losses.items()}
    coefficients = weights if isinstance(weights, Mapping) else {"": weights}
    if set(losses) != set(outputs) or not set(coefficients) <= {*outputs, ""}:
        return None
    if not all(isinstance(part, keras.losses.Loss) for part in losses.values()):
        return None
    if any(isinstance(value, Sequence) for value in coefficients.values()):
        return None
    shared = coefficients.get("")
    # In the same order as Keras sums them
    return {
        name: (
            losses[name],
            float(next((w for w in (coefficients.get(name), shared) if w is not None), 1.0)),
        )
        for name in sorted(losses)
    }


def _as_loss(loss: Any) -> Any:
    """Converts the name of a loss, or a function, to Keras' loss."""
    loss = keras.losses.get(loss) if isinstance(loss, str) else loss
    return LossFunctionWrapper(loss) if inspect.isfunction(loss) else loss


def _divisor(loss: keras.losses.Loss, shape: Sequence[Any], weights: Any) -> Any:
    """Returns the divisor of a loss: the sum of the weights, or the number of targets."""
    if loss.reduction == "mean_with_sample_weight" and weights is not None:
        return ops.sum(ops.cast(weights, "float32"))
    return ops.cast(ops.prod(ops.convert_to_tensor(shape, dtype="int32")), "float32")


def _divisors_of_update(x: Any, names: Iterable[str]) -> dict[str, Any]:
    """Returns this replica's part of the divisor of each loss, if the update has micro-batches."""
    given = x.get(LOSS_DIVISORS) if isinstance(x, Mapping) else None
    if given is None:
        return {}
    sums = ops.sum(given, axis=0)
    return {name: sums[index] for index, name in enumerate(names)}


def _share_of_update(mean: Any, divisor: Any, of_update: Any) -> Any:
    """Scales the mean of a batch, so that the update has the mean over all that it is made of.

    Keras has divided it by the number of replicas, as if each had targets of the same weight, and
    the optimizer takes the mean of micro-batches.

    Args:
        mean: The mean over the targets that this replica has of a batch.
        divisor: The divisor of the loss.
        of_update: See `_divisors_of_update`; `None` without micro-batches.
    """
    if num_replicas() == 1 and of_update is None:
        return mean
    (total,) = sum_over_replicas([divisor if of_update is None else of_update])
    return mean * ops.stop_gradient(ops.divide_no_nan(divisor * num_replicas(), total))


def _others(variables: list[Any], known: list[Any]) -> list[Any]:
    """Returns the variables that are not among the known ones."""
    # By identity, since == compares the values of variables.
    known_ids = {id(variable) for variable in known}
    return [variable for variable in variables if id(variable) not in known_ids]


class CustomObjective:
    """Mixin of tasks that compute their own loss, a weighted sum of means."""

    _means: dict[str, ElementMean]

    def _outputs_with_losses(self) -> Iterable[str]:
        return ()

    def _report(self, names: Iterable[str]) -> None:
        """Creates the means that are reported with these names."""
        self._means = {name: ElementMean(name=name) for name in names}

    def _loss_parts(self) -> Mapping[str, float]:
        """Returns the means that the loss is the sum of, with the loss weight of each."""
        raise NotImplementedError

    def _loss_targets(self, x: Any, y: Any, sample_weight: Any) -> tuple[Any, Mapping[str, Any]]:
        """Returns the targets, and the weights of the values of each of the parts of the loss."""
        raise NotImplementedError

    def _values(
        self, x: Any, y: Any, y_pred: Tensor, sample_weight: Any
    ) -> Mapping[str, tuple[Any, Any]]:
        """Returns the values of a batch for the reported means, and their weights."""
        raise NotImplementedError

    def _has_loss_divisors(self) -> bool:
        return True

    def _loss_divisors(self, x: Any, y: Any, sample_weight: Any) -> Any:
        sample_weight = self._weighted_by_class(y, sample_weight)  # type: ignore[attr-defined]
        weights = self._loss_targets(x, y, sample_weight)[1]
        return ops.stack([ops.sum(weights[name]) for name in self._loss_parts()])

    def compute_loss(
        self,
        x: Any = None,
        y: Any = None,
        y_pred: Tensor = None,
        sample_weight: Any = None,
        training: bool = True,
    ) -> Any:
        """Computes the weighted sum of the losses of a batch."""
        if training:
            sample_weight = self._weighted_by_class(y, sample_weight)  # type: ignore[attr-defined]
        values, parts = self._values(x, y, y_pred, sample_weight), self._loss_parts()
        of_update = _divisors_of_update(x, parts) if training else {}
        return sum(
            weight * _weighted_mean(*values[name], of_update.get(name))
            for name, weight in parts.items()
            if name in values
        )

    def compute_metrics(
        self, x: Tensor, y: Tensor, y_pred: Tensor, sample_weight: Tensor | None = None
    ) -> dict[str, Any]:
        """Updates the unweighted losses and the metrics; returns all of them."""
        for name, seen in self._values(x, y, y_pred, sample_weight).items():
            self._means[name].update_state(*seen)
        return self.get_metrics_result()

    def get_metrics_result(self) -> dict[str, Any]:
        """Returns all metrics by name, including the mean loss since the last reset."""
        logs: dict[str, Any] = super().get_metrics_result()  # type: ignore[misc]
        parts = [weight * logs[name] for name, weight in self._loss_parts().items()]
        return {**logs, "loss": sum(parts)}

    def compile(self, optimizer: Any = None, loss: Any = None, **kwargs: Any) -> None:
        """Configures the model for training, with the losses and metrics of its class.

        Args:
            optimizer: See `keras.Model.compile`. Defaults to `keras_bert.optimizers.AdamW` with a
                learning rate of 1e-4 in pre-training, and the student's where it is a
                classifier.
            loss: Must be `None`.
            **kwargs: Other arguments of `keras.Model.compile`, except losses and metrics.

        Raises:
            ValueError: If a loss, loss weights or metrics are given.
        """
        names = ("loss_weights", "metrics", "weighted_metrics")
        choices = {"loss": loss, **{name: kwargs.get(name) for name in names}}
        given = [name for name, value in choices.items() if value is not None]
        if given:
            raise ValueError(
                f"{', '.join(given)} cannot be passed: the losses and metrics of a "
                f"{type(self).__name__} are its own, and the weights between its losses are "
                "arguments of the class."
            )
        super().compile(optimizer, **kwargs)  # type: ignore[misc]

    def _default_loss(self) -> None:
        return None

    def _default_metrics(self) -> None:
        return None


def _weighted_mean(values: Any, weights: Any, of_update: Any) -> Any:
    """Returns a replica's part of the mean over all replicas, which sum their losses."""
    (total,) = sum_over_replicas([ops.sum(weights) if of_update is None else of_update])
    return ops.divide_no_nan(ops.sum(values * weights), total)


def slot_targets(x: Any, y: Any, sample_weight: Any) -> tuple[Any, Any]:
    """Returns the original ids of masked tokens and their sample weights.

    Args:
        x: Features with `mask_positions`.
        y: The ids, or a dict with the key `masked_lm_logits` as for `Pretrainer`.
        sample_weight: The sample weights, likewise; with `None`, slots at position 0 are ignored.

    Returns:
        A tuple of int32 and float32 tensors `(batch, slots)`.
    """
    ids, weights = _of_output("masked_lm_logits", y, sample_weight)
    if weights is None:
        weights = ops.not_equal(x["mask_positions"], 0)
    return ops.cast(ids, "int32"), ops.cast(weights, "float32")


def token_weights(x: Any, slot_weights: Any) -> Any:
    """Returns the weight of each token: the maximum weight of the slots of its row; 0 for padding.

    Args:
        x: Features.
        slot_weights: The weights of slots, `(batch, slots)`.

    Returns:
        A float32 tensor `(batch, length)`.
    """
    of_rows = ops.amax(slot_weights, axis=1, keepdims=True)
    mask = x.get("padding_mask")
    mask = x.get("sequence_ids") if mask is None else mask
    mask = ops.ones_like(x["token_ids"]) if mask is None else mask
    return of_rows * ops.cast(ops.not_equal(ops.cast(mask, "int32"), 0), "float32")
