# SPDX-License-Identifier: Apache-2.0
"""Answers questions with spans from a context (extractive question answering)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import keras
from keras import ops

from keras_bert import checks
from keras_bert.checkpoints import Checkpoint
from keras_bert.data.adapters.questions import (
    OUTPUTS,
    QuestionAdapter,
    logits_of_tokens,
    pair_with_contexts,
    question_examples,
    window_batches,
)
from keras_bert.data.adapters.reading import second_axis
from keras_bert.data.columns import match_input_type
from keras_bert.data.questions import QuestionAnswererPreprocessor, question_rows
from keras_bert.layers import ClassificationHead
from keras_bert.layers.top_layers import apply_layers, as_layers
from keras_bert.models.backbone import Backbone, token_pooler
from keras_bert.models.inputs import token_inputs
from keras_bert.ops.annotations import Tensor
from keras_bert.ops.masks import masked_score
from keras_bert.tasks.answer_spans import AnswerSpans, find_answer_spans
from keras_bert.tasks.explained_row import ExplainedRow, Span, one_row
from keras_bert.tasks.prediction import warn_if_truncated
from keras_bert.tasks.task import Task

if TYPE_CHECKING:
    from keras_bert.export import ExportOptions


@keras.saving.register_keras_serializable(package="keras_bert")
class QuestionAnswerer(Task):
    """An encoder with a question answering head: a start logit and an end logit for each token.

    ```python
    answerer = keras_bert.QuestionAnswerer.from_preset("minilm")
    answerer.compile()
    context = "Faust is a tragedy by Goethe."
    answers = [{"text": "Goethe", "answer_start": 22}]
    answerer.fit([{"question": "Who wrote Faust?", "context": context, "answers": answers}])
    answerer.answer("Who wrote Faust?", context)  # {"answer": "Goethe", "score": 0.9, …}
    ```

    If a passage (`context`) is too long for one sequence, it is split into overlapping windows. The
    target in windows without the answer is `[CLS]`.

    `fit` and `evaluate` accept questions with answers: a list of dicts with `question`, `context`
    and `answers`, a dict or data frame with these columns, or the result of
    `keras_bert.data.read_squad`. `answers` is a list of dicts with `text` and `answer_start`, as in
    SQuAD files, or a dict of two lists. It is empty if the question is unanswerable. The target is
    the first answer that contains a token. `batch_size` counts windows, `validation_split` holds
    out questions, and `validation_data` also contains questions. For features, `y` is a dict of
    `start_logits` and `end_logits` with positions `(batch,)`. For questions, `predict` returns a
    dict of lists with an array `(length,)` for each window.

    `compile()` defaults to AdamW with a learning rate that depends on the encoder's size, the mean
    cross-entropy over start and end positions, and both accuracies.

    Args:
        backbone: The encoder, a `Backbone`.
        preprocessor: A `QuestionAnswererPreprocessor` or its config. Without it, the task only
            accepts token IDs.
        dropout: Dropout rate on the sequence output. Defaults to the encoder's rate (0 for BERT).
        max_answer_length: Maximum answer length in tokens. Defaults to 30.
        null_threshold: If the null score exceeds the score of the best span by more than this
            threshold, `answer` returns an empty answer. With `None`, it returns the best span. As
            in the original BERT code, the answer is then only empty if the 20 best start tokens and
            end tokens of each window do not form a span.
        negative_fraction: The fraction of negatives that `fit` trains on. Negatives are windows
            without the answer if another window of the question contains it. Long documents have
            many negatives. `fit` samples them once for all epochs. With 1, the default, it trains
            on all windows, as the BERT paper does for SQuAD.
        top_layers: Keras layers to apply in order to the sequence output `(batch, length, hidden)`,
            before the head. The last layer must return `(batch, length, features)`. See
            `keras_bert.layers.bidirectional_lstm`. Layers whose outputs depend on padding raise an
            error. Defaults to no layers.
        name: Name of the model.

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
        [BERT](https://arxiv.org/abs/1810.04805), sections 4.2 and 4.3, and "+ BiLSTM" in section
        5.1.
    """

    has_row_logits = True
    predict_method = "answer"
    fields = ("question", "context")
    adapters = (QuestionAdapter,)
    preset_options = ("dropout", "max_answer_length", "null_threshold", "negative_fraction")
    preprocessor_class = QuestionAnswererPreprocessor
    head_name = "question_answerer"
    uses_pooler = False

    def __init__(
        self,
        backbone: Backbone,
        preprocessor: QuestionAnswererPreprocessor | dict[str, Any] | None = None,
        *,
        dropout: float | None = None,
        max_answer_length: int = 30,
        null_threshold: float | None = None,
        negative_fraction: float = 1.0,
        top_layers: Sequence[keras.layers.Layer] | None = None,
        name: str = "question_answerer",
        **kwargs: Any,
    ) -> None:
        checks.POSITIVE_INT.check(max_answer_length=max_answer_length)
        checks.FINITE.check_optional(null_threshold=null_threshold)
        checks.FRACTION.check(negative_fraction=negative_fraction)

        # === Layers ===
        head = ClassificationHead(
            len(OUTPUTS),
            dropout=backbone.config.answer_dropout if dropout is None else dropout,
            initializer_range=backbone.config.classifier_initializer_range,
            name="spans",
        )

        # === Functional graph ===
        inputs = token_inputs()
        top_layers = as_layers(top_layers, return_sequences=True)
        pooler = None if top_layers else token_pooler(backbone)
        sequence = backbone(inputs)["sequence_output"]
        sequence = sequence if pooler is None else pooler(sequence)
        hidden = apply_layers(top_layers, sequence, inputs["padding_mask"])
        if len(hidden.shape) != 3:
            raise ValueError(
                f"top_layers must return (batch, length, features). Received: {hidden.shape}"
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
        self.pooler = pooler
        self.max_answer_length = max_answer_length
        self.null_threshold = null_threshold
        self.negative_fraction = negative_fraction
        self.top_layers = top_layers

    @classmethod
    def options_of_checkpoint(cls, checkpoint: Checkpoint) -> dict[str, Any]:
        # The sequence length for SQuAD in the original BERT code
        length = min(384, checkpoint.config.max_sequence_length)
        return {"sequence_length": length, **super().options_of_checkpoint(checkpoint)}

    @property
    def dropout(self) -> float:
        """The dropout rate on the sequence output."""
        return self.head.dropout

    def _default_loss_weights(self) -> dict[str, float]:
        return dict.fromkeys(OUTPUTS, 0.5)

    def _targets_and_weights(
        self, x: Any, y: Any, y_pred: Tensor, sample_weight: Any, training: bool
    ) -> tuple[Any, Any, Any]:
        # In training, the softmax includes padding, as in the original BERT code. In evaluation,
        # padding is masked, so that the loss does not depend on the amount of padding.
        return y, y_pred if training else _strip_padding(x, y_pred), sample_weight

    def answer(
        self, question: Any, context: Any, batch_size: int | None = None, verbose: int | str = 0
    ) -> Any:
        """Answers questions with spans of their contexts.

        Args:
            question: A string, or a list of strings.
            context: The context of each question, as a list of strings, or a single string for all
                questions.
            batch_size: Number of windows per batch. Defaults to 32.
            verbose: 0 or 1. With 1, it shows a progress bar.

        Returns:
            For a string, a dict with `answer`, its character offsets `start` and `end` in the
            context, and its probability `score` among all candidates. `end` is the offset after the
            last character. If no answer is found, `answer` is empty, and both offsets are 0. For a
            list of strings, a list of dicts. For a pandas series, a data frame with the same index.

        Example:

        ```python
        answerer.answer("Who wrote Faust?", "Faust is a play by Goethe.")
        # {"answer": "Goethe", "start": 19, "end": 25, "score": 0.97}
        ```
        """
        questions, contexts = pair_with_contexts(question, context)
        x = {"question": questions, "context": contexts}
        spans = self.answer_spans(x, batch_size, verbose)
        return match_input_type(question, spans.answers(contexts, self.null_threshold))

    def _answer_columns(self, columns: dict[str, list[Any]]) -> list[Any]:
        return list(self.answer(columns["question"], columns["context"]))

    @warn_if_truncated
    def answer_spans(
        self,
        x: Any,
        batch_size: int | None = None,
        verbose: int | str = 0,
        *,
        n_best: int = 20,
    ) -> AnswerSpans:
        """Computes all candidate answers to questions, with their logits.

        Args:
            x: Questions in any form that `fit` accepts. Answers are optional.
            batch_size: Number of windows per batch. Defaults to 32.
            verbose: 0 or 1. With 1, it shows a progress bar.
            n_best: How many start tokens, and how many end tokens, to combine in each window.

        Returns:
            `AnswerSpans`.
        """
        rows = question_rows(question_examples(x), self.preprocessor)
        batches = window_batches(rows, self.preprocessor, self._options(batch_size))
        logits = logits_of_tokens(rows, self._outputs_of_batches(batches, verbose))
        return find_answer_spans(
            rows,
            *(logits[name] for name in OUTPUTS),
            n_best=n_best,
            max_answer_length=self.max_answer_length,
        )

    def _num_targets(self, x: Any) -> dict[str, int | None]:
        return dict.fromkeys(OUTPUTS, second_axis(x))

    def explained_row(self, x: Any, target: Any) -> ExplainedRow:
        if not isinstance(x, (list, tuple)) or [type(part) for part in x] != [str, str]:
            raise ValueError(f"x must be (question, passage). Received: {checks.shorten_repr(x)}")
        question, passage = x
        if target is None:
            best = self.answer(question, passage)
            target = (best["start"], best["end"])
        if len(target) != 2 or not 0 <= target[0] <= target[1] <= len(passage):
            raise ValueError(f"target must be (start, end) in the passage. Received: {target!r}")
        windows = self.preprocessor([question], [passage])
        features = one_row(self, self.preprocessor.pad(windows))
        starts, ends = windows.char_starts.values.tolist(), windows.char_ends.values.tolist()
        begin = int(windows.passage_start[0])
        positions = range(begin, begin + int(windows.passage_length[0]))
        spans: list[Span] = [None] * int(features["padding_mask"].sum())
        for position in positions:
            spans[position] = (1, starts[position], ends[position])
        _, *offsets = self.preprocessor.tokenizer.tokenize_with_offsets(question)
        bounds = list(zip(*offsets, strict=True))
        if len(bounds) > self.preprocessor.max_query_length:
            raise ValueError(
                "The question must have at most max_query_length tokens, which is "
                f"{self.preprocessor.max_query_length}. Received: {len(bounds)} tokens"
            )
        for position, (start, end) in enumerate(bounds, start=1):
            spans[position] = (0, start, end)
        start, end = target
        first = last = 0  # [CLS], for no answer
        if end > start:
            inside = [at for at in positions if ends[at] > start and starts[at] < end]
            if not inside:
                raise ValueError(
                    f"target must contain a token of the passage. Received: {target!r}"
                )
            first, last = inside[0], inside[-1]
        indices: dict[str, tuple[int, ...]] = {"start_logits": (first,), "end_logits": (last,)}
        name = f"answer {passage[start:end]!r}" if end > start else "no answer"
        return ExplainedRow(features, (question, passage), tuple(spans), indices, name)

    def serving_signatures(self, options: ExportOptions) -> dict[str, Any]:
        from keras_bert.export.question_signatures import question_signatures

        return question_signatures(self, options)


def _strip_padding(x: Any, logits: dict[str, Any]) -> dict[str, Any]:
    """Masks logits `(batch, length)` at padding."""
    mask = x.get("padding_mask") if isinstance(x, dict) else None
    if mask is None:
        return logits
    return {
        name: ops.where(ops.cast(mask, "bool"), values, masked_score("float32"))
        for name, values in logits.items()
    }
