# SPDX-License-Identifier: Apache-2.0
"""A class for every word: named entities, parts of speech."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

import keras
import numpy as np

from keras_bert.layers import ClassificationHead
from keras_bert.models.backbone import Backbone
from keras_bert.models.inputs import token_inputs
from keras_bert.tasks.answers import softmax
from keras_bert.tasks.class_labels import (
    checked_ids,
    checked_num_classes,
    class_ids,
    class_weights_of,
)
from keras_bert.tasks.presets import classifier_from_preset
from keras_bert.tasks.task import Batching, Task, as_array
from keras_bert.tasks.text_arguments import (
    checked_generator,
    is_dataset,
    is_text,
    listed,
    refuse_other_rows,
)
from keras_bert.tasks.word_arguments import (
    WORD_FORMS,
    as_lists,
    flat_labels,
    nested_like,
    word_depth,
)

if TYPE_CHECKING:
    from keras_bert.data.word_batches import TokenClassifierPreprocessor


@keras.saving.register_keras_serializable(package="keras_bert")
class TokenClassifier(Task):
    """BERT with a dense layer on every token, for one class a word: that of its first piece.

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

    default_learning_rate = 5e-5
    weighs_classes = True

    input_forms = f"a text, a list of texts, or {WORD_FORMS}"

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
    def uses_pooler(self) -> bool:
        return False

    @property
    def heads(self) -> dict[str, Any]:
        """The task's head, by the name that checkpoints know it by."""
        return {"token_classifier": self.head}

    @staticmethod
    def preprocessor_from_config(config: dict[str, Any]) -> Any:
        from keras_bert.data.word_batches import TokenClassifierPreprocessor

        return TokenClassifierPreprocessor.from_config(config)

    @classmethod
    def from_preset(
        cls,
        preset: str | os.PathLike[str],
        num_classes: int | None = None,
        *,
        class_names: Sequence[str] | None = None,
        sequence_length: int | None = None,
        dropout: float | None = None,
        load_weights: bool = True,
        dtype: Any = None,
    ) -> Self:
        """A tagger on a pretrained encoder, with the checkpoint's vocabulary.

        The head is loaded where the checkpoint has one for as many classes; otherwise it starts
        fresh, and a warning says so.

        Args:
            preset: A folder (our own preset, Hugging Face's layout, the TF1 release's, told by
                its files), `hf://organisation/model`, or a name that KerasHub knows.
            num_classes: Width of the output; `None` takes that of `class_names` or the
                checkpoint's head.
            class_names: The classes' names; `None` takes the checkpoint's with its head. The same
                names in another order rearrange the head's outputs; other names rename them, of
                which a warning tells.
            sequence_length: The longest row in tokens; `None` takes what a preset of ours was
                saved with, otherwise the encoder's maximum.
            dropout: Rate on the sequence output; `None` takes the preset's or the config's.
            load_weights: `False` gives the architecture with fresh weights.
            dtype: A Keras dtype policy or its name.

        Raises:
            keras_bert.checkpoints.CheckpointError: If the files are missing, malformed, or do
                not fit; the message names the file and the tensor.
            ValueError: If the number of classes is not known.
        """
        task: Self = classifier_from_preset(
            cls,
            "token_classifier",
            preset,
            num_classes,
            class_names=class_names,
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
            class_names=self.class_names,
            task={
                "sequence_length": preprocessor.sequence_length,
                "overlap": preprocessor.overlap,
                "dropout": self.head.dropout,
            },
        )

    def fit(self, x: Any = None, y: Any = None, *args: Any, **kwargs: Any) -> Any:
        """`keras.Model.fit`, which also takes words with their labels.

        Args:
            x: A list of sentences, each a list of words; or a list of documents, each a list of
                such sentences, whose neighbours then fill a sentence's window. Or features, as
                `keras.Model.fit` takes them.
            y: A label for each word, nested like `x`: class ids, or names if the task has
                `class_names`; a negative id counts for nothing. For features: class ids
                `(batch, length)`, of which negative ones and those of padding count for nothing.
            *args, **kwargs: As in `TextClassifier.fit`; `batch_size` counts windows,
                `validation_split` holds out sentences or documents, and `sample_weight` has a
                weight for each word, nested like `x`.

        Returns:
            Keras' history of losses and metrics.
        """
        return super().fit(x, y, *args, **kwargs)

    def predict(
        self, x: Any, batch_size: int | None = None, verbose: Any = "auto", **kwargs: Any
    ) -> Any:
        """Logits, float32, in the order of the input; for tags, see `tag`.

        Args:
            x: Words in the forms of `fit`, or text in those of `tag`, or features.
            batch_size: Windows in a batch (32).
            verbose: As in Keras.
            **kwargs: As in Keras, for features.

        Returns:
            An array `(batch, length, num_classes)` for features. For words, an array
            `(words, num_classes)` for each sentence, in lists like those of `x`.
        """
        depth = word_depth(x)
        if depth is None:
            return super().predict(x, batch_size=batch_size, verbose=verbose, **kwargs)
        x = as_lists(x)
        if depth < 2:
            x = self._split([x] if depth == 0 else x)[0]
        logits = nested_like(x, self._logits_of_sentences(x, batch_size, verbose), depth)
        return logits[0] if depth == 0 else logits

    def tag(self, x: Any, batch_size: int | None = None, verbose: Any = 0) -> Any:
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
        depth = word_depth(x)
        if depth is None:
            refuse_other_rows(x, self.input_forms)
            raise ValueError(f"Received {type(x).__name__}; expected {self.input_forms}.")
        x = as_lists(x)
        texts = [x] if depth == 0 else x
        places: Any = None
        words = x
        if depth < 2:
            words, *places = self._split(texts)
        sentences = [s for document in words for s in document] if depth == 3 else words
        tags = [
            self._tags(sentence, logits)
            for sentence, logits in zip(
                sentences, self._logits_of_sentences(words, batch_size, verbose), strict=True
            )
        ]
        for sentence, starts, ends in zip(tags, *places, strict=True) if places else ():
            for word, start, end in zip(sentence, starts, ends, strict=True):
                word.update(start=start, end=end)
        nested = nested_like(words, tags, depth)
        return nested[0] if depth == 0 else nested

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

    def _split(self, texts: Sequence[str]) -> tuple[list[Any], list[Any], list[Any]]:
        """The words of texts, and where they lie in them."""
        words, starts, ends = self.preprocessor.split(list(texts))
        decoded = [[word.decode() for word in sentence] for sentence in words.to_list()]
        return decoded, starts.to_list(), ends.to_list()

    def _logits_of_sentences(self, x: Any, batch_size: int | None, verbose: Any) -> list[Any]:
        """An array `(words, num_classes)` for each sentence."""
        from keras_bert.data.word_batches import ragged_words, window_batches

        preprocessor = self.preprocessor
        words = ragged_words(x)
        windows = preprocessor.windows(words)
        batches = window_batches(windows, preprocessor, **self._batching(batch_size).options())
        row_splits = windows.token_ids.row_splits.numpy()
        logits = np.zeros((row_splits[-1], self.num_classes), "float32")
        for features, (index,), outputs in self._outputs_of_batches(batches, verbose):
            mask = features["padding_mask"]
            # (batch, 1) + (length,) -> (batch, length) places in the flat array
            places = row_splits[index][:, None] + np.arange(mask.shape[1])
            logits[places[mask]] = outputs[mask]
        places = row_splits[windows.word_window.numpy()] + windows.word_position.numpy()
        sentences = words.values if words.ragged_rank == 2 else words
        return list(np.split(logits[places], sentences.row_splits.numpy()[1:-1]))[
            : int(sentences.nrows())
        ]

    def _model_data(
        self, x: Any, y: Any, sample_weight: Any, batching: Batching
    ) -> tuple[Any, Any, Any]:
        depth = word_depth(x)
        if depth is None:
            self._check_ids_alone(x)
            self._check_targets(x, y, sample_weight, batching)
            weighted = _without_ignored(x, y, sample_weight, batching.class_weight)
            return (checked_generator(x), *weighted)
        if depth not in (2, 3) or y is None:
            raise ValueError(f"Labels are of words: expected {WORD_FORMS}, with labels alike.")
        from keras_bert.data.word_batches import ragged_words, window_batches

        x, y = as_lists(x), as_lists(y)
        labels = self._labels(flat_labels(x, y, depth))
        weights = class_weights_of(labels, batching.class_weight or {}) * (labels >= 0)
        if sample_weight is not None:
            weights *= np.asarray(flat_labels(x, sample_weight, depth), "float32")
        batches = window_batches(
            self.preprocessor.windows(ragged_words(x)),
            self.preprocessor,
            labels=np.maximum(labels, 0),
            weights=weights,
            **batching.options(),
        )
        return batches, None, None

    def _has_text(self, x: Any) -> bool:
        return word_depth(x) is not None

    def _held_out(self, x: Any, y: Any, sample_weight: Any, share: float) -> tuple[Any, ...]:
        x, y = as_lists(x), as_lists(y)
        start = int(len(x) * (1 - share))
        held_out = tuple(part[start:] for part in (x, y, sample_weight) if part is not None)
        weights = None if sample_weight is None else sample_weight[:start]
        return x[:start], y[:start], weights, held_out

    def _check_ids_alone(self, x: Any) -> None:
        if is_text(x):
            refuse_other_rows(x, WORD_FORMS)
            raise ValueError(f"A tagger takes text as {WORD_FORMS}; received {type(x).__name__}.")
        if not is_dataset(x):
            self._check_ids(x)

    def _labels(self, y: Any, *, allow_unlabelled: bool = True) -> np.ndarray:
        return class_ids(y, self.class_names, self.num_classes, lowest=None)

    def _check_targets(self, x: Any, y: Any, sample_weight: Any, batching: Batching) -> None:
        if y is not None and self._loss_takes_ids():
            checked_ids(as_array(y), self.num_classes, lowest=None, weights=as_array(sample_weight))

    def export(
        self,
        filepath: str | os.PathLike[str],
        format: str = "tf_saved_model",
        *,
        class_names: Sequence[str] | None = None,
        dtype: str = "float32",
        **kwargs: Any,
    ) -> None:
        """Writes a model for serving: by default a SavedModel that takes text.

        See `keras_bert.export.export_token_classifier`.
        """
        from keras_bert import export

        export.export_token_classifier(
            self, filepath, format, class_names=class_names, dtype=dtype, **kwargs
        )

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "num_classes": self.num_classes,
            "class_names": None if self.class_names is None else list(self.class_names),
            "dropout": self.head.dropout,
        }


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
