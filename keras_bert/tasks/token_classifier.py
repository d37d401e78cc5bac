# SPDX-License-Identifier: Apache-2.0
"""A class for every word: named entities, parts of speech."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

import keras
import numpy as np

from keras_bert.layers import ClassificationHead
from keras_bert.models.backbone import Backbone
from keras_bert.models.inputs import token_inputs
from keras_bert.tasks.class_labels import (
    LabelRules,
    checked_ids,
    checked_num_classes,
    class_weights_of,
    softmax,
)
from keras_bert.tasks.rows import (
    Batching,
    BatchOutputs,
    Restore,
    Rows,
    checked_generator,
    held_out_slices,
    is_dataset,
    listed,
    sliced,
)
from keras_bert.tasks.task import Task, as_array

if TYPE_CHECKING:
    import tensorflow as tf

    from keras_bert.data.word_batches import TokenClassifierPreprocessor
    from keras_bert.export import ExportOptions

# What is nested so deep, for errors
_PARTS = {1: "words", 2: "sentences", 3: "documents"}


@dataclasses.dataclass(frozen=True, eq=False)
class WordRows(Rows):
    """Sentences of words, documents of such sentences, or texts that are split into words.

    Args:
        words: What was given: a text (`depth` 0), texts (1), or lists of words, nested as
            sentences (2) or documents (3). Texts become sentences by `split_into_words`.
        depth: How deep what was given is nested.
        labels: Class ids of all words, int32 `(words,)`.
        weights: Their weights, float32 `(words,)`; 0 where the label is negative.
        offsets: For each text the first characters of its words, and one past their last.
    """

    forms = (
        "a text, a list of texts, a list of sentences, each a list of words, or a list of "
        "documents, each a list of such sentences"
    )

    words: list[Any]
    depth: int
    labels: np.ndarray[Any, Any] | None = None
    weights: np.ndarray[Any, Any] | None = None
    offsets: tuple[list[list[int]], list[list[int]]] | None = None

    @classmethod
    def matches(cls, x: object) -> bool:
        return word_depth(x) is not None

    @classmethod
    def read(
        cls, x: Any, y: Any = None, sample_weight: Any = None, rules: LabelRules | None = None
    ) -> Self:
        depth = word_depth(x) or 0
        x = as_lists(x)
        if rules is None:
            return cls([x] if depth == 0 else x, depth)
        if depth < 2 or y is None:
            raise ValueError(
                f"Labels are of words: expected {cls.forms.split('texts, ')[-1]}, with labels "
                "nested alike."
            )
        labels = rules.read(flat_labels(x, as_lists(y), depth))
        weights = class_weights_of(labels, rules.class_weight or {}) * (labels >= 0)
        if sample_weight is not None:
            weights *= np.asarray(flat_labels(x, sample_weight, depth), "float32")
        return cls(x, depth, np.maximum(labels, 0), weights)

    def split(self, share: float) -> tuple[Self, Self]:
        first, last = (
            dataclasses.replace(self, words=self.words[rows])
            for rows in held_out_slices(len(self.words), share)
        )
        num_words = sum(map(len, first.sentences))
        first, last = (
            dataclasses.replace(
                rows, labels=sliced(self.labels, words), weights=sliced(self.weights, words)
            )
            for rows, words in ((first, slice(num_words)), (last, slice(num_words, None)))
        )
        return first, last

    @property
    def sentences(self) -> list[Any]:
        """Lists of words, one for each sentence or text."""
        if self.depth < 3:
            return self.words
        return [sentence for document in self.words for sentence in document]

    def split_into_words(self, preprocessor: TokenClassifierPreprocessor) -> Self:
        """Texts as sentences; what has words already as it is."""
        if self.depth >= 2 or self.offsets is not None:
            return self
        words, starts, ends = preprocessor.split(self.words)
        return dataclasses.replace(
            self,
            words=[[word.decode() for word in sentence] for sentence in words.to_list()],
            offsets=(starts.to_list(), ends.to_list()),
        )

    def nested(self, values: Sequence[Any]) -> Any:
        """Values of all sentences, nested as the sentences are."""
        if self.depth < 3:
            return values[0] if self.depth == 0 else list(values)
        remaining = iter(values)
        return [[next(remaining) for _ in document] for document in self.words]

    def batches(self, preprocessor: Any, batching: Batching) -> tf.data.Dataset:
        from keras_bert.data.word_batches import ragged_words, window_batches

        return window_batches(
            preprocessor.windows(ragged_words(self.words)),
            preprocessor,
            labels=self.labels,
            weights=self.weights,
            **batching.options(),
        )

    def numbered_batches(
        self, preprocessor: Any, batching: Batching
    ) -> tuple[tf.data.Dataset, Restore]:
        from keras_bert.data.word_batches import ragged_words, window_batches

        rows = self.split_into_words(preprocessor)
        words = ragged_words(rows.words)
        windows = preprocessor.windows(words)
        row_splits = windows.token_ids.row_splits.numpy()
        # Where each word's first piece is among the tokens of all windows
        first_pieces = row_splits[windows.word_window.numpy()] + windows.word_position.numpy()
        sentences = words.values if words.ragged_rank == 2 else words

        def restore(outputs_of_batches: Iterable[BatchOutputs], shape: Any) -> Any:
            logits = np.zeros((row_splits[-1], shape[-1]), "float32")
            for features, index, outputs in outputs_of_batches:
                mask = features["padding_mask"]
                # (batch, 1) + (length,) -> (batch, length) positions in the flat array
                tokens = row_splits[index][:, None] + np.arange(mask.shape[1])
                logits[tokens[mask]] = outputs[mask]
            of_sentences = np.split(logits[first_pieces], sentences.row_splits.numpy()[1:-1])
            return rows.nested(of_sentences[: int(sentences.nrows())])

        return window_batches(windows, preprocessor, **batching.options()), restore


@keras.saving.register_keras_serializable(package="keras_bert")
class TokenClassifier(Task):
    """BERT with a dense layer on every token, for one class a word: that of its first piece.

    `fit` and `evaluate` take words: a list of sentences, each a list of words, or a list of
    documents, each a list of such sentences, whose neighbours then fill a sentence's window. `y`
    has a label for each word, nested alike: class ids, or names if the task has `class_names`; a
    negative id counts for nothing. `sample_weight` has a weight for each word, nested alike;
    `batch_size` counts windows, and `validation_split` holds out sentences or documents. For
    features `y` is class ids `(batch, length)`, of which negative ones and those of padding count
    for nothing. `predict` gives, for words, an array `(words, num_classes)` for each sentence, in
    lists like those of its input, which may also be text in the forms of `tag`.

    `compile()` takes AdamW at 5e-5, and cross-entropy and accuracy of the words' first pieces.

    Args:
        backbone: The encoder.
        num_classes: Width of the output. May be left out where `class_names` are given.
        preprocessor: Words to features, or the config of what makes them; without one the task
            takes ids.
        class_names: The classes' names in the order of their ids. With them, labels may be
            names, and tags are.
        dropout: Rate on the sequence output; `None` takes the config's.
        name: The model's name.

    Call arguments:
        inputs: The backbone's inputs.

    Output shape:
        Logits `(batch, length, num_classes)`, float32.

    Raises:
        ValueError: If `num_classes` is missing, or not the number of `class_names`.

    Example:

    >>> from keras_bert import Backbone, BertConfig, TokenClassifier
    >>> config = BertConfig(num_layers=1, hidden_dim=8, num_heads=2, intermediate_dim=16)
    >>> tagger = TokenClassifier(Backbone(config), class_names=["O", "B-PER", "I-PER"])
    >>> tagger.predict(np.array([[101, 2198, 102]]), verbose=0).shape
    (1, 3, 3)

    Reference:
        [BERT](https://arxiv.org/abs/1810.04805), section 5.3.
    """

    input_kinds = (WordRows,)
    options = ("num_classes", "class_names", "dropout")
    preset_options = ("dropout",)
    preprocessor_options = ("sequence_length", "overlap")
    head_name = "token_classifier"
    default_learning_rate = 5e-5
    weighs_classes = True
    uses_pooler = False

    def __init__(
        self,
        backbone: Backbone,
        num_classes: int | None = None,
        preprocessor: TokenClassifierPreprocessor | dict[str, Any] | None = None,
        *,
        class_names: Sequence[str] | None = None,
        dropout: float | None = None,
        name: str = "token_classifier",
        **kwargs: Any,
    ) -> None:
        num_classes = checked_num_classes(num_classes, class_names)
        config = backbone.config

        # === Layers ===
        head = ClassificationHead(
            num_classes,
            dropout=config.effective_classifier_dropout if dropout is None else dropout,
            initializer_range=config.initializer_range,
            name="classifier",
        )

        # === Functional graph ===
        inputs = token_inputs()
        logits = head(backbone(inputs)["sequence_output"])
        super().__init__(
            inputs=inputs,
            outputs=logits,
            backbone=backbone,
            preprocessor=preprocessor,
            name=name,
            **kwargs,
        )

        self.head = head
        self.num_classes = num_classes
        self.class_names = None if class_names is None else tuple(class_names)

    @property
    def heads(self) -> dict[str, Any]:
        return {"token_classifier": self.head}

    @property
    def dropout(self) -> float:
        """The rate on the sequence output."""
        return self.head.dropout

    @staticmethod
    def preprocessor_from_config(config: dict[str, Any]) -> Any:
        from keras_bert.data.word_batches import TokenClassifierPreprocessor

        return TokenClassifierPreprocessor.from_config(config)

    def tag(self, x: Any, batch_size: int | None = None, verbose: int | str = 0) -> Any:
        """The most probable class of each word.

        Args:
            x: A text, or a list of texts, which are split into words: at white space, and with
                punctuation apart. Or words in the forms of `fit`.
            batch_size: Windows in a batch (32).
            verbose: 1 shows a progress bar.

        Returns:
            For a text or sentence, a list with a dict for each word: `word`; `label`, the
            class's name, or its id where there are no names; `score`, its probability; and, of
            a text, `start` and `end`, the characters between which the word lies. For lists of
            them, lists of such lists.

        Example:

        ```python
        tagger.tag("Ann lives in Paris.")
        # [{"word": "Ann", "label": "B-PER", "score": 0.99, "start": 0, "end": 3}, …]
        ```
        """
        x = listed(x)
        if not WordRows.matches(x):
            self._check_ids(x)
            raise ValueError(f"Received {type(x).__name__}; expected {WordRows.forms}.")
        rows = WordRows.read(x).split_into_words(self.preprocessor)
        logits = self._predict_rows(rows, batch_size, verbose)
        if rows.depth in (0, 3):
            logits = [logits] if rows.depth == 0 else [part for nested in logits for part in nested]
        tags = [self._tags(*sentence) for sentence in zip(rows.sentences, logits, strict=True)]
        if rows.offsets is not None:
            for sentence, *offsets in zip(tags, *rows.offsets, strict=True):
                for word, start, end in zip(sentence, *offsets, strict=True):
                    word.update(start=start, end=end)
        return rows.nested(tags)

    def _tags(self, words: Sequence[Any], logits: np.ndarray) -> list[dict[str, Any]]:
        best, scores = np.argmax(logits, axis=-1), softmax(logits)
        return [
            {
                "word": word.decode() if isinstance(word, bytes) else str(word),
                "label": int(label) if self.class_names is None else self.class_names[label],
                "score": float(row[label]),
            }
            for word, label, row in zip(words, best, scores, strict=True)
        ]

    def _label_rules(self, batching: Batching) -> LabelRules:
        return LabelRules(
            self.num_classes, self.class_names, lowest=None, class_weight=batching.class_weight
        )

    def _checked_features(
        self, x: Any, y: Any, sample_weight: Any, batching: Batching
    ) -> tuple[Any, Any, Any]:
        self._check_ids(x)
        if y is not None and self._loss_takes_ids():
            checked_ids(as_array(y), self.num_classes, lowest=None, weights=as_array(sample_weight))
        weighted = _without_ignored(x, y, sample_weight, batching.class_weight)
        return (checked_generator(x), *weighted)

    def serving_signatures(self, options: ExportOptions) -> dict[str, Any]:
        from keras_bert.export.tagging_signatures import tagging_signatures

        return tagging_signatures(self, options)


def _without_ignored(
    x: Any, y: Any, sample_weight: Any, class_weight: Mapping[int, float] | None
) -> tuple[Any, Any]:
    """Class ids without negative ones, and weights in which these and padding are 0."""
    if y is None or is_dataset(y):
        return y, sample_weight
    labels = as_array(y)
    weights = class_weights_of(labels, class_weight or {}) * (labels >= 0)
    if sample_weight is not None:
        given = np.asarray(as_array(sample_weight), "float32")
        weights *= given.reshape(given.shape + (1,) * (weights.ndim - given.ndim))
    mask = as_array(x.get("padding_mask")) if isinstance(x, dict) else None
    if mask is not None:
        weights *= np.asarray(mask, "float32")
    return np.maximum(labels, 0), weights


def word_depth(x: Any) -> int | None:
    """How deep strings are nested: 0 in a string, 2 in a list of lists; `None` without strings.

    Empty lists do not say what they would hold; they count as lists of strings.
    """
    if isinstance(x, (str, bytes)):
        return 0
    if isinstance(x, np.ndarray) and x.dtype.kind not in "OUS":
        return None
    if getattr(getattr(x, "dtype", None), "name", "") == "string":
        return len(x.shape)
    # An iterator is not looked into: it would lose what is read, and may never end.
    if isinstance(x, Mapping) or not isinstance(x, Collection) or hasattr(x, "element_spec"):
        return None
    depths = [word_depth(item) for item in x]
    if None in depths:
        return None
    return 1 + max((depth for depth in depths if depth is not None), default=0)


def as_lists(x: Any) -> Any:
    """Strings of a ragged tensor, a string tensor or a data frame's column, as lists of them."""
    if hasattr(x, "to_list"):
        return x.to_list()
    return x if isinstance(x, (str, bytes, list, tuple)) else np.asarray(x).tolist()


def flat_labels(words: Sequence[Any], labels: Sequence[Any], depth: int) -> list[Any]:
    """One label for each word, in order.

    Args:
        words: Sentences (`depth` 2) or documents (`depth` 3).
        labels: Labels or weights, nested alike.
        depth: Of the words.

    Raises:
        ValueError: If there are more or fewer labels than words; the message says where.
    """
    flat: list[Any] = []
    _flatten(words, labels, depth, (), flat)
    return flat


def _flatten(words: Any, labels: Any, depth: int, path: tuple[int, ...], flat: list[Any]) -> None:
    if isinstance(labels, (str, bytes)) or not hasattr(labels, "__len__"):
        raise ValueError(f"{_where(path)} has the labels {labels!r}; expected a list.")
    if len(words) != len(labels):
        raise ValueError(
            f"{_where(path)} has {len(words)} {_PARTS[depth]} and labels or weights for "
            f"{len(labels)}; each needs one."
        )
    if depth == 1:
        flat.extend(labels)
        return
    for index, (part, its_labels) in enumerate(zip(words, labels, strict=True)):
        _flatten(part, its_labels, depth - 1, (*path, index), flat)


def _where(path: tuple[int, ...]) -> str:
    if not path:
        return "The input"
    if len(path) == 1:
        return f"Row {path[0]}"
    return f"Sentence {path[1]} of document {path[0]}"
