# SPDX-License-Identifier: Apache-2.0
"""Defines the optimizers' base class, with everything except the update rule."""

from __future__ import annotations

import functools
import numbers
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

import keras
from keras import ops

from keras_bert import checks
from keras_bert.ops import optimizer_updates
from keras_bert.ops.annotations import Shape, Tensor
from keras_bert.ops.optimizer_rules import Coefficients, Rule, Update, adam_update, upcast
from keras_bert.optimizers.layer_decay import count_layers, layer_depth
from keras_bert.optimizers.schedules import BertWarmupDecay, LearningRate, LinearWarmupDecay

NOT_DECAYED = ("bias", "gamma", "beta")


class DecoupledDecayOptimizer(keras.optimizers.Optimizer):
    """Base class of optimizers with two moments, decoupled weight decay and global norm clipping.

    In each step, gradients are averaged over the micro-batches and summed over the replicas, then
    scaled by `min(1, global_clipnorm / global norm)`. Then the update rule changes each weight.
    Moments and accumulated gradients are float32 or wider. bfloat16 and float16 weights are rounded
    after each step. Use a mixed precision policy for training, because rounding loses small
    changes.

    See `AdamW` for the arguments and their defaults. Subclasses override the defaults, the update
    rule, `corrects_bias` and the schedule used with `num_train_steps`. Overridden methods that
    start with an underscore are hooks of `keras.optimizers.Optimizer`.
    """

    corrects_bias: ClassVar[bool]
    schedule_class: ClassVar[type[LinearWarmupDecay] | type[BertWarmupDecay]]

    def __init__(
        self,
        learning_rate: LearningRate = 2e-5,
        num_train_steps: int | None = None,
        num_warmup_steps: int = 0,
        weight_decay: float = 0.01,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-8,
        global_clipnorm: float | None = 1.0,
        exclude_from_weight_decay: Iterable[str] = NOT_DECAYED,
        layer_decay: float | None = None,
        num_layers: int | None = None,
        gradient_accumulation_steps: int | None = None,
        name: str = "adamw",
        shard_state: bool = False,
        **kwargs: Any,
    ) -> None:
        if isinstance(learning_rate, numbers.Real):
            checks.NON_NEGATIVE.check(learning_rate=learning_rate)
        checks.NON_NEGATIVE.check(epsilon=epsilon, weight_decay=weight_decay)
        checks.NON_NEGATIVE.check_optional(global_clipnorm=global_clipnorm)
        checks.PROPER_FRACTION.check(beta_1=beta_1, beta_2=beta_2)
        checks.POSITIVE_FRACTION.check_optional(layer_decay=layer_decay)
        checks.POSITIVE_INT.check_optional(num_layers=num_layers)
        # Keras does not check its own arguments for NaN.
        checks.FINITE.check(**{name: x for name, x in kwargs.items() if isinstance(x, float)})
        super().__init__(
            self._schedule(checks.plain(learning_rate), num_train_steps, num_warmup_steps),
            weight_decay=weight_decay,
            global_clipnorm=global_clipnorm,
            gradient_accumulation_steps=gradient_accumulation_steps,
            name=name,
            **kwargs,
        )
        checks.check_names("exclude_from_weight_decay", exclude_from_weight_decay)
        self.beta_1 = beta_1
        self.beta_2 = beta_2
        self.epsilon = epsilon
        self.not_decayed = tuple(exclude_from_weight_decay)
        self.layer_decay = layer_decay
        self.num_layers = num_layers
        self.shard_state = shard_state

    @classmethod
    def _schedule(
        cls, learning_rate: LearningRate, num_train_steps: int | None, warmup: int
    ) -> LearningRate:
        if num_train_steps is None:
            if warmup:
                raise ValueError(
                    "num_warmup_steps requires num_train_steps, for the decay that follows. "
                    f"Received: num_warmup_steps={warmup}, num_train_steps=None"
                )
            return learning_rate
        if not isinstance(learning_rate, numbers.Real):
            raise ValueError(
                "With num_train_steps, learning_rate must be a number, the peak of the schedule. "
                f"Received: learning_rate={learning_rate}, num_train_steps={num_train_steps}"
            )
        return cls.schedule_class(float(learning_rate), num_train_steps, warmup)

    def build(self, variables: Sequence[keras.Variable]) -> None:
        if self.built:
            return
        if self.shard_state and keras.backend.backend() != "jax":
            raise ValueError(
                "shard_state requires JAX, where `keras.distribution` can shard variables. "
                f"Received: shard_state=True on the backend {keras.backend.backend()}"
            )
        super().build(variables)
        self._momentums, self._velocities = self.add_optimizer_variables(
            variables, ["momentum", "velocity"]
        )
        self._decayed = tuple(self.decays(variable) for variable in variables)
        factors = self._layer_wise_factors([variable.path for variable in variables])
        self._rate_factors = tuple(
            factor * getattr(variable, "learning_rate_factor", 1.0)
            for factor, variable in zip(factors, variables, strict=True)
        )

    def _layer_wise_factors(self, paths: Sequence[str]) -> tuple[float, ...]:
        if self.layer_decay is None:
            return (1.0,) * len(paths)
        num_layers = self.num_layers or count_layers(paths)
        if not num_layers:
            raise ValueError(
                "layer_decay requires variables of encoder layers, with `layer_0` and so on in "
                f"their paths. Received: layer_decay={self.layer_decay} and the paths {list(paths)}"
            )
        depths = [layer_depth(path, num_layers) for path in paths]
        return tuple(self.layer_decay ** (num_layers + 2 - depth) for depth in depths)

    def decays(self, variable: Any) -> bool:
        """Returns whether weight decay applies to a variable.

        Args:
            variable: A Keras variable.

        Returns:
            False if the variable's name is in `exclude_from_weight_decay`, or ends with an
            underscore and one of these names.
        """
        name = variable.name
        return not any(name == word or name.endswith(f"_{word}") for word in self.not_decayed)

    def rule_for(self, path: str, is_decayed: bool) -> Rule:
        """Returns a variable's update rule.

        Args:
            path: The path of the variable.
            is_decayed: Whether weight decay applies to the variable.
        """
        return adam_update

    def exclude_from_weight_decay(self, var_list: Any = None, var_names: Any = None) -> None:
        """Raises an error, because Keras would not save these exclusions.

        Raises:
            ValueError: Always. Pass `exclude_from_weight_decay` to the constructor instead.
        """
        raise ValueError(
            f"Pass the names to the constructor of {type(self).__name__}, so that they are saved "
            f"with the model: exclude_from_weight_decay=(...). Received: var_list={var_list}, "
            f"var_names={var_names}"
        )

    def add_variable(
        self, shape: Shape, initializer: Any = "zeros", dtype: Any = None, **kwargs: Any
    ) -> Any:
        dtype = "float32" if dtype in ("bfloat16", "float16") else dtype
        if self.shard_state and kwargs.get("layout") is not None:
            kwargs["layout"] = optimizer_updates.sharded_layout(kwargs["layout"], shape)
        is_accumulator = str(kwargs.get("name")).endswith("gradient_accumulator")
        if is_accumulator and optimizer_updates.num_replicas() > 1:
            return self._add_accumulator(shape, initializer, dtype, **kwargs)
        return super().add_variable(shape, initializer, dtype, **kwargs)

    def _add_accumulator(
        self, shape: Shape, initializer: Any, dtype: Any, name: str, **_: Any
    ) -> Any:
        """Adds a variable with one value per replica. Reading it returns their sum."""
        with keras.name_scope(self.name):
            variable = keras.Variable(
                keras.initializers.get(initializer),
                shape,
                dtype,
                trainable=False,
                aggregation="sum",
                synchronization="on_read",
                name=name,
            )
        self._track_variable(variable)
        return variable

    @optimizer_updates.not_compiled
    def apply(
        self, grads: Sequence[Tensor], trainable_variables: Sequence[keras.Variable] | None = None
    ) -> None:
        grads = [None if g is None else optimizer_updates.dense_gradient(g) for g in grads]
        if self.gradient_accumulation_steps:
            grads = [None if g is None else upcast(g) for g in grads]
        super().apply(grads, trainable_variables)

    def _backend_apply_gradients(
        self, grads: Sequence[Tensor], trainable_variables: Sequence[keras.Variable]
    ) -> None:
        if not self.gradient_accumulation_steps or optimizer_updates.num_replicas() == 1:
            super()._backend_apply_gradients(grads, trainable_variables)
            return
        # Each replica adds to its own accumulators. The rest of Keras' code runs once for all
        # replicas and reads the sum over their accumulators. It cannot run per replica, because
        # TensorFlow does not support communication inside a replica's conditional branch.
        accumulators = [
            self._accumulated_gradients[self._get_variable_index(variable)]
            for variable in trainable_variables
        ]
        optimizer_updates.accumulate(accumulators, grads)
        zeros = [ops.zeros((), accumulator.dtype) for accumulator in accumulators]
        optimizer_updates.once_for_all_replicas(
            functools.partial(super()._backend_apply_gradients, zeros, trainable_variables)
        )

    def _get_current_learning_rate(self) -> Any:
        # Keras calls schedules with the number of micro-batches. `iterations` counts steps.
        if isinstance(self._learning_rate, keras.optimizers.schedules.LearningRateSchedule):
            return self._learning_rate(self.iterations)
        return super()._get_current_learning_rate()

    def _clip_gradients(self, grads: Sequence[Tensor]) -> Sequence[Any]:
        # Keras would clip by the norm on each replica. `_backend_update_step` clips by the norm
        # over all replicas.
        return grads if self.global_clipnorm else super()._clip_gradients(grads)

    def _apply_weight_decay(self, variables: Sequence[keras.Variable]) -> None:
        """Does nothing, because weight decay is part of the update rule."""

    def _backend_increment_gradient_accumulators(
        self, grads: Sequence[Tensor], acc_grads: Sequence[Tensor]
    ) -> None:
        if optimizer_updates.num_replicas() == 1:
            optimizer_updates.accumulate(acc_grads, grads)

    def _backend_update_step(
        self,
        grads: Sequence[Tensor],
        trainable_variables: Sequence[keras.Variable],
        learning_rate: Tensor,
    ) -> None:
        gradients = optimizer_updates.sum_over_replicas(grads)
        rate = ops.cast(learning_rate, "float32")
        rates = {factor: rate * factor for factor in set(self._rate_factors)}
        coefficients = Coefficients(
            rate=rate,
            decay=0.0,
            gradient_scale=self._gradient_scale(gradients),
            step=ops.cast(self.iterations, "float32") + 1 if self.corrects_bias else None,
            beta_1=self.beta_1,
            beta_2=self.beta_2,
            epsilon=self.epsilon,
        )
        updates = []
        for gradient, variable in zip(gradients, trainable_variables, strict=True):
            index = self._get_variable_index(variable)
            is_decayed = self._decayed[index]
            own = coefficients._replace(
                rate=rates[self._rate_factors[index]],
                decay=self.weight_decay if is_decayed else 0.0,
            )
            moments = self._momentums[index], self._velocities[index]
            updates.append(
                Update(self.rule_for(variable.path, is_decayed), variable, gradient, *moments, own)
            )
        optimizer_updates.update_variables(updates)

    def _gradient_scale(self, gradients: Sequence[Tensor]) -> Any:
        if not self.global_clipnorm:
            return None
        norm = optimizer_updates.global_norm(gradients)
        scale = self.global_clipnorm / ops.maximum(norm, self.global_clipnorm)
        return scale + (norm - norm)  # NaN instead of 0 if a gradient is infinite

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "beta_1": self.beta_1,
            "beta_2": self.beta_2,
            "epsilon": self.epsilon,
            "exclude_from_weight_decay": list(self.not_decayed),
            "layer_decay": self.layer_decay,
            "num_layers": self.num_layers,
            "shard_state": self.shard_state,
        }
