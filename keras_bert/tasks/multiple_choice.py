# SPDX-License-Identifier: Apache-2.0
"""Multiple choice: selects the sentence that continues or answers a text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import keras
import numpy as np
from keras import ops

from keras_bert import checks
from keras_bert.checks import shorten_repr
from keras_bert.data.adapters.choices import ChoiceAdapter, choice_columns, is_single_choice
from keras_bert.data.adapters.reading import second_axis
from keras_bert.data.batch_options import BatchOptions
from keras_bert.data.choices import MultipleChoicePreprocessor, choice_outputs, own_choices
from keras_bert.data.columns import columns_of_rows
from keras_bert.data.labels import LabelRules, softmax
from keras_bert.layers.choice_folding import FoldChoices, UnfoldChoices
from keras_bert.layers.heads import new_classification_head
from keras_bert.losses import RankingLoss
from keras_bert.models.backbone import Backbone, task_pooler
from keras_bert.models.inputs import token_inputs
from keras_bert.ops.annotations import Tensor
from keras_bert.tasks.explained_row import ExplainedRow, one_row, pack_texts
from keras_bert.tasks.ranking import query_documents, rank_documents
from keras_bert.tasks.task import Task

if TYPE_CHECKING:
    from keras_bert.export import ExportOptions
    from keras_bert.export.description import RowRequest


@keras.saving.register_keras_serializable(package="keras_bert")
class MultipleChoice(Task):
    """An encoder that encodes a text with each choice and predicts a logit for each pair.

    ```python
    chooser = keras_bert.MultipleChoice.from_preset("minilm")
    chooser.compile()
    rows = [("She opened the umbrella.", ["It was raining.", "It was noon."])]
    chooser.fit(rows, [0])
    chooser.choose(rows)  # [[{"choice": 0, "text": "It was raining.", "score": 0.9}, …]]
    ```

    The number of choices may differ between examples. `fit` and `evaluate` accept a list of (text,
    [choice, choice, …]) pairs, a tuple (texts, choices) with a list of choices for each text, or a
    dict with `text` and `choices`. `y` is the index of the correct choice for each text. For text,
    `predict` returns logits `(rows, choices)`, where `choices` is the maximum number of choices.

    `compile()` defaults to AdamW with a learning rate that depends on the encoder's size, the
    cross-entropy over each example's choices, and accuracy.

    To train a re-ranker on a teacher's scores, pass the loss `keras_bert.losses.MarginMSELoss` or
    `ListNetLoss`. Each text is then a query, the choices are documents, and `y` has a list with the
    score of each document:

    ```python
    chooser.compile(loss=keras_bert.losses.ListNetLoss())
    chooser.fit([("capital of Italy", ["Rome.", "Paris.", "Milan."])], [[9.1, 0.3, 4.2]])
    chooser.rank("capital of France", ["Rome.", "Paris."])  # [{"index": 1, "score": 0.9}, …]
    ```

    Args:
        backbone: The encoder, a `Backbone`.
        preprocessor: A `MultipleChoicePreprocessor` or its config. Without it, the task only
            accepts token IDs.
        dropout: Dropout rate on the pooled output. Defaults to the rate in the encoder's config.
        name: Name of the model.

    Call arguments:
        inputs: The backbone's inputs, each of shape `(batch, choices, length)`. Choices that only
            contain padding are masked.

    Output shape:
        Logits `(batch, choices)`, float32. The logit of masked choices is -1e9.

    Example:

    >>> from keras_bert import Backbone, BertConfig, MultipleChoice
    >>> config = BertConfig(num_layers=1, hidden_dim=8, num_heads=2, intermediate_dim=16)
    >>> task = MultipleChoice(Backbone(config))
    >>> task.predict(np.array([[[101, 2023, 102], [101, 2003, 102]]]), verbose=0).shape
    (1, 2)

    Reference:
        [BERT](https://arxiv.org/abs/1810.04805), section 4.4.
    """

    has_row_logits = True
    predict_method = "choose"
    fields = ("text", "choices")
    list_fields = ("choices",)
    adapters = (ChoiceAdapter,)
    preset_options = ("dropout",)
    preprocessor_class = MultipleChoicePreprocessor
    head_name = "multiple_choice"
    supports_class_weight = True

    def __init__(
        self,
        backbone: Backbone,
        preprocessor: MultipleChoicePreprocessor | dict[str, Any] | None = None,
        *,
        dropout: float | None = None,
        name: str = "multiple_choice",
        **kwargs: Any,
    ) -> None:
        head = new_classification_head(backbone.config, 1, dropout)
        pooler = task_pooler(backbone)
        inputs = token_inputs(with_choices=True)
        token_ids, masks = inputs["token_ids"], {"padding_mask": inputs["padding_mask"]}
        fold, unfold = FoldChoices(name="fold_choices"), UnfoldChoices(name="unfold_choices")
        rows = fold(token_ids, segment_ids=inputs["segment_ids"], **masks)
        scores = head(backbone.pool(rows, pooler))
        super().__init__(
            inputs=inputs,
            outputs=unfold(scores, token_ids=token_ids, **masks),
            backbone=backbone,
            preprocessor=preprocessor,
            name=name,
            **kwargs,
        )
        self.head = head
        self.pooler = pooler

    @property
    def dropout(self) -> float:
        """The dropout rate on the pooled output."""
        return self.head.dropout

    def choose(self, x: Any, batch_size: int | None = None, verbose: int | str = 0) -> Any:
        """Ranks the choices of each text by probability.

        Args:
            x: Text in any form that `fit` accepts, or a single text with its choices.
            batch_size: Number of texts per batch. Defaults to 32.
            verbose: 0 or 1. With 1, it shows a progress bar.

        Returns:
            For each text, a list of dicts in descending order of `score`, with `choice` (the index
            of the choice), `text` (the text of the choice) and `score` (its probability). For a
            single text with its choices, a single list.

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

    def rank(
        self,
        query: str,
        documents: Any,
        batch_size: int | None = None,
        verbose: int | str = 0,
        *,
        top_k: int | None = None,
    ) -> list[dict[str, Any]]:
        """Ranks documents by their relevance to a query.

        `keras-bert finetune --task=ranking` trains such a model.

        Args:
            query: The query.
            documents: Single texts in memory, such as a list of strings.
            batch_size: Number of documents per batch. Defaults to 32.
            verbose: 0 or 1. With 1, it shows a progress bar.
            top_k: Maximum number of documents to return. Defaults to all.

        Returns:
            A list of dicts in descending order of `score`, with `index` (the document's index in
            `documents`) and `score`, a softmax over all documents.

        Raises:
            ValueError: If an argument is invalid.
        """
        documents = query_documents(query, documents)
        checks.POSITIVE_INT.check_optional(top_k=top_k)
        if not documents:
            return []
        # A document's logit does not depend on the other documents, so each can be in a different
        # batch. Ensembles average probabilities over all of them.
        is_ensemble = hasattr(self, "members")
        rows = [(query, documents)] if is_ensemble else [(query, [text]) for text in documents]
        logits = self.predict(rows, batch_size=batch_size, verbose=verbose).reshape(-1)
        return rank_documents(softmax(logits), top_k)

    def serving_answers(self, rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        columns = columns_of_rows(rows, self.fields)
        own = [own_choices(choices) for choices in columns["choices"]]
        logits = self.predict((columns["text"], own), verbose=0)
        return [
            choice_outputs(choices, row[: len(texts)])
            for choices, texts, row in zip(columns["choices"], own, logits, strict=True)
        ]

    @property
    def _learns_scores(self) -> bool:
        """Whether the model is compiled to train on scores of all choices."""
        return isinstance(getattr(self, "loss", None), RankingLoss)

    def _label_rules(self, options: BatchOptions) -> LabelRules:
        return LabelRules(may_be_numbers=self._learns_scores)

    def _targets_and_weights(
        self, x: Any, y: Any, y_pred: Tensor, sample_weight: Any, training: bool
    ) -> tuple[Any, Any, Any]:
        if y_pred is not None and self._learns_scores:
            # The scores have as many columns as the example with most choices.
            y = y[:, : ops.shape(y_pred)[1]]
        return y, y_pred, sample_weight

    def _num_targets(self, x: Any) -> dict[str, int | None]:
        return {"": second_axis(x)}

    def explained_row(self, x: Any, target: Any) -> ExplainedRow:
        if not isinstance(x, (list, tuple)) or len(x) != 2 or not isinstance(x[0], str):
            raise ValueError(f"x must be (text, choices). Received: {shorten_repr(x)}")
        text, choices = x
        if target is None:
            target = self.choose((text, list(choices)))[0]["choice"]
        if not isinstance(target, int) or not 0 <= target < len(choices):
            raise ValueError(f"target must be 0 to {len(choices) - 1}. Received: {target!r}")
        # A choice's logit only depends on its own sequence.
        texts = (text, choices[target])
        features = one_row(self, self.preprocessor([text], [[choices[target]]]))
        _, spans = pack_texts(self, texts)
        return ExplainedRow(features, texts, spans, {"": (0,)}, f"choice {choices[target]!r}")

    def serving_signatures(self, options: ExportOptions) -> dict[str, Any]:
        from keras_bert.export.choice_signatures import choice_signatures

        return choice_signatures(self, options)

    def serving_requests(self) -> tuple[RowRequest, ...]:
        from keras_bert.export.choice_signatures import CHOICE_REQUESTS

        return CHOICE_REQUESTS


def _ranked(texts: Sequence[str], probabilities: np.ndarray) -> list[dict[str, Any]]:
    order = np.argsort(-probabilities, kind="stable")
    return [
        {"choice": int(index), "text": texts[index], "score": float(probabilities[index])}
        for index in order
    ]
