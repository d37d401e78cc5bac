# SPDX-License-Identifier: Apache-2.0
"""Classification of, or regression on, texts and pairs of texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import keras
import numpy as np

from keras_bert import checks
from keras_bert.data.columns import as_given, columns_of_rows, listed
from keras_bert.data.labels import LabelRules, checked_num_classes, softmax
from keras_bert.data.loader import BatchOptions
from keras_bert.data.texts import TextClassifierPreprocessor
from keras_bert.layers.heads import new_classification_head
from keras_bert.layers.top_layers import apply_layers, as_layers
from keras_bert.models.backbone import Backbone, task_pooler
from keras_bert.models.inputs import token_inputs
from keras_bert.tasks.objective import class_accuracy, class_loss
from keras_bert.tasks.task import Task

if TYPE_CHECKING:
    from keras_bert.export import ExportOptions


@keras.saving.register_keras_serializable(package="keras_bert")
class TextClassifier(Task):
    """An encoder with a classification head: a class, or a score, for each text or pair of texts.

    ```python
    classifier = keras_bert.TextClassifier.from_preset("minilm", class_names=["bad", "good"])
    classifier.compile()
    classifier.fit(["dull", "a gripping film"], ["bad", "good"])  # or y of ids, such as [0, 1]
    classifier.classify(["a moving film"])  # [{"label": "good", "score": 0.9}]
    ```

    The defaults of `compile()` are AdamW with a learning rate for the size of the encoder, the
    cross-entropy and accuracy; for regression, the mean squared error and the mean absolute error.
    It classifies the pooled output; in a causal encoder this is the last token, the only
    one that attends to the whole text.

    Args:
        backbone: The encoder, a `Backbone`.
        num_classes: Number of classes; 1 for regression. Defaults to the number of `class_names`.
        preprocessor: A `TextClassifierPreprocessor` or its config; without it, the task takes token
            ids only.
        class_names: The names of the classes in the order of their ids. With them, labels may be
            names, and the labels of `classify` are names.
        dropout: Dropout rate on the pooled output. Defaults to the rate in the encoder's config.
        top_layers: Keras layers that are applied one after another to the sequence output `(batch,
            length, hidden)`; the output of the last one, `(batch, features)`, is classified instead
            of the pooled output. See `keras_bert.layers.bidirectional_lstm`. Layers that read
            padding are refused. Defaults to none.
        name: The name of the model.

    Call arguments:
        inputs: The inputs of the backbone.

    Output shape:
        Logits `(batch, num_classes)`, float32.

    Raises:
        ValueError: If the number of classes is unknown, or differs from `class_names`.

    Example:

    >>> from keras_bert import Backbone, BertConfig, TextClassifier
    >>> config = BertConfig(num_layers=1, hidden_dim=8, num_heads=2, intermediate_dim=16)
    >>> classifier = TextClassifier(Backbone(config), num_classes=3)
    >>> classifier.predict(np.array([[101, 2023, 102]]), verbose=0).shape
    (1, 3)

    Reference:
        [BERT](https://arxiv.org/abs/1810.04805), section 4.1, and "+ BiLSTM" of section 5.1.
    """

    verb = "classify"
    optional_fields = ("text_pair",)
    preset_options = ("dropout",)
    head_name = "classifier"

    def __init__(
        self,
        backbone: Backbone,
        num_classes: int | None = None,
        preprocessor: TextClassifierPreprocessor | dict[str, Any] | None = None,
        *,
        class_names: Sequence[str] | None = None,
        dropout: float | None = None,
        top_layers: Sequence[keras.layers.Layer] | None = None,
        name: str = "text_classifier",
        **kwargs: Any,
    ) -> None:
        num_classes = checked_num_classes(num_classes, class_names)
        top_layers = as_layers(top_layers)
        head = new_classification_head(backbone.config, num_classes, dropout)
        inputs = token_inputs()
        pooler = None if top_layers else task_pooler(backbone)
        if top_layers:
            sequence_output = backbone(inputs)["sequence_output"]
            pooled = apply_layers(top_layers, sequence_output, inputs["padding_mask"])
            if len(pooled.shape) != 2:
                raise ValueError(
                    f"top_layers return the shape {pooled.shape}; expected (batch, features)."
                )
        else:
            pooled = backbone.pool(inputs, pooler)
        logits = head(pooled)
        super().__init__(
            inputs=inputs,
            outputs=logits,
            backbone=backbone,
            preprocessor=preprocessor,
            name=name,
            **kwargs,
        )

        self.head = head
        self.pooler = pooler
        self.num_classes = num_classes
        self.class_names = None if class_names is None else tuple(class_names)
        self.top_layers = top_layers
        self.uses_pooler = not top_layers
        self.supports_class_weight = not self.is_regression

    @property
    def dropout(self) -> float:
        """The dropout rate on the pooled output."""
        return self.head.dropout

    @property
    def is_regression(self) -> bool:
        """Whether the task is regression, with a single output."""
        return self.num_classes == 1

    def _default_loss(self) -> keras.losses.Loss:
        if self.is_regression:
            return keras.losses.MeanSquaredError(reduction="mean_with_sample_weight")
        return class_loss()

    def _check_loss(self, loss: Any) -> None:
        super()._check_loss(loss)
        name = loss if isinstance(loss, str) else type(loss).__name__
        if self.is_regression and name.lower().endswith("crossentropy"):
            # Neither a preset nor an export would know that the output is a logit.
            raise ValueError(
                f"The loss {name} is for classes, but a TextClassifier with num_classes=1 is a "
                "regression, whose output is a score and not a logit. For two classes, pass "
                "num_classes=2 and no loss."
            )
        if not self.is_regression and type(loss).__name__.startswith("Binary"):
            raise ValueError(
                f"The loss {type(loss).__name__} is for texts with any number of labels, but a "
                "TextClassifier predicts one class for each text. A task with several labels is "
                "the example of docs/extend/new_task.md."
            )

    def _default_metrics(self) -> list[keras.metrics.Metric]:
        if self.is_regression:
            return [keras.metrics.MeanAbsoluteError(name="mean_absolute_error")]
        return [class_accuracy()]

    def classify(
        self,
        x: Any,
        batch_size: int | None = None,
        verbose: int | str = 0,
        *,
        top_k: int | None = None,
    ) -> Any:
        """Predicts the most probable class of each text, or the score of a regression.

        Args:
            x: Text in any form that `fit` takes.
            batch_size: The number of texts in a batch. Defaults to 32.
            verbose: 0 or 1; 1 shows a progress bar.
            top_k: The number of classes to return for each text, at most all; `None` returns the
                most probable class by itself, and not in a list.

        Returns:
            A list of dicts in the order of the input: `label` (the name of the class, or its id
            without `class_names`) and `score` (its probability); for regression, only `score`. For
            a single string, a single dict; for a pandas data frame or series, a data frame with the
            same index. With `top_k`, a list of dicts in descending order of `score` instead of each
            dict; for a pandas data frame or series, a series of these lists.

        Raises:
            ValueError: If `top_k` is below 1, or given for a regression.

        Example:

        ```python
        classifier.classify("a gripping film")
        # {"label": "positive", "score": 0.9}
        classifier.classify("a gripping film", top_k=2)
        # [{"label": "positive", "score": 0.9}, {"label": "negative", "score": 0.1}]
        ```
        """
        checks.POSITIVE_INT.check_given(top_k=top_k)
        if top_k is not None and self.is_regression:
            raise ValueError(f"top_k is {top_k}; it must be None for a regression.")
        x = listed(x)
        logits = self.predict(x, batch_size=batch_size, verbose=verbose)
        if self.is_regression:
            return as_given(x, [{"score": float(row[0])} for row in logits])
        answers = [self._best_classes(row, top_k or 1) for row in softmax(logits)]
        return as_given(x, answers if top_k else [best for (best,) in answers])

    def serving_answers(self, rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        if self.is_regression:
            return super().serving_answers(rows)
        columns = columns_of_rows(rows, self.fields, self.optional_fields)
        names = self.class_names or range(self.num_classes)
        return [
            {
                "label": str(names[np.argmax(probabilities)]),
                "probabilities": probabilities.tolist(),
                "score": float(probabilities.max()),
            }
            for probabilities in softmax(self.predict(listed(columns), verbose=0))
        ]

    def _best_classes(self, probabilities: np.ndarray, top_k: int) -> list[dict[str, Any]]:
        names = self.class_names or range(self.num_classes)
        return [
            {"label": names[index], "score": float(probabilities[index])}
            for index in np.argsort(-probabilities, kind="stable")[:top_k]
        ]

    def _label_rules(self, options: BatchOptions) -> LabelRules:
        return LabelRules(
            self.num_classes if self.supports_class_weight and self._loss_takes_ids() else None,
            self.class_names,
            lowest=-1 if options.allow_unlabeled else 0,
            is_score=self.is_regression,
        )

    def _num_targets(self, x: Any) -> dict[str, int | None]:
        return {} if self.is_regression else {"": self.num_classes}

    def serving_signatures(self, options: ExportOptions) -> dict[str, Any]:
        from keras_bert.export.signatures import classifier_signatures

        return classifier_signatures(self, options)
