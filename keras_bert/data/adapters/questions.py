# SPDX-License-Identifier: Apache-2.0
"""Reads questions on passages, with or without answers, for question answering."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Self

import numpy as np

from keras_bert.data.adapters.base import BatchOutputs, InputAdapter, Restore
from keras_bert.data.batch_options import BatchOptions
from keras_bert.data.batches import Batches
from keras_bert.data.columns import as_list, check_lengths, column_names
from keras_bert.data.labels import LabelRules
from keras_bert.data.loader import Batch, Loader, RowsInMemory, add_row_mask, to_indexed_batch
from keras_bert.data.questions import QuestionRows, question_rows
from keras_bert.data.squad import QuestionExample, SpanAnswer, check_span
from keras_bert.text.characters import check_characters

OUTPUTS = ("start_logits", "end_logits")
QUESTION_FORMS = (
    'a list of dicts with "question", "context" and "answers", a dict or table with these columns, '
    "or a list of QuestionExamples"
)
_QUESTION_FIELDS = ("id", "question", "context", "answers")


@dataclasses.dataclass(frozen=True, eq=False)
class QuestionAdapter(InputAdapter):
    """Questions on passages, with or without answers.

    Args:
        examples: The questions. If a question has no `id`, its index is used.
    """

    forms = QUESTION_FORMS
    has_own_labels = True

    examples: list[QuestionExample]

    @classmethod
    def matches(cls, x: object) -> bool:
        return is_questions(x)

    @classmethod
    def read(
        cls, x: Any, y: Any = None, sample_weight: Any = None, rules: LabelRules | None = None
    ) -> Self:
        if y is not None or sample_weight is not None:
            raise ValueError("y and sample_weight must be None: questions contain their answers.")
        examples = question_examples(x)
        if rules is not None:
            for example in examples:
                if example.answers is None:
                    raise ValueError(
                        f"Question {example.id!r} must have a list of answers (empty if the "
                        "question is unanswerable). Received: None"
                    )
        return cls(examples)

    def __len__(self) -> int:
        return len(self.examples)

    def __getitem__(self, rows: slice) -> Self:
        return dataclasses.replace(self, examples=self.examples[rows])

    def batches(self, preprocessor: Any, options: BatchOptions) -> Batches:
        rows = question_rows(self.examples, preprocessor, options.negative_fraction)
        if options.training:
            self._warn_of_lost_answers(rows)
        positions = dict(zip(OUTPUTS, (rows.start_positions, rows.end_positions), strict=True))
        source = RowsInMemory(rows.examples, positions)
        return Loader(source, preprocessor, options, _add_positions)

    def _warn_of_lost_answers(self, rows: QuestionRows) -> None:
        with_answer = set(rows.question_index[rows.end_positions > 0].tolist())
        lost_ids = [
            example.id
            for index, example in enumerate(self.examples)
            if example.answers and index not in with_answer
        ]
        if lost_ids:
            warnings.warn(
                f"{len(lost_ids)} of {len(self.examples)} questions, starting with "
                f"{lost_ids[0]!r}, are trained on as unanswerable: the tokenizer has no tokens for "
                "their answers, or no window contains a complete answer.",
                stacklevel=2,
            )

    def prediction_batches(
        self, preprocessor: Any, options: BatchOptions
    ) -> tuple[Batches, Restore]:
        rows = question_rows(self.examples, preprocessor)

        def restore(outputs_of_batches: Iterable[BatchOutputs], _: Any) -> Any:
            logits = logits_of_tokens(rows, outputs_of_batches)
            return {name: np.split(x, rows.row_splits[1:])[:-1] for name, x in logits.items()}

        return window_batches(rows, preprocessor, options), restore


def window_batches(rows: QuestionRows, preprocessor: Any, options: BatchOptions) -> Loader:
    """Returns prediction batches of `(features, index)` for the windows of questions."""
    return Loader(RowsInMemory(rows.examples), preprocessor, options, to_indexed_batch)


def _add_positions(batch: Batch) -> tuple[Any, ...]:
    """Converts a batch to its features, answer positions and their weights."""
    weights = np.ones(len(batch.rows), "float32") if batch.row_mask is None else batch.row_mask
    features = add_row_mask(batch.features, batch.row_mask)
    return features, dict(batch.columns), dict.fromkeys(batch.columns, weights)


def logits_of_tokens(
    rows: QuestionRows, outputs_of_batches: Iterable[BatchOutputs]
) -> dict[str, np.ndarray[Any, Any]]:
    """Collects the logits of all tokens in all windows, a dict of float32 arrays `(tokens,)`."""
    logits = {name: np.zeros(len(rows.token_ids), "float32") for name in OUTPUTS}
    for features, index, outputs in outputs_of_batches:
        mask = features["padding_mask"]
        # (batch, 1) + (length,) -> (batch, length) positions in the flat arrays
        tokens = rows.row_splits[index][:, None] + np.arange(mask.shape[1])
        for name in OUTPUTS:
            logits[name][tokens[mask]] = outputs[name][mask]
    return logits


def is_questions(x: Any) -> bool:
    """Returns whether `x` contains questions rather than token ids."""
    columns = column_names(x)
    if columns is not None:
        return "question" in columns
    if not isinstance(x, (list, tuple)):
        return False
    if not x:
        return True
    return "question" in x[0] if isinstance(x[0], Mapping) else hasattr(x[0], "question")


def question_examples(x: Any) -> list[QuestionExample]:
    """Converts questions in any of `QUESTION_FORMS` to examples.

    If a question has no `id`, its index is used. Error messages contain the index.
    """
    names = column_names(x)
    rows = x if names is None else _rows_of_columns(x, names)
    return [_example(row, index) for index, row in enumerate(rows)]


def _rows_of_columns(x: Any, names: Sequence[Any]) -> Iterator[dict[str, Any]]:
    columns = {name: as_list(x[name]) for name in _QUESTION_FIELDS if name in names}
    check_lengths(columns)
    for values in zip(*columns.values(), strict=True):
        yield dict(zip(columns, values, strict=True))


def _example(row: Any, index: int) -> QuestionExample:
    where = f"Question {index}"
    if isinstance(row, QuestionExample):
        for name in ("question", "context"):
            check_characters(getattr(row, name), f"{where}: {name}")
        _answers(row.answers, row.context, where)
        return row
    if not isinstance(row, Mapping):
        raise ValueError(f"{where} must be {QUESTION_FORMS}. Received: {row!r}")
    question, context = (_text(row, name, where) for name in ("question", "context"))
    answers = _answers(row.get("answers"), context, where)
    return QuestionExample(str(row.get("id", index)), question, context, answers)


def _text(row: Mapping[str, Any], name: str, where: str) -> str:
    value = row.get(name)
    if not isinstance(value, str):
        raise ValueError(
            f"{where}: {name} must be a string. Received: {value!r} of type {type(value).__name__}"
        )
    check_characters(value, f"{where}: {name}")
    return value


def _answers(answers: Any, context: str, where: str) -> tuple[SpanAnswer, ...] | None:
    """Converts answers (a list of dicts, as in SQuAD files, or a dict of two lists) to spans."""
    if answers is None:
        return None
    if isinstance(answers, Mapping):
        texts, starts = _field(answers, "text", where), _field(answers, "answer_start", where)
        if len(texts) != len(starts):
            raise ValueError(
                f"{where}: answers must have one answer_start for each text. Received: "
                f"{len(texts)} texts and {len(starts)} values of answer_start"
            )
        answers = [
            {"text": text, "answer_start": start} for text, start in zip(texts, starts, strict=True)
        ]
    if isinstance(answers, str) or not hasattr(answers, "__iter__"):
        raise ValueError(
            f"{where}: answers must be a list. Received: {answers!r} of type "
            f"{type(answers).__name__}"
        )
    spans = tuple(
        answer
        if isinstance(answer, SpanAnswer)
        else SpanAnswer(_field(answer, "text", where), int(_field(answer, "answer_start", where)))
        for answer in answers
    )
    for span in spans:
        check_span(span.text, span.start, context, where)
    return spans


def _field(answer: Any, name: str, where: str) -> Any:
    if not isinstance(answer, Mapping) or name not in answer:
        raise ValueError(
            f'{where}: each answer must have "text" and "answer_start". Received: {answer!r}'
        )
    return answer[name]


def pair_with_contexts(question: Any, context: Any) -> tuple[list[str], list[str]]:
    """Converts questions and passages to equally long lists.

    A single passage is repeated.
    """
    if isinstance(question, str):
        question = [question]
    for name, value in (("question", question), ("context", context)):
        if not hasattr(value, "__iter__"):
            raise ValueError(
                f"{name} must be a string or a list of strings. Received: {value!r} of type "
                f"{type(value).__name__}"
            )
    questions: Sequence[str] = list(question)
    contexts = [context] * len(questions) if isinstance(context, str) else list(context)
    if len(questions) != len(contexts):
        raise ValueError(
            "Pass one context, or one for each question. Received: "
            f"{len(questions)} questions and {len(contexts)} contexts"
        )
    for index, pair in enumerate(zip(questions, contexts, strict=True)):
        for name, text in zip(("question", "context"), pair, strict=True):
            check_characters(text, f"Question {index}: {name}")
    return list(questions), contexts
