# SPDX-License-Identifier: Apache-2.0
"""Answers to questions, as spans of the passages that hold them."""

from __future__ import annotations

import os
import warnings
from typing import TYPE_CHECKING, Any, Self

import keras
import numpy as np
from keras import ops

from keras_bert.layers import ClassificationHead
from keras_bert.models.backbone import Backbone
from keras_bert.models.inputs import token_inputs
from keras_bert.models.recurrent import bidirectional_lstm, bilstm_heads, bilstm_options
from keras_bert.ops.attention_mask import masked_score
from keras_bert.tasks.answer_spans import AnswerSpans, find_answer_spans
from keras_bert.tasks.answers import as_given
from keras_bert.tasks.presets import leave_heads, load_heads, preprocessor_config
from keras_bert.tasks.question_arguments import (
    QUESTION_FORMS,
    is_questions,
    labelled_examples,
    paired,
    question_examples,
)
from keras_bert.tasks.task import Batching, Task, class_accuracy, class_loss
from keras_bert.tasks.text_arguments import is_text

if TYPE_CHECKING:
    from keras_bert.data.question_batches import QuestionAnswererPreprocessor, QuestionRows

OUTPUTS = ("start_logits", "end_logits")
# The length of SQuAD's rows in the released code
DEFAULT_SEQUENCE_LENGTH = 384


@keras.saving.register_keras_serializable(package="keras_bert")
class QuestionAnswerer(Task):
    """BERT with two logits for each token: that an answer starts there, and that it ends there.

    A passage that is too long for one row is read in overlapping windows. `fit` and `evaluate`
    take questions with their answers; a window that does not hold the answer points to `[CLS]`.
    `compile()` takes AdamW at 5e-5, the mean of two cross-entropies, of the answer's first token
    among all of a row and of its last, and the accuracy of each.

    Args:
        backbone: The encoder.
        preprocessor: Questions to windows, or the config of what makes them; without one the
            task takes ids.
        dropout: Rate on the sequence output; BERT has none there.
        max_answer_length: The longest answer, in tokens.
        null_threshold: By how much no answer must be likelier than the best one for `answer` to
            give an empty one; `None` always gives an answer.
        bilstm_units: Width of each direction of a fresh BiLSTM between the encoder and the
            logits; 0 for none.
        bilstm_layers: How many layers it has.
        name: The model's name.

    Call arguments:
        inputs: The backbone's inputs.

    Output shape:
        A dict of `start_logits` and `end_logits`, `(batch, length)`, float32.

    Example:

    >>> from keras_bert import Backbone, BertConfig, QuestionAnswerer
    >>> config = BertConfig(num_layers=1, hidden_dim=8, num_heads=2, intermediate_dim=16)
    >>> answerer = QuestionAnswerer(Backbone(config))
    >>> logits = answerer.predict(np.array([[101, 2040, 102, 2198, 102]]), verbose=0)
    >>> logits["start_logits"].shape, logits["end_logits"].shape
    ((1, 5), (1, 5))

    Reference:
        [BERT](https://arxiv.org/abs/1810.04805), sections 4.2 and 4.3, and "+ BiLSTM" of 5.1.
    """

    default_learning_rate = 5e-5

    input_forms = QUESTION_FORMS

    def __init__(
        self,
        backbone: Backbone,
        preprocessor: QuestionAnswererPreprocessor | dict[str, Any] | None = None,
        *,
        dropout: float | None = None,
        max_answer_length: int = 30,
        null_threshold: float | None = None,
        bilstm_units: int = 0,
        bilstm_layers: int = 2,
        name: str = "question_answerer",
        **kwargs: Any,
    ) -> None:
        # === Layers ===
        head = ClassificationHead(
            len(OUTPUTS),
            dropout=backbone.config.answer_dropout if dropout is None else dropout,
            initializer_range=backbone.config.initializer_range,
            name="spans",
        )

        # === Functional graph ===
        inputs = token_inputs()
        hidden = backbone(inputs)["sequence_output"]
        if bilstm_options(bilstm_units, bilstm_layers):
            hidden = bidirectional_lstm(
                hidden,
                inputs["padding_mask"],
                num_layers=bilstm_layers,
                units=bilstm_units,
                return_sequences=True,
            )
        logits = head(hidden)
        super().__init__(
            inputs=inputs,
            # (batch, length, 2) -> (batch, length) each
            outputs={name: logits[:, :, index] for index, name in enumerate(OUTPUTS)},
            backbone=backbone,
            preprocessor=preprocessor,
            name=name,
            **kwargs,
        )

        self.head = head
        self.max_answer_length = max_answer_length
        self.null_threshold = null_threshold
        self.bilstm_units = bilstm_units
        self.bilstm_layers = bilstm_layers

    @property
    def uses_pooler(self) -> bool:
        return False

    @property
    def heads(self) -> dict[str, Any]:
        """The task's heads, by the names that checkpoints know them by."""
        return {"question_answerer": self.head, **bilstm_heads(self)}

    @staticmethod
    def preprocessor_from_config(config: dict[str, Any]) -> Any:
        from keras_bert.data.question_batches import QuestionAnswererPreprocessor

        return QuestionAnswererPreprocessor.from_config(config)

    @classmethod
    def from_preset(
        cls,
        preset: str | os.PathLike[str],
        *,
        sequence_length: int | None = None,
        doc_stride: int | None = None,
        max_query_length: int | None = None,
        dropout: float | None = None,
        bilstm_units: int | None = None,
        bilstm_layers: int = 2,
        load_weights: bool = True,
        dtype: Any = None,
    ) -> Self:
        """A question answerer on a pretrained encoder, with the checkpoint's vocabulary.

        The head is loaded where the checkpoint has one, on the same BiLSTM or none; otherwise it
        starts fresh, and a warning says so.

        Args:
            preset: A folder (our own preset, Hugging Face's layout, the TF1 release's, told by
                its files), `hf://organisation/model`, or a name that KerasHub knows.
            sequence_length: The longest row in tokens; `None` takes what a preset of ours was
                saved with, otherwise 384, or the encoder's maximum if that is less.
            doc_stride: How many tokens further on the next window begins; `None` takes the
                preset's, otherwise 128.
            max_query_length: The longest question in tokens; `None` takes the preset's,
                otherwise 64.
            dropout: Rate on the sequence output; `None` takes the preset's or the config's.
            bilstm_units: As in the class; `None` takes the preset's BiLSTM, or none.
            bilstm_layers: As in the class, where `bilstm_units` is given.
            load_weights: `False` gives the architecture with fresh weights.
            dtype: A Keras dtype policy or its name.

        Raises:
            keras_bert.checkpoints.CheckpointError: If the files are missing, malformed, or do
                not fit; the message names the file and the tensor.
        """
        from keras_bert import checkpoints

        checkpoint = checkpoints.open_checkpoint(preset, weights=load_weights)
        saved = checkpoint.task or {}
        longest = min(DEFAULT_SEQUENCE_LENGTH, checkpoint.config.max_sequence_length)
        given = {"doc_stride": doc_stride, "max_query_length": max_query_length}
        windows = {name: value or saved.get(name) for name, value in given.items()}
        has_head = load_weights and "question_answerer" in checkpoint.heads
        stored = saved.get("head_options") or {} if has_head or not load_weights else {}
        options = stored
        if bilstm_units is not None:
            options = bilstm_options(bilstm_units, bilstm_layers)
        task = cls(
            checkpoint.new_backbone(weights_fit=load_weights, dtype=dtype),
            {
                **preprocessor_config(
                    checkpoint, sequence_length or saved.get("sequence_length") or longest
                ),
                **{name: value for name, value in windows.items() if value},
            },
            dropout=saved.get("dropout") if dropout is None else dropout,
            **{name: saved[name] for name in _SETTINGS if name in saved},
            **options,
        )
        if load_weights:
            checkpoint.load_into(task.backbone, pooler_is_used=False)
            if not has_head or options == stored:
                load_heads(checkpoint, task.heads)
            else:
                leave_heads(checkpoint)
                warnings.warn(
                    f"{checkpoint.folder} has heads on another BiLSTM or none; they are freshly "
                    f"initialised: {', '.join(task.heads)}.",
                    checkpoints.CheckpointWarning,
                    stacklevel=2,
                )
            checkpoint.warn_unused()
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
            task={
                "sequence_length": preprocessor.sequence_length,
                "doc_stride": preprocessor.doc_stride,
                "max_query_length": preprocessor.max_query_length,
                "head_options": bilstm_options(self.bilstm_units, self.bilstm_layers),
                **self._settings(),
            },
        )

    def _default_loss(self) -> dict[str, keras.losses.Loss]:
        return {name: class_loss() for name in OUTPUTS}

    def _default_loss_weights(self) -> dict[str, float]:
        return dict.fromkeys(OUTPUTS, 0.5)

    def _default_metrics(self) -> dict[str, list[keras.metrics.Metric]]:
        return {name: [class_accuracy()] for name in OUTPUTS}

    def compute_loss(
        self,
        x: Any = None,
        y: Any = None,
        y_pred: Any = None,
        sample_weight: Any = None,
        training: bool = True,
    ) -> Any:
        """The mean of both outputs' losses.

        In training the released code's: padding is among the tokens that an answer may begin
        with. In evaluation it is not, so that the loss does not depend on how far rows are padded.
        """
        y_pred = y_pred if training else _without_padding(x, y_pred)
        return super().compute_loss(x, y, y_pred, sample_weight, training)

    def compute_metrics(
        self, x: Any, y: Any, y_pred: Any, sample_weight: Any = None
    ) -> dict[str, Any]:
        metrics: dict[str, Any] = super().compute_metrics(
            x, y, _without_padding(x, y_pred), sample_weight
        )
        return metrics

    def fit(self, x: Any = None, y: Any = None, *args: Any, **kwargs: Any) -> Any:
        """`keras.Model.fit`, which also takes questions with their answers.

        Args:
            x: Questions: a list of dicts of `question`, `context` and `answers` (each with `text`
                and `answer_start`, in the form of SQuAD's file or as a dict of two lists; an
                empty list where the passage holds no answer), a dict or data frame of such
                columns, or the examples of `keras_bert.data.read_squad`. Or features, as
                `keras.Model.fit` takes them. The first answer is learnt.
            y: For features: a dict of `start_logits` and `end_logits`, positions `(batch,)`.
            *args, **kwargs: As in `TextClassifier.fit`; `batch_size` counts windows,
                `validation_split` holds out questions, and `validation_data` is questions too.

        Returns:
            Keras' history of losses and metrics.
        """
        return super().fit(x, y, *args, **kwargs)

    def predict(
        self, x: Any, batch_size: int | None = None, verbose: Any = "auto", **kwargs: Any
    ) -> Any:
        """Logits, float32, in the order of the input; for answers, see `answer`.

        Args:
            x: Questions in the forms of `fit`, without answers, or features.
            batch_size: Rows in a batch (32).
            verbose: As in Keras.
            **kwargs: As in Keras, for features.

        Returns:
            A dict of `start_logits` and `end_logits`: arrays `(batch, length)` for features; for
            questions lists with an array `(length,)` for each window, in their order.
        """
        if not is_questions(x):
            _refuse_text(x)
            return super().predict(x, batch_size=batch_size, verbose=verbose, **kwargs)
        rows = self._rows(question_examples(x))
        logits = self._flat_logits(rows, batch_size, verbose)
        return {name: np.split(logits[name], rows.row_splits[1:])[:-1] for name in OUTPUTS}

    def answer(
        self, question: Any, context: Any, batch_size: int | None = None, verbose: Any = 0
    ) -> Any:
        """The answers to questions, each a part of its passage.

        Args:
            question: A string, or a list of strings.
            context: The passage: a string, or a list of as many; one string serves all questions.
            batch_size: Windows in a batch (32).
            verbose: 1 shows a progress bar.

        Returns:
            A dict for a string, a list of dicts for a list, a data frame of the same index for a
            series of pandas: `answer`; `start` and `end`, the characters of the passage between
            which it lies; and `score`, its probability among all that were considered. No answer
            is empty, from 0 to 0.

        Example:

        ```python
        answerer.answer("Who wrote Faust?", "Faust is a play by Goethe.")
        # {"answer": "Goethe", "start": 19, "end": 25, "score": 0.97}
        ```
        """
        questions, contexts = paired(question, context)
        pairs = zip(questions, contexts, strict=True)
        x = [{"question": one, "context": passage} for one, passage in pairs]
        spans = self.answer_spans(x, batch_size, verbose)
        answers = spans.answers(contexts, self.null_threshold)
        return as_given(question, answers)

    def answer_spans(
        self,
        x: Any,
        batch_size: int | None = None,
        verbose: Any = 0,
        *,
        n_best: int = 20,
    ) -> AnswerSpans:
        """All that could be an answer, with its logits.

        Args:
            x: Questions in the forms of `fit`, without answers.
            batch_size: Windows in a batch (32).
            verbose: 1 shows a progress bar.
            n_best: How many first and last tokens of each window are looked at.
        """
        rows = self._rows(question_examples(x))
        logits = self._flat_logits(rows, batch_size, verbose)
        return find_answer_spans(
            rows,
            *(logits[name] for name in OUTPUTS),
            n_best=n_best,
            max_answer_length=self.max_answer_length,
        )

    def _rows(self, examples: list[Any]) -> QuestionRows:
        from keras_bert.data.question_batches import question_rows

        return question_rows(examples, self.preprocessor)

    def _flat_logits(
        self, rows: QuestionRows, batch_size: int | None, verbose: Any
    ) -> dict[str, np.ndarray]:
        """The logits of every token of the windows, `(tokens,)` each."""
        from keras_bert.data.question_batches import window_batches

        batches = window_batches(rows, self.preprocessor, **self._batching(batch_size).options())
        logits = {name: np.zeros(len(rows.token_ids), "float32") for name in OUTPUTS}
        for features, (index,), outputs in self._outputs_of_batches(batches, verbose):
            mask = features["padding_mask"]
            # (batch, 1) + (length,) -> (batch, length) places in the flat arrays
            places = rows.row_splits[index][:, None] + np.arange(mask.shape[1])
            for name in OUTPUTS:
                logits[name][places[mask]] = outputs[name][mask]
        return logits

    def _model_data(
        self, x: Any, y: Any, sample_weight: Any, batching: Batching
    ) -> tuple[Any, Any, Any]:
        if not is_questions(x):
            _refuse_text(x)
            return super()._model_data(x, y, sample_weight, batching)
        if y is not None or sample_weight is not None:
            raise ValueError("Questions bring their answers, and have no weights: leave them out.")
        from keras_bert.data.question_batches import window_batches, with_targets

        rows = self._rows(labelled_examples(x))
        batches = window_batches(rows, self.preprocessor, **batching.options())
        return with_targets(batches, rows), None, None

    def _has_text(self, x: Any) -> bool:
        return is_questions(x)

    def _held_out(self, x: Any, y: Any, sample_weight: Any, share: float) -> tuple[Any, ...]:
        x = question_examples(x)
        start = int(len(x) * (1 - share))
        return x[:start], y, sample_weight, x[start:]

    def _validation_data(self, data: Any, batch_size: int | None) -> Any:
        if data is None or not is_questions(data):
            return super()._validation_data(data, batch_size)
        return self._model_data(data, None, None, self._batching(batch_size))[0]

    def _num_targets(self, x: Any) -> dict[str, int]:
        length = self._sequence_axis(x)
        return {} if length is None else dict.fromkeys(OUTPUTS, length)

    def export(
        self,
        filepath: str | os.PathLike[str],
        format: str = "tf_saved_model",
        *,
        dtype: str = "float32",
        **kwargs: Any,
    ) -> None:
        """Writes a model for serving: by default a SavedModel that takes text.

        See `keras_bert.export.export_question_answerer`.
        """
        from keras_bert import export

        export.export_question_answerer(self, filepath, format, dtype=dtype, **kwargs)

    def _settings(self) -> dict[str, Any]:
        return {"dropout": self.head.dropout, **{name: getattr(self, name) for name in _SETTINGS}}

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            **self._settings(),
            "bilstm_units": self.bilstm_units,
            "bilstm_layers": self.bilstm_layers,
        }


# What a preset brings back besides the windows' sizes
_SETTINGS = ("max_answer_length", "null_threshold")


def _without_padding(x: Any, logits: dict[str, Any]) -> dict[str, Any]:
    """Logits `(batch, length)` that are far below all others at padding."""
    mask = x.get("padding_mask") if isinstance(x, dict) else None
    if mask is None:
        return logits
    return {
        name: ops.where(ops.cast(mask, "bool"), values, masked_score("float32"))
        for name, values in logits.items()
    }


def _refuse_text(x: Any) -> None:
    if is_text(x):
        raise ValueError(f"Text alone is no question on a passage; expected {QUESTION_FORMS}.")
