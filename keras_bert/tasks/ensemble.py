# SPDX-License-Identifier: Apache-2.0
"""Ensembles average the predictions of multiple trained models for the same task."""

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
    """Combines multiple trained models for the same task into one model that averages them.

    An ensemble predicts, evaluates, saves and exports like its members. Text is tokenized and
    batched once, and the members compute each batch one after another. An ensemble is not trained.
    It shares the weights of its members. You can train them before or after you create the
    ensemble.

    The average depends on the members' class:

    - For `TextClassifier`, `TokenClassifier` and `MultipleChoice`, the probabilities of the classes
      or choices are averaged, and for regression the scores. `predict` returns the logarithms of
      the mean probabilities as logits, or with `multi_label` the logit of each mean probability.
      Each of the `thresholds` is the mean over the members. `tune_thresholds` tunes the ensemble's
      own thresholds. `min_score` is also the mean, and `abstain` sets the ensemble's own.
    - For `QuestionAnswerer`, the start and end logits of each token in each window are averaged
      before spans are selected. Probabilities would be normalized per window, but spans are
      compared across a context's windows. `null_threshold` is the mean over the members.

    Members must have the same class, the same preprocessor (tokenizer, `sequence_length` and other
    options) and the same classes. The order of `class_names` may differ. The ensemble uses the
    first member's order. The encoders may differ in everything else. An ensemble of one model makes
    the same predictions as that model.

    To combine models for a custom task, define a subclass of both `Ensemble` and the task.

    Args:
        members: One or more models, for example models trained with different seeds.
        name: Name of the model.

    Call arguments:
        inputs: The inputs of each member.

    Output shape:
        Same as the output of each member.

    Raises:
        TypeError: If members have different classes, or a class that does not support ensembles,
            for example `TextEmbedder`.
        ValueError: If `members` is empty, or if they differ in more than their encoders. The
            message includes the difference.

    Example:

    >>> import keras_bert
    >>> from keras_bert import Backbone, BertConfig, TextClassifier
    >>> config = BertConfig(num_layers=1, hidden_dim=8, num_heads=2, intermediate_dim=16)
    >>> members = [TextClassifier(Backbone(config), num_classes=3) for _ in range(2)]
    >>> ensemble = keras_bert.Ensemble(members)
    >>> ensemble.predict(np.array([[101, 2023, 102]]), verbose=0).shape
    (1, 3)

    Reference:
        [BERT](https://arxiv.org/abs/1810.04805), section 4.2, "Ensemble" in table 2.
    """

    # Options in addition to the options of the members' class
    options: ClassVar[tuple[str, ...]] = ()
    # Options that must be equal for all members, and options to average over the members
    shared_options: ClassVar[tuple[str, ...]] = ()
    mean_options: ClassVar[tuple[str, ...]] = ()
    model_fields = ("members",)
    # An ensemble has multiple encoders, so `insight` explains its members instead.
    has_row_logits = False

    def __new__(cls, members: Sequence[Task] = (), **kwargs: Any) -> Any:
        # `Ensemble(members)` creates an object of the subclass for the members' task. Keras also
        # calls this without arguments.
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
        # Do not call `super().__init__`, because the constructor of the members' class creates a
        # head.
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
        """Returns the function that averages a list with all members' outputs.

        Args:
            member: One of the members.
        """
        return mean_of_values

    # === Parts ===

    @property
    def members(self) -> tuple[Any, ...]:
        """The averaged models."""
        return tuple(self.get_layer("averaged").models)

    @property
    def config(self) -> BertConfig:
        """The first member's `BertConfig`, with limits that hold for all members."""
        configs: list[BertConfig] = [member.config for member in self.members]
        return configs[0].replace(
            vocabulary_size=min(config.vocabulary_size for config in configs),
            max_sequence_length=min(config.max_sequence_length for config in configs),
            # Encoders without segments ignore segment IDs.
            num_segments=max(config.num_segments for config in configs),
        )

    @property
    def backbone(self) -> Never:  # type: ignore[override]
        """Not supported, since each member has its own encoder.

        Raises:
            ValueError: Always.
        """
        raise ValueError(
            "An ensemble has one encoder per member instead of its own. Received: an ensemble of "
            f"{len(self.members)} members. Use a member's encoder, such as "
            "ensemble.members[0].backbone."
        )

    @property
    def preprocessor(self) -> Any:
        """The first member's preprocessor. All members have equal preprocessors."""
        return self.members[0].preprocessor

    def _num_truncated_rows(self) -> tuple[int, int]:
        counts: tuple[int, int] = self.members[0]._num_truncated_rows()
        return counts

    def _preprocessor_config(self) -> dict[str, Any] | None:
        config: dict[str, Any] | None = self.members[0]._preprocessor_config()
        return config

    # === Unsupported methods ===

    def _trained(self, variables: list[Any]) -> list[Any]:
        return []

    def compile(self, optimizer: Any = None, loss: Any = None, **kwargs: Any) -> None:
        """Configures the loss and metrics for `evaluate`. The constructor already calls it.

        Args:
            optimizer: Ignored, because an ensemble is not trained.
            loss: See `keras.Model.compile`. Defaults to the loss of the members' class.
            **kwargs: Other arguments of `keras.Model.compile`.
        """
        super().compile("sgd", loss, **{**kwargs, "auto_scale_loss": False})

    def fit(self, *args: Any, **kwargs: Any) -> Never:
        """Not supported, because the members are trained separately.

        Raises:
            ValueError: Always.
        """
        raise ValueError("Ensembles cannot be trained. Train the members, and then combine them.")

    @classmethod
    def from_preset(cls, *args: Any, **kwargs: Any) -> Never:
        """Not supported, because the members are loaded separately.

        Raises:
            ValueError: Always.
        """
        raise ValueError("There are no presets of ensembles. Load the members, and combine them.")

    def save_to_preset(self, *args: Any, **kwargs: Any) -> Never:
        """Not supported, because a preset has one encoder.

        Raises:
            ValueError: Always.
        """
        raise ValueError(
            f"Presets must have one encoder. Received: an ensemble of {len(self.members)} members. "
            "Save it with `save` to a .keras file, or save each member to a preset."
        )

    def save_hugging_face(self, *args: Any, **kwargs: Any) -> Never:
        """Not supported, because a directory in the Hugging Face format has one encoder.

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
    mean_options = ("thresholds", "min_score")

    @staticmethod
    def averaging(member: TextClassifier) -> Callable[[Sequence[Any]], Any]:
        if member.multi_label:
            return mean_of_independent_probabilities
        return mean_of_values if member.is_regression else mean_of_probabilities

    def calibrate(self, *args: Any, **kwargs: Any) -> Never:
        """Not supported, because a mean of probabilities has no temperature.

        Raises:
            ValueError: Always.
        """
        raise ValueError("Ensembles cannot be calibrated. Calibrate the members.")


@keras.saving.register_keras_serializable(package="keras_bert")
class TokenClassifierEnsemble(Ensemble, TokenClassifier):
    """An `Ensemble` of `TokenClassifier`."""

    shared_options = ("num_classes", "class_names", "crf", "scheme")

    @staticmethod
    def averaging(member: TokenClassifier) -> Callable[[Sequence[Any]], Any]:
        if member.crf:
            raise ValueError(
                "The members of an ensemble must be without a CRF, because scores of label "
                "sequences cannot be averaged per word. Received: members with crf=True. Train "
                "them without a CRF, and pass scheme for constrained decoding."
            )
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
    """Returns the subclass of `Ensemble` for the members' class.

    Raises:
        TypeError: If members have different classes, or a class without such a subclass.
    """
    # Maps the task that each subclass extends, in addition to `Ensemble`, to the subclass
    classes: dict[type, type[Ensemble]] = {
        ensemble.__bases__[-1]: ensemble for ensemble in Ensemble.__subclasses__()
    }
    for number, member in enumerate(members):
        name = type(member).__name__
        if not isinstance(member, Task):
            raise TypeError(f"members[{number}] must be a model of a task. Received: a {name}")
        if isinstance(member, Ensemble):
            raise TypeError(f"members[{number}] must not be an ensemble. Received: a {name}")
        if type(member) not in classes:
            raise TypeError(
                f"members[{number}] must be a model of one of the classes "
                f"{', '.join(sorted(task.__name__ for task in classes))}. Received: a {name}, "
                "whose outputs cannot be averaged"
            )
        if type(member) is not type(members[0]):
            raise TypeError(
                "The members of an ensemble must have the same class. Received: members[0], a "
                f"{type(members[0]).__name__}, and members[{number}], a {name}"
            )
    return classes[type(members[0])]


def _check_members(members: Sequence[Any], shared_options: Sequence[str]) -> None:
    """Checks that members only differ in their encoders."""
    if not members:
        raise ValueError("members must have at least one model. Received: an empty list")
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
                    f"The members of an ensemble must have the same {what}. Received: "
                    f"{shown(other)} in members[0], and {shown(value)} in members[{number}]"
                )


def _facts(member: Any, shared_options: Sequence[str], with_preprocessor: bool) -> dict[str, Any]:
    """Returns the properties that must be equal for all members, by name in error messages."""
    facts = {option: getattr(member, option) for option in shared_options}
    if not with_preprocessor:
        return facts
    if member._preprocessor_config() is None:
        return {**facts, "preprocessor": "none"}
    preprocessor = member.preprocessor.get_config()
    del preprocessor["tokenizer"]
    return {**facts, "preprocessor": "one", **preprocessor, **tokenizer_facts(member)}


def _columns(first: Any, member: Any) -> list[int] | None:
    """Returns a member's class indices, ordered like the first member's classes."""
    names: Sequence[str] | None = getattr(first, "class_names", None)
    own: Sequence[str] | None = getattr(member, "class_names", None)
    return None if names is None or own is None or names == own else [*map(own.index, names)]


def _mean_option(members: Sequence[Any], option: str) -> float | tuple[float, ...] | None:
    """Averages an option over the members. Returns `None` if it is `None` in all members.

    An option with a value per class has a mean per class, in the first member's order.

    Raises:
        ValueError: If the option is `None` in some members only.
    """
    values: list[Any] = [getattr(member, option) for member in members]
    if values.count(None) == len(values):
        return None
    if None in values:
        raise ValueError(
            f"{option} must be None in all members of an ensemble, or in none. Received: {values}"
        )
    if isinstance(values[0], tuple):
        classes = range(len(values[0]))
        columns = [_columns(members[0], member) or classes for member in members]
        return tuple(np.mean(list(map(np.take, values, columns)), axis=0).tolist())
    return float(sum(values) / len(values))
