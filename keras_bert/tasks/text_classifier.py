# SPDX-License-Identifier: Apache-2.0
"""Text and text-pair classification, multi-label classification and regression."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import keras
import numpy as np

from keras_bert import checks
from keras_bert.data.adapters.reading import Features, read_input
from keras_bert.data.adapters.texts import single_texts
from keras_bert.data.batch_options import BatchOptions
from keras_bert.data.columns import (
    columns_of_rows,
    label_column,
    match_input_type,
    materialize,
    named_labels,
)
from keras_bert.data.labels import (
    LabelRules,
    MultiLabelRules,
    f1_thresholds,
    rank_labels,
    sigmoid,
    softmax,
    validate_num_classes,
)
from keras_bert.data.loader import Loader, RowsInMemory, to_indexed_batch
from keras_bert.data.texts import ProductExamples, TextClassifierPreprocessor
from keras_bert.layers.heads import new_classification_head
from keras_bert.layers.top_layers import apply_layers, as_layers
from keras_bert.losses import CosineSimilarityLoss
from keras_bert.metrics import MultiLabelF1, compiled_metric
from keras_bert.models.backbone import Backbone, task_pooler
from keras_bert.models.inputs import token_inputs
from keras_bert.optimizers import AdamW
from keras_bert.tasks.abstention import Abstention, select_min_score
from keras_bert.tasks.few_shot import FewShotTraining
from keras_bert.tasks.objective import class_accuracy, class_loss, loss_name, takes_ids
from keras_bert.tasks.prediction import warn_if_truncated
from keras_bert.tasks.ranking import (
    query_documents,
    rank_documents,
    reason_against_ranking,
)
from keras_bert.tasks.task import Task
from keras_bert.tasks.temperature import TemperatureScaling, fit_temperature
from keras_bert.tasks.zero_shot import (
    ENTAILMENT_HYPOTHESIS,
    entailment_id,
    entailment_scores,
    label_hypotheses,
)

if TYPE_CHECKING:
    from keras_bert.export import ExportOptions
    from keras_bert.export.description import RowRequest


@keras.saving.register_keras_serializable(package="keras_bert")
class TextClassifier(Task):
    """An encoder with a classification head: a class, multiple labels, or a score for each text.

    An input may also be a pair of texts.

    ```python
    classifier = keras_bert.TextClassifier.from_preset("minilm", class_names=["bad", "good"])
    classifier.compile()
    classifier.fit(["dull", "a gripping film"], ["bad", "good"])  # or y with IDs, such as [0, 1]
    classifier.classify(["a moving film"])  # [{"label": "good", "score": 0.9}]
    ```

    With `multi_label`, any number of labels applies to a text. `fit` accepts a list of label names
    per text, or rows of 0 and 1. `classify` returns all labels that reach their thresholds:

    ```python
    classifier = keras_bert.TextClassifier.from_preset(
        "minilm", class_names=["light", "warm"], multi_label=True
    )
    classifier.compile()
    classifier.fit(["pale salmon", "deep ocean"], [["light", "warm"], []])  # or [[1, 1], [0, 0]]
    classifier.tune_thresholds(["dull teal", "peach"], [["light"], ["light", "warm"]])
    classifier.classify(["dusty rose"])  # [[{"label": "warm", "score": 0.8}]]
    ```

    `compile()` defaults to AdamW with a learning rate that depends on the encoder's size,
    cross-entropy and accuracy. With `multi_label`, it defaults to the binary cross-entropy of each
    label, and to F1 at a threshold of 0.5, computed over all labels (`micro_f1`) and averaged over
    labels (`macro_f1`). For regression, it defaults to the mean squared error and the mean absolute
    error.

    The head classifies the pooled output. A causal encoder pools the last token, because no other
    token attends to the whole text.

    Args:
        backbone: The encoder, a `Backbone`.
        num_classes: Number of classes, or 1 for regression, unless with `multi_label`. Defaults to
            the number of `class_names`.
        preprocessor: A `TextClassifierPreprocessor` or its config. Without it, the task only
            accepts token IDs.
        class_names: Names of the classes in the order of their IDs. With class names, labels may be
            names, and `classify` returns names.
        multi_label: Whether any number of labels applies to a text, so that each label has its own
            probability (a sigmoid). Otherwise, the classes exclude each other (a softmax).
        thresholds: With `multi_label`, the minimum probability for a label to apply. Either one
            number for all labels, or one per label. They are saved with the model. Defaults to 0.5,
            see `tune_thresholds`.
        min_score: The lowest probability at which `classify` predicts a class, see `abstain`. It is
            saved with the model. Defaults to no limit.
        dropout: Dropout rate on the pooled output. Defaults to the rate in the encoder's config.
        top_layers: Keras layers to apply in order to the sequence output `(batch, length, hidden)`.
            The head classifies the last layer's output, `(batch, features)`, instead of the pooled
            output. See `keras_bert.layers.bidirectional_lstm`, and for sentence embeddings
            `keras_bert.layers.SentencePooling`. Layers whose outputs depend on padding raise an
            error. Defaults to no layers.
        name: Name of the model.

    Call arguments:
        inputs: The backbone's inputs.

    Output shape:
        Logits `(batch, num_classes)`, float32.

    Raises:
        ValueError: If the number of classes is unknown, or does not match `class_names` or
            `thresholds`.

    Example:

    >>> from keras_bert import Backbone, BertConfig, TextClassifier
    >>> config = BertConfig(num_layers=1, hidden_dim=8, num_heads=2, intermediate_dim=16)
    >>> classifier = TextClassifier(Backbone(config), num_classes=3)
    >>> classifier.predict(np.array([[101, 2023, 102]]), verbose=0).shape
    (1, 3)

    Reference:
        [BERT](https://arxiv.org/abs/1810.04805), section 4.1, and "+ BiLSTM" in section 5.1.
    """

    predict_method = "classify"
    supports_windows = True
    optional_fields: ClassVar[tuple[str, ...]] = ("text_pair",)
    preset_options: ClassVar[tuple[str, ...]] = (
        "dropout",
        "multi_label",
        "thresholds",
        "min_score",
    )
    head_name = "classifier"

    # Defaults for a user's ensemble class that does not set these options
    multi_label: bool = False
    thresholds: tuple[float, ...] | None = None
    min_score: float | None = None

    def __init__(
        self,
        backbone: Backbone,
        num_classes: int | None = None,
        preprocessor: TextClassifierPreprocessor | dict[str, Any] | None = None,
        *,
        class_names: Sequence[str] | None = None,
        multi_label: bool = False,
        thresholds: float | Sequence[float] | None = None,
        min_score: float | None = None,
        dropout: float | None = None,
        top_layers: Sequence[keras.layers.Layer] | None = None,
        name: str = "text_classifier",
        **kwargs: Any,
    ) -> None:
        num_classes = validate_num_classes(num_classes, class_names)
        multi_label = checks.plain(multi_label)
        thresholds = _validate_thresholds(thresholds, num_classes, multi_label)
        checks.FRACTION.check_optional(min_score=min_score)
        if min_score is not None and (multi_label or num_classes == 1):
            raise ValueError(
                "min_score must be None for a regression and with multi_label=True. Received: "
                f"{min_score}"
            )
        top_layers = as_layers(top_layers)
        head = new_classification_head(backbone.config, num_classes, dropout)
        inputs = token_inputs()
        pooler = None if top_layers else task_pooler(backbone)
        if top_layers:
            sequence_output = backbone(inputs)["sequence_output"]
            pooled = apply_layers(top_layers, sequence_output, inputs["padding_mask"])
            if len(pooled.shape) != 2:
                raise ValueError(
                    f"top_layers must return (batch, features). Received: {pooled.shape}"
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
        self.multi_label = multi_label
        self.thresholds = thresholds
        self.min_score = None if min_score is None else float(min_score)
        self.top_layers = top_layers
        self.uses_pooler = not top_layers
        self.supports_class_weight = not (self.is_regression or multi_label)

    @property
    def dropout(self) -> float:
        """The dropout rate on the pooled output."""
        return self.head.dropout

    @property
    def is_regression(self) -> bool:
        """Whether the task is regression, with a single output."""
        return self.num_classes == 1 and not self.multi_label

    def _default_loss(self) -> keras.losses.Loss:
        if self.is_regression:
            return keras.losses.MeanSquaredError(reduction="mean_with_sample_weight")
        if self.multi_label:
            return keras.losses.BinaryCrossentropy(
                from_logits=True, reduction="mean_with_sample_weight"
            )
        return class_loss()

    def _check_loss(self, loss: Any, **others: Any) -> None:
        super()._check_loss(loss, **others)
        name = loss if isinstance(loss, str) else type(loss).__name__
        if self.is_regression and name.lower().endswith("crossentropy"):
            # The loss decides whether the output is a logit, but presets and exports do not contain
            # it.
            raise ValueError(
                f"The loss must be for scores in a regression (num_classes=1). Received: {name}, "
                "which is for classes. For two classes, pass num_classes=2 and no loss."
            )
        is_of_labels = loss_name(loss).startswith("binary")
        if not (self.is_regression or self.multi_label) and is_of_labels:
            raise ValueError(
                "The loss must be for one class for each text. Received: "
                f"{name}, which is for texts with any number of labels. For multiple labels, pass "
                "multi_label=True to the class."
            )
        if self.multi_label and "categorical" in loss_name(loss):
            raise ValueError(
                f"The loss must be for each label with multi_label=True. Received: {name}, which "
                "is for one class for each text. Pass a loss such as "
                "keras.losses.BinaryFocalCrossentropy(from_logits=True), or no loss."
            )

    def _compiled_metric(self, metric: Any, loss: Any, num_classes: int | None) -> Any:
        return compiled_metric(
            metric, num_classes, multi_label=self.multi_label, takes_ids=takes_ids(loss)
        )

    def _default_metrics(self) -> list[keras.metrics.Metric]:
        if self.is_regression:
            return [keras.metrics.MeanAbsoluteError(name="mean_absolute_error")]
        if self.multi_label:
            averages = ("micro", "macro")
            return [MultiLabelF1(self.num_classes, average) for average in averages]
        return [class_accuracy()]

    def fit_few_shot(
        self,
        x: Any,
        y: Any = None,
        batch_size: int = 16,
        epochs: int = 1,
        verbose: int | str = "auto",
        callbacks: Any = None,
        *,
        learning_rate: float = 2e-5,
        max_pairs: int | None = None,
    ) -> keras.callbacks.History:
        """Trains on few examples, for example eight per class, as SetFit does.

        First, the encoder is trained on pairs of texts. Embeddings become similar if the texts
        share a label, and dissimilar otherwise. Then a logistic regression is fitted to the
        embeddings (with `multi_label`, one for each label) and becomes the head. You do not need to
        call `compile`. We recommend an encoder from a checkpoint for sentence embeddings:

        ```python
        classifier = keras_bert.TextClassifier.from_preset(
            "minilm",
            class_names=["bad", "good"],
            top_layers=[keras_bert.layers.SentencePooling("mean")],
        )
        classifier.fit_few_shot(["dull", "gripping", "moving"], ["bad", "good", "good"])
        ```

        Args:
            x: Single texts in memory, in any form that `fit` accepts.
            y: The labels, as in `fit`.
            batch_size: Number of pairs per batch.
            epochs: Number of passes over the pairs. With 0, only the head is fitted.
            verbose: See `keras.Model.fit`.
            callbacks: See `keras.Model.fit`. Their model is the embedder trained on the pairs.
            learning_rate: Peak learning rate. The warmup takes a tenth of the steps. The rate then
                decreases to 0.
            max_pairs: Maximum number of pairs. The number of all pairs grows quadratically with the
                number of examples. For example, six classes with eight examples each give 1,920
                pairs. Defaults to all pairs.

        Returns:
            A `keras.callbacks.History` of the training on pairs.

        Raises:
            ValueError: If `top_layers` is not a single `SentencePooling`, if the model is a
                regression, or if texts or labels are invalid.

        Reference:
            [SetFit](https://arxiv.org/abs/2209.11055), section 3.
        """
        training = FewShotTraining(self, x, self._labels_of(x, y))
        embedder = training.embedder
        pairs, scores = training.pairs(max_pairs)
        steps = embedder.num_steps(pairs, batch_size, max(1, epochs))
        embedder.compile(AdamW(learning_rate, steps, round(0.1 * steps)), CosineSimilarityLoss())
        history = embedder.fit(
            pairs, scores, batch_size, epochs, verbose=verbose, callbacks=callbacks
        )
        training.fit_head()
        return history

    def classify(
        self,
        x: Any,
        batch_size: int | None = None,
        verbose: int | str = 0,
        *,
        top_k: int | None = None,
    ) -> Any:
        """Predicts a class, labels, or a regression score for each text.

        Args:
            x: Text in any form that `fit` accepts.
            batch_size: Number of texts per batch. Defaults to 32.
            verbose: 0 or 1. With 1, it shows a progress bar.
            top_k: Number of classes to return for each text, in a list. `None` returns only the
                most probable class, not in a list. With `multi_label`, `None` returns the labels
                that reach their thresholds, and a number returns the most probable labels
                regardless of the thresholds.

        Returns:
            A list of dicts in input order, with `label` (the class name, or the class ID without
            `class_names`) and `score` (its probability). `label` is `None` if the score is below
            `min_score`. For regression, only `score`. If `long_texts` splits texts into windows,
            also `num_windows`. For a single string, a single dict. For a pandas data frame or
            series, a data frame with the same index. With `top_k` or
            `multi_label`, each text has a list of dicts sorted by descending `score` instead. The
            list is empty if no label applies. For a pandas data frame or series, the result is then
            a series of these lists.

        Raises:
            ValueError: If `top_k` is below 1, or is given for a regression.

        Example:

        ```python
        classifier.classify("a gripping film")
        # {"label": "positive", "score": 0.9}
        classifier.classify("a gripping film", top_k=2)
        # [{"label": "positive", "score": 0.9}, {"label": "negative", "score": 0.1}]

        labeler.classify("dusty rose")                       # with multi_label
        # [{"label": "warm", "score": 0.8}]
        labeler.classify("dusty rose", top_k=labeler.num_classes)    # the scores of all
        # [{"label": "warm", "score": 0.8}, {"label": "light", "score": 0.3}]
        ```
        """
        checks.POSITIVE_INT.check_optional(top_k=top_k)
        if top_k is not None and self.is_regression:
            raise ValueError(f"top_k must be None for a regression. Received: {top_k}")
        x = materialize(x)
        if top_k or self.multi_label:
            logits = self.predict(x, batch_size=batch_size, verbose=verbose)
            return match_input_type(x, self.answers_from_logits(logits, top_k))
        texts, counts = self._with_num_windows(x)
        logits = self.predict(texts, batch_size=batch_size, verbose=verbose)
        answers = _with_counts(self.answers_from_logits(logits), counts)
        return match_input_type(x, answers)

    def _with_num_windows(self, x: Any) -> tuple[Any, np.ndarray[Any, Any] | None]:
        """Returns text with the number of windows of each if long texts are split, else `None`.

        The texts are then in memory, because a stream can yield others when it is read again.
        """
        rows: Any = read_input(self.adapters, x) if self._splits_texts else None
        if rows is None or isinstance(rows, Features):
            return x, None
        texts = rows.to_memory(self.preprocessor, self._options(None))
        return texts.columns, self._num_windows(texts)

    def answers_from_logits(
        self, logits: np.ndarray[Any, Any], top_k: int | None = None
    ) -> list[Any]:
        """Converts the outputs of `predict` to the list of predictions that `classify` returns."""
        if self.is_regression:
            return [{"score": float(row[0])} for row in logits]
        probabilities = self._probabilities(logits)
        if self.multi_label and top_k is None:
            return list(map(self._applying_labels, probabilities))
        answers = [self._best_classes(row, top_k or 1) for row in probabilities]
        if top_k:
            return answers
        lowest = self.min_score or 0
        return [best if best["score"] >= lowest else {**best, "label": None} for (best,) in answers]

    def num_windows(self, x: Any) -> np.ndarray[Any, Any]:
        """Counts the windows in which long texts are read.

        Args:
            x: Text in any form that `predict` accepts.

        Returns:
            The number of windows of each text, int64 `(texts,)`. All are 1 if `long_texts` is
            `"truncate"`.

        Raises:
            ValueError: If `x` is not text.

        Example:

        ```python
        classifier = keras_bert.TextClassifier.from_preset("minilm", 2, long_texts="mean")
        classifier.num_windows(["a film", "a film " * 1000])  # array([1, 6])
        ```
        """
        return self._num_windows(read_input(self.adapters, x))

    def rank(
        self,
        query: str,
        documents: Any,
        batch_size: int | None = None,
        verbose: int | str = 0,
        *,
        top_k: int | None = None,
    ) -> list[dict[str, Any]]:
        """Ranks documents by their relevance to a query, with a model for text pairs.

        The model reads the query together with each document (a cross-encoder). It is a regression,
        has a single label, or has two classes of which the second means relevant.

        Args:
            query: The query.
            documents: Single texts in memory, in any form that `fit` accepts.
            batch_size: Number of documents per batch. Defaults to 32.
            verbose: 0 or 1. With 1, it shows a progress bar.
            top_k: Maximum number of documents to return. Defaults to all.

        Returns:
            A list of dicts in descending order of `score`, with `index` (the document's index in
            `documents`) and `score`, a regression's score or the probability of the label or the
            relevant class. With one output, the scores are the same as in sentence-transformers'
            `CrossEncoder.rank`.

        Raises:
            ValueError: If the model has more than two classes or multiple labels, or if an argument
                is invalid.

        Example:

        ```python
        ranker = keras_bert.TextClassifier.from_preset("hf://cross-encoder/ms-marco-MiniLM-L6-v2")
        ranker.rank("What is the capital of Italy?", ["Paris is in France.", "Rome."], top_k=1)
        # [{"index": 1, "score": 7.5}]
        ```
        """
        if reason := reason_against_ranking(self.num_classes, multi_label=self.multi_label):
            raise ValueError(
                "rank requires a regression, one label or two classes. Received: a model that "
                f"{reason}"
            )
        checks.POSITIVE_INT.check_optional(top_k=top_k)
        pairs = [(query, document) for document in query_documents(query, documents)]
        if not pairs:
            return []
        logits = self.predict(pairs, batch_size=batch_size, verbose=verbose)
        outputs = logits if self.is_regression else self._probabilities(logits)
        return rank_documents(outputs[:, -1], top_k)

    @warn_if_truncated
    def classify_zero_shot(
        self,
        x: Any,
        labels: Sequence[str] | Mapping[str, str],
        *,
        hypothesis: str = ENTAILMENT_HYPOTHESIS,
        multi_label: bool = False,
        entailment: str | int | None = None,
        batch_size: int | None = None,
        verbose: int | str = 0,
    ) -> Any:
        """Classifies texts by labels without training examples, with a textual entailment model.

        The model must have been trained on pairs of premise and hypothesis (NLI). For each pair of
        text and label, it predicts whether the text entails the hypothesis that it has this label.
        The scores are the same as in transformers' `zero-shot-classification` pipeline, except that
        underscores in labels become spaces. Only the text is truncated, never the hypothesis. There
        may be any number of labels, in any order.

        Args:
            x: Single texts in memory, in any form that `fit` accepts.
            labels: The labels, or a dict from each label to a description that replaces the label
                in the hypothesis.
            hypothesis: The hypothesis, with `{}` in place of the label.
            multi_label: Whether any number of labels applies to a text. If so, a label's score is
                the probability of entailment, normalized over entailment and contradiction.
                Otherwise, the scores of all labels sum to 1. A single label is scored as with
                `multi_label`.
            entailment: The class that means entailment, by name or ID. Defaults to the first class
                name that starts with "entail". Contradiction is the first class, or the last class
                if entailment is the first.
            batch_size: Number of pairs per batch. Defaults to 32.
            verbose: 0 or 1. With 1, it shows a progress bar.

        Returns:
            For each text, a list of dicts with `label` and `score`, one per label, in descending
            order of `score`. For a single string, a single list.

        Raises:
            ValueError: If the model has no entailment class, if a hypothesis leaves no space for
                the text, or if an argument is invalid.

        Example:

        ```python
        nli = keras_bert.load_model("runs/mnli/seed_1/model.keras")
        nli.classify_zero_shot("The court fined the company.", ["law", "sport"])
        # [{"label": "law", "score": 0.98}, {"label": "sport", "score": 0.02}]
        ```

        Reference:
            [Benchmarking Zero-shot Text Classification](https://arxiv.org/abs/1909.00161),
            section 5.
        """
        hypotheses = label_hypotheses(labels, hypothesis)
        num_classes = 0 if self.multi_label else self.num_classes
        yes = entailment_id(self.class_names, num_classes, entailment)
        x = materialize(x)
        texts = single_texts(x)
        if not texts:
            return []
        rows = ProductExamples(texts, list(hypotheses.values()), self.preprocessor)
        options = self._options(batch_size)
        batches = Loader(RowsInMemory(rows), self.preprocessor, options, to_indexed_batch)
        logits = np.empty((len(rows), self.num_classes), "float32")
        for _, index, batch_logits in self._outputs_of_batches(batches, verbose):
            logits[index] = batch_logits
        text_logits = logits.reshape(len(texts), len(hypotheses), -1)
        scores = entailment_scores(text_logits, yes, multi_label=multi_label)
        return match_input_type(x, [rank_labels(list(hypotheses), row) for row in scores])

    def tune_thresholds(
        self, x: Any, y: Any = None, batch_size: int | None = None, verbose: int | str = 0
    ) -> tuple[float, ...]:
        """Sets each label's threshold to the value with the highest F1 on some texts.

        Use texts that the model was not trained on, and evaluate on different texts. F1 is too high
        on the texts that the thresholds were tuned on.

        Args:
            x: Text in memory, in any form that `fit` accepts.
            y: The labels of each text, as in `fit`.
            batch_size: Number of texts per batch. Defaults to 32.
            verbose: 0 or 1. With 1, it shows a progress bar.

        Returns:
            `thresholds`. It is 0.5 for labels that no text has.

        Raises:
            ValueError: If the model does not have `multi_label`, or if a label is invalid.
        """
        if not self.multi_label:
            raise ValueError("tune_thresholds requires multi_label=True. Received: False")
        logits, labels = self._labeled_logits(x, y, batch_size, verbose)
        self.thresholds = f1_thresholds(labels, sigmoid(logits))
        return self.thresholds

    def calibrate(
        self, x: Any, y: Any = None, batch_size: int | None = None, verbose: int | str = 0
    ) -> TemperatureScaling:
        """Scales the logits so that probabilities match how often the model is right.

        For example, fine-tuned encoders are often right for less than 95% of the texts for which
        they predict a probability of 0.95. The logits are divided by a temperature. With two
        classes or `multi_label`, a bias is also added to each class. Both minimize the
        cross-entropy on some texts. Use texts that the model was not trained on.

        ```python
        classifier.fit(texts, labels)
        classifier.calibrate(validation_texts, validation_labels)
        classifier.save("model.keras")
        ```

        The temperature and the biases are multiplied into and added to the head's weights. All
        file formats and exports therefore contain calibrated probabilities. `fit` continues from
        these weights, and changes the probabilities again. Call `calibrate` again after `fit`.

        With more than two classes, the predicted class stays the same. With two classes, the bias
        can change predictions close to 0.5. For example, it undoes the shift towards rare classes
        that `class_weight` causes. With `multi_label`, `thresholds` are converted, so that the same
        labels apply. `min_score` is reset to `None`, because it depends on the probabilities.

        Args:
            x: Text in memory, in any form that `fit` accepts.
            y: The labels of each text, as in `fit`.
            batch_size: Number of texts per batch. Defaults to 32.
            verbose: 0 or 1. With 1, it shows a progress bar.

        Returns:
            The change of the logits, with the fields `temperature` (above 1 if the probabilities
            were too confident) and `bias`, a number for each class.

        Raises:
            ValueError: If the model is a regression or its head is quantized, if a label is
                invalid, or if no temperature is best, for example because all predictions are
                right. The model is then unchanged.

        Reference:
            [Guo et al., 2017](https://arxiv.org/abs/1706.04599), section 4.2.
        """
        if self.is_regression:
            raise ValueError("calibrate requires classes. Received: a regression (num_classes=1)")
        logits, targets = self._labeled_logits(x, y, batch_size, verbose)
        scaling = fit_temperature(logits, targets, multi_label=self.multi_label)
        self.apply_calibration(scaling)
        return scaling

    def abstain(
        self,
        x: Any,
        y: Any = None,
        batch_size: int | None = None,
        verbose: int | str = 0,
        *,
        error: float = 0.05,
    ) -> Abstention:
        """Sets `min_score`, so that few of the labels that `classify` predicts are wrong.

        If the most probable class has a probability below `min_score`, `classify` returns the label
        `None`. On texts similar to these, at most a fraction `error` of the other labels is wrong,
        with 95% confidence. Use texts that the model was neither trained nor calibrated on, and
        call `abstain` after `calibrate`.

        ```python
        classifier.calibrate(validation_texts, validation_labels)
        classifier.abstain(other_texts, other_labels, error=0.05).coverage   # for example, 0.8
        classifier.classify("?")                     # {"label": None, "score": 0.3}
        ```

        `predict`, `evaluate` and `classify` with `top_k` do not depend on `min_score`. In exports,
        the label is then an empty string. Set `min_score` to `None` to predict all labels again.

        Args:
            x: Text in memory, in any form that `fit` accepts.
            y: The label of each text, as in `fit`.
            batch_size: Number of texts per batch. Defaults to 32.
            verbose: 0 or 1. With 1, it shows a progress bar.
            error: The highest fraction of wrong labels, above 0 and below 1.

        Returns:
            `min_score`, and on these texts the `coverage` (the fraction with a label), the `error`
            among them and its upper bound `error_bound`.

        Raises:
            ValueError: If the model is a regression or has `multi_label`, if a label is invalid, or
                if there are too few texts or too many mistakes for this error. The model is then
                unchanged.

        Reference:
            [Geifman & El-Yaniv, 2017](https://arxiv.org/abs/1705.08500), algorithm 2.
        """
        if self.is_regression or self.multi_label:
            kind = "a regression" if self.is_regression else "multi_label=True"
            raise ValueError(f"abstain requires one class for each text. Received: {kind}")
        checks.PROPER_FRACTION.check(error=error)
        logits, targets = self._labeled_logits(x, y, batch_size, verbose)
        is_right = np.argmax(logits, axis=1) == np.argmax(targets, axis=1)
        abstention = select_min_score(self._probabilities(logits).max(axis=1), is_right, error)
        self.min_score = abstention.min_score
        return abstention

    def _labeled_logits(
        self, x: Any, y: Any, batch_size: int | None, verbose: int | str
    ) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        """Returns the logits and the targets of labeled texts, both `(rows, classes)`."""
        targets = self._targets_of(x, y)
        logits = self.predict(x, batch_size=batch_size, verbose=verbose)
        if len(targets) != len(logits):
            raise ValueError(
                f"There must be labels for each of the {len(logits)} texts. Received: "
                f"{len(targets)}"
            )
        is_labeled = targets.any(axis=-1) | self.multi_label
        return logits[is_labeled], targets[is_labeled]

    def apply_calibration(self, scaling: TemperatureScaling) -> None:
        """Multiplies a temperature into the head's weights, see `calibrate`.

        Args:
            scaling: The result of `calibrate` or `fit_temperature`.

        Raises:
            ValueError: If the head is quantized.
        """
        self.head.transform_logits(1 / scaling.temperature, scaling.bias)
        self.min_score = None
        if self.thresholds is not None:
            with np.errstate(divide="ignore"):  # The logits of 0 and 1 are infinite.
                logits = -np.log(1 / np.array(self.thresholds) - 1)
            self.thresholds = tuple(sigmoid(scaling.apply(logits)).tolist())

    def serving_answers(self, rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        if self.is_regression:
            # With a second output, TensorFlow Serving's format would have dicts instead of numbers.
            return [{"score": answer["score"]} for answer in self.predict_rows(rows)]
        columns = materialize(columns_of_rows(rows, self.fields, self.optional_fields))
        answers = []
        for probabilities in self._probabilities(self.predict(columns, verbose=0)):
            best = self._best_classes(probabilities, 1)[0]
            answer: dict[str, Any] = {"label": str(best["label"]), "score": best["score"]}
            if best["score"] < (self.min_score or 0):
                answer["label"] = ""  # A string tensor cannot contain None.
            if self.multi_label:
                applying = self._applying_labels(probabilities)
                # Pad the lists, since all examples must have the same number of entries.
                padding = [{"label": "", "score": 0.0}] * (self.num_classes - len(applying))
                answer = {
                    "labels": [str(label["label"]) for label in applying + padding],
                    "scores": [label["score"] for label in applying + padding],
                    "num_labels": len(applying),
                }
            answers.append({**answer, "probabilities": probabilities.tolist()})
        _, counts = self._with_num_windows(columns)
        return _with_counts(answers, counts)

    def _probabilities(self, logits: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        return sigmoid(logits) if self.multi_label else softmax(logits)

    def _applying_labels(self, probabilities: np.ndarray) -> list[dict[str, Any]]:
        best = self._best_classes(np.where(probabilities < self.thresholds, -1, probabilities))
        return [label for label in best if label["score"] >= 0]

    def _best_classes(
        self, probabilities: np.ndarray, top_k: int | None = None
    ) -> list[dict[str, Any]]:
        return rank_labels(self.class_names or range(self.num_classes), probabilities)[:top_k]

    def _label_rules(self, options: BatchOptions) -> LabelRules:
        if self.multi_label:
            return MultiLabelRules(self.num_classes, self.class_names)
        return LabelRules(
            self.num_classes if self.supports_class_weight else None,
            self.class_names,
            lowest=-1 if options.allow_unlabeled else 0,
            ignored=self._ignored_class(),
            may_be_numbers=not self._loss_takes_ids(),
            is_score=self.is_regression,
        )

    def _labels_of(self, x: Any, y: Any) -> np.ndarray[Any, Any]:
        names = self.class_names
        y = label_column(x, names) if y is None else named_labels(y, names)
        return self._label_rules(BatchOptions()).read([] if y is None else y)

    def _targets_of(self, x: Any, y: Any) -> np.ndarray[Any, Any]:
        """Returns the probability of each class, `(rows, classes)`, all 0 for unlabeled texts."""
        labels = self._labels_of(x, y)
        if labels.shape[1:] == (self.num_classes,):
            return labels
        return np.asarray(labels.reshape(-1, 1) == np.arange(self.num_classes), "float32")

    def _num_targets(self, x: Any) -> dict[str, int | None]:
        return {"": self.num_classes} if self.supports_class_weight else {}

    def serving_signatures(self, options: ExportOptions) -> dict[str, Any]:
        from keras_bert.export.signatures import classifier_signatures

        return classifier_signatures(self, options)

    def serving_requests(self) -> tuple[RowRequest, ...]:
        if not self.multi_label:
            return super().serving_requests()
        from keras_bert.export.signatures import LABELS_REQUESTS

        return LABELS_REQUESTS


def _with_counts(answers: list[dict[str, Any]], counts: Any) -> list[dict[str, Any]]:
    """Adds each text's number of windows to its answer, unless it is `None`."""
    if counts is None:
        return answers
    pairs = zip(answers, counts.tolist(), strict=True)
    return [{**answer, "num_windows": count} for answer, count in pairs]


def _validate_thresholds(
    thresholds: Any, num_classes: int, multi_label: Any
) -> tuple[float, ...] | None:
    """Returns the threshold of each label, or `None` without `multi_label`."""
    if not isinstance(multi_label, bool):
        raise ValueError(f"multi_label must be True or False. Received: {multi_label!r}")
    if not multi_label:
        if thresholds is not None:
            raise ValueError(
                f"thresholds must be None without multi_label=True. Received: {thresholds!r}"
            )
        return None
    values = 0.5 if thresholds is None else checks.plain(thresholds)
    values = [values] * num_classes if isinstance(values, int | float) else list(values)
    checks.FRACTION.check(**{f"thresholds[{index}]": one for index, one in enumerate(values)})
    if len(values) != num_classes:
        raise ValueError(
            f"thresholds must have a value for each of the {num_classes} classes. Received: "
            f"{len(values)} values"
        )
    return tuple(map(float, values))
