# SPDX-License-Identifier: Apache-2.0
"""Token classification: a class for every word, for example for named entity recognition."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import keras
import numpy as np
from keras import ops

from keras_bert.checks import shorten_repr
from keras_bert.data.adapters.reading import read_input
from keras_bert.data.adapters.words import WordsAdapter
from keras_bert.data.batch_options import BatchOptions
from keras_bert.data.columns import as_string, materialize
from keras_bert.data.labels import TagRules, softmax, validate_num_classes
from keras_bert.data.tagging_schemes import (
    OUTSIDE,
    AllowedLabels,
    Scheme,
    allowed_labels,
    are_span_labels,
    entities,
    typed_labels,
)
from keras_bert.data.words import TokenClassifierPreprocessor
from keras_bert.layers.crf import ConditionalRandomField
from keras_bert.layers.heads import new_classification_head
from keras_bert.losses import CRFLoss
from keras_bert.metrics import ElementMean, weights_like
from keras_bert.models.backbone import Backbone, token_pooler
from keras_bert.models.inputs import token_inputs
from keras_bert.models.threads import model_lock_if_stateful
from keras_bert.ops import linear_chain
from keras_bert.ops.annotations import Tensor
from keras_bert.ops.linear_chain import Potentials
from keras_bert.tasks.explained_row import ExplainedRow, Span, one_row, predict_row, target_class
from keras_bert.tasks.task import Task
from keras_bert.text.words import WordUnit, join_words, joined_spans

if TYPE_CHECKING:
    from keras_bert.export import ExportOptions
    from keras_bert.export.description import RowRequest

# The score of labels that may not follow each other: far below all sums of logits, but finite, so
# that there is always a best sequence.
_NOT_ALLOWED = -1e6
_ROWS_DECODED = 32


@keras.saving.register_keras_serializable(package="keras_bert")
class TokenClassifier(Task):
    """An encoder with a classification head on every token. It predicts a class for each word.

    ```python
    tagger = keras_bert.TokenClassifier.from_preset("minilm", class_names=["O", "B-LOC", "I-LOC"])
    tagger.compile()
    tagger.fit([["in", "New", "York"]], [["O", "B-LOC", "I-LOC"]])
    tagger.entities("a film from New York")  # [{"type": "LOC", "text": "New York", …}]
    ```

    A word's class is the class of its first subword. A word may also be a character. The unit of
    the training words is kept in the preprocessor's `word_unit`, and texts are split by it.

    `fit` and `evaluate` accept a list of sentences, each a list of words, or a list of documents,
    each a list of sentences. In a document, each sentence has its neighboring sentences as context.
    `y` has a label for each word, in the same nesting. A label is a class ID, or a name if the task
    has `class_names`. Negative IDs are ignored. `sample_weight` has a weight for each word, in the
    same nesting. `batch_size` counts windows, and `validation_split` holds out sentences or
    documents. For features, `y` contains class IDs `(batch, length)`. Negative IDs, and IDs at
    padding, are ignored.

    For words, `predict` returns an array of logits `(words, num_classes)` for each sentence, nested
    like the input. It also accepts text, like `tag`.

    `compile()` defaults to AdamW with a learning rate that depends on the encoder's size, and the
    cross-entropy and accuracy of the first subwords.

    With `crf`, the model also learns scores for pairs of consecutive labels. The loss is the
    negative log likelihood of the label sequences, divided by the number of words. Ignored words
    and words with weight 0 are left out of the sequence. The weight of a sequence is the mean
    weight of its words. The accuracy is computed from the most probable sequences. `compile`
    accepts no other loss or metrics. A sentence in multiple windows is trained as multiple
    sequences, but decoded as one. `predict` still returns each word's logits. The scores of label
    pairs are in the layer `crf_layer`.

    With `scheme`, all predicted label sequences follow a tagging scheme (constrained decoding). For
    example, in IOB2 no `I-PER` follows `O` or `B-LOC`. This needs no training, so you can load any
    tagger with it. It does not affect the loss and metrics.

    Args:
        backbone: The encoder, a `Backbone`.
        num_classes: Number of classes. Defaults to the number of `class_names`.
        preprocessor: A `TokenClassifierPreprocessor` or its config. Without it, the task only
            accepts token IDs.
        class_names: Names of the classes in the order of their IDs. With class names, labels may be
            names, and `tag` returns names.
        dropout: Dropout rate on the sequence output. Defaults to the rate in the encoder's config.
        crf: Whether to add a linear-chain conditional random field, see
            `keras_bert.layers.ConditionalRandomField`.
        scheme: Tagging scheme of the `class_names` for constrained decoding: `"IOB1"`, `"IOB2"`
            (also called BIO) or `"BIOES"` (also with the letters of BILOU and BMES). Defaults to
            `None`, which allows all sequences.
        name: Name of the model.

    Call arguments:
        inputs: The backbone's inputs.

    Output shape:
        Logits `(batch, length, num_classes)`, float32.

    Raises:
        ValueError: If the number of classes is unknown, or does not match `class_names`, or if
            `class_names` are not labels of the `scheme`.

    Example:

    >>> from keras_bert import Backbone, BertConfig, TokenClassifier
    >>> config = BertConfig(num_layers=1, hidden_dim=8, num_heads=2, intermediate_dim=16)
    >>> tagger = TokenClassifier(Backbone(config), class_names=["O", "B-PER", "I-PER"])
    >>> tagger.predict(np.array([[101, 2198, 102]]), verbose=0).shape
    (1, 3, 3)

    Reference:
        [BERT](https://arxiv.org/abs/1810.04805), section 5.3;
        [Lample et al., 2016](https://arxiv.org/abs/1603.01360), section 2.2, the CRF.
    """

    has_row_logits = True
    predict_method = "tag"
    list_fields = ("text",)
    adapters = (WordsAdapter,)
    preset_options = ("dropout", "crf", "scheme")
    preprocessor_class = TokenClassifierPreprocessor
    head_name = "token_classifier"
    supports_class_weight = True
    uses_pooler = False

    def __init__(
        self,
        backbone: Backbone,
        num_classes: int | None = None,
        preprocessor: TokenClassifierPreprocessor | dict[str, Any] | None = None,
        *,
        class_names: Sequence[str] | None = None,
        dropout: float | None = None,
        crf: bool = False,
        scheme: Scheme | None = None,
        name: str = "token_classifier",
        **kwargs: Any,
    ) -> None:
        num_classes = validate_num_classes(num_classes, class_names)
        if scheme is not None:
            _allowed_labels(class_names, scheme)  # Raises an error for invalid class names.
        dropout = backbone.config.effective_token_dropout if dropout is None else dropout
        head = new_classification_head(backbone.config, num_classes, dropout)
        inputs = token_inputs()
        pooler = token_pooler(backbone)
        sequence = backbone(inputs)["sequence_output"]
        logits = head(sequence if pooler is None else pooler(sequence))
        crf_layer: Any = ConditionalRandomField(name="crf") if crf else None
        logits = logits if crf_layer is None else crf_layer(logits)
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
        self.crf = bool(crf)
        self.crf_layer = crf_layer
        if crf:
            self._crf_accuracy = ElementMean(name="accuracy")
            self._crf_accuracy._direction = "up"
        self.scheme = scheme

    @property
    def heads(self) -> dict[str, Any]:
        layers = {"crf": self.crf_layer} if self.crf else {}
        return {**super().heads, **layers}

    @property
    def potentials(self) -> Potentials | None:
        """The scores of label pairs for decoding, or `None` if words are decoded independently.

        They are the weights of the CRF, or 0 without a CRF. If labels may not follow each other in
        the `scheme`, the score is -1e6.
        """
        if not self._has_potentials:
            return None
        with model_lock_if_stateful(self):
            return Potentials(*map(ops.convert_to_numpy, self._potentials()))

    @property
    def _has_potentials(self) -> bool:
        return self.crf or self.scheme is not None

    def _potentials(self) -> Potentials:
        """Returns the `potentials` as tensors, also in a graph."""
        if self.crf:
            parts: Potentials = self.crf_layer.potentials
        else:
            sizes = [(self.num_classes,) * rank for rank in (1, 2, 1)]
            parts = Potentials(*(ops.zeros(size, "float32") for size in sizes))
        if self.scheme is None:
            return parts
        allowed = _allowed_labels(self.class_names, self.scheme)
        pairs = zip(allowed, parts, strict=True)
        return Potentials(*(ops.where(ops.convert_to_tensor(a), x, _NOT_ALLOWED) for a, x in pairs))

    @property
    def dropout(self) -> float:
        """The dropout rate on the sequence output."""
        return self.head.dropout

    @property
    def word_unit(self) -> WordUnit | None:
        """How texts are split into words, see `TokenClassifierPreprocessor`.

        `None` before training, or without a preprocessor.
        """
        preprocessor = self._preprocessor
        if isinstance(preprocessor, dict):
            return preprocessor.get("word_unit")
        return None if preprocessor is None else preprocessor.word_unit

    def tag(self, x: Any, batch_size: int | None = None, verbose: int | str = 0) -> Any:
        """Predicts the most probable class of each word.

        With `crf` or `scheme`, it predicts each sentence's most probable label sequence (Viterbi
        decoding).

        Args:
            x: A text or a list of texts, or words in any form that `fit` accepts. Texts are split
                by the preprocessor's `word_unit`, like the training words: into words and
                punctuation marks, at whitespace, or into characters. Note that training words from
                a segmenter or a morphological analyzer cannot be split like this. In this case,
                pass lists of words from the same segmenter.
            batch_size: Number of windows per batch. Defaults to 32.
            verbose: 0 or 1. With 1, it shows a progress bar.

        Returns:
            For a text or sentence, a list of dicts, one per word, with `word`, `label` (the class
            name, or the class ID without `class_names`) and `score` (its probability). With `crf`
            or `scheme`, the score is the marginal probability of the label over all sequences that
            the scheme allows. For a text, they also have the word's character offsets `start` and
            `end`. `end` is the offset after the last character. For lists of texts or sentences,
            lists of such lists.

        Example:

        ```python
        tagger.tag("Ann lives in Paris.")
        # [{"word": "Ann", "label": "B-PER", "score": 0.99, "start": 0, "end": 3}, …]
        ```
        """
        rows = self._read_words(x)
        return rows.nest_like_input(self._tag_rows(rows, batch_size, verbose))

    def _answer_columns(self, columns: dict[str, list[Any]]) -> list[Any]:
        return list(self.tag(columns["text"]))

    def serving_answers(self, rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        outputs = {"words": "word", "labels": "label", "scores": "score"}
        outputs |= {"starts": "start", "ends": "end"}
        return [
            {
                "num_words": len(words),
                **{
                    name: [str(word[key]) if key == "label" else word[key] for word in words]
                    for name, key in outputs.items()
                },
            }
            for words in self.predict_rows(rows)
        ]

    def entities(self, x: Any, batch_size: int | None = None, verbose: int | str = 0) -> Any:
        """Predicts the entities in each text, the spans that the labels of its words encode.

        As in `conlleval`, a label continues the previous entity if it is an `I-` or `E-` label of
        the same type. Adjacent words with the same type without prefix, for example `PER`, form one
        entity.

        Args:
            x: Text or words in any form that `tag` accepts.
            batch_size: Number of windows per batch. Defaults to 32.
            verbose: 0 or 1. With 1, it shows a progress bar.

        Returns:
            For a text or sentence, a list of dicts, one per entity in order, with `type`, `text`,
            `score` (the mean probability of its words' labels), `start` and `end`. In a text,
            `start` and `end` are character offsets. In a sentence, they are word indices. `end` is
            the offset after the last character or word. For lists of texts or sentences, lists of
            such lists.

        Raises:
            ValueError: If the task has no `class_names`, or if they do not encode spans: they
                contain no `O`, and not all are labels such as `B-PER`.

        Example:

        ```python
        tagger.entities("Ann Lee lives in Paris.")
        # [{"type": "PER", "text": "Ann Lee", "score": 0.99, "start": 0, "end": 7},
        #  {"type": "LOC", "text": "Paris", "score": 0.98, "start": 17, "end": 22}]
        ```
        """
        names = self.class_names or ()
        if not names or (OUTSIDE not in names and not are_span_labels(names)):
            raise ValueError(
                f"class_names must encode spans, such as O, B-PER and I-PER, or O and PER. "
                f"Received: {self.class_names}. Use `tag` for one label of each word."
            )
        rows = self._read_words(x)
        tags = self._tag_rows(rows, batch_size, verbose)
        texts = [None] * len(tags) if rows.texts is None else rows.texts
        return rows.nest_like_input(
            [_entities(*pair, names, self.word_unit) for pair in zip(tags, texts, strict=True)]
        )

    def _read_words(self, x: Any) -> WordsAdapter:
        rows = read_input(self.adapters, materialize(x))
        if not isinstance(rows, WordsAdapter):
            raise ValueError(f"x must be {WordsAdapter.forms}. Received: {type(x).__name__}")
        return rows.split_into_words(self.preprocessor)

    def _tag_rows(
        self, rows: WordsAdapter, batch_size: int | None, verbose: int | str
    ) -> list[list[dict[str, Any]]]:
        """Returns the words of each sentence with labels and scores."""
        logits = self._predict_rows(rows, batch_size, verbose)
        if rows.depth in (0, 3):
            logits = [logits] if rows.depth == 0 else [part for nested in logits for part in nested]
        decoded = self.decode(logits)
        tags = [self._tags(*sentence) for sentence in zip(rows.sentences, *decoded, strict=True)]
        if rows.offsets is not None:
            for sentence, *offsets in zip(tags, *rows.offsets, strict=True):
                for word, start, end in zip(sentence, *offsets, strict=True):
                    word.update(start=start, end=end)
        return tags

    def _tags(
        self, words: Sequence[Any], labels: np.ndarray, scores: np.ndarray
    ) -> list[dict[str, Any]]:
        return [
            {
                "word": as_string(word),
                "label": int(label) if self.class_names is None else self.class_names[label],
                "score": float(score),
            }
            for word, label, score in zip(words, labels, scores, strict=True)
        ]

    def decode(self, logits: Sequence[np.ndarray]) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """Converts logits to labels and scores, as `tag` does.

        Args:
            logits: The logits of each sentence's words, `(words, num_classes)`, from `predict`.

        Returns:
            For each sentence, an array of class IDs, and an array of scores, both `(words,)`.
        """
        potentials = self.potentials
        if potentials is None:
            labels = [np.argmax(rows, axis=-1) for rows in logits]
            probabilities = map(softmax, logits)
            pairs = zip(probabilities, labels, strict=True)
            return labels, [rows[np.arange(len(best)), best] for rows, best in pairs]
        labels = [np.zeros(len(rows), "int32") for rows in logits]
        scores = [np.zeros(len(rows), "float32") for rows in logits]
        for index, emissions, mask in _padded_sentences(logits):
            decoded = linear_chain.run(linear_chain.decode_with_scores, emissions, mask, potentials)
            for row, number in enumerate(index):
                length = len(logits[number])
                labels[number], scores[number] = (values[row, :length] for values in decoded)
        return labels, scores

    def sequence_loss(self, logits: Sequence[np.ndarray], labels: Sequence[Any]) -> float:
        """Computes the loss of `compile` for logits from `predict`.

        Args:
            logits: The logits of each sentence's words, `(words, num_classes)`.
            labels: Class IDs of each sentence's words. Negative IDs are ignored.
        """
        if not self.crf:
            ids, rows = np.concatenate(labels), np.concatenate(logits)
            return float(self.batch_loss(np.maximum(ids, 0), rows, ids >= 0))
        total, count = 0.0, 0
        for index, emissions, mask in _padded_sentences(logits):
            ids = np.full(mask.shape, -1, "int32")
            for row, number in enumerate(index):
                ids[row, : len(labels[number])] = labels[number]
            arguments = emissions, np.maximum(ids, 0), ids >= 0, self.crf_layer.potentials
            total -= linear_chain.run(linear_chain.log_likelihood, *arguments).sum()
            count += (ids >= 0).sum()
        return float(total / max(1, count))

    # === Training ===

    def _check_loss(self, loss: Any, **others: Any) -> None:
        given = {"loss": loss, **others}
        names = [name for name, value in given.items() if value is not None]
        if self.crf and names:
            raise ValueError(
                "With crf=True, the loss is the negative log likelihood of label sequences, and "
                f"the metric is the accuracy. Received: {', '.join(names)}. Pass only an optimizer."
            )
        super()._check_loss(loss, **others)

    def batch_loss(self, y: Any, y_pred: Tensor, sample_weight: Any = None) -> Any:
        if self.crf and sample_weight is not None:
            y = _without_zero_weights(y, sample_weight)
        return super().batch_loss(y, y_pred, sample_weight)

    def get_compile_config(self) -> dict[str, Any]:
        config = super().get_compile_config()
        if self.crf and config:
            del config["loss"]  # A loaded model's loss has a different layer.
        return config

    def _default_loss(self) -> Any:
        return CRFLoss(self.crf_layer) if self.crf else super()._default_loss()

    def _default_metrics(self) -> Any:
        return None if self.crf else super()._default_metrics()

    def compute_loss(
        self,
        x: Any = None,
        y: Any = None,
        y_pred: Tensor = None,
        sample_weight: Any = None,
        training: bool = True,
    ) -> Any:
        """Computes the loss, and updates the accuracy of a CRF.

        Metrics have no access to the CRF's weights on JAX.
        """
        loss = super().compute_loss(x, y, y_pred, sample_weight, training)
        if self.crf:
            ids, _, weights = self._targets_and_weights(x, y, y_pred, sample_weight, training)
            best = self.crf_layer.decode(ops.stop_gradient(y_pred), ids >= 0)
            self._crf_accuracy.update_state(ops.equal(best, ids), weights)
        return loss

    def _label_rules(self, options: BatchOptions) -> TagRules:
        return TagRules(
            self.num_classes, self.class_names, lowest=None, ignored=self._ignored_class()
        )

    def _targets_and_weights(
        self, x: Any, y: Any, y_pred: Tensor, sample_weight: Any, training: bool
    ) -> tuple[Any, Any, Any]:
        # Negative labels and padding get a weight of 0, whatever the form of the features.
        weights = ops.ones(ops.shape(y)[:2])
        if len(y.shape) == 2:  # Labels are class IDs, not one-hot.
            weights = ops.cast(ops.greater_equal(y, 0), "float32")
            y = ops.maximum(y, 0)
        mask = x.get("padding_mask") if isinstance(x, dict) else None
        if mask is not None:
            weights *= ops.cast(mask, "float32")
        if sample_weight is not None:
            sample_weight = ops.cast(sample_weight, "float32")
            weights *= weights_like(sample_weight, ops.shape(weights))
        if self.crf:
            y = ops.argmax(y, axis=-1) if len(y.shape) == 3 else y
            y = _without_zero_weights(y, weights)
        return y, y_pred, weights

    def _num_targets(self, x: Any) -> dict[str, int | None]:
        return {"": self.num_classes}

    def explained_row(self, x: Any, target: Any) -> ExplainedRow:
        words = list(x) if isinstance(x, (list, tuple)) else []
        if not words or not all(isinstance(word, str) for word in words):
            raise ValueError(f"x must be a list of words. Received: {shorten_repr(x)}")
        number, tag = target if isinstance(target, (list, tuple)) else (target, None)
        if not isinstance(number, int) or not 0 <= number < len(words):
            raise ValueError(
                f"target must be the number of one of the {len(words)} words, or (number, class). "
                f"Received: {target!r}"
            )
        windows = self.preprocessor.windows([words])
        features = one_row(self, self.preprocessor.pad(windows))
        first = windows.word_position.tolist()
        length = int(features["padding_mask"].sum())
        spans: list[Span] = [None] * length
        places = joined_spans(words, self.word_unit)
        for place, begin, end in zip(places, first, [*first[1:], length - 1], strict=True):
            spans[begin:end] = [(0, *place)] * (end - begin)
        position = first[number]
        if tag is None:
            labels, _ = self.decode([predict_row(self, features)[0, first]])
            tag = int(labels[0][number])
        index, name = target_class(tag, self.num_classes, self.class_names)
        indices: dict[str, tuple[int, ...]] = {"": (position, index)}
        name = f"{name} of {words[number]!r}"
        text = join_words(words, self.word_unit)
        return ExplainedRow(features, (text,), tuple(spans), indices, name)

    @property
    def network_inputs(self) -> tuple[str, ...]:
        return ("word_mask",) if self._has_potentials else ()

    def network_outputs(self, features: dict[str, Any]) -> dict[str, Any]:
        outputs = super().network_outputs(features)
        if not self._has_potentials:
            return outputs
        mask = ops.cast(features["word_mask"], "bool")
        labels, scores = linear_chain.decode_with_scores(
            outputs["logits"], mask, self._potentials()
        )
        return {**outputs, "labels": labels, "scores": ops.where(mask, scores, 0.0)}

    def serving_signatures(self, options: ExportOptions) -> dict[str, Any]:
        from keras_bert.export.tagging_signatures import tagging_signatures

        return tagging_signatures(self, options)

    def serving_requests(self) -> tuple[RowRequest, ...]:
        from keras_bert.export.tagging_signatures import TAGGING_REQUESTS

        return TAGGING_REQUESTS


def _allowed_labels(class_names: Sequence[str] | None, scheme: Scheme) -> AllowedLabels:
    if class_names is None or not are_span_labels(class_names):
        raise ValueError(
            "With a scheme, class_names must be span labels, such as O, B-PER and I-PER. Received: "
            f"scheme={scheme!r} and class_names={class_names!r}"
        )
    return allowed_labels(class_names, scheme)


def _without_zero_weights(labels: Tensor, weights: Tensor) -> Tensor:
    """Replaces labels with weight 0 by -1, because a CRF's loss leaves out negative labels."""
    weights = ops.cast(weights, "float32")
    return ops.where(weights > 0, ops.cast(labels, "int32"), -1)


def _padded_sentences(
    logits: Sequence[np.ndarray],
) -> Iterator[tuple[list[int], np.ndarray, np.ndarray]]:
    """Yields batches of non-empty sentences: their indices, padded logits, and the mask of words.

    Sentences in a batch have similar lengths. There are few shapes, because each is compiled.
    """
    order = sorted(
        filter(lambda index: len(logits[index]), range(len(logits))),
        key=lambda index: len(logits[index]),
    )
    for start in range(0, len(order), _ROWS_DECODED):
        index = order[start : start + _ROWS_DECODED]
        length = 1 << (len(logits[index[-1]]) - 1).bit_length()
        emissions = np.zeros((_ROWS_DECODED, length, logits[index[0]].shape[-1]), "float32")
        mask = np.zeros(emissions.shape[:2], bool)
        for row, number in enumerate(index):
            emissions[row, : len(logits[number])] = logits[number]
            mask[row, : len(logits[number])] = True
        yield index, emissions, mask


def _entities(
    tags: Sequence[Mapping[str, Any]],
    text: str | None,
    class_names: Sequence[str],
    unit: WordUnit | None,
) -> list[dict[str, Any]]:
    """Returns the entities in a sentence. Offsets are in characters if its text is given."""
    answers = []
    labels = typed_labels((tag["label"] for tag in tags), class_names)
    for kind, start, end in entities(labels):
        words = tags[start:end]
        score = float(np.mean([word["score"] for word in words]))
        covered = join_words((word["word"] for word in words), unit)
        if text is not None:
            start, end = words[0]["start"], words[-1]["end"]
            covered = text[start:end]
        answers.append({"type": kind, "text": covered, "score": score, "start": start, "end": end})
    return answers
