# SPDX-License-Identifier: Apache-2.0
"""Ensembles average the predictions of several trained models of one task."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Never, Self

import keras
import numpy as np

from keras_bert.config import BertConfig
from keras_bert.layers.averaging import (
    AveragedModels,
    mean_of_independent_probabilities,
    mean_of_probabilities,
    mean_of_values,
)
from keras_bert.ops.lazy_tensorflow import serialize_keras_object
from keras_bert.tasks.multiple_choice import MultipleChoice
from keras_bert.tasks.presets import shown, tokenizer_facts
from keras_bert.tasks.question_answerer import QuestionAnswerer
from keras_bert.tasks.task import Task
from keras_bert.tasks.text_classifier import TextClassifier
from keras_bert.tasks.token_classifier import TokenClassifier


class Ensemble(Task):
    """Several trained models of one task, as one model of that task that averages them.

    It answers, predicts, evaluates, saves and exports as its members do. Text is tokenized and
    batched once, and all members compute each batch, one after another. An ensemble is not trained:
    it shares the weights of its members, which may be trained before or after.

    The average depends on the class of the members:

    - `TextClassifier`, `TokenClassifier`, `MultipleChoice`: the probabilities of the classes or
      choices, or the scores of a regression. `predict` returns the logarithms of the mean
      probabilities as logits, or with `multi_label` the logit of each mean probability. Each of the
      `thresholds` is the mean over the members; `tune_thresholds` finds the ensemble's own.
    - `QuestionAnswerer`: the start logits and the end logits of each token of each window, before
      spans are chosen. (Probabilities would be normalized in each window, but the scores of spans
      are compared across the windows of a passage.) `null_threshold` is the mean over the members.

    Members must be of the same class, and have the same preprocessor (tokenizer, `sequence_length`
    and other options) and the same classes. The order of `class_names` may differ; the ensemble has
    the first member's. The encoders may differ in everything else. An ensemble of one model answers
    as that model.

    For an ensemble of your own task, define a subclass of `Ensemble` and of the task.

    Args:
        members: One or more models, such as models that were trained with different seeds.
        name: The name of the model.

    Call arguments:
        inputs: The inputs of each member.

    Output shape:
        The same as each member's.

    Raises:
        TypeError: If members are of different classes, or of a class without an ensemble, such as
            `TextEmbedder`.
        ValueError: If there are no members, or they differ in more than their encoders; the message
            names the difference.

    Example:

    >>> import keras_bert
    >>> from keras_bert import Backbone, BertConfig, TextClassifier
    >>> config = BertConfig(num_layers=1, hidden_dim=8, num_heads=2, intermediate_dim=16)
    >>> members = [TextClassifier(Backbone(config), num_classes=3) for _ in range(2)]
    >>> ensemble = keras_bert.Ensemble(members)
    >>> ensemble.predict(np.array([[101, 2023, 102]]), verbose=0).shape
    (1, 3)

    Reference:
        [BERT](https://arxiv.org/abs/1810.04805), section 4.2, "Ensemble" of table 2.
    """

    # Besides those of the members' class
    options: ClassVar[tuple[str, ...]] = ()
    # Options that must be equal for all members, and options that are averaged over them
    shared_options: ClassVar[tuple[str, ...]] = ()
    mean_options: ClassVar[tuple[str, ...]] = ()
    model_fields = ("members",)
    # Its encoders are those of its members, which `insight` explains one by one.
    has_row_logits = False

    def __new__(cls, members: Sequence[Task] = (), **kwargs: Any) -> Any:
        # `Ensemble(members)` creates an object of the subclass for their task. (Keras also calls
        # this without arguments.)
        if cls is Ensemble and members:
            cls = _ensemble_class(members)
        return super().__new__(cls, members, **kwargs)

    def __init__(self, members: Sequence[Task], *, name: str = "ensemble", **kwargs: Any) -> None:
        _check_members(members, self.shared_options)
        first = members[0]
        averaged = AveragedModels(
            members,
            self.averaging(first),
            [_columns(first, member) for member in members],
            name="averaged",
        )
        # Not `super().__init__`: the constructor of the members' class would create a head.
        Task.__init__(
            self,
            inputs=first.input,
            outputs=averaged(first.input),
            backbone=None,
            name=name,
            **kwargs,
        )
        self.supports_class_weight = first.supports_class_weight
        for option in self.shared_options:
            setattr(self, option, getattr(first, option))
        for option in self.mean_options:
            setattr(self, option, _mean_option(members, option))
        self.compile()

    @staticmethod
    def averaging(member: Any) -> Callable[[Sequence[Any]], Any]:
        """Returns the function that averages the outputs of all members, given as a list.

        Args:
            member: One of the members.
        """
        return mean_of_values

    # === Parts ===

    @property
    def members(self) -> tuple[Any, ...]:
        """The models that are averaged."""
        return tuple(self.get_layer("averaged").models)

    @property
    def config(self) -> BertConfig:
        """The `BertConfig` of the first member, with limits that hold for all of them."""
        configs: list[BertConfig] = [member.config for member in self.members]
        return configs[0].replace(
            vocabulary_size=min(config.vocabulary_size for config in configs),
            max_sequence_length=min(config.max_sequence_length for config in configs),
            # Encoders without segments ignore their ids.
            num_segments=max(config.num_segments for config in configs),
        )

    @property
    def backbone(self) -> Never:  # type: ignore[override]
        """Refused, since each member has its own.

        Raises:
            ValueError: Always.
        """
        raise ValueError(
            f"An ensemble has no encoder of its own, but one in each of its {len(self.members)} "
            "members; expected one of them, such as ensemble.members[0]."
        )

    @property
    def preprocessor(self) -> Any:
        """The preprocessor of the first member: all have the same."""
        return self.members[0].preprocessor

    def _num_truncated_rows(self) -> tuple[int, int]:
        counts: tuple[int, int] = self.members[0]._num_truncated_rows()
        return counts

    def _preprocessor_config(self) -> dict[str, Any] | None:
        config: dict[str, Any] | None = self.members[0]._preprocessor_config()
        return config

    # === What an ensemble does not do ===

    def _trained(self, variables: list[Any]) -> list[Any]:
        return []

    def compile(self, optimizer: Any = None, loss: Any = None, **kwargs: Any) -> None:
        """Configures the loss and metrics of `evaluate`; by default, the constructor has done so.

        Args:
            optimizer: Ignored: an ensemble is not trained.
            loss: See `keras.Model.compile`. Defaults to the loss of the class of the members.
            **kwargs: Other arguments of `keras.Model.compile`.
        """
        super().compile("sgd", loss, **{**kwargs, "auto_scale_loss": False})

    def fit(self, *args: Any, **kwargs: Any) -> Never:
        """Refused: members are trained one by one.

        Raises:
            ValueError: Always.
        """
        raise ValueError("An ensemble is not trained: train its members, and then combine them.")

    @classmethod
    def from_preset(cls, *args: Any, **kwargs: Any) -> Never:
        """Refused: members are loaded one by one.

        Raises:
            ValueError: Always.
        """
        raise ValueError("There are no presets of ensembles: load the members, and combine them.")

    def save_to_preset(self, *args: Any, **kwargs: Any) -> Never:
        """Refused: a preset has one encoder.

        Raises:
            ValueError: Always.
        """
        raise ValueError(
            f"A preset has one encoder, and this ensemble {len(self.members)}: save it by "
            "`save` to a .keras file, or each of its members to a preset."
        )

    def save_hugging_face(self, *args: Any, **kwargs: Any) -> Never:
        """Refused: a folder in the Hugging Face format has one encoder.

        Raises:
            ValueError: Always.
        """
        self.save_to_preset()

    # === Configuration ===

    def get_config(self) -> dict[str, Any]:
        names = (*self.shared_options, *self.mean_options)
        return {
            "members": [serialize_keras_object(member) for member in self.members],
            "name": self.name,
            "options": {name: getattr(self, name) for name in names},
            **self._layer_states(),
            **{name: getattr(self, name) for name in self.options},
        }

    @property
    def _parts_with_states(self) -> tuple[keras.Model, ...]:
        return self.members

    @classmethod
    def from_config(
        cls, config: dict[str, Any], custom_objects: Mapping[str, Any] | None = None
    ) -> Self:
        config = dict(config)
        options = config.pop("options")
        ensemble = super().from_config(config, custom_objects)
        for name, value in options.items():
            setattr(ensemble, name, tuple(value) if isinstance(value, list) else value)
        return ensemble


@keras.saving.register_keras_serializable(package="keras_bert")
class TextClassifierEnsemble(Ensemble, TextClassifier):
    """An `Ensemble` of `TextClassifier`."""

    shared_options = ("num_classes", "class_names", "multi_label")
    mean_options = ("thresholds",)

    @staticmethod
    def averaging(member: TextClassifier) -> Callable[[Sequence[Any]], Any]:
        if member.multi_label:
            return mean_of_independent_probabilities
        return mean_of_values if member.is_regression else mean_of_probabilities


@keras.saving.register_keras_serializable(package="keras_bert")
class TokenClassifierEnsemble(Ensemble, TokenClassifier):
    """An `Ensemble` of `TokenClassifier`."""

    shared_options = ("num_classes", "class_names")

    @staticmethod
    def averaging(member: TokenClassifier) -> Callable[[Sequence[Any]], Any]:
        return mean_of_probabilities


@keras.saving.register_keras_serializable(package="keras_bert")
class MultipleChoiceEnsemble(Ensemble, MultipleChoice):
    """An `Ensemble` of `MultipleChoice`."""

    @staticmethod
    def averaging(member: MultipleChoice) -> Callable[[Sequence[Any]], Any]:
        return mean_of_probabilities


@keras.saving.register_keras_serializable(package="keras_bert")
class QuestionAnswererEnsemble(Ensemble, QuestionAnswerer):
    """An `Ensemble` of `QuestionAnswerer`."""

    shared_options = ("max_answer_length",)
    mean_options = ("null_threshold",)


def _ensemble_class(members: Sequence[Task]) -> type[Ensemble]:
    """Returns the subclass of `Ensemble` for the class of members.

    Raises:
        TypeError: If they are of several classes, or there is no such subclass.
    """
    # By the task that each subclass inherits from besides `Ensemble`
    classes: dict[type, type[Ensemble]] = {
        ensemble.__bases__[-1]: ensemble for ensemble in Ensemble.__subclasses__()
    }
    for number, member in enumerate(members):
        name = type(member).__name__
        if not isinstance(member, Task):
            raise TypeError(f"members[{number}] must be a model of a task. Received: a {name}")
        if isinstance(member, Ensemble):
            raise TypeError(f"members[{number}] is a {name}; expected its members instead.")
        if type(member) not in classes:
            raise TypeError(
                f"members[{number}] is a {name}, whose outputs cannot be averaged to better "
                "answers; expected models of one of the classes "
                f"{', '.join(sorted(task.__name__ for task in classes))}."
            )
        if type(member) is not type(members[0]):
            raise TypeError(
                f"members[0] is a {type(members[0]).__name__}, and members[{number}] a {name}; "
                "expected models of one task."
            )
    return classes[type(members[0])]


def _check_members(members: Sequence[Any], shared_options: Sequence[str]) -> None:
    """Checks that members differ in nothing but their encoders."""
    if not members:
        raise ValueError("There are no members; expected one or more models of one task.")
    configs = [member._preprocessor_config() for member in members]
    with_preprocessors = configs.count(configs[0]) < len(configs)
    first = _facts(members[0], shared_options, with_preprocessors)
    for number, member in enumerate(members):
        own = _facts(member, shared_options, with_preprocessors)
        for what in {**first, **own}:
            value, other = own.get(what), first.get(what)
            is_reordered = what == "class_names" and value and other and {*value} == {*other}
            if value != other and not is_reordered:
                raise ValueError(
                    f"The members of an ensemble have the same {what}, but members[{number}] has "
                    f"{shown(value)}, and members[0] {shown(other)}."
                )


def _facts(member: Any, shared_options: Sequence[str], with_preprocessor: bool) -> dict[str, Any]:
    """Returns what members have in common, by its name in errors."""
    facts = {option: getattr(member, option) for option in shared_options}
    if not with_preprocessor:
        return facts
    if member._preprocessor_config() is None:
        return {**facts, "preprocessor": "none"}
    preprocessor = member.preprocessor.get_config()
    del preprocessor["tokenizer"]
    return {**facts, "preprocessor": "one", **preprocessor, **tokenizer_facts(member)}


def _columns(first: Any, member: Any) -> list[int] | None:
    """Returns the columns of a member's classes in the order of the first member's classes."""
    names: Sequence[str] | None = getattr(first, "class_names", None)
    own: Sequence[str] | None = getattr(member, "class_names", None)
    return None if names is None or own is None or names == own else [*map(own.index, names)]


def _mean_option(members: Sequence[Any], option: str) -> float | tuple[float, ...] | None:
    """Returns the mean of an option over the members; `None` if all have `None`.

    An option with a value for each class has a mean for each, in the first member's order.

    Raises:
        ValueError: If only some members have `None`.
    """
    values: list[Any] = [getattr(member, option) for member in members]
    if values.count(None) == len(values):
        return None
    if None in values:
        raise ValueError(
            f"The members of an ensemble have all a {option}, or none; received {values}."
        )
    if isinstance(values[0], tuple):
        classes = range(len(values[0]))
        columns = [_columns(members[0], member) or classes for member in members]
        return tuple(np.mean(list(map(np.take, values, columns)), axis=0).tolist())
    return float(sum(values) / len(values))
