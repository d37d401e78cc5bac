# SPDX-License-Identifier: Apache-2.0
"""Which of several sentences goes with a text."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Self

import keras
import numpy as np

from keras_bert.layers import ClassificationHead
from keras_bert.models.backbone import Backbone, task_pooler
from keras_bert.models.choice_logits import choice_inputs, choice_logits
from keras_bert.ops.attention_mask import masked_score
from keras_bert.tasks.answers import softmax
from keras_bert.tasks.choice_arguments import (
    CHOICE_FORMS,
    choice_columns,
    choice_labels,
    is_choices,
    is_single_choice,
    one_for_each,
)
from keras_bert.tasks.class_labels import class_weights_of
from keras_bert.tasks.presets import classifier_from_preset, pooler_head
from keras_bert.tasks.task import Batching, Task
from keras_bert.tasks.text_arguments import is_text, refuse_other_rows

if TYPE_CHECKING:
    from keras_bert.data.choice_batches import MultipleChoicePreprocessor


@keras.saving.register_keras_serializable(package="keras_bert")
class MultipleChoice(Task):
    """BERT that reads a text with each of its choices, and gives each pair one number.

    Any number of choices, also another one in each row. `compile()` takes AdamW at 2e-5, the
    cross-entropy over the choices of a row, and accuracy.

    Args:
        backbone: The encoder.
        preprocessor: Text to features, or the config of what makes them; without one the task
            takes ids.
        dropout: Rate on the pooled output; `None` takes the config's.
        name: The model's name.

    Call arguments:
        inputs: The backbone's inputs, each `(batch, choices, length)`. A choice that is padding
            throughout is none.

    Output shape:
        Logits `(batch, choices)`, float32; -1e9 where there is no choice.

    Example:

    >>> from keras_bert import Backbone, BertConfig, MultipleChoice
    >>> config = BertConfig(num_layers=1, hidden_dim=8, num_heads=2, intermediate_dim=16)
    >>> task = MultipleChoice(Backbone(config))
    >>> task.predict(np.array([[[101, 2023, 102], [101, 2003, 102]]]), verbose=0).shape
    (1, 2)

    Reference:
        [BERT](https://arxiv.org/abs/1810.04805), section 4.4.
    """

    weighs_classes = True

    input_forms = CHOICE_FORMS

    def __init__(
        self,
        backbone: Backbone,
        preprocessor: MultipleChoicePreprocessor | dict[str, Any] | None = None,
        *,
        dropout: float | None = None,
        name: str = "multiple_choice",
        **kwargs: Any,
    ) -> None:
        config = backbone.config
        head = ClassificationHead(
            1,
            dropout=config.effective_classifier_dropout if dropout is None else dropout,
            initializer_range=config.initializer_range,
            name="classifier",
        )
        pooler = task_pooler(backbone)
        inputs = choice_inputs()
        super().__init__(
            inputs=inputs,
            outputs=choice_logits(backbone, inputs, head, pooler),
            backbone=backbone,
            preprocessor=preprocessor,
            name=name,
            **kwargs,
        )
        self.head = head
        self.pooler = pooler

    @property
    def heads(self) -> dict[str, Any]:
        """The task's heads, by the names that checkpoints know them by."""
        return {"multiple_choice": self.head, **pooler_head(self.pooler)}

    @staticmethod
    def preprocessor_from_config(config: dict[str, Any]) -> Any:
        from keras_bert.data.choice_batches import MultipleChoicePreprocessor

        return MultipleChoicePreprocessor.from_config(config)

    @classmethod
    def from_preset(
        cls,
        preset: str | os.PathLike[str],
        *,
        sequence_length: int | None = None,
        dropout: float | None = None,
        load_weights: bool = True,
        dtype: Any = None,
    ) -> Self:
        """The task on a pretrained encoder, with the checkpoint's vocabulary.

        The head is loaded where the checkpoint has one; otherwise it starts fresh, and a warning
        says so.

        Args:
            preset: A folder (our own preset, Hugging Face's layout, the TF1 release's, told by
                its files), `hf://organisation/model`, or a name that KerasHub knows.
            sequence_length: The longest sequence in tokens; `None` takes what a preset of ours
                was saved with, otherwise the encoder's maximum.
            dropout: Rate on the pooled output; `None` takes the preset's or the config's.
            load_weights: `False` gives the architecture with fresh weights.
            dtype: A Keras dtype policy or its name.

        Raises:
            keras_bert.checkpoints.CheckpointError: If the files are missing, malformed, or do
                not fit; the message names the file and the tensor.
        """

        def make_task(backbone: Backbone, _: int, preprocessor: Any, **options: Any) -> Any:
            return cls(backbone, preprocessor, dropout=options["dropout"])

        task: Self = classifier_from_preset(
            make_task,
            "multiple_choice",
            preset,
            1,
            sequence_length=sequence_length,
            dropout=dropout,
            load_weights=load_weights,
            dtype=dtype,
        )
        return task

    def save_to_preset(self, folder: str | os.PathLike[str]) -> None:
        """Writes architecture, weights, vocabulary and head to a folder `from_preset` reads."""
        from keras_bert import checkpoints

        preprocessor = self.preprocessor
        checkpoints.save_preset(
            self.backbone,
            folder,
            heads=self.heads,
            tokenizer=preprocessor.tokenizer.get_config(),
            task={"sequence_length": preprocessor.sequence_length, "dropout": self.head.dropout},
        )

    def fit(self, x: Any = None, y: Any = None, *args: Any, **kwargs: Any) -> Any:
        """`keras.Model.fit`, which also takes text.

        Args:
            x: A list of (text, [choice, choice, …]) pairs, a tuple of a list of texts and a list
                of their lists of choices, or a dict of `text` and `choices`. Or features, as
                `keras.Model.fit` takes them.
            y: Which choice is right, counted from 0; one for each row of `x`.
            *args, **kwargs: As in `TextClassifier.fit`.

        Returns:
            Keras' history of losses and metrics.
        """
        return super().fit(x, y, *args, **kwargs)

    def predict(
        self, x: Any, batch_size: int | None = None, verbose: Any = "auto", **kwargs: Any
    ) -> Any:
        """Logits `(rows, choices)`, float32, in the order of the input; for answers, see `choose`.

        Args:
            x: Text in any form that `fit` takes, or features.
            batch_size: Rows in a batch (32).
            verbose: As in Keras.
            **kwargs: As in Keras, for features.

        Returns:
            An array as wide as the most choices that a row has; -1e9 where there is none.
        """
        if not is_choices(x):
            self._check_ids_alone(x)
            return super().predict(x, batch_size=batch_size, verbose=verbose, **kwargs)
        from keras_bert.data.choice_batches import choice_batches

        texts, choices = choice_columns(x)
        batches = choice_batches(
            texts,
            choices,
            self.preprocessor,
            [np.arange(len(texts))],
            **self._batching(batch_size).options(),
        )
        shape = (len(texts), max(map(len, choices), default=0))
        logits = np.full(shape, masked_score("float32"), "float32")
        for _, ((rows,),), outputs in self._outputs_of_batches(batches, verbose):
            logits[rows, : outputs.shape[1]] = outputs
        return logits

    def choose(self, x: Any, batch_size: int | None = None, verbose: Any = 0) -> Any:
        """The choices of each text, the likeliest first.

        Args:
            x: Text in any form that `fit` takes, or one text with its choices.
            batch_size: Texts in a batch (32).
            verbose: 1 shows a progress bar.

        Returns:
            A list in the order of the input, of lists of dicts: `choice` (which one, counted from
            0), `text` (of the choice) and `score` (its probability). One text with its choices
            gives one such list.

        Example:

        ```python
        task.choose(("She opened the fridge and", ["took the milk.", "flew away."]))
        # [{"choice": 0, "text": "took the milk.", "score": 0.97}, …]
        ```
        """
        _, choices = choice_columns(x)
        logits = self.predict(x, batch_size=batch_size, verbose=verbose)
        answers = [
            _ranked(texts, softmax(row[: len(texts)]))
            for texts, row in zip(choices, logits, strict=True)
        ]
        return answers[0] if is_single_choice(x) else answers

    def _model_data(
        self, x: Any, y: Any, sample_weight: Any, batching: Batching
    ) -> tuple[Any, Any, Any]:
        if not is_choices(x):
            self._check_ids_alone(x)
            return super()._model_data(x, y, sample_weight, batching)
        from keras_bert.data.choice_batches import choice_batches

        texts, choices = choice_columns(x)
        if y is None:
            raise ValueError("`y` is missing: which choice of each text is right, from 0.")
        labels = choice_labels(y, choices)
        weights = sample_weight
        if weights is not None:
            weights = one_for_each(np.asarray(weights, "float32"), texts)
        if batching.class_weight:
            weights = class_weights_of(labels, batching.class_weight, weights)
        rest = [labels] if weights is None else [labels, weights]
        batches = choice_batches(texts, choices, self.preprocessor, rest, **batching.options())
        return batches.map(_weighted), None, None

    def _has_text(self, x: Any) -> bool:
        return is_choices(x)

    def _num_targets(self, x: Any) -> dict[str, int]:
        num_choices = self._sequence_axis(x)
        return {} if num_choices is None else {"": num_choices}

    def _held_out(self, x: Any, y: Any, sample_weight: Any, share: float) -> tuple[Any, ...]:
        texts, choices = choice_columns(x)
        start = int(len(texts) * (1 - share))
        rest = [values for values in (y, sample_weight) if values is not None]
        held_out = ((texts[start:], choices[start:]), *(values[start:] for values in rest))
        weights = None if sample_weight is None else sample_weight[:start]
        return (texts[:start], choices[:start]), y[:start], weights, held_out

    def _check_ids_alone(self, x: Any) -> None:
        if is_text(x):
            refuse_other_rows(x, CHOICE_FORMS)
            raise ValueError(f"Expected {CHOICE_FORMS}; received {type(x).__name__}.")
        self._check_ids(x)

    def export(
        self,
        filepath: str | os.PathLike[str],
        format: str = "tf_saved_model",
        *,
        dtype: str = "float32",
        **kwargs: Any,
    ) -> None:
        """Writes a model for serving: by default a SavedModel that takes text.

        See `keras_bert.export.export_multiple_choice`.
        """
        from keras_bert import export

        export.export_multiple_choice(self, filepath, format, dtype=dtype, **kwargs)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "dropout": self.head.dropout}


def _ranked(texts: Sequence[str], probabilities: np.ndarray) -> list[dict[str, Any]]:
    order = np.argsort(-probabilities, kind="stable")
    return [
        {"choice": int(index), "text": texts[index], "score": float(probabilities[index])}
        for index in order
    ]


def _weighted(features: Any, rest: tuple[Any, ...]) -> tuple[Any, ...]:
    """`(features, labels, weights)`, of which the last may be a product."""
    labels, *weights = rest
    if len(weights) == 2:  # Those that were given, and 0 at rows that only fill a batch up
        return features, labels, weights[0] * weights[1]
    return (features, labels, *weights)
